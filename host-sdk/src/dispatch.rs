//! Carries out requests: calls of tools as tasks of the embedder's runtime. A panic of a tool is a failed call; nothing
//! here knows what becomes of the reply.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use codemode_core::cell::{Event, Reply};
use codemode_core::ids::RequestId;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::alarms::{AlarmId, Alarms};
use crate::catalog::Catalog;
use crate::session::Inner as Session;
use crate::tool::{Call, Output, ToolFuture};

/// A request that is being carried out.
pub(crate) enum Running {
    /// A tool's call.
    Task { task: Task, cancellation: CancellationToken },
    /// A timer.
    Alarm(AlarmId),
}

/// Where a tool's call runs.
pub(crate) enum Task {
    /// As a task from the start.
    Spawned(AbortHandle),
    /// On the starter first; then as a task, if it didn't end there.
    Started(Arc<OnceLock<AbortHandle>>),
}

impl Running {
    /// Stops it: nobody waits any more.
    pub fn stop(self, alarms: &Alarms) {
        match self {
            Self::Task { task, cancellation } => {
                cancellation.cancel();
                match task {
                    Task::Spawned(task) => task.abort(),
                    Task::Started(task) => {
                        if let Some(task) = task.get() {
                            task.abort();
                        }
                    }
                }
            }
            Self::Alarm(alarm) => alarms.cancel(alarm),
        }
    }
}

/// Starts a call of the tool at `index`; its reply arrives as an event.
pub(crate) fn tool(
    session: &Session,
    catalog: &Catalog,
    id: RequestId,
    index: u32,
    input: Box<RawValue>,
    events: UnboundedSender<Event>,
) -> Option<Running> {
    let is_sequential = catalog.0.entry(index)?.definition.sequential;
    let cancellation = CancellationToken::new();
    let call = Call { request_id: id.to_string(), cancellation: cancellation.clone(), events: events.clone() };
    let tool = Callee { catalog: catalog.clone(), index, output_bytes_max: session.limits.inbox_bytes() };
    if session.has_sequential.load(SeqCst) {
        let turnstile = session.turnstile.clone();
        let task = session.runtime.spawn(async move {
            let (_alone, _shared) = if is_sequential {
                (Some(turnstile.write_owned().await), None)
            } else {
                (None, Some(turnstile.read_owned().await))
            };
            settle(&events, id, CatchPanic::start(tool, call, input).await);
        });
        return Some(Running::Task { task: Task::Spawned(task.abort_handle()), cancellation });
    }
    let task = Arc::new(OnceLock::new());
    let start = Start {
        tool,
        call,
        input,
        id,
        events,
        runtime: session.runtime.clone(),
        cancellation: cancellation.clone(),
        task: task.clone(),
    };
    let task = match session.engine.starter.try_run(start, Start::here) {
        Ok(()) => Task::Started(task),
        Err(start) => Task::Spawned(start.elsewhere()),
    };
    Some(Running::Task { task, cancellation })
}

/// A call that is about to start.
struct Start {
    tool: Callee,
    call: Call,
    input: Box<RawValue>,
    id: RequestId,
    events: UnboundedSender<Event>,
    runtime: Handle,
    cancellation: CancellationToken,
    /// Where the task is found, once there is one.
    task: Arc<OnceLock<AbortHandle>>,
}

impl Start {
    /// Takes the first step on this thread; what doesn't end with it becomes a task.
    fn here(self) {
        let (events, id) = (self.events, self.id);
        let inside = self.runtime.enter();
        let mut future = CatchPanic::start(self.tool, self.call, self.input);
        // Nobody is woken by this poll: a task polls again before it waits.
        let first = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        drop(inside);
        match first {
            Poll::Ready(reply) => settle(&events, id, reply),
            Poll::Pending => {
                let task = self.runtime.spawn(async move { settle(&events, id, future.await) }).abort_handle();
                // Whoever stops the call cancels the token, then looks for the task: one of the two sees the other.
                let task = self.task.get_or_init(|| task);
                if self.cancellation.is_cancelled() {
                    task.abort();
                }
            }
        }
    }

    /// Runs all of it as a task.
    fn elsewhere(self) -> AbortHandle {
        let Self { tool, call, input, id, events, runtime, .. } = self;
        runtime.spawn(async move { settle(&events, id, CatchPanic::start(tool, call, input).await) }).abort_handle()
    }
}

fn settle(events: &UnboundedSender<Event>, id: RequestId, reply: Reply) {
    // A cell that is gone wants no replies.
    let _ = events.send(Event::Settled(id, reply));
}

/// The tool that is called.
struct Callee {
    catalog: Catalog,
    index: u32,
    /// A longer output isn't looked at, because the cell refuses it.
    output_bytes_max: u64,
}

fn failed(message: &str) -> Reply {
    Reply::Failed { message: message.to_owned(), code: Some("tool_error") }
}

/// A call whose panic, when it is started or later, is a failed reply. What it gives is checked before it is handed on.
struct CatchPanic {
    tool: Callee,
    future: Option<ToolFuture>,
}

impl CatchPanic {
    fn start(tool: Callee, call: Call, input: Box<RawValue>) -> Self {
        let start = || tool.catalog.0.entry(tool.index).map(|entry| entry.tool.call(call, input));
        let future = catch_unwind(AssertUnwindSafe(start)).ok().flatten();
        Self { tool, future }
    }

    fn hand_on(&self, output: Output) -> Reply {
        if output.get().len() as u64 > self.tool.output_bytes_max {
            return Reply::Value(output);
        }
        let entry = self.tool.catalog.0.entry(self.tool.index);
        match catch_unwind(AssertUnwindSafe(|| entry.map(|entry| entry.hand_on(output)))) {
            Ok(Some(Ok(output))) => Reply::Value(output),
            Ok(Some(Err(breach))) => Reply::Failed { message: breach.message, code: Some(breach.code) },
            Ok(None) | Err(_) => failed("the tool's output can't be handed on"),
        }
    }
}

impl Future for CatchPanic {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let future = self.future.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.map(|future| future.as_mut().poll(context))));
        match polled {
            Ok(Some(Poll::Pending)) => Poll::Pending,
            Ok(Some(Poll::Ready(Ok(output)))) => Poll::Ready(self.hand_on(output)),
            Ok(Some(Poll::Ready(Err(error)))) => Poll::Ready(failed(&error.message)),
            Ok(None) | Err(_) => Poll::Ready(failed("the tool failed unexpectedly")),
        }
    }
}
