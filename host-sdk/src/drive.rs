//! The driver of one cell: performs the state machine's actions and feeds it events. It works on a worker thread, where
//! it may run guest code, and rests in the embedder's future, where it waits. Only this file holds both a cell and an
//! instance.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use codemode_core::budget::Budget;
use codemode_core::cell::{Action, Cell, Ending, Event, Lost, Options, Payload, Reply, Request, Suspension};
use codemode_core::descriptor::DESCRIPTOR_BYTES_MAX;
use codemode_core::ids::{RequestId, RunId};
use codemode_core::input::ExecInput;
use codemode_core::limits;
use codemode_core::outcome::{Failure, Kind, Outcome, Status};
use codemode_core::output::{FinalValue, Ledger, Overflow};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Span;

use crate::alarms::AlarmId;
use crate::answer::{Answer, answer};
use crate::bindings::{GuestLimits, Seed, StartInput};
use crate::bridge::Stop;
use crate::catalog::Entry;
use crate::contract::Breach;
use crate::dispatch::{self, Running};
use crate::engine::{ParkedBytes, Shared, Slot};
use crate::instance::{Instance, TurnContext, TurnResult, far_future, no_room_for_tools, refused, stopped};
use crate::reins::Reins;
use crate::session::{CellEvent, Current, Inner as Session, ScriptLimits};
use crate::snapshot::kept::Kept;
use crate::snapshot::{CatalogImage, StartImage};
use crate::source::GuestSource;
use crate::turnstile::Lineage;
use crate::watch::Watch;

/// One cell being driven.
pub(crate) struct Drive {
    engine: Arc<Shared>,
    pub session: Arc<Session>,
    /// The catalog that the cell runs with, whatever its session has by now.
    pub current: Current,
    cell: Cell,
    ledger: Option<Box<Ledger>>,
    source: Source,
    instance: Option<Instance>,
    /// A place in the pool of instances that was waited for.
    permit: Option<OwnedSemaphorePermit>,
    /// The state of a cell without an instance, once it has run.
    snapshot: Option<(Kept, ParkedBytes)>,
    events: UnboundedReceiver<Event>,
    pub reins: Arc<Reins>,
    running: BTreeMap<RequestId, Running>,
    todo: VecDeque<Action>,
    slot: Option<Slot>,
    run_id: Option<RunId>,
    /// Rings when the parked cell expires.
    expiry: Option<AlarmId>,
    /// Rings when the parked cell has idled for a while.
    packing: Option<AlarmId>,
    /// Whether data from outside came in: what the model reads of the cell is wrapped from then on.
    is_untrusted: bool,
    /// The budget of a `wait` that was admitted and hasn't begun.
    waited: Option<Budget>,
    /// The calls of tools that it runs inside of.
    lineage: Lineage,
    /// Of the running call.
    span: Span,
}

/// A cell's source: text first, checked on a worker, gone once it has started.
enum Source {
    Submitted(ExecInput),
    Checked(GuestSource),
    Started,
}

/// Where work on a cell stopped.
#[expect(clippy::large_enum_variant, reason = "made once for each leg of a call and moved twice")]
pub(crate) enum Step {
    /// It waits for an event.
    Idle(Box<Drive>),
    /// It waits for a place in the pool of instances.
    NeedsInstance(Box<Drive>),
    /// The call has its outcome. What is left of a cell that ended goes with it, to be dropped after the outcome is out.
    Returned(Outcome, Option<Box<Drive>>),
}

/// What performing an action leads to.
enum Flow {
    Next,
    NeedsInstance(Action),
    Suspend(Suspension),
    Finish(Ending),
}

impl Drive {
    /// A cell for one `exec` call.
    pub fn new(session: Arc<Session>, current: Current, input: ExecInput, script: Option<ScriptLimits>) -> Box<Self> {
        let engine = session.engine.clone();
        let options = Options {
            restart_safe: input.restart_safe,
            park_at_every_suspension: session.park_at_every_suspension,
            script_tool_calls_max: script.map(|script| script.tool_calls),
        };
        let total_ms = script.map_or(session.limits.timeout_ms(), |script| script.timeout_ms);
        let budget = Budget::start(Duration::from_millis(total_ms), engine.now());
        let (sender, events) = unbounded_channel();
        Box::new(Self {
            cell: Cell::new(&session.limits, options, budget),
            ledger: Some(Box::new(Ledger::new(session.limits.max_output_bytes()))),
            source: Source::Submitted(input),
            instance: None,
            permit: None,
            snapshot: None,
            events,
            reins: Reins::new(sender),
            running: BTreeMap::new(),
            todo: VecDeque::new(),
            slot: None,
            run_id: None,
            expiry: None,
            packing: None,
            is_untrusted: false,
            waited: None,
            lineage: Lineage::current(),
            span: Span::none(),
            current,
            engine,
            session,
        })
    }

    /// A `wait` call on this parked cell was admitted: its budget counts from now on.
    pub fn wait(&mut self) {
        self.waited = Some(budget(&self.session, &self.engine));
        self.lineage = self.lineage.and(&Lineage::current());
    }

    fn begin_wait(&mut self, budget: Budget) {
        self.reins.note_parked(None);
        self.cancel_expiry();
        // What settled while it was parked came first.
        self.take_events();
        self.feed(Event::Waited(budget));
    }

    /// Takes note of what has happened so far.
    pub fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.feed(event);
        }
    }

    /// The `wait` that was admitted couldn't begin, because of `why`: the cell is parked as it was, unless it has to end.
    pub fn refuse_wait(mut self: Box<Self>, why: Lost) -> Step {
        self.waited = None;
        let (Some(run_id), None) = (self.run_id.clone(), self.reins.cancellation()) else {
            let lost = self.reins.cancellation().unwrap_or(why);
            return self.finish(Ending::Failed(lost));
        };
        let outcome = self.session.failed(why, self.cell.bridge_dispatch_started());
        self.put_away(&run_id);
        Step::Returned(outcome, None)
    }

    /// Whether a `wait` was admitted that hasn't begun.
    pub fn is_about_to_resume(&self) -> bool {
        self.waited.is_some()
    }

    /// Begins a call with its span.
    pub fn enter(&mut self, span: Span) {
        self.span = span;
    }

    fn cancel_expiry(&mut self) {
        for alarm in [self.expiry.take(), self.packing.take()].into_iter().flatten() {
            self.engine.alarms.cancel(alarm);
        }
    }

    /// Packs the snapshot on a worker, once the cell has idled for a while.
    fn pack_later(&self, run_id: &RunId, since: Instant) -> AlarmId {
        let at = since + Duration::from_millis(limits::fixed(&limits::PACK_AFTER_MS));
        let (engine, run_id, user) = (Arc::downgrade(&self.engine), run_id.clone(), self.session.number);
        self.engine.alarms.set(at, move || {
            let Some(engine) = engine.upgrade() else { return };
            let packing = engine.clone();
            // Workers that are that busy have better things to do.
            let _ = engine.workers.run(user, move || pack(&packing, &run_id));
        })
    }

    /// When the budget of the current call is spent.
    fn deadline(&self) -> Instant {
        let budget = self.cell.budget();
        if budget.is_paused() { far_future() } else { self.engine.instant(budget.ends_at()) }
    }

    fn feed(&mut self, event: Event) {
        let now = self.engine.now();
        self.todo.extend(self.cell.handle(event, now));
    }

    /// Works until the cell has to wait, or the call has its outcome. On a worker.
    pub fn work(mut self: Box<Self>) -> Step {
        if let Source::Submitted(input) = &self.source {
            match GuestSource::check(input) {
                Ok(source) => {
                    self.source = Source::Checked(source);
                    let begun = self.cell.begin();
                    self.todo.extend(begun);
                }
                Err(refusal) => {
                    let lost = Lost { kind: refusal.kind, error: refusal.message };
                    return self.finish(Ending::Failed(lost));
                }
            }
        }
        if let Some(budget) = self.waited.take() {
            self.begin_wait(budget);
        }
        loop {
            while let Some(action) = self.todo.pop_front() {
                match self.perform(action) {
                    Flow::Next => {}
                    Flow::NeedsInstance(action) => {
                        self.todo.push_front(action);
                        return Step::NeedsInstance(self);
                    }
                    Flow::Suspend(suspension) => return self.suspend(suspension),
                    Flow::Finish(ending) => return self.finish(ending),
                }
            }
            match self.next_event() {
                Some(event) => self.feed(event),
                None => return Step::Idle(self),
            }
        }
    }

    /// An event that is there, or comes very soon.
    fn next_event(&mut self) -> Option<Event> {
        let mut watch = Watch::begin();
        loop {
            if let Ok(event) = self.events.try_recv() {
                return Some(event);
            }
            if self.running.is_empty() || self.engine.workers.is_contended() || !watch.goes_on() {
                return None;
            }
        }
    }

    fn perform(&mut self, action: Action) -> Flow {
        match action {
            // Closed while it waited for an instance.
            Action::Start | Action::Settle if self.cell.is_closed() => {}
            Action::Settle if self.cell.is_too_late(self.instance.is_some(), self.engine.now()) => self.miss_turn(),
            Action::Start | Action::Settle if self.instance.is_none() => return self.with_instance(action),
            Action::Start => self.start(),
            Action::Settle => self.settle(None),
            Action::TakeSlot => match self.engine.take_slot() {
                Ok(slot) => {
                    self.slot = Some(slot);
                    self.feed(Event::SlotTaken);
                }
                Err(full) => self.feed(Event::SlotRefused(full)),
            },
            Action::Dispatch(request) => self.dispatch(request),
            Action::Cancel(id) => self.stop(id),
            Action::Release => self.instance = None,
            Action::Park => self.park(),
            Action::PauseBudget => self.session.observe(&CellEvent::BudgetPaused),
            Action::ResumeBudget => self.session.observe(&CellEvent::BudgetResumed),
            Action::Suspend(suspension) => return Flow::Suspend(suspension),
            Action::Finish(ending) => return Flow::Finish(ending),
        }
        Flow::Next
    }

    fn stop(&mut self, id: RequestId) {
        if let Some(running) = self.running.remove(&id) {
            running.stop(&self.engine.alarms);
        }
    }

    fn miss_turn(&mut self) {
        self.permit = None;
        let has_instance = self.instance.is_some();
        self.feed(Event::TurnMissed { has_instance });
    }

    /// Gets an instance, restored when the cell has run before, and performs `action` in it.
    fn with_instance(&mut self, action: Action) -> Flow {
        let free = || self.engine.instances.clone().try_acquire_owned().ok();
        let Some(permit) = self.permit.take().or_else(free) else { return Flow::NeedsInstance(action) };
        let ready = self.fresh_instance(permit);
        match (ready, action) {
            // It has its state, so that a later call may have more luck.
            (Err(lost), _) if lost.kind == Kind::Unavailable && self.snapshot.is_some() => self.miss_turn(),
            (Err(lost), _) => self.lose(lost),
            (Ok(instance), Action::Settle) => {
                self.instance = Some(instance);
                self.settle(Some(seed()));
            }
            (Ok(instance), _) => {
                self.instance = Some(instance);
                self.start();
            }
        }
        Flow::Next
    }

    /// An instance with the state of the cell, or with the tools of its catalog when it hasn't run yet.
    fn fresh_instance(&mut self, permit: OwnedSemaphorePermit) -> Result<Instance, Lost> {
        let began = Instant::now();
        let (limits, catalog) = (&self.session.limits, &self.current.catalog);
        let mut instance = Instance::fresh(&self.engine, limits, &self.reins.cancelled, catalog, permit)?;
        if let Some((snapshot, _charged)) = self.snapshot.take() {
            let (bytes, start) = (snapshot.raw_bytes() as u64, self.start_image());
            let raw = snapshot.into_raw(start).ok_or_else(|| Lost {
                kind: Kind::RestoreFailed,
                error: String::from("the packed snapshot is broken"),
            })?;
            instance.restore(start.open(raw).map_err(refused)?)?;
            self.session.observe(&CellEvent::Resumed { bytes, took: began.elapsed() });
        } else if let Some(tools) = self.start_image().begin() {
            if tools.memory_bytes > limits.memory_limit_bytes() {
                return Err(no_room_for_tools(catalog));
            }
            instance.restore(tools)?;
        } else if !catalog.0.is_empty() {
            instance.install(self.deadline())?;
            let deadline = began + Duration::from_millis(limits::fixed(&limits::PARK_MS));
            let image = instance.image(deadline, |live| CatalogImage::new(&self.engine.base, live))?;
            // Another cell may have been faster; both images are of the same state.
            let _ = catalog.0.image.set(image);
        }
        Ok(instance)
    }

    /// What the cell started with.
    fn start_image(&self) -> StartImage<'_> {
        let base = &self.engine.base;
        base.with(self.current.catalog.0.image_over(base))
    }

    fn start(&mut self) {
        let Source::Checked(source) = std::mem::replace(&mut self.source, Source::Started) else { return };
        let input = StartInput {
            source: source.text,
            file_name: source.file_name.into(),
            limits: guest_limits(&self.session.limits),
            seed: seed(),
            started_at: unix_ms(),
        };
        self.turn(|instance, context| instance.start(input, context));
    }

    fn settle(&mut self, seed: Option<Seed>) {
        self.take_events();
        // One of these events may have closed the cell.
        if self.cell.is_closed() {
            return;
        }
        let replies = self.cell.take_replies();
        for (id, _) in &replies {
            self.running.remove(id);
        }
        self.turn(|instance, context| instance.settle(replies, seed, context));
    }

    fn turn(&mut self, run: impl FnOnce(&mut Instance, TurnContext) -> TurnResult) {
        let deadline = self.deadline();
        let (Some(instance), Some(ledger)) = (self.instance.as_mut(), self.ledger.take()) else { return };
        let TurnResult { report, ledger, has_read_remote_text } = run(instance, TurnContext { deadline, ledger });
        self.ledger = Some(ledger);
        self.is_untrusted |= has_read_remote_text;
        match report {
            Ok(mut report) => {
                for request in &mut report.requests {
                    if let Some(lost) = self.overrun(deadline) {
                        return self.feed(Event::TurnLost(lost));
                    }
                    self.accept(request);
                }
                self.feed(Event::TurnEnded(report));
            }
            Err(lost) => self.lose(lost),
        }
    }

    /// The instance is lost. Whoever cancelled says why.
    fn lose(&mut self, lost: Lost) {
        let cancellation = self.reins.cancellation().filter(|_| lost.kind == Kind::Aborted);
        self.feed(Event::TurnLost(cancellation.unwrap_or(lost)));
    }

    /// Checking what a turn asked for counts as part of it.
    fn overrun(&self, deadline: Instant) -> Option<Lost> {
        self.reins.cancellation().or_else(|| (Instant::now() >= deadline).then(|| stopped(Stop::Timeout)))
    }

    /// Checks a call's input against the contract of its tool.
    fn accept(&mut self, request: &mut Request) {
        let Payload::Tool { index, arguments } = &mut request.payload else { return };
        let Some(entry) = self.current.catalog.0.entry(*index) else { return };
        if self.session.turnstile.check(entry.definition.is_sequential(), &self.lineage).is_err() {
            let message = dispatch::waits_for_itself(&entry.definition.name);
            request.payload = Payload::Refused { message, code: "tool_error" };
            return;
        }
        match entry.accept(std::mem::take(arguments)) {
            Ok(input) => *arguments = input,
            Err(Breach { message, code }) => {
                // The names of what is missing are a server's own words.
                self.is_untrusted |= entry.is_member();
                request.payload = Payload::Refused { message, code };
            }
        }
    }

    fn dispatch(&mut self, request: Request) {
        let Request { id, payload, .. } = request;
        let events = self.reins.events.clone();
        let running = match payload {
            Payload::Tool { index, arguments } => {
                self.current.counters.calls.fetch_add(1, Ordering::Relaxed);
                self.reins.bridge_dispatch_started.store(true, Ordering::Relaxed);
                self.is_untrusted |= self.current.catalog.0.entry(index).is_some_and(Entry::is_network);
                let caller = dispatch::Caller {
                    session: &self.session,
                    catalog: &self.current.catalog,
                    reins: &self.reins,
                    lineage: &self.lineage,
                    span: &self.span,
                    deadline: if self.cell.budget().is_spent(self.engine.now()) {
                        far_future()
                    } else {
                        self.deadline()
                    },
                };
                dispatch::tool(&caller, id, index, arguments)
            }
            Payload::Timer { delay_ms } => {
                let at = Instant::now() + Duration::from_millis(delay_ms);
                Some(Running::Alarm(self.engine.alarms.set(at, move || settle_later(&events, id, Reply::Done))))
            }
            payload @ (Payload::Search { .. }
            | Payload::Describe { .. }
            | Payload::Declare { .. }
            | Payload::Save { .. }
            | Payload::Load { .. }
            | Payload::Delete { .. }) => {
                self.reins.bridge_dispatch_started.store(true, Ordering::Relaxed);
                let Answer { reply, is_untrusted } = answer(payload, &self.session, &self.current, self.is_untrusted);
                self.is_untrusted |= is_untrusted;
                // At once, so that the next answer isn't made before this one is counted.
                self.feed(Event::Settled(id, reply));
                None
            }
            Payload::Yield { .. } | Payload::Oversized | Payload::Refused { .. } => None,
        };
        if let Some(running) = running {
            self.running.insert(id, running);
        }
    }

    /// Puts the cell's state away and gives its instance back.
    fn park(&mut self) {
        let began = Instant::now();
        let bytes_max = self.session.limits.max_snapshot_bytes();
        let Some(mut instance) = self.instance.take() else { return self.feed(Event::Parked) };
        let deadline = began + Duration::from_millis(limits::fixed(&limits::PARK_MS));
        let start = self.start_image();
        match instance.image(deadline, |live| start.delta(live, bytes_max)) {
            Ok(None) => self.feed(Event::ParkRefused { bytes_max }),
            Ok(Some(snapshot)) => {
                let bytes = snapshot.len() as u64;
                let Some(charged) = self.engine.charge_parked(bytes) else {
                    drop(instance);
                    return self.feed(Event::TurnLost(no_room_for_snapshot()));
                };
                self.snapshot = Some((Kept::Raw(snapshot.into()), charged));
                self.session.observe(&CellEvent::Parked { bytes, took: began.elapsed() });
                self.feed(Event::Parked);
            }
            Err(lost) => self.lose(lost),
        }
    }

    fn suspend(mut self: Box<Self>, suspension: Suspension) -> Step {
        if let Some(lost) = self.reins.cancellation() {
            return self.finish(Ending::Failed(lost));
        }
        let Suspension { reason, pending, yield_reason } = suspension;
        let run_id = self.run_id.get_or_insert_with(|| RunId::new(uuid::Uuid::new_v4())).clone();
        let output = self.ledger().wait();
        let status = Status::Waiting { run_id: run_id.clone(), reason, pending, yield_reason };
        let outcome = self.outcome(status, output);
        self.put_away(&run_id);
        Step::Returned(outcome, None)
    }

    /// Parks the cell until the next `wait`. It holds no place in the pool of instances meanwhile.
    fn put_away(mut self: Box<Self>, run_id: &RunId) {
        self.permit = None;
        self.span = Span::none();
        let since = Instant::now();
        let expires_at = since + Duration::from_secs(self.session.limits.snapshot_ttl_seconds());
        let weak = Arc::downgrade(&self.engine);
        self.cancel_expiry();
        self.expiry = Some(self.engine.alarms.set(expires_at, move || {
            if let Some(engine) = weak.upgrade() {
                engine.sweep();
            }
        }));
        self.packing = Some(self.pack_later(run_id, since));
        let (engine, owner, reins) = (self.engine.clone(), self.session.owner.clone(), self.reins.clone());
        reins.note_parked(Some(run_id.clone()));
        engine.parked().park(run_id, (*owner).clone(), self, since, expires_at);
        // What came before it was there.
        reins.absorb_if_parked(&engine);
    }

    fn finish(mut self: Box<Self>, ending: Ending) -> Step {
        Step::Returned(self.end(ending), Some(self))
    }

    /// Gives back what the cell holds, and makes its outcome.
    pub fn end(&mut self, ending: Ending) -> Outcome {
        let outcome = match ending {
            Ending::Completed(value) => self.complete(value),
            Ending::Failed(lost) => {
                let (output, error) = self.ledger().fail(&lost.error);
                let bridge_dispatch_started = self.cell.bridge_dispatch_started();
                self.outcome(Status::Failed(Failure { kind: lost.kind, error, bridge_dispatch_started }), output)
            }
        };
        self.stop_all();
        self.slot = None;
        self.snapshot = None;
        if let Some(run_id) = self.run_id.take() {
            self.engine.parked().close(&run_id);
        }
        outcome
    }

    /// A value that exceeds its budget, or what a model reads of data from outside, is kept when somebody can ask for it,
    /// with a reference in its place.
    fn complete(&mut self, value: FinalValue) -> Outcome {
        let (results, is_untrusted) = (self.current.results.clone(), self.is_untrusted);
        let may_keep = self.cell.may_keep_value() && value.start().starts_with(['{', '[']);
        let whole_bytes = match &value {
            FinalValue::Whole(value) => Some(value.get().len()),
            FinalValue::Beyond(_) => None,
        };
        let value_bytes_max = self.session.limits.value_bytes();
        let mut retained = None;
        let mut keep = |value: &RawValue, bytes_max| {
            let overflow;
            (overflow, retained) = results.retain(value, is_untrusted, bytes_max);
            overflow
        };
        let (output, value) = self.ledger().complete(value, |value, bytes_max| match value {
            FinalValue::Whole(value) if may_keep => keep(value, bytes_max),
            FinalValue::Beyond(start) if may_keep => Overflow::NotKept(format!(
                "it has {} bytes of JSON, and values of at most {value_bytes_max} are kept",
                start.bytes()
            )),
            FinalValue::Whole(_) | FinalValue::Beyond(_) => Overflow::Cut,
        });
        let mut outcome = self.outcome(Status::Completed { value }, output);
        let is_cut = may_keep && outcome.is_value_cut_in_text();
        if let Status::Completed { value } = &mut outcome.status
            && is_cut
            // What stands for a value is shorter than that.
            && whole_bytes == Some(value.get().len())
            && let Overflow::Kept(reference) = keep(value, DESCRIPTOR_BYTES_MAX as u64 * 2)
        {
            *value = reference;
        }
        self.reins.retain(retained);
        outcome
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.get_or_insert_with(|| Box::new(Ledger::new(0)))
    }

    fn outcome(&self, status: Status, output: Box<RawValue>) -> Outcome {
        let untrusted = self.is_untrusted.then(|| format!("{:016x}", random_word()));
        Outcome {
            status,
            replay_safe: self.cell.replay_safe(),
            telemetry: self.current.telemetry(),
            output,
            untrusted,
            context: self.session.context,
            tool_calls: self.cell.tool_calls(),
        }
    }

    fn stop_all(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.stop(&self.engine.alarms);
        }
    }

    /// Waits for the next event in the embedder's future, and takes it.
    pub async fn rest(&mut self) {
        let resting = self.begin_rest();
        let event = self.events.recv().await;
        drop(resting);
        if let Some(event) = event {
            self.feed(event);
        }
    }

    /// Waits for a place in the pool of instances, or until the budget is spent: waiting counts. Places are given in the
    /// order in which they were asked for.
    pub async fn queue_for_instance(&mut self) {
        let _queued = self.engine.enter_queue();
        let _resting = self.begin_rest();
        let mut free = pin!(self.engine.instances.clone().acquire_owned());
        loop {
            let next = poll_fn(|context| match free.as_mut().poll(context) {
                Poll::Ready(permit) => Poll::Ready(Err(permit)),
                Poll::Pending => self.events.poll_recv(context).map(Ok),
            });
            match next.await {
                // The pool is never closed, and a cell without a permit asks again.
                Err(permit) => {
                    self.permit = permit.ok();
                    return;
                }
                Ok(Some(Event::BudgetSpent)) if self.cell.budget().is_spent(self.engine.now()) => {
                    // What waits for the instance is the first thing to do.
                    self.todo.pop_front();
                    return self.miss_turn();
                }
                Ok(Some(event)) => self.feed(event),
                Ok(None) => return,
            }
            if self.cell.is_closed() {
                return;
            }
        }
    }

    /// Arms what may end a rest besides events: the budget, and somebody who needs the instance.
    fn begin_rest(&self) -> Resting {
        let events = self.reins.events.clone();
        let alarm = self.engine.alarms.set(self.deadline(), move || {
            // A cell that is gone needs no budget.
            let _ = events.send(Event::BudgetSpent);
        });
        let ticket = self.cell.is_idle_with_instance().then(|| self.engine.enter_idle(self.reins.events.clone()));
        Resting { alarm, ticket, engine: self.engine.clone() }
    }
}

/// What is set while a cell rests, and taken back however the rest ends.
struct Resting {
    alarm: AlarmId,
    ticket: Option<u64>,
    engine: Arc<Shared>,
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.engine.alarms.cancel(self.alarm);
        if let Some(ticket) = self.ticket {
            self.engine.leave_idle(ticket);
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.cell.budget().is_paused() {
            // Its owner may be paused as well.
            self.session.observe(&CellEvent::BudgetResumed);
        }
        self.stop_all();
        self.cancel_expiry();
        if let Some(run_id) = &self.run_id {
            // Its run isn't parked, or it wouldn't be dropped: nobody may find it busy for ever.
            self.engine.parked().close(run_id);
        }
        if let Some(instance) = self.instance.take() {
            // Giving memory back takes system calls: not on the embedder's threads if it can be helped.
            let _ = self.engine.workers.run(self.session.number, move || drop(instance));
        }
    }
}

/// Packs the snapshot of a cell that is still parked. The work is done outside of the lock.
fn pack(engine: &Arc<Shared>, run_id: &RunId) {
    let found = engine.parked().peek(run_id).and_then(|cell| {
        let (snapshot, _) = cell.snapshot.as_ref()?;
        Some((snapshot.clone(), cell.current.catalog.clone()))
    });
    let Some((raw, catalog)) = found else { return };
    let start = engine.base.with(catalog.0.image_over(&engine.base));
    let Some(packed) = raw.packed(start) else { return };
    if let Some(cell) = engine.parked().peek(run_id)
        && let Some((snapshot, charged)) = &mut cell.snapshot
        && snapshot.is(&raw)
    {
        charged.shrink(packed.bytes() as u64);
        *snapshot = packed;
    }
}

fn no_room_for_snapshot() -> Lost {
    let error = "the cell has to be parked, and parked cells take as much memory as they may; try again later";
    Lost { kind: Kind::Overloaded, error: error.to_owned() }
}

fn settle_later(events: &UnboundedSender<Event>, id: RequestId, reply: Reply) {
    // A cell that is gone wants no replies.
    let _ = events.send(Event::Settled(id, reply));
}

fn budget(session: &Session, engine: &Shared) -> Budget {
    Budget::start(Duration::from_millis(session.limits.timeout_ms()), engine.now())
}

fn guest_limits(limits: &codemode_core::limits::Limits) -> GuestLimits {
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    GuestLimits {
        heap_bytes: small(limits.heap_bytes()),
        unsettled_requests: small(limits.unsettled_requests()),
        live_timers: small(limits::fixed(&limits::LIVE_TIMERS)),
        argument_bytes: small(limits::fixed(&limits::ARGUMENT_BYTES)),
        result_bytes: small(limits.inbox_bytes()),
        value_bytes: small(limits.value_bytes()),
        output_bytes: small(limits.max_output_bytes()),
        error_text_bytes: small(limits::fixed(&limits::ERROR_TEXT_BYTES)),
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn seed() -> Seed {
    (random_word(), random_word(), random_word(), random_word())
}

/// # Panics
///
/// When the system has no secure randomness, without which no cell may run.
#[expect(clippy::expect_used, reason = "a system without secure randomness can't run cells; the cell is closed")]
fn random_word() -> u64 {
    getrandom::u64().expect("the system has secure randomness")
}
