//! A latency table: reading it, printing it again, and what the gateway takes from it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_cloud_driver::latency_table::{LatencyTable, Recommendation};

fuzz_target!(|bytes: &[u8]| {
    let Ok(table) = std::str::from_utf8(bytes).map(LatencyTable::parse) else {
        return;
    };
    let Ok(table) = table else { return };
    let printed = table.print().expect("a table that was read can be printed");
    // Not bit by bit: JSON's numbers are read to the last place but one.
    let again = LatencyTable::parse(&printed).expect("what is printed is read again");
    assert_eq!(again.measured, table.measured);
    for (cells, again) in [(&table.get, &again.get), (&table.put, &again.put)] {
        assert_eq!(cells.iter().count(), again.iter().count());
        let found = Recommendation::of(cells);
        for size_bytes in [0, 1, 4096, 4 << 20, u64::MAX] {
            assert!(found.parallelism(size_bytes) >= 1 && found.saturating_parallelism(size_bytes) >= 1);
            assert!(cells.mean_ms(size_bytes, 1) >= 0.0);
            assert!(cells.latency_ms(size_bytes, 64, 0.99) >= 0.0);
        }
    }
});
