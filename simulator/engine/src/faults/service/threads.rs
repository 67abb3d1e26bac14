//! Threads of which one runs at a time: the world's own, or the one that it lets run. A thread comes back when it calls
//! storage, finds a lock taken, or is done; so the order of everything they do is the world's to decide.

use super::jobs::{Job, Outcome};
use super::storage::{Call, Replied};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tombolo_files::storage::StorageError;
use tombolo_files::{Taken, Waiting};

/// Why a thread comes back.
pub(super) enum Back {
    /// It waits for the answer.
    Calls(Call),
    /// Others must run before it can go on.
    Waits(Taken),
    Done(Outcome),
    Panicked(String),
}

/// What a thread goes on with.
pub(super) enum Go {
    Begin(Job),
    Answered(Replied),
    LookAgain,
}

/// A thread's end of the line to the world.
struct Line {
    back: Sender<Back>,
    go: Receiver<Go>,
}

thread_local! {
    static LINE: RefCell<Option<Line>> = const { RefCell::new(None) };
}

impl Line {
    /// `None`: the world is no more. From then on nobody decides who runs, and every thread comes to its end.
    fn come_back(&self, with: Back) -> Option<Go> {
        self.back.send(with).ok()?;
        self.go.recv().ok()
    }
}

fn come_back(with: Back) -> Option<Go> {
    LINE.with_borrow(|line| line.as_ref()?.come_back(with))
}

/// Of storage, on a thread of these.
pub(super) fn call(call: Call) -> Replied {
    match come_back(Back::Calls(call)) {
        Some(Go::Answered(replied)) => replied,
        Some(_) => unreachable!("a call is answered"),
        None => Err(StorageError::Failed("the world has ended".into())),
    }
}

/// Has threads come back when they find a lock taken.
pub(super) struct Turns;

impl Waiting for Turns {
    #[expect(
        clippy::disallowed_methods,
        reason = "the service's locks are held for moments only outside of a job"
    )]
    fn wait_for(&self, taken: Taken) {
        if come_back(Back::Waits(taken)).is_none() {
            std::thread::yield_now();
        }
    }
}

struct Thread {
    go: Sender<Go>,
    back: Receiver<Back>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
pub(super) struct Threads(Vec<Thread>);

impl Threads {
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Thread::start()).collect())
    }

    /// Lets the thread run until it comes back.
    pub fn run(&self, thread: usize, go: Go) -> Back {
        let thread = &self.0[thread];
        let ended = "a thread ends with the world";
        thread.go.send(go).expect(ended);
        thread.back.recv().expect(ended)
    }
}

impl Thread {
    #[expect(
        clippy::disallowed_methods,
        reason = "a job may stop anywhere, which takes a stack of its own; one of them runs at a time"
    )]
    fn start() -> Self {
        let (go, line_go) = channel();
        let (line_back, back) = channel();
        let line = Line {
            back: line_back,
            go: line_go,
        };
        let handle = std::thread::spawn(move || serve(line));
        Self { go, back, handle }
    }
}

fn serve(line: Line) {
    LINE.set(Some(line));
    let mut next = LINE.with_borrow(|line| line.as_ref().and_then(|line| line.go.recv().ok()));
    while let Some(go) = next {
        let Go::Begin(job) = go else {
            unreachable!("a thread without a job is given one");
        };
        let back = match catch_unwind(AssertUnwindSafe(job)) {
            Ok(outcome) => Back::Done(outcome),
            Err(panic) => Back::Panicked(crate::faults::run::text_of(&*panic)),
        };
        next = come_back(back);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // All lines are cut before any thread is waited for: one may hold what another waits for.
        let handles: Vec<JoinHandle<()>> = self.0.drain(..).map(|thread| thread.handle).collect();
        for handle in handles {
            let _panicked_and_told = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_base::FlushMode;

    fn is_done(back: &Back) -> bool {
        matches!(back, Back::Done(Outcome::Synced(Ok(()))))
    }

    #[test]
    fn a_thread_runs_only_when_it_is_let() {
        let threads = Threads::new(2);
        let job = || -> Job {
            Box::new(|| {
                Turns.wait_for(Taken::Namespace);
                Outcome::Synced(Ok(()))
            })
        };
        for thread in [0, 1] {
            let back = threads.run(thread, Go::Begin(job()));
            assert!(matches!(back, Back::Waits(Taken::Namespace)));
        }
        assert!(
            [1, 0]
                .iter()
                .all(|thread| is_done(&threads.run(*thread, Go::LookAgain)))
        );
    }

    #[test]
    fn a_panic_comes_back_and_the_thread_goes_on() {
        let threads = Threads::new(1);
        let back = threads.run(0, Go::Begin(Box::new(|| panic!("as told"))));
        assert!(matches!(back, Back::Panicked(text) if text == "as told"));
        assert!(is_done(
            &threads.run(0, Go::Begin(Box::new(|| Outcome::Synced(Ok(())))))
        ));
    }

    #[test]
    fn threads_end_with_the_world_wherever_they_are() {
        let threads = Threads::new(1);
        let job = || {
            assert!(call(Call::Sync(FlushMode::Local)).is_err());
            Outcome::Synced(Ok(()))
        };
        let back = threads.run(0, Go::Begin(Box::new(job)));
        assert!(matches!(back, Back::Calls(Call::Sync(_))));
        drop(threads);
    }
}
