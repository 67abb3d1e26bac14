//! Connections to the store stay open while hosts are at work. A store closes one that nobody has used for some 20 s, the driver after
//! 15 s, and the first requests after a rest would wait for TCP and TLS before they are sent. Owns when it is worth requests to prevent
//! that; the requests are the driver's ([`Connections`]). What becomes of them changes nothing.

use super::Gateway;
use std::sync::Arc;
use std::time::Duration;
use tombolo_base::Instant;
use tombolo_cloud_driver::{Connections, ReplicaState};
use tombolo_core::root::ROOT_NAME;

/// Between two looks. Connections that were in use since the look before, or are used at this one, are used again at the one after the
/// next, which is well before the driver closes them.
const INTERVAL: Duration = Duration::from_secs(5);
/// A host that has asked for nothing for so long is not expected back.
const ACTIVE_MILLIS: u64 = 300_000;

/// Those of one store.
#[derive(Debug)]
pub struct WarmConnections {
    pub connections: Connections,
    /// So many are kept.
    pub count: usize,
}

/// What is seen of one store and of the hosts.
#[derive(Clone, Copy, Debug)]
struct Look {
    now: Instant,
    /// Reads and writes of hosts since the start.
    requests: u64,
    /// Connections that were in use at once since the look before.
    most_in_use: usize,
    /// As far as is known.
    answers: bool,
}

/// When connections have to be used so that they stay open.
#[derive(Debug)]
struct Keeper {
    count: usize,
    requests: u64,
    active_until: Instant,
}

impl Keeper {
    fn new(count: usize) -> Self {
        Self {
            count,
            requests: 0,
            active_until: Instant(0),
        }
    }

    fn is_due(&mut self, look: Look) -> bool {
        if look.requests != self.requests {
            self.requests = look.requests;
            self.active_until = look.now.plus_millis(ACTIVE_MILLIS);
        }
        look.now < self.active_until && look.answers && look.most_in_use < self.count
    }
}

impl Gateway {
    /// Ends with the gateway, as it is nobody's to wait for.
    pub(super) fn start_keeping_warm(self: &Arc<Self>) {
        self.keep_warm(&self.cloud.warm, |gateway| {
            gateway.core().snapshot().store.error.is_none()
        });
        let replicas = self.cloud.replicas.iter().flat_map(|replicas| &replicas.warm);
        for (place, warm) in replicas.enumerate() {
            self.keep_warm(warm, move |gateway| gateway.replica_answers(place));
        }
    }

    fn replica_answers(&self, place: usize) -> bool {
        let replica = self.replicas().into_iter().nth(place);
        replica.is_some_and(|replica| !matches!(replica.status.state, ReplicaState::Away | ReplicaState::Foreign))
    }

    fn keep_warm(self: &Arc<Self>, warm: &WarmConnections, answers: impl Fn(&Self) -> bool + Send + 'static) {
        let (count, connections) = (warm.count, warm.connections.clone());
        if count == 0 {
            return;
        }
        let (gateway, mut keeper) = (Arc::downgrade(self), Keeper::new(count));
        self.cloud.runtime.spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let look = match gateway.upgrade() {
                    None => return,
                    Some(gateway) => Look {
                        now: gateway.now(),
                        requests: gateway.requests.reads_and_writes(),
                        most_in_use: connections.take_most_in_use(),
                        answers: answers(&gateway),
                    },
                };
                if keeper.is_due(look) {
                    connections.use_at_once(count, ROOT_NAME).await;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(second: u64, requests: u64) -> Look {
        Look {
            now: Instant(second * SECOND),
            requests,
            most_in_use: 0,
            answers: true,
        }
    }

    #[test]
    fn connections_are_used_for_five_minutes_after_a_host_has_asked_for_something() {
        let mut keeper = Keeper::new(4);
        assert!(!keeper.is_due(at(1_000, 0)), "no host yet");
        assert!(keeper.is_due(at(1_005, 1)));
        assert!(keeper.is_due(at(1_304, 1)));
        assert!(!keeper.is_due(at(1_305, 1)));
        assert!(!keeper.is_due(at(9_000, 1)));
        assert!(keeper.is_due(at(9_005, 2)), "it came back");
    }

    #[test]
    fn what_is_in_use_anyway_needs_no_requests() {
        let mut keeper = Keeper::new(4);
        for (most_in_use, is_due) in [(0, true), (3, true), (4, false), (60, false)] {
            let look = Look {
                most_in_use,
                ..at(1_000, 1)
            };
            assert_eq!(keeper.is_due(look), is_due, "{most_in_use}");
        }
    }

    #[test]
    fn own_requests_count_as_use_so_every_second_look_makes_some() {
        let mut keeper = Keeper::new(4);
        let mut most_in_use = 0;
        let dues: Vec<_> = (0..6)
            .map(|look| {
                let is_due = keeper.is_due(Look {
                    most_in_use,
                    ..at(1_000 + 5 * look, 1)
                });
                most_in_use = if is_due { 4 } else { 0 };
                is_due
            })
            .collect();
        assert_eq!(dues, [true, false, true, false, true, false]);
    }

    #[test]
    fn a_store_that_does_not_answer_is_left_alone_until_it_does() {
        let mut keeper = Keeper::new(1);
        let away = |second| Look {
            answers: false,
            ..at(second, 7)
        };
        assert!(!keeper.is_due(away(1_000)));
        assert!(!keeper.is_due(away(1_200)));
        assert!(keeper.is_due(at(1_205, 7)));
        assert!(
            !keeper.is_due(at(1_300, 7)),
            "the hosts have been silent since the first look"
        );
    }
}
