//! What a trace holds, counted; and traces written anew in the project's own format.

use crate::blocks::BlockSet;
use crate::columnar::{FileHeader, Writer};
use crate::error::{Fault, Place, TraceError};
use crate::reader::{Reader, open};
use crate::record::{Operation, Record};
use crate::source::{Format, Source};
use hashbrown::HashSet;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

/// Called now and then with the records done; an error ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> io::Result<()>;

/// Records between two calls of [`Progress`].
const PROGRESS_RECORDS: u64 = 1 << 16;

/// What a trace holds, as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Info {
    /// As told by its contents, if it was not named.
    pub format: Format,
    /// Of all kinds.
    pub records: u64,
    /// Records.
    pub reads: u64,
    /// Records.
    pub writes: u64,
    /// Records.
    pub discards: u64,
    /// Records.
    pub flushes: u64,
    /// In the view's units.
    pub read_units: u64,
    /// In the view's units.
    pub write_units: u64,
    /// As asked for.
    pub read_bytes: u64,
    /// As asked for.
    pub write_bytes: u64,
    /// Units read or written at least once.
    pub distinct_units: u64,
    /// Units whose first use is a read.
    pub read_first_units: u64,
    /// Of the largest record.
    pub units_max: u64,
    /// Different ones.
    pub clients: u64,
    /// Different ones.
    pub volumes: u64,
    /// From the first record to the last.
    pub duration_us: u64,
    /// Written blocks whose contents are named, blocks of zeroes among them, and names other than zero.
    pub named_blocks: u64,
    /// Of the named ones, those of zeroes.
    pub zero_blocks: u64,
    /// Different names, zero left out.
    pub distinct_contents: u64,
    /// Records that the recorder lost.
    pub dropped: u64,
}

/// Reads a trace from beginning to end.
pub fn info(source: &Source, progress: Progress<'_>) -> Result<Info, TraceError> {
    let mut reader = open(source)?;
    let mut info = Info {
        format: reader.format(),
        ..Info::default()
    };
    let (mut touched, mut written) = (BlockSet::default(), BlockSet::default());
    let (mut clients, mut volumes) = (HashSet::new(), HashSet::new());
    let mut names = HashSet::<u64>::new();
    let mut record = Record::default();
    while reader.next(&mut record)? {
        info.records += 1;
        info.duration_us = record.time_us;
        clients.insert(record.client);
        volumes.insert(record.volume);
        let Record {
            volume, first, count, ..
        } = record;
        match record.operation {
            Operation::Read => {
                info.reads += 1;
                info.read_units += count;
                info.read_bytes += record.bytes;
                touched.insert_unless(volume, first, count, Some(&written));
            }
            Operation::Write => {
                info.writes += 1;
                info.write_units += count;
                info.write_bytes += record.bytes;
                written.insert_unless(volume, first, count, Some(&touched));
            }
            Operation::Discard => info.discards += 1,
            Operation::Flush => info.flushes += 1,
        }
        if matches!(record.operation, Operation::Read | Operation::Write) {
            info.units_max = info.units_max.max(count);
        }
        info.named_blocks += record.contents.len() as u64;
        info.zero_blocks += record.contents.iter().filter(|name| **name == 0).count() as u64;
        names.extend(record.contents.iter().filter(|name| **name != 0));
        report(progress, info.records, source)?;
    }
    info.read_first_units = touched.len();
    info.distinct_units = touched.len() + written.len();
    info.clients = clients.len() as u64;
    info.volumes = volumes.len() as u64;
    info.distinct_contents = names.len() as u64;
    info.dropped = reader.dropped();
    Ok(info)
}

/// Writes a trace in the project's format, in the units of the source's view; returns the number of records. The target
/// takes its name when all is written.
#[expect(clippy::disallowed_methods, reason = "where a converted trace gets its name")]
pub fn convert(source: &Source, target: &Path, progress: Progress<'_>) -> Result<u64, TraceError> {
    let mut reader = open(source)?;
    let mut partial = target.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let result = write_all(&mut *reader, source, partial, progress).and_then(|records| {
        let renamed = fs::rename(partial, target).map(|()| records);
        renamed.map_err(|error| at(target, error))
    });
    if result.is_err() {
        // What went wrong is told already.
        let _ = fs::remove_file(partial);
    }
    result
}

#[expect(clippy::disallowed_methods, reason = "where a converted trace is written")]
fn write_all(reader: &mut dyn Reader, source: &Source, path: &Path, progress: Progress<'_>) -> Result<u64, TraceError> {
    let header = FileHeader {
        unit_bytes: reader.unit_bytes(),
        ..FileHeader::default()
    };
    let fail = |error| at(path, error);
    let file = File::create(path).map_err(fail)?;
    let mut writer = Writer::new(BufWriter::new(file), header).map_err(fail)?;
    let mut record = Record::default();
    let mut dropped = 0;
    while reader.next(&mut record)? {
        writer.dropped(reader.dropped() - dropped);
        dropped = reader.dropped();
        writer.push(&record).map_err(fail)?;
        report(progress, writer.records(), source)?;
    }
    let records = writer.records();
    let file = writer.finish().map_err(fail)?.into_inner();
    file.map_err(|error| at(path, error.into_error()))?
        .sync_all()
        .map_err(fail)?;
    Ok(records)
}

fn report(progress: Progress<'_>, records: u64, source: &Source) -> Result<(), TraceError> {
    if records.is_multiple_of(PROGRESS_RECORDS) {
        progress(records).map_err(|error| at(&source.path, error))?;
    }
    Ok(())
}

fn at(path: &Path, error: io::Error) -> TraceError {
    TraceError {
        file: path.display().to_string(),
        place: Place::File,
        fault: Fault::Io(error),
    }
}
