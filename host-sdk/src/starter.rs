//! The thread that starts calls of tools while cells make them in quick succession. It watches for the next call instead
//! of sleeping, so a tool that answers at once costs no wake-up of a sleeping thread. A tool that blocks holds up only
//! this thread: while it is busy or asleep, calls start as tasks of the embedder's runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

use crate::watch::Watch;

type Job = Box<dyn FnOnce() + Send>;

/// Takes a job only when it can begin at once.
pub(crate) struct Starter {
    shared: Arc<Shared>,
    thread: Thread,
}

struct Shared {
    state: AtomicU8,
    job: Mutex<Option<Job>>,
}

const ASLEEP: u8 = 0;
const WATCHING: u8 = 1;
const TAKEN: u8 = 2;
const CLOSED: u8 = 3;

impl Starter {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: AtomicU8::new(ASLEEP), job: Mutex::new(None) });
        let running = shared.clone();
        let handle = std::thread::Builder::new().name("codemode-starter".into()).spawn(move || running.run())?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    /// Runs `run(job)` on the thread if it is watching; else gives the job back, and makes the thread watch for the next
    /// one.
    pub fn try_run<J: Send + 'static>(&self, job: J, run: fn(J)) -> Result<(), J> {
        if self.shared.state.compare_exchange(WATCHING, TAKEN, SeqCst, SeqCst).is_ok() {
            *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(move || run(job)));
            return Ok(());
        }
        if self.shared.state.compare_exchange(ASLEEP, WATCHING, SeqCst, SeqCst).is_ok() {
            self.thread.unpark();
        }
        Err(job)
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.shared.state.store(CLOSED, SeqCst);
        self.thread.unpark();
    }
}

impl Shared {
    fn run(&self) {
        let mut watch = Watch::begin();
        loop {
            match self.state.load(SeqCst) {
                CLOSED => return,
                ASLEEP => {
                    std::thread::park();
                    watch = Watch::begin();
                }
                TAKEN => {
                    let job = self.job.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let Some(job) = job else { continue };
                    drop(catch_unwind(AssertUnwindSafe(job)));
                    // Stays closed when it was closed meanwhile.
                    let _ = self.state.compare_exchange(TAKEN, WATCHING, SeqCst, SeqCst);
                    watch = Watch::begin();
                }
                _ if watch.goes_on() => {}
                _ => {
                    let _ = self.state.compare_exchange(WATCHING, ASLEEP, SeqCst, SeqCst);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_job_runs_here_or_comes_back() {
        let starter = Starter::start().unwrap();
        let (sender, done) = mpsc::channel();
        let mut here = 0;
        let began = std::time::Instant::now();
        while here < 100 {
            assert!(began.elapsed().as_secs() < 60, "it never takes a job");
            let sender = sender.clone();
            match starter
                .try_run(sender, |sender| sender.send(std::thread::current().name().map(str::to_owned)).unwrap())
            {
                Ok(()) => {
                    assert_eq!(done.recv().unwrap().as_deref(), Some("codemode-starter"));
                    here += 1;
                }
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn while_one_job_blocks_others_come_back() {
        let starter = Starter::start().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        loop {
            let blocked = blocked.clone();
            if starter.try_run(blocked, |blocked| blocked.lock().unwrap().recv().unwrap_or_default()).is_ok() {
                break;
            }
        }
        assert!(starter.try_run((), drop).is_err());
        release.send(()).unwrap();
    }
}
