//! Counts of public traces and of the project's captures, found by other programs. `TOMBOLO_TRACES` names their folder;
//! run by `cargo test -p tombolo-trace --test public -- --ignored`.

use std::path::PathBuf;
use tombolo_trace::{Format, Info, Source, View, info};

fn look(name: &str, format: Format, view: View) -> Info {
    let folder = std::env::var_os("TOMBOLO_TRACES").expect("TOMBOLO_TRACES names a folder of traces");
    let path = PathBuf::from(folder).join(name);
    let source = Source {
        format,
        view,
        ..Source::of(path)
    };
    let info = info(&source, &mut |_| Ok(())).unwrap_or_else(|error| panic!("{error}"));
    println!("{name}: {info:?}");
    info
}

fn check(name: &str, format: Format, view: View, records: u64, units: u64, distinct: u64) {
    let info = look(name, format, view);
    let found = (info.records, info.read_units + info.write_units, info.distinct_units);
    assert_eq!(found, (records, units, distinct), "{name}");
}

/// Table III of the ARC paper.
#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn arc() {
    check(
        "arc_P2.lis.zst",
        Format::Auto,
        View::Units,
        666_176,
        12_729_495,
        913_347,
    );
    check("arc_P3.lis.zst", Format::Auto, View::Units, 238_578, 3_912_296, 762_543);
    check("arc_OLTP.lis.zst", Format::Auto, View::Units, 914_145, 914_145, 186_880);
}

#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn cloud_physics() {
    for name in ["cloudPhysicsIO.vscsi.zst", "cloudPhysicsIO.csv.zst"] {
        check(name, Format::Auto, View::Blocks, 113_872, 1_141_869, 269_210);
        let info = look(name, Format::Auto, View::Ids);
        assert_eq!((info.distinct_units, info.reads * 1000 / info.records), (48_974, 412));
    }
    check(
        "cloudPhysicsIO.oracleGeneral.bin.zst",
        Format::Auto,
        View::Ids,
        113_872,
        113_872,
        48_974,
    );
    let name = "caffeine_cloudphysics_w106.trace.xz";
    check(name, Format::U32Le, View::Blocks, 5_292_456, 5_292_456, 275_171);
}

#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn names_and_objects() {
    check(
        "caffeine_cache2k_orm-busy.trace.xz",
        Format::U32Be,
        View::Ids,
        5_000_000,
        5_000_000,
        76_349,
    );
    check(
        "caffeine_cache2k_web07.trace.xz",
        Format::U32Be,
        View::Ids,
        76_118,
        76_118,
        20_484,
    );
    check(
        "caffeine_lirs_sprite.trace.gz",
        Format::Auto,
        View::Ids,
        133_996,
        133_996,
        7_075,
    );
    check(
        "caffeine_lirs_2_pools.trace.gz",
        Format::Auto,
        View::Ids,
        100_000,
        100_000,
        9_939,
    );
    check(
        "caffeine_adaptsize_request.trace.xz",
        Format::Auto,
        View::Ids,
        66_987,
        66_987,
        36_815,
    );
}

#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn captures() {
    let info = look("cello_2003-05-18_11h.t_op_blk4k_n.txt.zst", Format::Auto, View::Blocks);
    assert_eq!(
        (info.records, info.reads, info.distinct_units),
        (43_000, 10_568, 112_878)
    );
    let info = look("eng1_block.t_op_blk4k_n_cids.txt.zst", Format::Auto, View::Blocks);
    assert_eq!((info.records, info.reads, info.writes), (1_760_333, 1_702_050, 38_411));
    assert_eq!((info.discards, info.flushes), (17_099, 2_773));
    let info = look("nas_file.t_op_file_off_len_cids.txt.zst", Format::Auto, View::Blocks);
    assert_eq!((info.reads, info.writes), (432_200, 221_691));
    let info = look("corp2_block.t_op_blk4k_n_cids.txt.zst", Format::Auto, View::Blocks);
    assert_eq!((info.records, info.reads, info.writes), (81_474, 66_869, 9_061));
}

#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn others() {
    let info = look("mqsim_tpcc-small.trace.zst", Format::Auto, View::Blocks);
    assert!(info.records > 1_000 && info.volumes > 1);
    look("webcachesim_test.tr.zst", Format::Auto, View::Ids);
    look("caffeine_lirs_loop.trace.gz", Format::Auto, View::Ids);
    look("caffeine_lirs_multi3.trace.gz", Format::Auto, View::Ids);
}
