//! Sessions: whose cells run, with which tools and limits. The public face of running a cell.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use codemode_core::cell::{Lost, Reply};
use codemode_core::ids::Owner;
use codemode_core::input::{self, ExecInput, Refusal};
use codemode_core::limits::Limits;
use codemode_core::outcome::{Failure, Kind, Outcome, Status, Telemetry};
use codemode_core::output::Ledger;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::catalog::{Catalog, Diagnostic};
use crate::drive::{Drive, Reins, drive};
use crate::engine::Shared;
use crate::tool::Tool;

/// The tools that the model sees instead of all the others.
const VISIBLE_TOOLS: [&str; 2] = ["exec", "wait"];

/// The embedder used the API in a way that can't work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Tools run as tasks of a tokio runtime, and there is none here.
    #[error("a session needs a tokio runtime: build it inside of one, or pass its handle")]
    NoRuntime,
}

/// Something that happened to a cell, for logs and measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellEvent {
    /// A cell's state was put away, and its instance given back.
    Parked {
        /// Bytes of the parked form.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A parked cell has an instance again.
    Resumed {
        /// Bytes of the parked form.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
}

type Observer = Arc<dyn Fn(&CellEvent) + Send + Sync>;

/// Describes a session.
pub struct SessionBuilder {
    engine: Arc<Shared>,
    limits: Limits,
    owner: Owner,
    tools: Vec<Arc<dyn Tool>>,
    runtime: Option<Handle>,
    observer: Option<Observer>,
    park_at_every_suspension: bool,
}

impl SessionBuilder {
    pub(crate) fn new(engine: Arc<Shared>) -> Self {
        Self {
            engine,
            limits: Limits::default(),
            owner: Owner::default(),
            tools: Vec::new(),
            runtime: None,
            observer: None,
            park_at_every_suspension: false,
        }
    }

    /// The limits of its cells. Default: those of the table.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Who owns its cells. Default: nobody in particular, so that any session may resume them.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// The runtime that calls of tools run on. Default: the one that the session is built in.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Is called when something happens to a cell, on whatever thread it happens; it must be quick.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&CellEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Parks cells whenever they wait, and resumes them in a fresh instance. Slower, for tests: a cell must not notice.
    #[must_use]
    pub fn park_at_every_suspension(mut self, park: bool) -> Self {
        self.park_at_every_suspension = park;
        self
    }

    /// Begins the session.
    ///
    /// # Errors
    ///
    /// [`SessionError::NoRuntime`] when no runtime was given and there is none here.
    pub fn build(self) -> Result<Session, SessionError> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| SessionError::NoRuntime)?,
        };
        let catalog = Catalog::build(self.tools);
        Ok(Session(Arc::new(Inner {
            engine: self.engine,
            limits: self.limits,
            owner: self.owner,
            catalog,
            runtime,
            observer: self.observer,
            park_at_every_suspension: self.park_at_every_suspension,
            counter_scope: uuid::Uuid::new_v4().simple().to_string(),
            call_count: AtomicU64::new(0),
            search_count: AtomicU64::new(0),
            describe_count: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            cells: Mutex::default(),
        })))
    }
}

/// A session. Dropping it cancels its cells, parked ones included.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use codemode::{Definition, Engine, EngineConfig, ExecInput, from_fn};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let engine = Engine::new(EngineConfig::default())?;
/// let session = engine
///     .session()
///     .tool(from_fn(Definition::new("add", "Adds a and b."), |_, numbers: (i64, i64)| async move {
///         Ok(numbers.0 + numbers.1)
///     }))
///     .build()?;
/// let outcome = session.exec(ExecInput::javascript("return await add([1, 2])")).await;
/// assert!(outcome.to_json().contains(r#""value":3"#));
/// # Ok(()) })
/// # }
/// ```
pub struct Session(Arc<Inner>);

/// What a session's cells share.
pub(crate) struct Inner {
    pub engine: Arc<Shared>,
    pub limits: Limits,
    pub owner: Owner,
    pub catalog: Catalog,
    pub runtime: Handle,
    pub park_at_every_suspension: bool,
    observer: Option<Observer>,
    counter_scope: String,
    call_count: AtomicU64,
    search_count: AtomicU64,
    describe_count: AtomicU64,
    is_closed: AtomicBool,
    cells: Mutex<Vec<Weak<Reins>>>,
}

/// A running `exec` or `wait` call: a future of its outcome. Dropping it cancels the cell.
#[must_use = "a call does nothing unless it is awaited"]
pub struct Execution {
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    handle: CancelHandle,
}

/// Cancels a call from elsewhere; the call then returns `aborted`.
#[derive(Clone)]
pub struct CancelHandle(Option<(Arc<Reins>, u64)>);

impl CancelHandle {
    /// Cancels the call. One that has returned isn't affected, and neither is its cell if that waits: the next call on it
    /// has a handle of its own.
    pub fn cancel(&self) {
        if let Some((reins, call)) = &self.0
            && reins.call.load(SeqCst) == *call
        {
            reins.cancel();
        }
    }
}

impl Execution {
    /// A handle that cancels this call.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.handle.clone()
    }

    fn driven(cell: Box<Drive>) -> Self {
        let call = cell.reins.call.fetch_add(1, SeqCst) + 1;
        let handle = CancelHandle(Some((cell.reins.clone(), call)));
        Self { handle, outcome: Box::pin(drive(cell)) }
    }

    fn ready(outcome: Outcome) -> Self {
        Self { handle: CancelHandle(None), outcome: Box::pin(std::future::ready(outcome)) }
    }
}

impl Future for Execution {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.outcome.as_mut().poll(context)
    }
}

impl Session {
    /// Runs a cell.
    pub fn exec(&self, input: ExecInput) -> Execution {
        if self.0.is_closed.load(SeqCst) {
            return Execution::ready(self.0.failed(closed(), false));
        }
        let cell = Drive::new(self.0.clone(), input);
        self.0.remember(&cell.reins);
        if self.0.is_closed.load(SeqCst) {
            // Closed meanwhile: whoever closed it may have looked before the cell was there.
            cell.reins.cancel();
        }
        Execution::driven(cell)
    }

    /// Runs a cell from the arguments of a tool call. Bad ones come back as a failed result.
    pub fn exec_json(&self, arguments: &Value) -> Execution {
        match ExecInput::parse(arguments) {
            Ok(input) => self.exec(input),
            Err(refusal) => Execution::ready(self.0.refused(refusal)),
        }
    }

    /// Goes on with a parked cell. An unknown, expired, foreign or busy run comes back as a failed result, and the cell
    /// stays as it is.
    pub fn wait(&self, run_id: &str) -> Execution {
        let engine = &self.0.engine;
        engine.sweep();
        let resumed = engine.parked().resume(run_id, &self.0.owner);
        match resumed {
            Ok(mut cell) => {
                cell.wait();
                Execution::driven(cell)
            }
            Err(refusal) => Execution::ready(self.0.refused(refusal)),
        }
    }

    /// Goes on with a parked cell, from the arguments of a tool call.
    pub fn wait_json(&self, arguments: &Value) -> Execution {
        match input::wait_run_id(arguments) {
            Ok(run_id) => self.wait(&run_id),
            Err(refusal) => Execution::ready(self.0.refused(refusal)),
        }
    }

    /// Cancels every cell of the session, and releases the parked ones. New calls are refused.
    pub fn close(&self) {
        self.0.close();
    }

    /// Tools that the catalog left out.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.catalog.diagnostics
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    fn cells(&self) -> MutexGuard<'_, Vec<Weak<Reins>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, reins: &Arc<Reins>) {
        let mut cells = self.cells();
        // Forgets cells that are gone, now and then.
        if cells.len() == cells.capacity() {
            cells.retain(|cell| cell.strong_count() > 0);
        }
        cells.push(Arc::downgrade(reins));
    }

    fn close(self: &Arc<Self>) {
        self.is_closed.store(true, SeqCst);
        let cells = std::mem::take(&mut *self.cells());
        for cell in cells.iter().filter_map(Weak::upgrade) {
            cell.cancel();
        }
        let parked = self.engine.parked().take_all(|cell| Arc::ptr_eq(&cell.session, self));
        drop(parked);
    }

    /// Tells the observer.
    pub fn observe(&self, event: &CellEvent) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }

    /// A call of a tool was dispatched.
    pub fn count_call(&self) {
        self.call_count.fetch_add(1, Relaxed);
    }

    /// Searches the catalog; the reply is an array of indexes.
    pub fn search(&self, query: &str, limit: Option<u64>) -> Reply {
        self.search_count.fetch_add(1, Relaxed);
        let limit = limit.unwrap_or(self.limits.search_default_limit()).min(self.limits.max_search_limit());
        reply(&self.catalog.search(query, usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// Describes the tool with this index in full.
    pub fn describe(&self, index: u32) -> Reply {
        self.describe_count.fetch_add(1, Relaxed);
        match usize::try_from(index).ok().and_then(|index| self.catalog.entries.get(index)) {
            Some(entry) => reply(&entry.description()),
            // The import has checked the index already.
            None => Reply::Failed { message: String::from("there is no such tool"), code: None },
        }
    }

    /// The counters so far.
    pub fn telemetry(&self) -> Telemetry {
        Telemetry {
            catalog_size: self.catalog.entries.len() as u64,
            sources: self.catalog.sources.clone(),
            counter_scope: self.counter_scope.clone(),
            search_count: self.search_count.load(Relaxed),
            describe_count: self.describe_count.load(Relaxed),
            call_count: self.call_count.load(Relaxed),
            visible_tools: VISIBLE_TOOLS.map(str::to_owned).into(),
        }
    }

    fn refused(&self, refusal: Refusal) -> Outcome {
        self.failed(Lost { kind: refusal.kind, error: refusal.message }, false)
    }

    /// The outcome of a call that has no cell.
    pub fn failed(&self, lost: Lost, bridge_dispatch_started: bool) -> Outcome {
        let (output, error) = Ledger::new(self.limits.max_output_bytes()).fail(&lost.error);
        Outcome {
            status: Status::Failed(Failure { kind: lost.kind, error, bridge_dispatch_started }),
            replay_safe: false,
            telemetry: self.telemetry(),
            output,
        }
    }
}

#[expect(clippy::expect_used, reason = "strings, numbers and JSON always serialise")]
fn reply(value: &impl serde::Serialize) -> Reply {
    Reply::Value(serde_json::value::to_raw_value(value).expect("it serialises"))
}

fn closed() -> Lost {
    Lost { kind: Kind::Aborted, error: String::from("the session is closed") }
}
