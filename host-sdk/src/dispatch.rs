//! Carries out requests: calls of tools as tasks of the embedder's runtime. A panic of a tool is a failed call; nothing
//! here knows what becomes of the reply.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use codemode_core::cell::{Event, Reply};
use codemode_core::ids::RequestId;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::alarms::{AlarmId, Alarms};
use crate::session::Inner as Session;
use crate::tool::{Call, Tool, ToolFuture};

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

/// How a dispatched request stands.
pub(crate) enum Dispatched {
    /// It is being carried out; its reply arrives as an event.
    Running(Running),
    /// It is done.
    Replied(Reply),
}

/// Starts a call of the tool at `index`.
pub(crate) fn tool(
    session: &Session,
    id: RequestId,
    index: u32,
    arguments: Box<RawValue>,
    events: UnboundedSender<Event>,
) -> Dispatched {
    let Some(entry) = usize::try_from(index).ok().and_then(|index| session.catalog.entries.get(index)) else {
        // The import has checked the index already.
        return Dispatched::Replied(failed("there is no such tool"));
    };
    let cancellation = CancellationToken::new();
    let call = Call { request_id: id.to_string(), cancellation: cancellation.clone() };
    let input = if arguments.get() == "null" { no_input() } else { arguments };
    let tool = entry.tool.clone();
    let task = if entry.definition.non_blocking && !session.catalog.has_sequential {
        let _inside = session.runtime.enter();
        let mut future = CatchPanic::start(&*tool, call, input);
        // Nobody is woken by this poll; a task polls again before it waits.
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => return Dispatched::Replied(reply),
            Poll::Pending => session.runtime.spawn(async move { settle(&events, id, future.await) }),
        }
    } else {
        let (turnstile, is_sequential) = (session.catalog.turnstile.clone(), entry.definition.sequential);
        session.runtime.spawn(async move {
            let (_alone, _shared) = if is_sequential {
                (Some(turnstile.write_owned().await), None)
            } else {
                (None, Some(turnstile.read_owned().await))
            };
            settle(&events, id, CatchPanic::start(&*tool, call, input).await);
        })
    };
    Dispatched::Running(Running::Task { task: task.abort_handle(), cancellation })
}

fn settle(events: &UnboundedSender<Event>, id: RequestId, reply: Reply) {
    // A cell that is gone wants no replies.
    let _ = events.send(Event::Settled(id, reply));
}

/// What a tool gets when the guest passed nothing.
#[expect(clippy::expect_used, reason = "a constant that is JSON")]
fn no_input() -> Box<RawValue> {
    RawValue::from_string(String::from("{}")).expect("an empty object is JSON")
}

fn failed(message: &str) -> Reply {
    Reply::Failed { message: message.to_owned(), code: Some("tool_error") }
}

/// A call whose panic, when it is started or later, is a failed reply.
struct CatchPanic(Option<ToolFuture>);

impl CatchPanic {
    fn start(tool: &dyn Tool, call: Call, input: Box<RawValue>) -> Self {
        Self(catch_unwind(AssertUnwindSafe(|| tool.call(call, input))).ok())
    }
}

impl Future for CatchPanic {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let future = self.0.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.map(|future| future.as_mut().poll(context))));
        match polled {
            Ok(Some(Poll::Pending)) => Poll::Pending,
            Ok(Some(Poll::Ready(Ok(output)))) => Poll::Ready(Reply::Value(output)),
            Ok(Some(Poll::Ready(Err(error)))) => Poll::Ready(failed(&error.message)),
            Ok(None) | Err(_) => Poll::Ready(failed("the tool failed unexpectedly")),
        }
    }
}
