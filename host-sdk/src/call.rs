//! One call of `exec` or `wait`: moves its cell between a worker and the embedder's future until the call has its outcome,
//! and cleans up when nobody waits for that any more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use codemode_core::cell::{Ending, Lost};
use codemode_core::outcome::{Kind, Outcome, Status};
use tokio::sync::oneshot;

use crate::drive::{Drive, Reins, Step};
use crate::engine::Shared;
use crate::workers::Overloaded;

/// Drives a cell until the call has its outcome. Dropping the future cancels the cell.
pub(crate) async fn run(mut drive: Box<Drive>) -> Outcome {
    let session = drive.session.clone();
    let reins = drive.reins.clone();
    let guard = CancelOnDrop { engine: session.engine.clone(), reins: reins.clone(), is_armed: true };
    let outcome = loop {
        match on_worker(drive).await {
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
                let bridge_dispatch_started = reins.bridge_dispatch_started.load(Ordering::Relaxed);
                break session.failed(Lost { kind: Kind::Internal, error }, bridge_dispatch_started);
            }
        }
    };
    reins.call.fetch_add(1, Ordering::SeqCst);
    guard.disarm();
    outcome
}

struct CancelOnDrop {
    engine: Arc<Shared>,
    reins: Arc<Reins>,
    is_armed: bool,
}

impl CancelOnDrop {
    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.reins.cancel();
            // It may be parked by now, or have kept its value, with a result that nobody has read.
            self.reins.release_retained();
            let parked = self.engine.parked().take_all(|cell| Arc::ptr_eq(&cell.reins, &self.reins));
            drop(parked);
        }
    }
}

/// Works on a cell on a worker. `None` when the worker panicked.
async fn on_worker(drive: Box<Drive>) -> Option<Step> {
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
                if let Err(Step::Returned(outcome, _)) = sent {
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
        && let Some(drive) = take(&place)
    {
        let error = String::from("too many cells wait for a worker; try again later");
        return Some(drive.finish(Ending::Failed(Lost { kind: Kind::Overloaded, error })));
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
