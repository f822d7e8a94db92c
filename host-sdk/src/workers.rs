//! The threads that run guest code: ours, with stacks that are large enough for it, never the embedder's. A job that
//! panics takes nothing with it but itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use codemode_core::fair::FairQueue;
use codemode_core::limits;

use crate::watch::Watch;

/// wasm may use 10 MiB of it, host code called from wasm the rest.
const STACK_BYTES: usize = 16 * 1024 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of worker threads and their queue, which is fair between sessions.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    count: usize,
}

struct Shared {
    jobs: Mutex<FairQueue<Job>>,
    /// Rings when a job comes, or when there will be no more.
    bell: Condvar,
    /// The length of the queue, to be looked at without the lock.
    waiting: AtomicUsize,
    /// Threads that sleep until the bell rings.
    sleeping: AtomicUsize,
    is_closed: AtomicBool,
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
        let shared = Arc::new(Shared {
            jobs: Mutex::new(FairQueue::new(capacity)),
            bell: Condvar::new(),
            waiting: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        let workers = Self { shared, count };
        for number in 0..count {
            let shared = workers.shared.clone();
            std::thread::Builder::new()
                .name(format!("codemode-worker-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work())?;
        }
        Ok(workers)
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether somebody waits for a worker.
    pub fn is_contended(&self) -> bool {
        self.shared.waiting.load(SeqCst) > 0
    }

    /// Runs `job` for `user` on a worker soon.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] when too many jobs wait; `job` is dropped.
    pub fn run(&self, user: u64, job: impl FnOnce() + Send + 'static) -> Result<(), Overloaded> {
        let mut jobs = self.shared.jobs();
        let queued = jobs.push(user, Box::new(job));
        self.shared.waiting.store(jobs.len(), SeqCst);
        drop(jobs);
        // A thread that falls asleep counts itself before it looks at the queue for the last time.
        if self.shared.sleeping.load(SeqCst) > 0 {
            self.shared.bell.notify_one();
        }
        // What didn't fit is dropped here, outside of the lock.
        queued.map_err(|_| Overloaded)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, SeqCst);
        // With the lock, so that nobody is between looking and falling asleep.
        drop(self.shared.jobs());
        self.shared.bell.notify_all();
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, FairQueue<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // The panic was reported by the hook; whoever waits for the job sees its channel close.
            drop(catch_unwind(AssertUnwindSafe(job)));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut watch = Watch::begin();
        while watch.goes_on() {
            if self.waiting.load(SeqCst) > 0
                && let Some(job) = self.pop(&mut self.jobs())
            {
                return Some(job);
            }
        }
        self.sleeping.fetch_add(1, SeqCst);
        let mut jobs = self.jobs();
        let job = loop {
            if let Some(job) = self.pop(&mut jobs) {
                break Some(job);
            }
            if self.is_closed.load(SeqCst) {
                break None;
            }
            jobs = self.bell.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        };
        drop(jobs);
        self.sleeping.fetch_sub(1, SeqCst);
        job
    }

    fn pop(&self, jobs: &mut FairQueue<Job>) -> Option<Job> {
        let job = jobs.pop();
        self.waiting.store(jobs.len(), SeqCst);
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_flood_of_one_user_delays_another_by_one_job() {
        let workers = Workers::start(1).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        workers.run(1, move || assert!(held.recv().is_err(), "until it is dropped")).unwrap();
        for number in 0..100 {
            let done = done.clone();
            workers.run(1, move || done.send(number).unwrap()).unwrap();
        }
        let other = done.clone();
        workers.run(2, move || other.send(1_000).unwrap()).unwrap();
        assert!(workers.is_contended());
        drop(hold);
        let order: Vec<i32> = order.iter().take(101).collect();
        let place = order.iter().position(|number| *number == 1_000).unwrap();
        assert!(place <= 1, "it came as number {place}");
        drop(workers);
        drop(done);
    }

    #[test]
    fn what_is_queued_is_done_before_the_threads_end() {
        let workers = Workers::start(2).unwrap();
        let (done, order) = mpsc::channel();
        for number in 0..1_000 {
            let done = done.clone();
            workers.run(number % 7, move || done.send(number).unwrap()).unwrap();
        }
        drop(workers);
        drop(done);
        assert_eq!(order.iter().count(), 1_000);
    }
}
