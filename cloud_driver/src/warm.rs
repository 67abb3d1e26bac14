//! Connections to one store, used so that they stay open. It owns the requests that do so: cheap ones, as many at once as there are to
//! be connections, past retries, limits and pace, since they tell nothing of the store and nobody waits for them. When they are worth
//! their price is the caller's to know.

use crate::StoreCounts;
use crate::cause::{Cause, because};
use crate::store::ObjectStore;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A request that takes longer has kept nothing warm.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections to one store.
#[derive(Clone, Debug)]
pub struct Connections {
    store: Arc<dyn ObjectStore>,
    counts: StoreCounts,
}

impl Connections {
    /// Those that requests through `store` use, whose counts are `counts`.
    pub fn new(store: Arc<dyn ObjectStore>, counts: StoreCounts) -> Self {
        Self { store, counts }
    }

    /// How many were in use at once since this was asked last.
    pub fn take_most_in_use(&self) -> usize {
        self.counts.take_most_under_way()
    }

    /// Uses so many at once: looks as often at the object `key`, which need not be there.
    pub async fn use_at_once(&self, connections: usize, key: &str) {
        // Polled by one task: all are under way before the first is answered.
        let looks = join_all((0..connections).map(|_| self.store.head(key)));
        match because(Cause::Warm, timeout(PATIENCE, looks)).await {
            Ok(looks) => {
                for error in looks.into_iter().filter_map(Result::err) {
                    tracing::debug!(%error, "a connection to the store was not kept open");
                }
            }
            Err(_) => tracing::debug!("connections to the store were not kept open: it takes too long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counting, MemoryStore, Operation};

    #[tokio::test]
    async fn each_connection_takes_a_request_that_is_counted_for_its_cause() {
        let counting = Counting::new(Arc::new(MemoryStore::new()));
        let counts = counting.counts();
        let connections = Connections::new(Arc::new(counting), counts.clone());
        assert_eq!(connections.take_most_in_use(), 0);
        connections.use_at_once(3, "root").await;
        let counts = counts.by_cause().into_iter();
        let counts: Vec<_> = counts.filter(|count| count.requests > 0).collect();
        assert_eq!(counts.len(), 1, "{counts:?}");
        assert_eq!(
            (counts[0].cause, counts[0].operation, counts[0].requests),
            (Cause::Warm, Operation::Head, 3)
        );
    }
}
