//! One cell as a state machine: [`Event`] in, [`Action`]s out. It decides what is dispatched, delivered, parked and
//! returned. It performs nothing, and it believes nothing that the guest says without checking it against its own tables.

mod protocol;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use protocol::{Action, CancelReason, Ending, Event, Lost, Payload, Reply, Request, Suspension, Turn, TurnReport};

use crate::budget::{Budget, Instant};
use crate::ids::{Method, RequestId};
use crate::limits::{self, Limits};
use crate::outcome::{Kind, PendingCall, WaitReason};

/// How a cell is run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Refuse every request that isn't replay-safe.
    pub restart_safe: bool,
    /// Park at every suspension, and ignore the margin for resuming: for tests of snapshots.
    pub park_at_every_suspension: bool,
    /// A script without anybody who waits for it: at most this many calls of tools, yields go on at once, and a spent
    /// budget fails it.
    pub script_tool_calls_max: Option<u64>,
}

/// Where a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before its first turn.
    New,
    /// A turn runs.
    Turning,
    /// The slot for its first host work was asked for.
    TakingSlot,
    /// The call waits for a reply or for its budget to be spent.
    Idle,
    /// Its state is being put away, and the call goes on afterwards.
    Checkpointing,
    /// Its state is being put away, and the call returns afterwards.
    Suspending,
    /// The call has returned a waiting result.
    Suspended,
    /// The cell failed; what was dispatched is awaited because its effects are part of the account.
    Failing,
    /// The call has returned a terminal result.
    Closed,
}

/// What became of a request so far.
#[derive(Debug)]
enum Standing {
    /// Waits for a place in flight.
    Queued(Request),
    /// Is being carried out.
    InFlight,
    /// Has its reply, which wasn't delivered yet.
    Replied,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    replay_safe: bool,
    bytes: u64,
    yield_reason: Option<String>,
}

/// One cell. Dropping it loses nothing but its own bookkeeping: cancel first.
#[derive(Debug)]
pub struct Cell {
    phase: Phase,
    options: Options,
    budget: Budget,
    in_flight_max: u64,
    unsettled_max: u64,
    inbox_bytes_max: u64,
    requests: BTreeMap<RequestId, Entry>,
    /// Requests that wait for a place, in order.
    queue: VecDeque<RequestId>,
    /// Requests of the last turn, while a slot is being taken.
    frontier: Vec<Request>,
    replies: VecDeque<(RequestId, Reply)>,
    reply_bytes: u64,
    argument_bytes: u64,
    highest: BTreeMap<Method, u32>,
    in_flight: u64,
    has_run: bool,
    has_instance: bool,
    has_slot: bool,
    bridge_dispatch_started: bool,
    failure: Option<Lost>,
    /// Approvals that calls of the cell wait for.
    approvals: u64,
    tool_calls: u64,
}

impl Cell {
    /// A cell for one `exec` call with this budget.
    pub fn new(limits: &Limits, options: Options, budget: Budget) -> Self {
        Self {
            phase: Phase::New,
            options,
            budget,
            in_flight_max: limits.max_pending_tool_calls(),
            unsettled_max: limits.unsettled_requests(),
            inbox_bytes_max: limits.inbox_bytes(),
            requests: BTreeMap::new(),
            queue: VecDeque::new(),
            frontier: Vec::new(),
            replies: VecDeque::new(),
            reply_bytes: 0,
            argument_bytes: 0,
            highest: BTreeMap::new(),
            in_flight: 0,
            has_run: false,
            has_instance: false,
            has_slot: false,
            bridge_dispatch_started: false,
            failure: None,
            approvals: 0,
            tool_calls: 0,
        }
    }

    /// Begins the cell.
    pub fn begin(&mut self) -> Vec<Action> {
        assert!(self.phase == Phase::New, "a cell begins once");
        self.phase = Phase::Turning;
        self.has_instance = true;
        vec![Action::Start]
    }

    /// The budget of the current call.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether a request that reaches outside was dispatched.
    pub fn bridge_dispatch_started(&self) -> bool {
        self.bridge_dispatch_started
    }

    /// Calls of tools that were dispatched.
    pub fn tool_calls(&self) -> u64 {
        self.tool_calls
    }

    /// Whether a value that exceeds its budget may be kept as a result: somebody has to be there who asks for it, and
    /// nothing else may be left behind by a cell that is to be replayed (B 3.5.29).
    pub fn may_keep_value(&self) -> bool {
        self.options.script_tool_calls_max.is_none() && !self.options.restart_safe
    }

    /// Whether it holds a slot.
    pub fn has_slot(&self) -> bool {
        self.has_slot
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether it holds an instance that somebody else could use meanwhile.
    pub fn is_idle_with_instance(&self) -> bool {
        self.phase == Phase::Idle && self.has_instance
    }

    /// Whether replaying it would repeat no effect.
    pub fn replay_safe(&self) -> bool {
        self.options.restart_safe && self.requests.values().all(|entry| entry.replay_safe)
    }

    /// The replies to deliver in the turn that is about to run, in the order in which they came. Everything that has
    /// settled by then goes along, so that calls which end together cost one turn.
    pub fn take_replies(&mut self) -> Vec<(RequestId, Reply)> {
        let replies: Vec<(RequestId, Reply)> = self.replies.drain(..).collect();
        self.reply_bytes = 0;
        for (id, _) in &replies {
            self.requests.remove(id);
        }
        replies
    }

    /// Takes note of `event` at `now`, and says what to do.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = self.react(event, now);
        self.follow_approvals(&mut actions, now);
        actions
    }

    /// The budget is paused while the cell rests in a call and somebody's approval is awaited. What the guest computes
    /// meanwhile counts.
    fn follow_approvals(&mut self, actions: &mut Vec<Action>, now: Instant) {
        let is_paused = self.approvals > 0 && matches!(self.phase, Phase::Idle | Phase::Failing);
        if is_paused && !self.budget.is_paused() {
            self.budget.pause(now);
            actions.push(Action::PauseBudget);
        } else if !is_paused && self.budget.is_paused() {
            self.budget.resume(now);
            actions.insert(0, Action::ResumeBudget);
        }
    }

    fn react(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::ApprovalAsked => {
                self.approvals += 1;
                Vec::new()
            }
            Event::ApprovalAnswered => {
                self.approvals = self.approvals.saturating_sub(1);
                Vec::new()
            }
            Event::Cancelled(reason) if self.phase != Phase::Closed => self.close(reason.lost()),
            Event::TurnEnded(report) if self.phase == Phase::Turning => self.turn_ended(report, now),
            Event::TurnLost(lost)
                if matches!(self.phase, Phase::Turning | Phase::Checkpointing | Phase::Suspending) =>
            {
                self.has_instance = false;
                self.close(lost)
            }
            Event::SlotTaken if self.phase == Phase::TakingSlot => {
                self.has_slot = true;
                self.dispatch_frontier(now)
            }
            Event::SlotRefused(full) if self.phase == Phase::TakingSlot => {
                self.close(Lost { kind: Kind::SlotsFull, error: full.to_string() })
            }
            Event::Settled(id, reply) => self.settled(id, reply, now),
            Event::Parked if self.phase == Phase::Checkpointing => {
                self.has_instance = false;
                self.phase = Phase::Idle;
                self.proceed(now)
            }
            Event::Parked if self.phase == Phase::Suspending => {
                self.has_instance = false;
                self.suspend()
            }
            Event::ParkRefused { bytes_max } if matches!(self.phase, Phase::Checkpointing | Phase::Suspending) => {
                self.has_instance = false;
                self.close(Lost {
                    kind: Kind::SnapshotTooLarge,
                    error: format!(
                        "the cell has to be parked, but needs more than the {bytes_max} bytes that are allowed; \
                         hold less data across await, or page through it"
                    ),
                })
            }
            Event::Waited(budget) if self.phase == Phase::Suspended => self.waited(budget, now),
            Event::BudgetSpent if self.phase == Phase::Idle && self.budget.is_spent(now) => self.park_or_suspend(),
            Event::BudgetSpent if self.phase == Phase::Failing && self.budget.is_spent(now) => self.give_up_draining(),
            Event::TurnMissed { has_instance } if self.phase == Phase::Turning => {
                self.has_instance = has_instance;
                self.turn_missed()
            }
            Event::Pressure if self.is_idle_with_instance() => {
                self.phase = Phase::Checkpointing;
                vec![Action::Park]
            }
            // Everything else comes too late to matter.
            Event::Cancelled(_)
            | Event::TurnEnded(_)
            | Event::TurnLost(_)
            | Event::SlotTaken
            | Event::SlotRefused(_)
            | Event::Parked
            | Event::ParkRefused { .. }
            | Event::Waited(_)
            | Event::BudgetSpent
            | Event::TurnMissed { .. }
            | Event::Pressure => Vec::new(),
        }
    }

    /// A cell that has run keeps its state and waits for the next call; one that hasn't has nothing to keep.
    fn turn_missed(&mut self) -> Vec<Action> {
        if self.has_run && self.has_slot {
            return self.park_or_suspend();
        }
        self.close(Lost {
            kind: Kind::Overloaded,
            error: String::from("no instance became free within the time budget; try again later"),
        })
    }

    fn turn_ended(&mut self, report: TurnReport, now: Instant) -> Vec<Action> {
        self.has_run = true;
        let TurnReport { turn, requests, cleared } = report;
        // A failed turn dispatches nothing, so what it asked for is not even looked at.
        let turn = match turn {
            Turn::Failed(lost) => return self.fail(lost),
            other => other,
        };
        let mut actions = match self.check(&turn, &requests, &cleared) {
            Ok(()) => self.clear_timers(&cleared, &requests),
            Err(what) => {
                let error = format!("the guest broke the protocol: {what}");
                return self.close(Lost { kind: Kind::ProtocolViolation, error });
            }
        };
        if self.options.restart_safe && requests.iter().any(|request| !request.replay_safe) {
            return self.close(not_replay_safe(&requests));
        }
        if let Turn::Finished(value) = turn {
            self.phase = Phase::Closed;
            actions.push(Action::Finish(Ending::Completed(value)));
            return actions;
        }
        if let Some(most) = self.options.script_tool_calls_max
            && self.tool_calls + self.queued_tool_calls() + count_tool_calls(&requests) > most
        {
            let error = format!("the script may call tools {most} times; do more with each call");
            return self.close(Lost { kind: Kind::ToolBudgetExceeded, error });
        }
        self.frontier = requests;
        self.frontier.retain(|request| !(request.id.method == Method::Sleep && cleared.contains(&request.id.number)));
        let needs_slot = |request: &Request| !matches!(request.payload, Payload::Refused { .. } | Payload::Oversized);
        if self.frontier.iter().any(needs_slot) && !self.has_slot {
            self.phase = Phase::TakingSlot;
            actions.push(Action::TakeSlot);
            return actions;
        }
        actions.extend(self.dispatch_frontier(now));
        actions
    }

    fn queued_tool_calls(&self) -> u64 {
        let standings = self.requests.values().map(|entry| &entry.standing);
        standings.filter(|standing| matches!(standing, Standing::Queued(request) if is_tool_call(request))).count()
            as u64
    }

    /// Checks what the guest claims against the tables here (contract 1).
    fn check(&mut self, turn: &Turn, requests: &[Request], cleared: &[u32]) -> Result<(), &'static str> {
        for request in requests {
            let highest = self.highest.entry(request.id.method).or_insert(0);
            if request.id.number <= *highest {
                return Err("a request id doesn't rise");
            }
            *highest = request.id.number;
        }
        for (place, number) in cleared.iter().enumerate() {
            let id = RequestId { method: Method::Sleep, number: *number };
            if cleared.iter().take(place).any(|earlier| earlier == number) {
                return Err("a timer was cancelled twice");
            }
            let is_known = self.requests.contains_key(&id) || requests.iter().any(|request| request.id == id);
            if !is_known {
                return Err("a timer was cancelled that isn't pending");
            }
        }
        let unsettled = self.requests.len() + requests.len() - cleared.len();
        let timers = self.requests.keys().filter(|id| id.method == Method::Sleep).count()
            + requests.iter().filter(|request| request.id.method == Method::Sleep).count()
            - cleared.len();
        if unsettled as u64 > self.unsettled_max || timers as u64 > limits::fixed(&limits::LIVE_TIMERS) {
            return Err("more requests are pending than the guest may have");
        }
        match turn {
            Turn::Awaiting | Turn::Draining if unsettled == 0 => Err("it waits, and nothing is pending"),
            Turn::Finished(_) if unsettled > 0 => Err("it is done, and requests are pending"),
            Turn::Awaiting | Turn::Draining | Turn::Finished(_) | Turn::Failed(_) => Ok(()),
        }
    }

    fn clear_timers(&mut self, cleared: &[u32], fresh: &[Request]) -> Vec<Action> {
        let mut actions = Vec::new();
        for number in cleared {
            let id = RequestId { method: Method::Sleep, number: *number };
            if fresh.iter().any(|request| request.id == id) {
                continue;
            }
            if let Some(entry) = self.requests.remove(&id) {
                match entry.standing {
                    Standing::Queued(_) => self.queue.retain(|queued| *queued != id),
                    Standing::InFlight => {
                        self.in_flight -= 1;
                        actions.push(Action::Cancel(id));
                    }
                    Standing::Replied => self.replies.retain(|(replied, _)| *replied != id),
                }
            }
        }
        actions
    }

    fn dispatch_frontier(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        for request in std::mem::take(&mut self.frontier) {
            self.admit(request, &mut actions);
        }
        self.refill(&mut actions);
        self.phase = Phase::Idle;
        actions.extend(self.proceed(now));
        actions
    }

    /// Puts a new request into the table, in flight if there is room: calls that depend on a reply which was just
    /// delivered go before those that were queued earlier (B 1.10.60).
    fn admit(&mut self, mut request: Request, actions: &mut Vec<Action>) {
        let id = request.id;
        let bytes = request.payload.bytes();
        let mut entry =
            Entry { standing: Standing::InFlight, replay_safe: request.replay_safe, bytes, yield_reason: None };
        if let Payload::Yield { reason } = &mut request.payload {
            if self.options.script_tool_calls_max.is_some() {
                entry.standing = Standing::Replied;
                self.requests.insert(id, entry);
                self.replies.push_back((id, Reply::Done));
                return;
            }
            entry.yield_reason = reason.take().map(|text| cut_reason(&text));
            self.requests.insert(id, entry);
            return;
        }
        if let Some(refusal) = self.refusal(&mut request.payload) {
            entry.standing = Standing::Replied;
            entry.bytes = 0;
            self.requests.insert(id, entry);
            self.reply_bytes += refusal.bytes();
            self.replies.push_back((id, refusal));
            return;
        }
        self.argument_bytes += bytes;
        // Timers wait their turn: one that sets itself again and again would keep the rest out for ever.
        let jumps_queue = id.method != Method::Sleep || self.queue.is_empty();
        if self.in_flight < self.in_flight_max && jumps_queue {
            self.requests.insert(id, entry);
            self.dispatch(request, actions);
        } else {
            entry.standing = Standing::Queued(request);
            self.requests.insert(id, entry);
            self.queue.push_back(id);
        }
    }

    fn dispatch(&mut self, request: Request, actions: &mut Vec<Action>) {
        self.in_flight += 1;
        self.bridge_dispatch_started |= request.id.method.reaches_outside();
        self.tool_calls += u64::from(is_tool_call(&request));
        actions.push(Action::Dispatch(request));
    }

    /// The reply to a request that is never dispatched.
    fn refusal(&self, payload: &mut Payload) -> Option<Reply> {
        if let Payload::Refused { message, code } = payload {
            return Some(Reply::Failed { message: std::mem::take(message), code: Some(code) });
        }
        let is_oversized = matches!(payload, Payload::Oversized);
        (is_oversized || self.argument_bytes + payload.bytes() > self.inbox_bytes_max).then(|| Reply::Failed {
            message: format!(
                "the arguments of all pending calls together may have {} bytes; await some calls first",
                self.inbox_bytes_max
            ),
            code: Some("invalid_input"),
        })
    }

    fn refill(&mut self, actions: &mut Vec<Action>) {
        while self.in_flight < self.in_flight_max
            && let Some(id) = self.queue.pop_front()
            && let Some(entry) = self.requests.get_mut(&id)
        {
            if let Standing::Queued(request) = std::mem::replace(&mut entry.standing, Standing::InFlight) {
                self.dispatch(request, actions);
            }
        }
    }

    fn settled(&mut self, id: RequestId, mut reply: Reply, now: Instant) -> Vec<Action> {
        let Some(entry) = self.requests.get_mut(&id) else { return Vec::new() };
        if !matches!(entry.standing, Standing::InFlight) || id.method == Method::Yield {
            return Vec::new();
        }
        entry.standing = Standing::Replied;
        self.in_flight -= 1;
        self.argument_bytes -= entry.bytes;
        if self.phase == Phase::Failing {
            self.requests.remove(&id);
            return if self.in_flight == 0 { self.give_up_draining() } else { Vec::new() };
        }
        if self.reply_bytes + reply.bytes() > self.inbox_bytes_max {
            reply = Reply::Failed {
                message: format!(
                    "the reply has {} bytes, and {} bytes of undelivered replies are allowed; \
                     ask for less, page through it, or use earlier replies first",
                    reply.bytes(),
                    self.inbox_bytes_max
                ),
                code: None,
            };
        }
        self.reply_bytes += reply.bytes();
        self.replies.push_back((id, reply));
        // Its place is for the guest's own next calls first; what is queued follows when those are known.
        if self.phase == Phase::Idle { self.proceed(now) } else { Vec::new() }
    }

    /// Goes on from a quiescent guest.
    fn proceed(&mut self, now: Instant) -> Vec<Action> {
        let yields = self.requests.iter().any(|(id, entry)| is_pending_yield(*id, entry));
        if yields {
            return self.park_or_suspend();
        }
        // Without a slot it has no host work, only replies that were made here: it keeps its instance.
        if self.options.park_at_every_suspension && self.has_instance && self.has_slot {
            self.phase = Phase::Checkpointing;
            return vec![Action::Park];
        }
        if self.budget.is_spent(now) && self.has_slot {
            return self.park_or_suspend();
        }
        if self.replies.is_empty() {
            return Vec::new();
        }
        if self.is_too_late(self.has_instance, now) {
            return self.park_or_suspend();
        }
        self.settle()
    }

    /// Whether what is left of the budget doesn't suffice for a turn that delivers replies: it could only fail for lack of
    /// time, and the next call can run it. A cell without an instance needs some time to be resumed (B 1.4.28). The driver
    /// asks again when it is about to run the turn, because queueing takes time.
    pub fn is_too_late(&self, has_instance: bool, now: Instant) -> bool {
        let has_margin =
            has_instance || self.options.park_at_every_suspension || self.options.script_tool_calls_max.is_some();
        let margin = Duration::from_millis(limits::fixed(&limits::RESUME_MARGIN_MS));
        let least = if has_margin { Duration::ZERO } else { self.budget.resume_margin(margin) };
        // Without a slot it can't be parked.
        self.has_slot && (self.budget.is_spent(now) || self.budget.left(now) < least)
    }

    fn settle(&mut self) -> Vec<Action> {
        self.phase = Phase::Turning;
        self.has_instance = true;
        vec![Action::Settle]
    }

    fn park_or_suspend(&mut self) -> Vec<Action> {
        if self.options.script_tool_calls_max.is_some() {
            let error = format!("the script's time is spent, and {} requests are pending", self.requests.len());
            return self.close(Lost { kind: Kind::Timeout, error });
        }
        if self.has_instance {
            self.phase = Phase::Suspending;
            return vec![Action::Park];
        }
        self.suspend()
    }

    fn suspend(&mut self) -> Vec<Action> {
        self.phase = Phase::Suspended;
        let pending: Vec<(&RequestId, &Entry)> =
            self.requests.iter().filter(|(_, entry)| !matches!(entry.standing, Standing::Replied)).collect();
        let only_yields = !pending.is_empty() && pending.iter().all(|(id, _)| id.method == Method::Yield);
        let yield_reason = pending.iter().find(|_| only_yields).and_then(|(_, entry)| entry.yield_reason.clone());
        let suspension = Suspension {
            reason: if only_yields { WaitReason::Yield } else { WaitReason::PendingTools },
            pending: pending.iter().map(|(id, _)| PendingCall(**id)).collect(),
            yield_reason,
        };
        vec![Action::Suspend(suspension)]
    }

    fn waited(&mut self, budget: Budget, now: Instant) -> Vec<Action> {
        self.budget = budget;
        self.phase = Phase::Idle;
        for (id, entry) in &mut self.requests {
            if is_pending_yield(*id, entry) {
                entry.standing = Standing::Replied;
                self.replies.push_back((*id, Reply::Done));
            }
        }
        self.proceed(now)
    }

    /// The guest says that the cell failed. Nothing new is dispatched; what was dispatched is awaited (contract 11.7).
    fn fail(&mut self, lost: Lost) -> Vec<Action> {
        let mut actions = Vec::new();
        self.queue.clear();
        self.replies.clear();
        let mut draining = BTreeMap::new();
        for (id, entry) in std::mem::take(&mut self.requests) {
            match entry.standing {
                Standing::InFlight if id.method.reaches_outside() => {
                    draining.insert(id, entry);
                }
                Standing::InFlight if id.method == Method::Sleep => actions.push(Action::Cancel(id)),
                Standing::InFlight | Standing::Queued(_) | Standing::Replied => {}
            }
        }
        self.requests = draining;
        self.in_flight = self.requests.len() as u64;
        self.failure = Some(lost);
        self.phase = Phase::Failing;
        if self.requests.is_empty() {
            actions.extend(self.give_up_draining());
        } else {
            self.has_instance = false;
            actions.push(Action::Release);
        }
        actions
    }

    fn give_up_draining(&mut self) -> Vec<Action> {
        let lost = self.failure.take();
        lost.map(|lost| self.close(lost)).unwrap_or_default()
    }

    /// Ends the cell with a failure, and cancels what is in flight.
    fn close(&mut self, lost: Lost) -> Vec<Action> {
        self.phase = Phase::Closed;
        self.queue.clear();
        self.replies.clear();
        self.frontier.clear();
        let mut actions: Vec<Action> = std::mem::take(&mut self.requests)
            .into_iter()
            .filter(|(id, entry)| matches!(entry.standing, Standing::InFlight) && id.method != Method::Yield)
            .map(|(id, _)| Action::Cancel(id))
            .collect();
        self.in_flight = 0;
        actions.push(Action::Finish(Ending::Failed(lost)));
        actions
    }
}

fn not_replay_safe(requests: &[Request]) -> Lost {
    let mut refused = requests.iter().filter(|request| !request.replay_safe);
    let error = if refused.all(|request| request.id.method == Method::Namespace) {
        "a restart-safe cell can't call tools of servers: nothing says that their calls may be repeated"
    } else {
        "a restart-safe cell asked for something that isn't marked as safe to repeat"
    };
    Lost { kind: Kind::NotReplaySafe, error: error.to_owned() }
}

fn count_tool_calls(requests: &[Request]) -> u64 {
    requests.iter().filter(|request| is_tool_call(request)).count() as u64
}

/// What a script's budget of calls counts.
fn is_tool_call(request: &Request) -> bool {
    matches!(request.id.method, Method::CallValue | Method::Namespace | Method::Nodes)
        && !matches!(request.payload, Payload::Refused { .. } | Payload::Oversized)
}

fn is_pending_yield(id: RequestId, entry: &Entry) -> bool {
    id.method == Method::Yield && matches!(entry.standing, Standing::InFlight)
}

/// The text of a yield, cut to its limit without splitting a surrogate pair.
fn cut_reason(text: &str) -> String {
    let mut left = limits::fixed(&limits::YIELD_REASON_UNITS);
    text.chars()
        .take_while(|letter| {
            let units = letter.len_utf16() as u64;
            let fits = units <= left;
            left = left.saturating_sub(units);
            fits
        })
        .collect()
}

#[cfg(test)]
mod tests;
