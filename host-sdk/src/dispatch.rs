//! Carries out requests: calls of tools as tasks of the embedder's runtime. A panic of a tool is a failed call; nothing
//! here knows what becomes of the reply.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use codemode_core::cell::{Event, Reply};
use codemode_core::ids::RequestId;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::alarms::{AlarmId, Alarms};
use crate::session::Inner as Session;
use crate::tool::{Call, Output, ToolError, ToolFuture};

/// A request that is being carried out.
pub(crate) enum Running {
    /// A tool's task.
    Task { task: AbortHandle, cancellation: CancellationToken },
    /// A timer.
    Alarm(AlarmId),
}

impl Running {
    /// Stops it: nobody waits any more.
    pub fn stop(self, alarms: &Alarms) {
        match self {
            Self::Task { task, cancellation } => {
                cancellation.cancel();
                task.abort();
            }
            Self::Alarm(alarm) => alarms.cancel(alarm),
        }
    }
}

/// Starts a call of the tool at `index`; its reply arrives as an event.
pub(crate) fn tool(
    session: &Session,
    id: RequestId,
    index: u32,
    arguments: Box<RawValue>,
    events: UnboundedSender<Event>,
) -> Option<Running> {
    let entry = usize::try_from(index).ok().and_then(|index| session.catalog.entries.get(index))?;
    let cancellation = CancellationToken::new();
    let call = Call { request_id: id.to_string(), cancellation: cancellation.clone() };
    let input = if arguments.get() == "null" { no_input() } else { arguments };
    let (tool, turnstile) = (entry.tool.clone(), session.catalog.turnstile.clone());
    let is_sequential = entry.definition.sequential;
    let task = session.runtime.spawn(async move {
        let (_alone, _shared) = if is_sequential {
            (Some(turnstile.write_owned().await), None)
        } else {
            (None, Some(turnstile.read_owned().await))
        };
        let reply = match catch_unwind(AssertUnwindSafe(|| tool.call(call, input))) {
            Ok(future) => reply(CatchPanic(future).await),
            Err(_) => panicked(),
        };
        // A cell that is gone wants no replies.
        let _ = events.send(Event::Settled(id, reply));
    });
    Some(Running::Task { task: task.abort_handle(), cancellation })
}

/// What a tool gets when the guest passed nothing.
#[expect(clippy::expect_used, reason = "a constant that is JSON")]
fn no_input() -> Box<RawValue> {
    RawValue::from_string(String::from("{}")).expect("an empty object is JSON")
}

fn reply(result: Option<Result<Output, ToolError>>) -> Reply {
    match result {
        Some(Ok(output)) => Reply::Value(output),
        Some(Err(error)) => Reply::Failed { message: error.message, code: Some("tool_error") },
        None => panicked(),
    }
}

fn panicked() -> Reply {
    Reply::Failed { message: String::from("the tool failed unexpectedly"), code: Some("tool_error") }
}

/// `None` when the tool's future panics.
struct CatchPanic(ToolFuture);

impl Future for CatchPanic {
    type Output = Option<Result<Output, ToolError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    }
}
