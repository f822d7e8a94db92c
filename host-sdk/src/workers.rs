//! The threads that run guest code: ours, with stacks that are large enough for it, never the embedder's. A job that
//! panics takes nothing with it but itself.

use std::panic::{AssertUnwindSafe, catch_unwind};

use codemode_core::limits;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};

use crate::watch::Watch;

/// wasm may use 10 MiB of it, host code called from wasm the rest.
const STACK_BYTES: usize = 16 * 1024 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of worker threads and their queue.
pub(crate) struct Workers {
    queue: Sender<Job>,
    count: usize,
}

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;

impl Workers {
    /// Starts the threads. They end when this is dropped and the queue is empty.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let capacity = usize::try_from(limits::fixed(&limits::QUEUED_TURNS)).unwrap_or(usize::MAX);
        let (queue, jobs) = crossbeam_channel::bounded::<Job>(capacity);
        for number in 0..count {
            let jobs = jobs.clone();
            std::thread::Builder::new()
                .name(format!("codemode-worker-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || work(&jobs))?;
        }
        Ok(Self { queue, count })
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether somebody waits for a worker.
    pub fn is_contended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Runs `job` on a worker soon.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] when too many jobs wait; `job` is dropped.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Overloaded> {
        match self.queue.try_send(Box::new(job)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Overloaded),
        }
    }
}

fn work(jobs: &Receiver<Job>) {
    while let Some(job) = next(jobs) {
        // The panic was reported by the hook; whoever waits for the job sees its channel close.
        drop(catch_unwind(AssertUnwindSafe(job)));
    }
}

fn next(jobs: &Receiver<Job>) -> Option<Job> {
    let mut watch = Watch::begin();
    loop {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Empty) if watch.goes_on() => {}
            Err(TryRecvError::Empty) => return jobs.recv().ok(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}
