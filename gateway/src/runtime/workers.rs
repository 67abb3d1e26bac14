//! Threads that carry out what must not run on a client's thread: plain queues, bounded by the core's own limits.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub struct Workers {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// `niceness` above zero makes room for the threads that clients wait for.
    pub fn new(name: &str, count: usize, niceness: i32) -> std::io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let queue = queue.clone();
            let run = move || {
                lower_priority(niceness);
                while let Some(job) = next(&queue) {
                    job();
                }
            };
            threads.push(thread::Builder::new().name(format!("{name}-{index}")).spawn(run)?);
        }
        Ok(Self {
            jobs: Some(jobs),
            threads,
        })
    }

    /// Runs the job on one of the threads; dropped when they are stopping.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Waits for what is queued and ends the threads.
    pub fn stop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn next(queue: &Mutex<Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn lower_priority(niceness: i32) {
    if niceness > 0 {
        // SAFETY: on Linux, `who` zero means the calling thread; nothing else is touched.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
    }
}
