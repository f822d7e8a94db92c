//! Alarms: callbacks at a point in time, on one thread of their own. Timers of cells, spent budgets and expiries of
//! parked cells come from here, so the SDK needs no timer of the embedder's runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

type Callback = Box<dyn FnOnce() + Send>;

/// Runs callbacks when their time comes.
#[derive(Clone)]
pub(crate) struct Alarms(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    due: BTreeSet<(Instant, u64)>,
    callbacks: BTreeMap<u64, (Instant, Callback)>,
    is_closed: bool,
}

/// Names an alarm that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlarmId(u64);

impl Alarms {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let alarms = Self(shared.clone());
        std::thread::Builder::new().name("codemode-alarms".into()).spawn(move || shared.run())?;
        Ok(alarms)
    }

    /// Calls `callback` at `at`, or at once when that has passed. It must be short and must not block.
    pub fn set(&self, at: Instant, callback: impl FnOnce() + Send + 'static) -> AlarmId {
        let mut state = self.0.lock();
        let id = state.next;
        state.next += 1;
        let is_earliest = state.due.first().is_none_or(|(earliest, _)| at < *earliest);
        state.due.insert((at, id));
        state.callbacks.insert(id, (at, Box::new(callback)));
        drop(state);
        if is_earliest {
            self.0.changed.notify_one();
        }
        AlarmId(id)
    }

    /// Takes an alarm back. One that rang, or is ringing, is past that.
    pub fn cancel(&self, id: AlarmId) {
        let mut state = self.0.lock();
        let removed = state.callbacks.remove(&id.0);
        if let Some((at, _)) = &removed {
            state.due.remove(&(*at, id.0));
        }
        drop(state);
        // Dropped without the lock: a callback may own anything.
        drop(removed);
    }

    /// Ends the thread; what hasn't rung never does.
    pub fn close(&self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some((at, id)) = state.due.first().copied() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.due.remove(&(at, id));
            let callback = state.callbacks.remove(&id);
            drop(state);
            if let Some((_, callback)) = callback {
                // Callbacks wake and drop what isn't ours, and whatever that does, later alarms have to ring.
                drop(catch_unwind(AssertUnwindSafe(callback)));
            }
            state = self.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn alarms_ring_in_order_and_cancelled_ones_do_not() {
        let alarms = Alarms::start().unwrap();
        let (sender, rung) = mpsc::channel();
        let now = Instant::now();
        let set = |after_ms: u64, name: &'static str| {
            let sender = sender.clone();
            alarms.set(now + Duration::from_millis(after_ms), move || sender.send(name).unwrap())
        };
        set(30, "second");
        let cancelled = set(20, "cancelled");
        set(10, "first");
        alarms.cancel(cancelled);
        assert_eq!(rung.recv(), Ok("first"));
        assert_eq!(rung.recv(), Ok("second"));
        alarms.close();
    }
}
