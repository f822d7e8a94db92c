//! Sessions: whose cells run, with which tools and limits. The public face of running a cell.

use std::borrow::Cow;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use codemode_core::cell::{CancelReason, Lost};
use codemode_core::ids::Owner;
use codemode_core::input::{self, ExecInput, Language, Refusal};
use codemode_core::limits::{self, LimitError, Limits};
use codemode_core::model_text::ModelContext;
use codemode_core::outcome::{Failure, Kind, Outcome, Status, Telemetry};
use codemode_core::output::Ledger;
use codemode_core::results::Saved;
use serde_json::Value;
use tokio::runtime::Handle;
use tracing::Span;
use tracing::field::Empty;

use crate::call;
use crate::catalog::Catalog;
use crate::drive::Drive;
use crate::engine::Shared;
use crate::reins::Reins;
use crate::results::SharedResults;
use crate::tool::Tool;
use crate::turnstile::Turnstile;

/// The embedder used the API in a way that can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Tools run as tasks of a tokio runtime, and there is none here.
    #[error("a session needs a tokio runtime: build it inside of one, or pass its handle")]
    NoRuntime,
    /// A number is out of range.
    #[error(transparent)]
    Limit(#[from] LimitError),
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
    /// A call's budget is paused, because somebody's approval is awaited. The owner's own budget may be paused as well.
    BudgetPaused,
    /// A call's budget counts again; follows each `BudgetPaused`.
    BudgetResumed,
}

/// What a script may use that runs without anybody who waits for it: see [`Session::run_script`].
///
/// ```
/// use codemode::ScriptLimits;
/// assert!(ScriptLimits::new(60_000, 20).is_ok());
/// assert!(ScriptLimits::new(0, 5).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLimits {
    pub(crate) timeout_ms: u64,
    pub(crate) tool_calls: u64,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        let (timeout_ms, tool_calls) =
            (limits::fixed(&limits::SCRIPT_TIMEOUT_MS), limits::fixed(&limits::SCRIPT_TOOL_CALLS));
        Self { timeout_ms, tool_calls }
    }
}

impl ScriptLimits {
    /// Milliseconds from start to end, and calls of tools.
    ///
    /// # Errors
    ///
    /// [`LimitError::OutOfRange`] when one of them isn't allowed: from 1 to 900,000 milliseconds, from 1 to 200 calls.
    pub fn new(timeout_ms: u64, tool_calls: u64) -> Result<Self, LimitError> {
        limits::check(&limits::SCRIPT_TIMEOUT_MS, timeout_ms)?;
        limits::check(&limits::SCRIPT_TOOL_CALLS, tool_calls)?;
        Ok(Self { timeout_ms, tool_calls })
    }
}

type Observer = Arc<dyn Fn(&CellEvent) + Send + Sync>;
type BeforeExec = Arc<dyn Fn(&ExecCall) -> Decision + Send + Sync>;

/// A call of `exec` that a policy decides about before anything of it is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecCall {
    /// Tells it from calls of a shell tool that is named `exec` too. Always [`ExecCall::TOOL_KIND`].
    pub tool_kind: &'static str,
    /// The language of the source; `None` when the arguments name none that exists.
    pub tool_input_kind: Option<Language>,
    /// The arguments. Both aliases of the source, `code` and `command`, have its text.
    pub arguments: Value,
}

impl ExecCall {
    /// What `tool_kind` says.
    pub const TOOL_KIND: &'static str = "code_mode_exec";
}

/// What a policy decides about a call of `exec`.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It goes on as it is.
    Proceed,
    /// It goes on with these arguments. One alias of the source that was changed takes the other along; one that was made
    /// blank makes the call fail.
    Rewrite(Value),
    /// It fails with `bad_arguments` and this text for the model.
    Refuse(String),
}

/// Describes a session.
pub struct SessionBuilder {
    engine: Arc<Shared>,
    limits: Limits,
    owner: Owner,
    tools: Vec<Arc<dyn Tool>>,
    catalog: Option<Catalog>,
    context_tokens: Option<u64>,
    runtime: Option<Handle>,
    observer: Option<Observer>,
    before_exec: Option<BeforeExec>,
    park_at_every_suspension: bool,
}

impl SessionBuilder {
    pub(crate) fn new(engine: Arc<Shared>) -> Self {
        Self {
            engine,
            limits: Limits::default(),
            owner: Owner::default(),
            tools: Vec::new(),
            catalog: None,
            context_tokens: None,
            runtime: None,
            observer: None,
            before_exec: None,
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

    /// Takes this catalog instead of building one; tools that were added otherwise are ignored. Sessions that share a
    /// catalog share what it takes to install it.
    #[must_use]
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.catalog = Some(catalog);
        self
    }

    /// How many tokens the context of the model has that reads the results. [`Outcome::text`] is cut to what fits, and a
    /// value that is cut is kept as a result. Default: only the output budget bounds it.
    #[must_use]
    pub fn context_tokens(mut self, tokens: u64) -> Self {
        self.context_tokens = Some(tokens);
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

    /// Asks a policy before every `exec`. It runs where `exec` is called, and must be quick.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use codemode::{Decision, Engine, EngineConfig, ExecInput};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let session = Engine::new(EngineConfig::default())?
    ///     .session()
    ///     .before_exec(|call| match call.arguments["code"].as_str() {
    ///         Some(code) if code.contains("eval") => Decision::Refuse("eval isn't allowed here".into()),
    ///         _ => Decision::Proceed,
    ///     })
    ///     .build()?;
    /// let outcome = session.exec(ExecInput::javascript("return eval('1')")).await;
    /// assert!(outcome.to_json().contains("eval isn't allowed here"));
    /// # Ok(()) })
    /// # }
    /// ```
    #[must_use]
    pub fn before_exec(mut self, policy: impl Fn(&ExecCall) -> Decision + Send + Sync + 'static) -> Self {
        self.before_exec = Some(Arc::new(policy));
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
    /// - [`SessionError::NoRuntime`] when no runtime was given and there is none here.
    /// - [`SessionError::Limit`] when the context has fewer than 16,384 tokens: a bare status might not fit.
    pub fn build(self) -> Result<Session, SessionError> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| SessionError::NoRuntime)?,
        };
        let context = self.context_tokens.map(ModelContext::of_tokens).transpose()?;
        let catalog = self.catalog.unwrap_or_else(|| Catalog::new(self.tools));
        Ok(Session(Arc::new(Inner {
            number: self.engine.next_session(),
            engine: self.engine,
            owner: Arc::new(self.owner),
            current: RwLock::new(Current::new(catalog, &self.limits)),
            limits: self.limits,
            context,
            turnstile: Turnstile::default(),
            runtime,
            observer: self.observer,
            before_exec: self.before_exec,
            park_at_every_suspension: self.park_at_every_suspension,
            is_closed: AtomicBool::new(false),
            calls: Mutex::default(),
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

/// The catalog that new cells run with, what was counted while they did, and what they keep for each other.
#[derive(Clone)]
pub(crate) struct Current {
    pub catalog: Catalog,
    pub counters: Arc<Counters>,
    pub results: SharedResults,
}

/// Cumulative for a catalog, and for those that only add to it.
pub(crate) struct Counters {
    scope: String,
    pub calls: AtomicU64,
    pub searches: AtomicU64,
    pub descriptions: AtomicU64,
}

impl Counters {
    fn new() -> Arc<Self> {
        let scope = uuid::Uuid::new_v4().simple().to_string();
        Arc::new(Self { scope, calls: AtomicU64::new(0), searches: AtomicU64::new(0), descriptions: AtomicU64::new(0) })
    }
}

impl Current {
    fn new(catalog: Catalog, limits: &Limits) -> Self {
        Self { catalog, counters: Counters::new(), results: SharedResults::new(limits.inbox_bytes()) }
    }

    /// The counters so far.
    pub fn telemetry(&self) -> Telemetry {
        Telemetry {
            catalog_size: self.catalog.0.entries.len() as u64,
            sources: self.catalog.0.sources.clone(),
            counter_scope: self.counters.scope.clone(),
            search_count: self.counters.searches.load(Relaxed),
            describe_count: self.counters.descriptions.load(Relaxed),
            call_count: self.counters.calls.load(Relaxed),
            visible_tools: self.catalog.visible_tools().to_vec(),
        }
    }
}

/// What became of a session's cells when it got another catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogChange {
    /// Tools were added or described anew. Cells that ran or were parked go on with the tools that they started with.
    Added,
    /// Tools were replaced or taken away. Cells that ran were cancelled, parked ones released.
    Replaced,
}

/// What a session's cells share.
pub(crate) struct Inner {
    pub engine: Arc<Shared>,
    /// Tells sessions apart where workers are shared fairly between them.
    pub number: u64,
    pub limits: Limits,
    pub context: Option<ModelContext>,
    pub owner: Arc<Owner>,
    pub runtime: Handle,
    pub turnstile: Turnstile,
    current: RwLock<Current>,
    pub park_at_every_suspension: bool,
    observer: Option<Observer>,
    before_exec: Option<BeforeExec>,
    is_closed: AtomicBool,
    /// Calls that run, or did, each with the counters that tell which catalog its cell has: calls that were made through this
    /// session, and those through others on cells of this one.
    calls: Mutex<Vec<(CancelHandle, Arc<Counters>)>>,
}

/// A running `exec` or `wait` call: a future of its outcome. Dropping it cancels the cell.
#[must_use = "a call does nothing unless it is awaited"]
pub struct Execution {
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    handle: CancelHandle,
}

/// Cancels a call from elsewhere; the call then returns `aborted`.
#[derive(Clone)]
pub struct CancelHandle {
    /// Gone when the cell is.
    reins: Weak<Reins>,
    call: u64,
}

impl CancelHandle {
    /// Cancels the call. One that has returned isn't affected, and neither is its cell if that waits: the next call on it
    /// has a handle of its own.
    pub fn cancel(&self) {
        self.cancel_for(CancelReason::Caller);
    }

    fn cancel_for(&self, reason: CancelReason) {
        if let Some(reins) = self.reins.upgrade() {
            reins.cancel_call(self.call, reason);
        }
    }

    fn is_running(&self) -> bool {
        self.reins.upgrade().is_some_and(|reins| reins.is_in_call(self.call))
    }
}

impl Execution {
    /// A handle that cancels this call.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.handle.clone()
    }

    fn ready(outcome: Outcome) -> Self {
        let handle = CancelHandle { reins: Weak::new(), call: 0 };
        Self { handle, outcome: Box::pin(std::future::ready(outcome)) }
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
        if self.0.before_exec.is_some() {
            return self.exec_json(&input.to_arguments());
        }
        self.run(input, None)
    }

    /// Runs a script without anybody who waits for it: with limits of its own, yields that go on at once, and an end in
    /// any case. Its outcome is never a waiting one; [`Outcome::to_script_json`] has it in short. The policy of
    /// [`SessionBuilder::before_exec`] isn't asked: whoever calls this is the embedder, not a model.
    pub fn run_script(&self, input: ExecInput, limits: ScriptLimits) -> Execution {
        self.run(input, Some(limits))
    }

    fn run(&self, input: ExecInput, script: Option<ScriptLimits>) -> Execution {
        if self.0.is_closed.load(SeqCst) {
            return Execution::ready(self.0.closed());
        }
        if let Err(refusal) = input.check() {
            return Execution::ready(self.0.refused(refusal));
        }
        let span = tracing::info_span!(
            target: "codemode",
            "exec",
            session = self.0.number,
            language = input.language.as_str(),
            status = Empty,
            kind = Empty,
            run = Empty
        );
        // Whoever gives the session another catalog sees this call, or its cell sees that catalog.
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        let cell = Drive::new(self.0.clone(), current.clone(), input, script);
        self.0.begin(cell, span)
    }

    /// Runs a cell from the arguments of a tool call. Bad ones come back as a failed result.
    pub fn exec_json(&self, arguments: &Value) -> Execution {
        match self.0.admitted(arguments).and_then(|arguments| ExecInput::parse(&arguments)) {
            Ok(input) => self.run(input, None),
            Err(refusal) => Execution::ready(self.0.refused(refusal)),
        }
    }

    /// Goes on with a parked cell. An unknown, expired, foreign or busy run comes back as a failed result, and the cell
    /// stays as it is.
    pub fn wait(&self, run_id: &str) -> Execution {
        let engine = &self.0.engine;
        if self.0.is_closed.load(SeqCst) {
            let refusal = Refusal::new(Kind::UnknownRun, "the session is closed, and it has no waiting runs any more");
            return Execution::ready(self.0.refused(refusal));
        }
        engine.sweep();
        let resumed = engine.parked().resume(run_id, &self.0.owner);
        match resumed {
            Ok(mut cell) => {
                cell.wait();
                let span = tracing::info_span!(
                    target: "codemode",
                    "wait",
                    session = self.0.number,
                    run = run_id,
                    status = Empty,
                    kind = Empty
                );
                let (session, counters) = (cell.session.clone(), cell.current.counters.clone());
                let execution = self.0.begin(cell, span);
                if !Arc::ptr_eq(&session.current().counters, &counters) {
                    // Whoever replaced the tools may have looked while the cell was neither parked nor in a call.
                    execution.handle.cancel_for(CancelReason::ToolsReplaced);
                }
                execution
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

    /// A value that a cell of the session saved, or that was kept because it exceeded its budget. `None` when there is none
    /// of this id any more.
    pub fn saved_result(&self, id: &str) -> Option<Saved> {
        self.0.current().results.load(id)
    }

    /// Cancels every cell of the session, releases the parked ones, and forgets saved results. New calls are refused.
    pub fn close(&self) {
        self.0.close();
    }

    /// The catalog that new cells run with.
    pub fn catalog(&self) -> Catalog {
        self.0.current().catalog
    }

    /// The description of the `exec` tool for the model, as the session's catalog and limits have it now.
    pub fn exec_description(&self) -> String {
        self.catalog().exec_description(&self.0.limits)
    }

    /// Gives the session another catalog. Cells go on when it only adds tools, or describes them in other words; when it
    /// replaces or takes away any, every cell of the session ends: running ones fail with `aborted`, parked ones are
    /// released, and saved results are forgotten.
    pub fn set_catalog(&self, catalog: Catalog) -> CatalogChange {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        let change =
            if catalog.only_adds_to(&current.catalog) { CatalogChange::Added } else { CatalogChange::Replaced };
        match change {
            CatalogChange::Added => current.catalog = catalog,
            CatalogChange::Replaced => {
                let replaced = std::mem::replace(&mut *current, Current::new(catalog, &self.0.limits));
                drop(current);
                replaced.results.close();
                self.0.end(CancelReason::ToolsReplaced, |counters| Arc::ptr_eq(counters, &replaced.counters));
            }
        }
        change
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Inner {
    fn calls(&self) -> MutexGuard<'_, Vec<(CancelHandle, Arc<Counters>)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call on a cell.
    fn begin(self: &Arc<Self>, mut cell: Box<Drive>, span: Span) -> Execution {
        let call = cell.reins.begin_call();
        let handle = CancelHandle { reins: Arc::downgrade(&cell.reins), call };
        self.remember(&handle, &cell.current.counters);
        if !Arc::ptr_eq(self, &cell.session) {
            cell.session.remember(&handle, &cell.current.counters);
        }
        // Whoever closed the session or gave it other tools may have looked before the call was there.
        if self.is_closed.load(SeqCst) || cell.session.is_closed.load(SeqCst) {
            handle.cancel_for(CancelReason::SessionClosed);
        }
        cell.enter(span.clone());
        Execution { handle, outcome: Box::pin(call::run(cell, call, span)) }
    }

    fn remember(&self, call: &CancelHandle, counters: &Arc<Counters>) {
        let mut calls = self.calls();
        // Forgets calls that have returned, now and then.
        if calls.len() == calls.capacity() {
            calls.retain(|(call, _)| call.is_running());
        }
        calls.push((call.clone(), counters.clone()));
    }

    fn close(self: &Arc<Self>) {
        self.is_closed.store(true, SeqCst);
        self.current().results.close();
        self.end(CancelReason::SessionClosed, |_| true);
    }

    /// Cancels running calls and releases parked cells of the session: those whose catalog `is_meant`.
    fn end(self: &Arc<Self>, reason: CancelReason, is_meant: impl Fn(&Arc<Counters>) -> bool) {
        let meant: Vec<_> = self.calls().extract_if(.., |(_, of)| is_meant(of)).collect();
        for (call, _) in meant {
            call.cancel_for(reason);
        }
        let is_meant = |cell: &Drive| Arc::ptr_eq(&cell.session, self) && is_meant(&cell.current.counters);
        let parked = self.engine.parked().take_all(|cell| is_meant(cell));
        drop(parked);
    }

    /// The arguments of `exec` as the policy leaves them.
    fn admitted<'a>(&self, arguments: &'a Value) -> Result<Cow<'a, Value>, Refusal> {
        let Some(policy) = &self.before_exec else { return Ok(Cow::Borrowed(arguments)) };
        let call = ExecCall {
            tool_kind: ExecCall::TOOL_KIND,
            tool_input_kind: Language::of_arguments(arguments),
            arguments: input::with_both_aliases(arguments),
        };
        match policy(&call) {
            Decision::Proceed => Ok(Cow::Owned(call.arguments)),
            Decision::Rewrite(after) => Ok(Cow::Owned(input::after_hook(&call.arguments, after))),
            Decision::Refuse(reason) => Err(Refusal::new(Kind::BadArguments, reason)),
        }
    }

    /// Tells the observer. One that panics is reported by the panic hook, and nothing else happens.
    pub fn observe(&self, event: &CellEvent) {
        if let Some(observer) = &self.observer {
            drop(catch_unwind(AssertUnwindSafe(|| observer(event))));
        }
    }

    /// The most hits of a search that asks for `limit`.
    pub fn search_limit(&self, limit: Option<u64>) -> usize {
        let limit = limit.unwrap_or(self.limits.search_default_limit()).min(self.limits.max_search_limit());
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    /// What a cell that begins now runs with.
    pub fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn closed(&self) -> Outcome {
        self.failed(CancelReason::SessionClosed.lost(), false)
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
            telemetry: self.current().telemetry(),
            untrusted: None,
            context: self.context,
            tool_calls: 0,
            output,
        }
    }
}
