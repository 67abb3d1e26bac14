//! The history graph on disk: whole files, and chunks with their sums put right. What is accepted is sound, stays within its
//! bounds, and is encoded to something that is read back to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_base::{BlockSum, Instant};
use tombolo_prefetch::graph::{History, HistoryConfig, Restorer};

const CONFIG: HistoryConfig = HistoryConfig {
    nodes_max: 2048,
    edges_max: 64,
    window_micros: 1000,
    degree_initial: 64,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(history) = History::decode(CONFIG, Instant(5), bytes) {
        check(history);
    }
    let Some((count, payload)) = bytes.split_first() else { return };
    let header = History::new(CONFIG).encode_header(Instant(0));
    let mut restorer = Restorer::new(CONFIG, Instant(0), &header).unwrap();
    let mut chunk = (payload.len() as u32).to_le_bytes().to_vec();
    chunk.extend(u32::from(*count).to_le_bytes());
    chunk.extend(BlockSum::of(payload).0.to_le_bytes());
    chunk.extend(payload);
    if restorer.nodes(&chunk).is_ok() && restorer.edges(&chunk).is_ok() {
        check(restorer.finish());
    }
});

fn check(mut history: History) {
    history.check_invariants();
    let bytes = history.encode(Instant(5));
    let again = History::decode(CONFIG, Instant(9), &bytes).unwrap();
    again.check_invariants();
    assert_eq!(again.node_count(), history.node_count());
    history.sweep(Instant(10_000), 5000);
    history.check_invariants();
}
