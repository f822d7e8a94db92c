//! One call of `exec` or `wait`: moves its cell between a worker and the embedder's future until the call has its outcome,
//! and cleans up when nobody waits for that any more.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use codemode_core::cell::{CancelReason, Ending, Lost};
use codemode_core::outcome::{Failure, Kind, Outcome, Status};
use tokio::sync::oneshot;
use tracing::Span;

use crate::drive::{Drive, Step};
use crate::engine::Shared;
use crate::reins::Reins;
use crate::workers::Overloaded;

/// Drives a cell until the call of this number has its outcome. Dropping the future cancels the cell.
pub(crate) async fn run(mut drive: Box<Drive>, number: u64, span: Span) -> Outcome {
    let session = drive.session.clone();
    let reins = drive.reins.clone();
    let guard = CancelOnDrop { engine: session.engine.clone(), reins: reins.clone(), number };
    let outcome = loop {
        match on_worker(drive, number).await {
            Some(Step::Idle(idle)) => {
                drive = idle;
                drive.rest().await;
            }
            Some(Step::NeedsInstance(waiting)) => {
                drive = waiting;
                drive.queue_for_instance().await;
            }
            Some(Step::Returned(outcome, _)) => break outcome,
            None => {
                let error = String::from("the runtime failed inside this cell");
                break session
                    .failed(Lost { kind: Kind::Internal, error }, reins.bridge_dispatch_started.load(Relaxed));
            }
        }
    };
    let outcome = match reins.end_call(number) {
        Ok(()) => outcome,
        Err(lost) => cancelled(outcome, lost, &session.engine, &reins),
    };
    guard.disarm();
    note(&span, &outcome);
    outcome
}

/// The outcome of a call that was cancelled at the last moment: if its cell is parked, before anybody got to know that, it
/// ends; one that has ended already has its outcome.
fn cancelled(outcome: Outcome, lost: Lost, engine: &Arc<Shared>, reins: &Arc<Reins>) -> Outcome {
    let parked = engine.parked().take_all(|cell| Arc::ptr_eq(&cell.reins, reins));
    if parked.is_empty() && !outcome.is_waiting() {
        return outcome;
    }
    drop(parked);
    let bridge_dispatch_started = reins.bridge_dispatch_started.load(Relaxed);
    let failure = Failure { kind: lost.kind, error: lost.error, bridge_dispatch_started };
    Outcome { status: Status::Failed(failure), ..outcome }
}

/// Says in the span of the call how it ended.
fn note(span: &Span, outcome: &Outcome) {
    match &outcome.status {
        Status::Completed { .. } => span.record("status", "completed"),
        Status::Waiting { run_id, .. } => span.record("status", "waiting").record("run", run_id.as_str()),
        Status::Failed(failure) => span.record("status", "failed").record("kind", failure.kind.as_str()),
    };
}

/// Cancels the cell when the call is dropped before it has its outcome.
struct CancelOnDrop {
    engine: Arc<Shared>,
    reins: Arc<Reins>,
    number: u64,
}

impl CancelOnDrop {
    fn disarm(mut self) {
        // Numbers begin with one.
        self.number = 0;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Not when it has its outcome, or when a later call has the cell.
        if self.number != 0 && self.reins.cancel_call(self.number, CancelReason::Caller) {
            // It may be parked by now, or have kept its value, with a result that nobody has read.
            self.reins.release_retained();
            let parked = self.engine.parked().take_all(|cell| Arc::ptr_eq(&cell.reins, &self.reins));
            drop(parked);
        }
    }
}

/// Works on a cell on a worker. `None` when the worker panicked.
async fn on_worker(drive: Box<Drive>, number: u64) -> Option<Step> {
    let user = drive.session.number;
    let (sender, receiver) = oneshot::channel();
    let engine = drive.session.engine.clone();
    // Shared with the job, so that a cell whose job finds no place isn't lost.
    let place = Arc::new(Mutex::new(Some(drive)));
    let taken = place.clone();
    let queued = engine.workers.run(user, move || {
        let Some(drive) = take(&taken) else { return };
        let (engine, reins) = (drive.session.engine.clone(), drive.reins.clone());
        match drive.work() {
            Step::Returned(outcome, rest) => {
                let sent = sender.send(Step::Returned(outcome, None));
                drop(rest);
                if let Err(Step::Returned(outcome, _)) = sent
                    && reins.is_in_call(number)
                {
                    reins.release_retained();
                    abandon(&engine, &outcome);
                }
            }
            step @ (Step::Idle(_) | Step::NeedsInstance(_)) => {
                // Whoever waited is gone: the cell goes with what wasn't sent.
                drop(sender.send(step));
            }
        }
    });
    if queued == Err(Overloaded)
        && let Some(mut drive) = take(&place)
    {
        let error = String::from("too many cells wait for a worker; try again later");
        let overloaded = Lost { kind: Kind::Overloaded, error };
        if drive.is_about_to_resume() {
            // Nothing was done with it yet: its owner may try again.
            return Some(drive.refuse_wait(overloaded));
        }
        return Some(Step::Returned(drive.end(Ending::Failed(overloaded)), Some(drive)));
    }
    receiver.await.ok()
}

fn take(place: &Mutex<Option<Box<Drive>>>) -> Option<Box<Drive>> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Nobody learned the id of this parked cell, so nobody can ever resume it.
fn abandon(engine: &Arc<Shared>, outcome: &Outcome) {
    if let Status::Waiting { run_id, .. } = &outcome.status {
        let abandoned = engine.parked().remove(run_id);
        drop(abandoned);
    }
}
