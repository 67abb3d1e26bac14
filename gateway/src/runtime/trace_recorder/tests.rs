//! Recordings read back.

use super::*;
use tombolo_base::FlushMode;
use tombolo_core::{Token, WriteRequest};
use tombolo_trace::{Source, open};

const TOKEN: Token = Token(1);

fn span(volume: u64, first: u64, count: u64) -> Span {
    Span {
        volume: VolumeId(volume),
        first,
        count,
    }
}

fn read_event(span: Span) -> Event {
    Event::Read {
        token: TOKEN,
        client: ClientId(3),
        span,
    }
}

fn write_event(span: Span, sums: &[u64]) -> Event {
    let sum = |sum: &u64| (*sum != 0).then_some(BlockSum(*sum));
    Event::Write {
        token: TOKEN,
        request: WriteRequest::new(span, sums.iter().map(sum).collect()),
    }
}

fn records(path: &Path) -> (Vec<Record>, u64) {
    let mut reader = open(&Source::of(path)).unwrap();
    let (mut records, mut record) = (Vec::new(), Record::default());
    while reader.next(&mut record).unwrap() {
        records.push(record.clone());
    }
    (records, reader.dropped())
}

#[test]
fn what_was_asked_for_comes_back_without_contents() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let mut names = Vec::new();
    for file in ["a", "b"] {
        let path = directory.path().join(file);
        recorder.note(ClientId(3), &read_event(span(7, 1, 1)));
        assert_eq!(recorder.start(&path, 1 << 20).unwrap().state, TraceState::Recording);
        recorder.note(ClientId(3), &read_event(span(7, 10, 4)));
        recorder.note(ClientId(4), &write_event(span(7, 20, 4), &[5, 0, 6, 5]));
        let zero = Event::Zero {
            token: TOKEN,
            span: span(8, 0, 1 << 30),
            force_unit_access: false,
        };
        recorder.note(ClientId(4), &zero);
        recorder.note(
            ClientId(4),
            &Event::Flush {
                token: TOKEN,
                mode: FlushMode::Local,
            },
        );
        recorder.note(ClientId(4), &Event::Tick);
        let status = recorder.stop();
        assert_eq!(
            (status.state, status.records, status.dropped),
            (TraceState::Finished, 4, 0)
        );
        assert_eq!(status.bytes, std::fs::metadata(&path).unwrap().len());
        recorder.note(ClientId(3), &read_event(span(7, 1, 1)));
        let (found, dropped) = records(&path);
        let shapes: Vec<_> = found
            .iter()
            .map(|record| {
                (
                    record.operation,
                    record.client,
                    record.volume,
                    record.first,
                    record.count,
                )
            })
            .collect();
        let expected = [
            (Operation::Read, 3, 7, 10, 4),
            (Operation::Write, 4, 7, 20, 4),
            (Operation::Discard, 4, 8, 0, 1 << 30),
            (Operation::Flush, 4, 0, 0, 0),
        ];
        assert_eq!((shapes.as_slice(), dropped), (expected.as_slice(), 0));
        let contents = found[1].contents.clone();
        assert_eq!((contents[0], contents[1]), (contents[3], 0));
        assert!(contents[0] != contents[2] && ![5, 6].contains(&contents[0]));
        names.push(contents);
    }
    assert_ne!(names[0], names[1], "every trace has a salt of its own");
}

#[test]
fn one_recording_at_a_time_into_a_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("a"), directory.path().join("b"));
    let recorder = Recorder::default();
    assert_eq!(recorder.stop(), TraceStatus::default());
    recorder.start(&path, 1 << 20).unwrap();
    assert_eq!(recorder.start(&other, 1 << 20).unwrap_err().kind, ErrorKind::Busy);
    recorder.stop();
    assert_eq!(
        recorder.start(&path, 1 << 20).unwrap_err().kind,
        ErrorKind::AlreadyExists
    );
    let nowhere = directory.path().join("no/where");
    assert_eq!(recorder.start(&nowhere, 1 << 20).unwrap_err().kind, ErrorKind::Invalid);
    recorder.start(&other, 1 << 20).unwrap();
    recorder.stop();
    assert_eq!(records(&other).0.len(), 0);
}

#[test]
fn what_does_not_fit_the_queue_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let recorder = Recorder::default();
    recorder.start(&path, 1 << 30).unwrap();
    let sums: Vec<u64> = (1..=512).collect();
    let count = 20_000;
    for index in 0..count {
        recorder.note(ClientId(0), &write_event(span(1, index * 512, 512), &sums));
    }
    let status = recorder.stop();
    assert_eq!(status.records + status.dropped, count);
    let (found, dropped) = records(&path);
    assert_eq!((found.len() as u64, dropped), (status.records, status.dropped));
    assert!(found.is_sorted_by_key(|record| record.time_us));
}

#[test]
fn a_full_file_ends_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let recorder = Recorder::default();
    recorder.start(&path, 1 << 20).unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    let mut sum = 1;
    while recorder.status().state == TraceState::Recording {
        assert!(Instant::now() < patience, "the file is never full");
        recorder.note(ClientId(0), &write_event(span(1, sum, 1), &[sum]));
        sum += 1;
    }
    let status = recorder.status();
    assert_eq!(
        (status.state, status.bytes),
        (TraceState::Full, std::fs::metadata(&path).unwrap().len())
    );
    assert!(status.bytes <= 1 << 20, "{} bytes", status.bytes);
    assert_eq!(records(&path).0.len() as u64, status.records);
    assert_eq!(recorder.stop().state, TraceState::Full);
}
