//! Carries out requests: calls of tools as tasks of the embedder's runtime. A panic of a tool is a failed call; nothing
//! here knows what becomes of the reply.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use codemode_core::cell::{Event, Reply};
use codemode_core::ids::RequestId;
use codemode_core::limits;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::alarms::{AlarmId, Alarms};
use crate::catalog::Catalog;
use crate::engine::Shared;
use crate::reins::Reins;
use crate::session::Inner as Session;
use crate::tool::{Call, Output, ToolFuture};
use crate::turnstile::{Deadlock, Entry, Lineage, Pass};

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

/// The cell that makes a call.
pub(crate) struct Caller<'a> {
    pub session: &'a Session,
    pub catalog: &'a Catalog,
    pub reins: &'a Arc<Reins>,
    /// The calls that the cell runs inside of.
    pub lineage: &'a Lineage,
    /// The span of the running `exec` or `wait`.
    pub span: &'a Span,
    /// When that returns at the latest.
    pub deadline: Instant,
}

/// Starts a call of the tool at `index`; its reply arrives as an event, whatever becomes of the call.
pub(crate) fn tool(caller: &Caller<'_>, id: RequestId, index: u32, input: Box<RawValue>) -> Option<Running> {
    let Caller { session, catalog, reins, lineage, span, deadline } = *caller;
    let definition = &catalog.0.entry(index)?.definition;
    let cancellation = CancellationToken::new();
    let span =
        tracing::info_span!(target: "codemode", parent: span, "tool_call", request = %id, tool = definition.name);
    let settling = Settling { reins: reins.clone(), engine: Arc::downgrade(&session.engine), id, is_settled: false };
    let entry = match session.turnstile.enter(definition.is_sequential(), lineage) {
        Ok(entry) => entry,
        Err(Deadlock) => {
            settling.refuse(waits_for_itself(&definition.name));
            return None;
        }
    };
    let call = Call {
        request_id: id.to_string(),
        owner: session.owner.clone(),
        deadline,
        cancellation: cancellation.clone(),
        span: span.clone(),
        events: reins.events.clone(),
    };
    let tool = Callee { catalog: catalog.clone(), index, output_bytes_max: session.limits.inbox_bytes() };
    let start = Start { tool, call, input, settling, span };
    let runtime = session.runtime.clone();
    let pass = match entry {
        Entry::Open(pass) => pass,
        Entry::Queued(queued) => {
            let lineage = lineage.clone();
            let task = runtime.spawn(async move { start.all(lineage, queued.await).await });
            return Some(Running::Task { task: Task::Spawned(task.abort_handle()), cancellation });
        }
    };
    let task = Arc::new(OnceLock::new());
    let soon = StartSoon { start, pass, lineage: lineage.clone(), runtime, task: task.clone() };
    let task = match session.engine.starter.try_run(soon, StartSoon::here) {
        Ok(()) => Task::Started(task),
        Err(soon) => Task::Spawned(soon.elsewhere()),
    };
    Some(Running::Task { task, cancellation })
}

/// Why a call is refused that would wait for a call which it runs inside of.
pub(crate) fn waits_for_itself(tool: &str) -> String {
    format!("{tool:?} would wait for itself: this program was started by a call of a tool that has to end first")
}

/// A call that has everything but its place among the others.
struct Start {
    tool: Callee,
    call: Call,
    input: Box<RawValue>,
    settling: Settling,
    span: Span,
}

impl Start {
    fn begin(self, lineage: &Lineage, pass: Arc<Pass>) -> (Guarded, Settling) {
        let Self { tool, call, input, settling, span } = self;
        (Guarded::start(tool, call, input, span, lineage.with(&pass), pass), settling)
    }

    async fn all(self, lineage: Lineage, pass: Arc<Pass>) {
        let (call, settling) = self.begin(&lineage, pass);
        settling.settle(call.await);
    }
}

/// A call that may start.
struct StartSoon {
    start: Start,
    pass: Arc<Pass>,
    lineage: Lineage,
    runtime: Handle,
    /// Where the task is found, once there is one.
    task: Arc<OnceLock<AbortHandle>>,
}

impl StartSoon {
    /// Takes the first step on this thread; what doesn't end with it becomes a task.
    fn here(self) {
        let cancellation = self.start.call.cancellation.clone();
        if cancellation.is_cancelled() {
            return;
        }
        let inside = self.runtime.enter();
        let (mut call, settling) = self.start.begin(&self.lineage, self.pass);
        // Nobody is woken by this poll: a task polls again before it waits.
        let first = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        drop(inside);
        match first {
            Poll::Ready(reply) => {
                drop(call);
                settling.settle(reply);
            }
            Poll::Pending => {
                let task = self.runtime.spawn(async move { settling.settle(call.await) }).abort_handle();
                // Whoever stops the call cancels the token, then looks for the task: one of the two sees the other.
                let task = self.task.get_or_init(|| task);
                if cancellation.is_cancelled() {
                    task.abort();
                }
            }
        }
    }

    /// Runs all of it as a task.
    fn elsewhere(self) -> AbortHandle {
        let Self { start, pass, lineage, runtime, .. } = self;
        runtime.spawn(async move { start.all(lineage, pass).await }).abort_handle()
    }
}

/// Sees to it that a call is settled once: also when its task is dropped, for instance because its runtime ends.
struct Settling {
    reins: Arc<Reins>,
    engine: Weak<Shared>,
    id: RequestId,
    is_settled: bool,
}

impl Settling {
    fn settle(mut self, reply: Reply) {
        self.send(reply);
        // A parked cell doesn't listen by itself.
        if let Some(engine) = self.engine.upgrade() {
            self.reins.absorb_if_parked(&engine);
        }
    }

    /// Settles a call that isn't even started.
    fn refuse(mut self, message: String) {
        self.send(Reply::Failed { message, code: Some("tool_error") });
    }

    fn send(&mut self, reply: Reply) {
        self.is_settled = true;
        // A cell that is gone wants no replies, and one that cancelled the call ignores this one.
        let _ = self.reins.events.send(Event::Settled(self.id, reply));
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if !self.is_settled {
            self.send(failed("the call ended without an answer"));
        }
    }
}

/// The tool that is called.
struct Callee {
    catalog: Catalog,
    index: u32,
    /// A longer output isn't looked at, because the cell refuses it.
    output_bytes_max: u64,
}

fn failed(message: &str) -> Reply {
    let bytes_max = usize::try_from(limits::fixed(&limits::ERROR_TEXT_BYTES)).unwrap_or(usize::MAX);
    let message = message.get(..message.floor_char_boundary(bytes_max)).unwrap_or_default();
    Reply::Failed { message: message.to_owned(), code: Some("tool_error") }
}

/// A call that runs with its place among the others, in its span. A panic, when it is started or later, is a failed reply;
/// what it gives is checked before it is handed on.
struct Guarded {
    tool: Callee,
    future: Option<ToolFuture>,
    span: Span,
    lineage: Lineage,
    _pass: Arc<Pass>,
}

impl Guarded {
    fn start(tool: Callee, call: Call, input: Box<RawValue>, span: Span, lineage: Lineage, pass: Arc<Pass>) -> Self {
        let start = || tool.catalog.0.entry(tool.index).map(|entry| entry.tool.call(call, input));
        let started = span.in_scope(|| lineage.scope(|| catch_unwind(AssertUnwindSafe(start))));
        Self { future: started.ok().flatten(), tool, span, lineage, _pass: pass }
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

impl Future for Guarded {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let Self { future, span, lineage, .. } = &mut *self;
        let step = || future.as_mut().map(|future| future.as_mut().poll(context));
        let polled = span.in_scope(|| lineage.scope(|| catch_unwind(AssertUnwindSafe(step))));
        match polled {
            Ok(Some(Poll::Pending)) => Poll::Pending,
            Ok(Some(Poll::Ready(Ok(output)))) => Poll::Ready(self.hand_on(output)),
            Ok(Some(Poll::Ready(Err(error)))) => Poll::Ready(failed(&error.message)),
            Ok(None) | Err(_) => Poll::Ready(failed("the tool failed unexpectedly")),
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The tool's own code may run here too.
        let future = self.future.take();
        let (span, lineage) = (&self.span, &self.lineage);
        drop(span.in_scope(|| lineage.scope(|| catch_unwind(AssertUnwindSafe(move || drop(future))))));
    }
}
