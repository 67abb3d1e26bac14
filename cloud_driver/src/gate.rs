//! Admission of requests: at most so many in flight per class, and the more urgent class first.
//!
//! | class      | admitted while                                           | order |
//! |------------|----------------------------------------------------------|-------|
//! | demand     | gets (demand and prefetch) < `gets_max`, all < `total_max`      | first |
//! | prefetch   | as demand, and prefetches < `prefetches_max`             | second |
//! | put        | puts < `puts_max`, all < `total_max`                     | last  |
//!
//! What downloads bring together is bounded too (`get_bytes_max`, three quarters of it for prefetches); one alone may always go, and one
//! that brings nothing to speak of.
//!
//! Within a class first come, first served. A `prefetches_max` below `gets_max` keeps slots free for demand, so that a demand get
//! need not wait for a slow prefetch to end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How many requests may be in flight. Each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Uploads.
    pub puts_max: usize,
    /// Downloads, prefetches included.
    pub gets_max: usize,
    /// Prefetches; below `gets_max`, or demand may have to wait for them.
    pub prefetches_max: usize,
    /// Everything together.
    pub total_max: usize,
    /// Bytes of downloads.
    pub get_bytes_max: u64,
}

impl Default for Limits {
    /// A dozen requests of 256 KiB or more fill a gigabit link at S3's usual latency; beyond, they only wait there
    /// instead of here. A quarter of the gets is kept for demand.
    fn default() -> Self {
        Self {
            puts_max: 16,
            gets_max: 32,
            prefetches_max: 24,
            total_max: 48,
            get_bytes_max: u64::MAX,
        }
    }
}

impl Limits {
    fn at_least_one(self) -> Self {
        Self {
            puts_max: self.puts_max.max(1),
            gets_max: self.gets_max.max(1),
            prefetches_max: self.prefetches_max.max(1),
            total_max: self.total_max.max(1),
            get_bytes_max: self.get_bytes_max,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Demand,
    Prefetch,
    Put,
}

const CLASSES: [Class; 3] = [Class::Demand, Class::Prefetch, Class::Put];

/// What is in flight and what waits, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateDepth {
    /// Downloads that somebody waits for.
    pub demands_in_flight: usize,
    /// Downloads ahead of demand.
    pub prefetches_in_flight: usize,
    /// Uploads.
    pub puts_in_flight: usize,
    /// Downloads not admitted yet.
    pub demands_waiting: usize,
    /// Prefetches not admitted yet.
    pub prefetches_waiting: usize,
    /// Uploads not admitted yet.
    pub puts_waiting: usize,
}

#[derive(Debug, Default)]
struct State {
    in_flight: [usize; 3],
    /// Of downloads.
    bytes_in_flight: u64,
    waiting: [VecDeque<Waiting>; 3],
}

#[derive(Debug)]
struct Waiting {
    /// Of a download.
    bytes: u64,
    sender: oneshot::Sender<Permit>,
}

/// Where the limits come from, asked before each admission.
pub(crate) type LimitsNow = Box<dyn Fn() -> Limits + Send + Sync>;

pub(crate) struct Gate {
    limits: LimitsNow,
    state: Mutex<State>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Gate")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// One admitted request; its place is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` once the place has been given back.
    gate: Option<Arc<Gate>>,
    class: Class,
    bytes: u64,
}

impl Gate {
    pub(crate) fn new(limits: LimitsNow) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
        })
    }

    /// `bytes` are those that a download brings.
    pub(crate) async fn admit(self: &Arc<Self>, class: Class, bytes: u64) -> Permit {
        let receiver = {
            let mut state = self.state();
            let (sender, receiver) = oneshot::channel();
            state.waiting[class as usize].push_back(Waiting { bytes, sender });
            receiver
        };
        self.pump();
        // The sender lies in the queue of the gate that `self` keeps alive, and leaves it only with a permit.
        receiver.await.expect("a queued request is admitted in the end")
    }

    pub(crate) fn depth(&self) -> GateDepth {
        let state = self.state();
        let waiting = |class: Class| {
            let queue = &state.waiting[class as usize];
            queue.iter().filter(|waiting| !waiting.sender.is_closed()).count()
        };
        GateDepth {
            demands_in_flight: state.in_flight[Class::Demand as usize],
            prefetches_in_flight: state.in_flight[Class::Prefetch as usize],
            puts_in_flight: state.in_flight[Class::Put as usize],
            demands_waiting: waiting(Class::Demand),
            prefetches_waiting: waiting(Class::Prefetch),
            puts_waiting: waiting(Class::Put),
        }
    }

    /// Admits whatever may enter. A permit whose receiver has gone comes back and is given to
    /// the next.
    fn pump(self: &Arc<Self>) {
        loop {
            let (class, Waiting { bytes, sender }) = {
                let mut state = self.state();
                let Some(class) = CLASSES.into_iter().find(|class| self.may_enter(&state, *class)) else {
                    return;
                };
                let waiting = state.waiting[class as usize]
                    .pop_front()
                    .expect("the class has a waiter");
                state.in_flight[class as usize] += 1;
                state.bytes_in_flight += waiting.bytes;
                (class, waiting)
            };
            let permit = Permit {
                gate: Some(Arc::clone(self)),
                class,
                bytes,
            };
            if let Err(unwanted) = sender.send(permit) {
                unwanted.leave();
            }
        }
    }

    fn may_enter(&self, state: &State, class: Class) -> bool {
        let [demands, prefetches, puts] = state.in_flight;
        let limits = (self.limits)().at_least_one();
        let Some(next) = state.waiting[class as usize].front() else {
            return false;
        };
        let fits = |bytes_max: u64| {
            let in_flight = state.bytes_in_flight;
            in_flight == 0 || next.bytes == 0 || in_flight.saturating_add(next.bytes) <= bytes_max
        };
        let room_in_class = match class {
            Class::Demand => demands + prefetches < limits.gets_max && fits(limits.get_bytes_max),
            Class::Prefetch => {
                let room = demands + prefetches < limits.gets_max && prefetches < limits.prefetches_max;
                room && fits(limits.get_bytes_max / 4 * 3)
            }
            Class::Put => puts < limits.puts_max,
        };
        room_in_class && demands + prefetches + puts < limits.total_max
    }

    fn release(&self, class: Class, bytes: u64) {
        let mut state = self.state();
        state.in_flight[class as usize] -= 1;
        state.bytes_in_flight -= bytes;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a single step; a panic elsewhere leaves the counts right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Gives the place back without pumping, for the pump itself.
    fn leave(mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release(self.class, self.bytes);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release(self.class, self.bytes);
            gate.pump();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    const LIMITS: Limits = Limits {
        puts_max: 2,
        gets_max: 3,
        prefetches_max: 2,
        total_max: 4,
        get_bytes_max: u64::MAX,
    };

    fn fixed(limits: Limits) -> Arc<Gate> {
        Gate::new(Box::new(move || limits))
    }

    #[tokio::test]
    async fn demand_overtakes_prefetch_and_puts() {
        let gate = fixed(Limits {
            gets_max: 1,
            prefetches_max: 1,
            puts_max: 1,
            total_max: 1,
            get_bytes_max: u64::MAX,
        });
        let held = gate.admit(Class::Put, 0).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for class in [Class::Put, Class::Prefetch, Class::Demand, Class::Demand] {
            let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _permit = gate.admit(class, 0).await;
                order.lock().unwrap().push(class);
            }));
            yield_now().await;
        }
        assert_eq!(gate.depth().demands_waiting, 2);
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        let expected = [Class::Demand, Class::Demand, Class::Prefetch, Class::Put];
        assert_eq!(*order.lock().unwrap(), expected);
        assert_eq!(gate.depth(), GateDepth::default());
    }

    #[tokio::test]
    async fn downloads_together_bring_no_more_than_they_may() {
        let gate = fixed(Limits {
            gets_max: 10,
            prefetches_max: 10,
            total_max: 10,
            get_bytes_max: 100,
            ..LIMITS
        });
        let large = gate.admit(Class::Prefetch, 1_000).await;
        drop(gate.admit(Class::Demand, 0).await);
        drop(gate.admit(Class::Put, 0).await);
        let waiting = |class, bytes| {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { gate.admit(class, bytes).await })
        };
        let (demand, prefetch) = (waiting(Class::Demand, 90), waiting(Class::Prefetch, 10));
        yield_now().await;
        let depth = gate.depth();
        assert_eq!(
            (depth.demands_waiting, depth.prefetches_waiting),
            (1, 1),
            "one alone goes, however large"
        );
        drop(large);
        let demand = demand.await.unwrap();
        yield_now().await;
        assert_eq!(gate.depth().prefetches_waiting, 1, "three quarters are for prefetch");
        drop(demand);
        drop(prefetch.await.unwrap());
        assert_eq!(gate.depth(), GateDepth::default());
        assert_eq!(gate.state().bytes_in_flight, 0);
    }

    #[tokio::test]
    async fn prefetch_leaves_room_for_demand() {
        let gate = fixed(LIMITS);
        let _one = gate.admit(Class::Prefetch, 0).await;
        let _two = gate.admit(Class::Prefetch, 0).await;
        let third = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.admit(Class::Prefetch, 0).await }
        });
        yield_now().await;
        assert_eq!(gate.depth().prefetches_waiting, 1);
        let _demand = gate.admit(Class::Demand, 0).await;
        third.abort();
        assert!(third.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn a_cancelled_waiter_loses_nothing() {
        let gate = fixed(Limits { puts_max: 1, ..LIMITS });
        let held = gate.admit(Class::Put, 0).await;
        for _ in 0..10 {
            let waiter = tokio::spawn({
                let gate = Arc::clone(&gate);
                async move { gate.admit(Class::Put, 0).await }
            });
            yield_now().await;
            waiter.abort();
            assert!(waiter.await.unwrap_err().is_cancelled());
        }
        drop(held);
        drop(gate.admit(Class::Put, 0).await);
        assert_eq!(gate.depth(), GateDepth::default());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn limits_hold_under_load() {
        let gate = fixed(LIMITS);
        let running: Arc<[AtomicUsize; 3]> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..300 {
            let class = CLASSES[index % 3];
            let (gate, running) = (Arc::clone(&gate), Arc::clone(&running));
            tasks.spawn(async move {
                let _permit = gate.admit(class, 0).await;
                running[class as usize].fetch_add(1, Ordering::SeqCst);
                yield_now().await;
                let [_, prefetches, puts] = [0, 1, 2].map(|class: usize| running[class].load(Ordering::SeqCst));
                assert!(puts <= LIMITS.puts_max && prefetches <= LIMITS.prefetches_max);
                running[class as usize].fetch_sub(1, Ordering::SeqCst);
                let depth = gate.depth();
                let gets = depth.demands_in_flight + depth.prefetches_in_flight;
                assert!(gets <= LIMITS.gets_max && gets + depth.puts_in_flight <= LIMITS.total_max);
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(gate.depth(), GateDepth::default());
    }
}
