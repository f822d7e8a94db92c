//! The epoch ticker: one thread that advances the engine's epoch every millisecond while guest code runs, and sleeps
//! when none does.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::Engine;

const TICK: Duration = Duration::from_millis(1);
/// Ticks without a turn after which the thread goes to sleep. Waking it costs more than some idle ticks.
const IDLE_TICKS: u32 = 50;

/// Advances the epoch while it is asked to.
#[derive(Clone)]
pub(crate) struct Ticker(Arc<State>);

struct State {
    running: AtomicU64,
    sleeping: Mutex<Sleep>,
    wake: Condvar,
}

#[derive(PartialEq, Eq)]
enum Sleep {
    Awake,
    Asleep,
    Closed,
}

/// Keeps the epoch advancing as long as it lives.
pub(crate) struct Ticking<'a>(&'a State);

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let state =
            Arc::new(State { running: AtomicU64::new(0), sleeping: Mutex::new(Sleep::Awake), wake: Condvar::new() });
        let shared = state.clone();
        std::thread::Builder::new().name("codemode-ticker".into()).spawn(move || shared.run(&engine))?;
        Ok(Self(state))
    }

    /// Makes the epoch advance until the result is dropped.
    pub fn tick(&self) -> Ticking<'_> {
        if self.0.running.fetch_add(1, SeqCst) == 0 {
            self.0.wake_up(Sleep::Awake);
        }
        Ticking(&self.0)
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.0.wake_up(Sleep::Closed);
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl State {
    fn wake_up(&self, to: Sleep) {
        let mut sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        if *sleeping == Sleep::Asleep || to == Sleep::Closed {
            *sleeping = to;
            self.wake.notify_one();
        }
    }

    fn run(&self, engine: &Engine) {
        let mut idle = 0;
        loop {
            std::thread::sleep(TICK);
            engine.increment_epoch();
            idle = if self.running.load(SeqCst) == 0 { idle + 1 } else { 0 };
            if idle < IDLE_TICKS {
                continue;
            }
            idle = 0;
            let mut sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
            if *sleeping == Sleep::Awake {
                *sleeping = Sleep::Asleep;
            }
            // A turn that began before this thread was marked as asleep doesn't wake it.
            while *sleeping == Sleep::Asleep && self.running.load(SeqCst) == 0 {
                sleeping = self.wake.wait(sleeping).unwrap_or_else(PoisonError::into_inner);
            }
            if *sleeping == Sleep::Closed {
                return;
            }
            *sleeping = Sleep::Awake;
        }
    }
}
