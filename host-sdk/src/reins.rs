//! What reaches a cell from outside while a worker, a future or the store of parked cells has it: cancelling, the number of
//! the call that is in flight, and the events that wake it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use codemode_core::cell::{CancelReason, Event, Lost};
use codemode_core::ids::RunId;
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::Shared;
use crate::results::Retained;

/// Shared by the cell, its calls, its tools and its session.
pub(crate) struct Reins {
    /// Read by the cell's instance while guest code runs.
    pub cancelled: Arc<AtomicBool>,
    /// Wakes the cell while it waits.
    pub events: UnboundedSender<Event>,
    /// Which call on the cell is in flight: rises when one begins and when one returns. Held while somebody cancels, so that
    /// a call either is cancelled or has returned.
    call: Mutex<u64>,
    /// Whether a request that reaches outside was dispatched; kept here for a cell that is lost to a panic.
    pub bridge_dispatch_started: AtomicBool,
    /// Why it was cancelled.
    reason: OnceLock<CancelReason>,
    /// A value that was kept because it exceeded its budget.
    retained: Mutex<Option<Retained>>,
    /// Its id while it is parked.
    parked_as: Mutex<Option<RunId>>,
}

impl Reins {
    pub fn new(events: UnboundedSender<Event>) -> Arc<Self> {
        Arc::new(Self {
            cancelled: Arc::default(),
            events,
            call: Mutex::default(),
            bridge_dispatch_started: AtomicBool::new(false),
            reason: OnceLock::new(),
            retained: Mutex::default(),
            parked_as: Mutex::default(),
        })
    }

    /// Begins a call: its number.
    pub fn begin_call(&self) -> u64 {
        let mut call = lock(&self.call);
        *call += 1;
        *call
    }

    /// Whether the call of this number is in flight.
    pub fn is_in_call(&self, number: u64) -> bool {
        *lock(&self.call) == number
    }

    /// The call of this number returns, unless it was cancelled: then, how its cell ends. A later call may have begun, when
    /// the cell was parked before this one got to return.
    pub fn end_call(&self, number: u64) -> Result<(), Lost> {
        let mut call = lock(&self.call);
        if *call != number {
            return Ok(());
        }
        if let Some(lost) = self.cancellation() {
            return Err(lost);
        }
        *call += 1;
        Ok(())
    }

    /// Cancels the cell, whatever it is doing, if the call of this number is in flight. Whether it was.
    pub fn cancel_call(&self, number: u64, reason: CancelReason) -> bool {
        let call = lock(&self.call);
        if *call != number {
            return false;
        }
        // The first one counts.
        let _ = self.reason.set(reason);
        self.cancelled.store(true, Ordering::SeqCst);
        // Whoever is woken may end the call.
        drop(call);
        // A cell that has ended doesn't listen any more.
        let _ = self.events.send(Event::Cancelled(reason));
        true
    }

    /// How the cell ends, when it was cancelled.
    pub fn cancellation(&self) -> Option<Lost> {
        let is_cancelled = self.cancelled.load(Ordering::SeqCst);
        is_cancelled.then(|| self.reason.get().copied().unwrap_or(CancelReason::Caller).lost())
    }

    /// Has a parked cell take its events, so that what it holds is counted. What follows from them is for the next `wait`.
    pub fn absorb_if_parked(&self, engine: &Shared) {
        let run_id = lock(&self.parked_as).clone();
        if let Some(run_id) = run_id
            && let Some(cell) = engine.parked().peek(&run_id)
        {
            cell.take_events();
        }
    }

    /// Notes under which id the cell is parked now, if it is.
    pub fn note_parked(&self, run_id: Option<RunId>) {
        *lock(&self.parked_as) = run_id;
    }

    /// Notes the value that was kept.
    pub fn retain(&self, retained: Option<Retained>) {
        *lock(&self.retained) = retained;
    }

    /// Nobody learned the id of the value that was kept.
    pub fn release_retained(&self) {
        let retained = lock(&self.retained).take();
        if let Some(retained) = retained {
            retained.release();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
