//! What was measured of a store before: the latency table that the settings name, and what a gateway begins with because of it.
//!
//! Everything here is a beginning. What the store does from then on is found out, and what is set by hand holds.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tombolo_cloud_driver::latency_table::{LatencyTable, LatencyTableError, Recommendation, TEXT_BYTES_MAX};

/// What most downloads ask for.
const DOWNLOAD_BYTES: u64 = 256 << 10;

/// A table and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub file: PathBuf,
    pub table: LatencyTable,
}

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    #[error(
        "cannot read {file}: {error}; name the latency-table.json that `tombolo-sim measure` wrote, or leave the setting out"
    )]
    Read { file: PathBuf, error: io::Error },
    #[error("{file}: {error}; measure the store again (`tombolo-sim measure`), or leave the setting out")]
    Table { file: PathBuf, error: LatencyTableError },
}

/// Requests at once to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    pub downloads: u32,
    pub uploads: u32,
}

impl Measured {
    /// None where no file is named.
    pub fn load(file: Option<&Path>) -> Result<Option<Self>, MeasuredError> {
        let Some(file) = file else { return Ok(None) };
        let text = read(file).map_err(|error| MeasuredError::Read {
            file: file.to_owned(),
            error,
        })?;
        let table = LatencyTable::parse(&text).map_err(|error| MeasuredError::Table {
            file: file.to_owned(),
            error,
        })?;
        Ok(Some(Self {
            file: file.to_owned(),
            table,
        }))
    }

    /// As many as hardly wait for each other, by the sizes in use.
    pub fn lanes(&self, object_bytes: u64) -> Lanes {
        Lanes {
            downloads: Recommendation::of(&self.table.get).parallelism(DOWNLOAD_BYTES),
            uploads: Recommendation::of(&self.table.put).parallelism(object_bytes),
        }
    }
}

/// One byte more than a table has tells that it is none; a device without an end is not read for ever.
fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut limited = File::open(file)?.take(TEXT_BYTES_MAX as u64 + 1);
    limited.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    /// Of a store whose requests hardly wait for each other up to `get` and `put` at once, whatever their size.
    pub(crate) fn table(get: u32, put: u32) -> String {
        let cells = |bearable: u32| {
            let cell = |size_bytes: u64, parallelism: u32| {
                let mean_ms = if parallelism <= bearable { 20.0 } else { 40.0 };
                serde_json::json!({
                    "size_bytes": size_bytes, "parallelism": parallelism, "requests": 9, "failed": 0, "repeats": 3,
                    "dropped": 0, "bytes_per_s": 1e6, "mean_ms": mean_ms, "mean_ms_deviation": 0.0,
                    "latency_ms": [[0.5, mean_ms]],
                })
            };
            let sizes = [4_096, 4 << 20].into_iter();
            let cells = sizes.flat_map(|size| [1, 2, 4, 8, 16, 32, 64].map(|count| cell(size, count)));
            cells.collect::<Vec<_>>()
        };
        serde_json::json!({
            "format": "tombolo-latency-table", "version": 1,
            "measured": {"at": "2026-11-23T18:00:00Z", "store": "s3://b/p", "endpoint": null, "client": "cloud_driver"},
            "round_trip_ms": 1.5, "get": cells(get), "put": cells(put),
        })
        .to_string()
    }

    #[test]
    fn lanes_are_those_that_the_table_recommends() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("table.json");
        fs::write(&file, table(16, 4)).unwrap();
        let measured = Measured::load(Some(&file)).unwrap().unwrap();
        let expected = Lanes {
            downloads: 16,
            uploads: 4,
        };
        assert_eq!(measured.lanes(4 << 20), expected);
        assert_eq!(Measured::load(None).unwrap(), None);
    }

    #[test]
    fn what_is_no_table_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("table.json");
        let refused = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            Measured::load(Some(&file)).unwrap_err().to_string()
        };
        let good = table(8, 8);
        for (text, word) in [
            (good[..good.len() / 2].to_owned(), "no latency table: EOF"),
            (good.replace("tombolo-latency-table", "other"), "format: \"other\""),
            (good.replace("\"version\":1", "\"version\":0"), "version: 0 is not 1"),
            (good.replace("\"bytes_per_s\"", "\"rate\""), "unknown field `rate`"),
            (String::new(), "no latency table"),
        ] {
            let message = refused(text.as_bytes());
            assert!(
                message.contains(word) && message.contains("measure the store again"),
                "{message}"
            );
        }
        assert!(refused(b"\xff\xfe").contains("valid UTF-8"));
        fs::remove_file(&file).unwrap();
        let message = Measured::load(Some(&file)).unwrap_err().to_string();
        assert!(
            message.contains("No such file") && message.contains("leave the setting out"),
            "{message}"
        );
    }
}
