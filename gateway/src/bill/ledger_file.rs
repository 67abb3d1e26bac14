//! The ledger in the state directory: a small text that is replaced as a whole. It is a hint like the prefetcher's history: one
//! that cannot be used is dropped with a warning, and counting begins anew.

use crate::runtime::durable_file;
use serde::{Deserialize, Serialize};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tombolo_base::Named;
use tombolo_billing::{Ledger, MonthTally, Usage};
use tombolo_cloud_driver::Cause;

const VERSION: u32 = 1;
const NAME: &str = "bill";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    /// Whose each number in a list is.
    causes: Vec<String>,
    ledger: Ledger,
}

/// Why there is no ledger.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Damaged(#[from] serde_json::Error),
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
}

pub struct LedgerFile(PathBuf);

impl LedgerFile {
    pub fn new(state: &Path) -> Self {
        Self(state.join(NAME))
    }

    /// Of a replica.
    pub fn of_replica(state: &Path, name: &str) -> Self {
        Self(state.join("replicas").join(format!("{name}.{NAME}")))
    }

    /// What was counted before; nothing before the first time.
    pub fn read(&self) -> Option<Ledger> {
        match self.try_read() {
            Ok(ledger) => Some(ledger),
            Err(ReadError::Disk(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let file = self.0.display();
                tracing::warn!(%error, %file, "what the store has cost so far cannot be read; counting begins anew");
                None
            }
        }
    }

    fn try_read(&self) -> Result<Ledger, ReadError> {
        let contents: Contents = serde_json::from_slice(&std::fs::read(&self.0)?)?;
        if contents.version != VERSION {
            return Err(ReadError::Version(contents.version));
        }
        let mut ledger = contents.ledger;
        for tally in std::iter::once(&mut ledger.month).chain(&mut ledger.previous) {
            sort(tally, &contents.causes);
        }
        Ok(ledger)
    }

    pub fn write(&self, ledger: &Ledger) -> io::Result<()> {
        let contents = Contents {
            version: VERSION,
            causes: Cause::WORDS.iter().map(ToString::to_string).collect(),
            ledger: ledger.clone(),
        };
        let text = serde_json::to_vec(&contents)?;
        durable_file::replace(&self.0, |mut file| file.write_all(&text))
    }
}

/// In the order of today's causes; what a cause used that is gone is used for something else.
fn sort(tally: &mut MonthTally, causes: &[String]) {
    let mut sorted = vec![Usage::default(); Cause::ALL.len()];
    for (used, word) in tally.used.iter().zip(causes) {
        let place = &mut sorted[word.parse().unwrap_or(Cause::Other) as usize];
        *place = place.plus(used);
    }
    tally.used = sorted;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_billing::Held;

    fn used(puts: u64) -> Usage {
        Usage {
            puts,
            ..Usage::default()
        }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(1_762_862_400);
        let mut of_causes = [Usage::default(); Cause::ALL.len()];
        of_causes[Cause::Flush as usize] = used(7);
        let held = Held { bytes: 5, objects: 1 };
        ledger.count(1_762_862_401, &of_causes, Held::default(), held);
        ledger.count(1_762_862_401 + 40 * 86_400, &of_causes, held, held);
        ledger
    }

    #[test]
    fn what_is_written_is_read() {
        let state = tempfile::tempdir().unwrap();
        let file = LedgerFile::new(state.path());
        assert_eq!(file.read(), None);
        file.write(&ledger()).unwrap();
        assert_eq!(file.read(), Some(ledger()));
    }

    #[test]
    fn what_cannot_be_used_is_dropped() {
        let state = tempfile::tempdir().unwrap();
        let file = LedgerFile::new(state.path());
        file.write(&ledger()).unwrap();
        let whole = std::fs::read_to_string(&file.0).unwrap();
        for text in [
            "",
            "{}",
            &whole[..whole.len() - 1],
            &whole.replace("\"version\":1", "\"version\":2"),
        ] {
            std::fs::write(&file.0, text).unwrap();
            assert_eq!(file.read(), None, "{text}");
        }
    }

    #[test]
    fn causes_are_known_by_their_words() {
        let state = tempfile::tempdir().unwrap();
        let file = LedgerFile::new(state.path());
        file.write(&ledger()).unwrap();
        let text = std::fs::read_to_string(&file.0).unwrap();
        for (other, cause) in [("demand", Cause::Demand), ("gone", Cause::Other)] {
            let renamed = text
                .replace("\"demand\",", "\"was\",")
                .replace("\"flush\"", &format!("\"{other}\""));
            std::fs::write(&file.0, renamed).unwrap();
            assert_eq!(file.read().unwrap().month.of_cause(cause as usize), used(7));
        }
    }
}
