use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn key(file: u64, block: u64) -> MapKey {
    MapKey { file, block }
}

fn run(file: u64, block: u64, length: u64, pvbn: Option<u64>) -> Run {
    Run {
        start: key(file, block),
        length,
        target: pvbn.map(|pvbn| Target {
            pvbn: Pvbn(pvbn),
            birth: None,
        }),
    }
}

fn encoded(runs: &[Run]) -> Vec<u8> {
    let (mut out, mut position) = (Writer::default(), RunPosition::default());
    for run in runs {
        Runs::put_record(&mut out, &mut position, run);
    }
    out.0
}

fn decoded(bytes: &[u8]) -> Result<Vec<Run>, DecodeError> {
    let (mut reader, mut position) = (Reader::new(bytes), RunPosition::default());
    let mut runs = Vec::new();
    while reader.remaining() > 0 {
        runs.push(Runs::get_record(&mut reader, &mut position)?);
    }
    Ok(runs)
}

#[test]
fn bytes_are_pinned() {
    let mut linked = run(2, 1, 1, Some(40));
    linked.target = linked.target.map(|target| Target {
        birth: Some(300),
        ..target
    });
    let runs = [
        run(0, 5, 3, Some(100)),
        run(0, 8, 2, None),
        run(0, 12, 1, Some(103)),
        linked,
    ];
    let expected = [&[24, 5, 200, 1][..], &[17, 0], &[8, 2, 0], &[14, 2, 1, 127, 0xac, 2]].concat();
    assert_eq!(encoded(&runs), expected);
    assert_eq!(decoded(&expected), Ok(runs.to_vec()));
}

#[test]
fn impossible_runs_are_refused() {
    for bytes in [vec![10, 0, 0, 0], vec![12, 1, 0, 0], vec![16, 0, 5]] {
        assert!(decoded(&bytes).is_ok(), "{bytes:?}");
    }
    let too_far = encoded(&[run(0, BLOCKS_MAX - 1, 1, None)]);
    assert!(decoded(&too_far).is_ok());
    for (what, bytes) in [
        ("no length", encoded(&[run(0, 5, 0, Some(1))])),
        ("a hole with a birth", vec![11, 0, 0]),
        ("another file that is the same", vec![12, 0, 0, 0]),
        ("beyond the last block", encoded(&[run(0, BLOCKS_MAX - 1, 2, None)])),
        ("at the last block", encoded(&[run(0, BLOCKS_MAX, 1, None)])),
        ("PVBNs beyond 64 bits", vec![16, 0, 1]),
        (
            "files beyond 64 bits",
            [encoded(&[run(u64::MAX, 0, 1, None)]), vec![13, 1, 0]].concat(),
        ),
        ("a birth beyond 32 bits", vec![10, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x10]),
    ] {
        assert!(decoded(&bytes).is_err(), "{what}");
    }
}

#[test]
fn runs_out_of_order_are_found() {
    assert_eq!(
        Runs::check(&[run(0, 5, 3, Some(1)), run(0, 8, 1, None), run(1, 0, 1, None)]),
        Ok(())
    );
    for runs in [
        [run(0, 5, 3, Some(1)), run(0, 7, 1, None)],
        [run(1, 5, 3, Some(1)), run(0, 9, 1, None)],
        [run(0, 5, 3, Some(1)), run(0, 8, 0, None)],
        [run(0, 5, 3, Some(1)), run(0, 8, 2, Some(u64::MAX - 1))],
    ] {
        assert!(Runs::check(&runs).is_err(), "{runs:?}");
    }
}

#[test]
fn a_range_that_ends_before_it_begins_is_empty() {
    let runs = [run(0, 5, 10, Some(1))];
    assert_eq!(Runs::cut(&runs, &key(0, 9), Some(&key(0, 7))), []);
    assert_eq!(Runs::cut(&runs, &key(0, 9), Some(&key(0, 9))), []);
    assert_eq!(Runs::cut(&runs, &key(0, 9), Some(&key(0, 10))), [run(0, 9, 1, Some(5))]);
}

#[test]
fn a_range_is_covered_only_without_gaps() {
    let covers = |runs: &[Run], low, high| Runs::covers(runs, &low, Some(&high));
    let runs = [
        run(3, 5, 5, Some(1)),
        run(3, 10, BLOCKS_MAX - 10, None),
        run(4, 0, 7, None),
    ];
    assert!(covers(&runs, key(3, 5), key(4, 7)));
    assert!(covers(&runs[..2], key(3, 5), key(4, 0)));
    assert!(!covers(&runs, key(3, 4), key(4, 7)));
    assert!(!covers(&runs, key(3, 5), key(4, 8)));
    assert!(!covers(&runs[..2], key(3, 5), key(5, 0)));
    assert!(!covers(&[runs[0], runs[2]], key(3, 5), key(4, 7)));
    assert!(!Runs::covers(&runs, &key(3, 5), None));
}

type Model = BTreeMap<MapKey, Option<Target>>;

fn lay(model: &mut Model, runs: &[Run]) {
    for run in runs {
        for offset in 0..run.length {
            let at = key(run.start.file, run.start.block + offset);
            model.insert(at, run.target.map(|target| target.plus(offset)));
        }
    }
}

/// Runs in order, mostly beside each other.
fn any_runs() -> impl Strategy<Value = Vec<Run>> {
    let target = prop::option::of((0u64..400, prop::option::of(any::<u32>())));
    prop::collection::vec((0u64..8, 0u64..12, 1u64..9, target), 0..30).prop_map(|fields| {
        let mut at = MapKey::default();
        let mut runs = Vec::new();
        for (next, gap, length, target) in fields {
            at = match next {
                0 => key(at.file + 1, gap),
                1..4 => key(at.file, at.block + gap),
                _ => at,
            };
            let target = target.map(|(pvbn, birth)| Target {
                pvbn: Pvbn(pvbn),
                birth,
            });
            runs.push(Run {
                start: at,
                length,
                target,
            });
            at.block += length;
        }
        runs
    })
}

proptest! {
    #[test]
    fn runs_come_back(runs in any_runs()) {
        prop_assert_eq!(Runs::check(&runs), Ok(()));
        prop_assert_eq!(decoded(&encoded(&runs)), Ok(runs));
    }

    #[test]
    fn laying_over_equals_single_blocks(older in any_runs(), newer in any_runs()) {
        let mut model = Model::new();
        lay(&mut model, &older);
        lay(&mut model, &newer);
        let merged = Runs::lay_over(older, newer);
        prop_assert_eq!(Runs::check(&merged), Ok(()));
        let mut found = Model::new();
        lay(&mut found, &merged);
        prop_assert_eq!(&found, &model);
        for (at, target) in &model {
            let run = Runs::find(&merged, at);
            prop_assert!(run.is_some());
            prop_assert_eq!(run.and_then(|run| Runs::value(run, at)), *target);
        }
    }

    #[test]
    fn a_cut_keeps_what_is_within(runs in any_runs(), low in (0u64..4, 0u64..90), high in (0u64..4, 0u64..90)) {
        let (low, high) = (key(low.0, low.1), key(high.0, high.1));
        let mut model = Model::new();
        lay(&mut model, &runs);
        model.retain(|at, _| *at >= low && *at < high);
        let part = Runs::cut(&runs, &low, Some(&high));
        prop_assert!(low < high || part.is_empty());
        if low < high {
            prop_assert!(Runs::is_within(&part, &low, Some(&high)));
            let mut found = Model::new();
            lay(&mut found, &part);
            prop_assert_eq!(&found, &model);
            if Runs::covers(&part, &low, Some(&high)) && low.file == high.file {
                prop_assert_eq!(found.len() as u64, high.block - low.block);
            }
        }
    }
}
