//! Settings of the index. Plain data; the daemon parses it, `Index::open` validates it.

use alloc::vec::Vec;
use core::fmt;

/// Bounds of the index. Memory in all: `filter_bytes_max + fence_bytes_max`, two memtables, the sorted copy of one
/// while it is written, and `merge_buffer_bytes` for each merge under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Entries held in memory before a flush is due. The default, 7/8 of 2^19, fills a hash table of 21 MiB exactly.
    /// Larger means fewer merges; the bound is met by refusing inserts, never by growing.
    pub memtable_entries_max: usize,
    /// Bytes of all filters together. The default holds 12 bits each for 179 million entries (716 GB of unique
    /// blocks); beyond that bits per entry are given up, and lookups of absent fingerprints begin to cost reads.
    pub filter_bytes_max: u64,
    /// Filter bits per entry while memory lasts. 12 gives about one false positive in 200 per run.
    pub filter_bits_per_entry: u32,
    /// Bytes of all fences together. Eight bytes serve a page of 102 entries, so the default serves 428 million;
    /// beyond that a fence covers several pages, and a few lookups read a second page.
    pub fence_bytes_max: u64,
    /// Runs beyond which a merge is planned even where it does not pay. Twice as many entries add one run.
    pub runs_max: usize,
    /// Read and write buffers of one merge, divided among its inputs and its output.
    pub merge_buffer_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memtable_entries_max: (1 << 19) / 8 * 7,
            filter_bytes_max: 256 << 20,
            filter_bits_per_entry: 12,
            fence_bytes_max: 32 << 20,
            runs_max: 12,
            merge_buffer_bytes: 4 << 20,
        }
    }
}

/// One setting outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value} is outside {minimum}..={maximum}: {reason}")]
#[expect(missing_docs, reason = "the message says what each holds")]
pub struct ConfigFault {
    pub field: &'static str,
    pub value: u64,
    pub minimum: u64,
    pub maximum: u64,
    pub reason: &'static str,
}

/// Every setting outside its range, at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str("; ")?;
            }
            write!(out, "{fault}")?;
        }
        Ok(())
    }
}

impl core::error::Error for ConfigFaults {}

impl Config {
    /// Reports every fault at once.
    pub fn validate(&self) -> Result<(), ConfigFaults> {
        let rows = [
            (
                "memtable_entries_max",
                self.memtable_entries_max as u64,
                1,
                1 << 28,
                "a memtable holds at least one entry, and a flush must stay short",
            ),
            (
                "filter_bytes_max",
                self.filter_bytes_max,
                0,
                1 << 40,
                "0 works without filters; more than 1 TiB is a mistake in the unit",
            ),
            (
                "filter_bits_per_entry",
                u64::from(self.filter_bits_per_entry),
                1,
                20,
                "beyond 20 bits a blocked filter no longer improves",
            ),
            (
                "fence_bytes_max",
                self.fence_bytes_max,
                0,
                1 << 40,
                "0 works by interpolation; more than 1 TiB is a mistake in the unit",
            ),
            (
                "runs_max",
                self.runs_max as u64,
                2,
                64,
                "each lookup of an absent fingerprint asks every run",
            ),
            (
                "merge_buffer_bytes",
                self.merge_buffer_bytes as u64,
                64 << 10,
                1 << 30,
                "each input of a merge reads at least one page at a time",
            ),
        ];
        let faults: Vec<ConfigFault> = rows
            .into_iter()
            .filter(|(_, value, minimum, maximum, _)| !(minimum..=maximum).contains(&value))
            .map(|(field, value, minimum, maximum, reason)| ConfigFault {
                field,
                value,
                minimum,
                maximum,
                reason,
            })
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(ConfigFaults(faults))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_faults_come_all_at_once() {
        assert_eq!(Config::default().validate(), Ok(()));
        let wrong = Config {
            runs_max: 1,
            filter_bits_per_entry: 99,
            ..Config::default()
        };
        let faults = wrong.validate().unwrap_err();
        let fields: Vec<&str> = faults.0.iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["filter_bits_per_entry", "runs_max"]);
        assert!(faults.to_string().contains("runs_max = 1 is outside 2..=64"));
    }
}
