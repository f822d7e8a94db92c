//! One cell in the guest: evaluate it, pump jobs, settle requests, and say how each turn ended. What the guest can call
//! lives in `natives`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;

use crate::adapter::{self, Json, Refusal};
use crate::codemode::cell::timers;
use crate::codemode::cell::types::{
    Failure, FailureKind, GuestLimits, JsonStart, Method, RequestError, Server, Settlement, StartInput, Turn,
};
use crate::engine::{self, Deferred, PromiseState, Thrown, Value};
use crate::{catalog, random, rejections, report};

/// What becomes of a reply before the guest gets it.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Nothing.
    Data,
    /// It is an object that becomes frozen itself.
    Frozen,
    /// It is a list of indexes, and becomes a frozen array of tool handles.
    Handles,
}

/// A request that the host hasn't settled.
pub enum Pending {
    /// Its promise, and an error made where it was called, which carries the frames of the call.
    Promise { deferred: Deferred, call_site: Value, shape: Shape },
    /// A timer.
    Timer(Timer),
}

/// A timer that the host counts down.
pub struct Timer {
    callback: Value,
    arguments: Vec<Value>,
    /// What the guest knows it by: the number of its first request.
    id: u32,
    /// The milliseconds between its calls, when it repeats.
    every_ms: Option<u64>,
}

/// The state of the one cell of this instance.
pub struct Cell {
    /// The caps that the guest helps to keep.
    pub limits: GuestLimits,
    /// What frames call the source.
    pub file_name: String,
    /// When the cell started, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    promise: Option<Value>,
    /// The adapted value, once the cell's promise is fulfilled.
    value: Option<Json>,
    numbers: BTreeMap<u8, u32>,
    pending: BTreeMap<(u8, u32), Pending>,
    /// Requests whose replies are being delivered in this turn, and weren't yet.
    delivering: BTreeMap<(u8, u32), Pending>,
    live_timers: u32,
    /// The timer whose callback runs, and whether that cancelled it.
    firing: Option<u32>,
    cancelled_interval: bool,
    is_queue_full: bool,
}

thread_local! {
    static CELL: RefCell<Option<Cell>> = const { RefCell::new(None) };
}

/// Borrows the cell. No guest code may run inside `use_cell`: it would find the cell borrowed.
///
/// # Panics
///
/// When no cell was started, which the host doesn't do; the trap closes the instance.
#[expect(clippy::expect_used, reason = "settle before start is a broken host, and a trap is the documented answer")]
pub fn with<T>(use_cell: impl FnOnce(&mut Cell) -> T) -> T {
    CELL.with_borrow_mut(|cell| use_cell(cell.as_mut().expect("a cell was started")))
}

/// Why a request can't be made.
pub struct QueueFull;

/// Books a request and gives it its number. The caller then calls the import.
pub fn submit(method: Method, pending: Pending) -> Result<u32, QueueFull> {
    with(|cell| {
        let is_timer = matches!(pending, Pending::Timer(_));
        let has_room = cell.pending.len() < usize::try_from(cell.limits.unsettled_requests).unwrap_or(usize::MAX)
            && (!is_timer || cell.live_timers < cell.limits.live_timers);
        if !has_room {
            cell.is_queue_full = true;
            return Err(QueueFull);
        }
        let number = cell.numbers.entry(method as u8).or_insert(0);
        *number += 1;
        let number = *number;
        cell.live_timers += u32::from(is_timer);
        cell.pending.insert((method as u8, number), pending);
        Ok(number)
    })
}

/// Books a timer and gives it its number, which is its id too. The caller then calls the import.
pub fn submit_timer(callback: Value, arguments: Vec<Value>, every_ms: Option<u64>) -> Result<u32, QueueFull> {
    let id = with(|cell| cell.numbers.get(&(Method::Sleep as u8)).copied().unwrap_or(0)) + 1;
    submit(Method::Sleep, Pending::Timer(Timer { callback, arguments, id, every_ms }))
}

/// What became of a timer that the guest cancelled.
pub enum Cancelled {
    /// The host still has it under this number, and must be told.
    Pending(u32, Pending),
    /// Its reply is here already, and is dropped.
    Delivering(Pending),
}

/// Cancels a timer by its id. `None` when there is none.
pub fn cancel_timer(id: u32) -> Option<Cancelled> {
    let is_it = |pending: &Pending| matches!(pending, Pending::Timer(timer) if timer.id == id);
    let find = |table: &BTreeMap<(u8, u32), Pending>| {
        // A timer that doesn't repeat is found at once.
        let key = (Method::Sleep as u8, id);
        if table.get(&key).is_some_and(is_it) {
            return Some(key);
        }
        table.range((Method::Sleep as u8, 0)..).find(|(_, pending)| is_it(pending)).map(|(key, _)| *key)
    };
    if let Some((_, number)) = with(|cell| find(&cell.pending)) {
        return remove(Method::Sleep, number).map(|timer| Cancelled::Pending(number, timer));
    }
    with(|cell| {
        cell.cancelled_interval |= cell.firing == Some(id);
        find(&cell.delivering).and_then(|key| cell.delivering.remove(&key))
    })
    .map(Cancelled::Delivering)
}

/// Calls a timer's callback, then sets it again when it repeats and wasn't cancelled by it.
fn fire(timer: Timer) -> engine::Result<()> {
    let Timer { callback, arguments, id, every_ms } = timer;
    with(|cell| (cell.firing, cell.cancelled_interval) = (Some(id), false));
    let called = callback.call(&Value::undefined(), &arguments).map(drop);
    let is_cancelled = with(|cell| {
        cell.firing = None;
        cell.cancelled_interval
    });
    called?;
    if let Some(every_ms) = every_ms
        && !is_cancelled
    {
        let again = Pending::Timer(Timer { callback, arguments, id, every_ms: Some(every_ms) });
        if let Ok(number) = submit(Method::Sleep, again) {
            timers::set(number, every_ms);
        }
    }
    Ok(())
}

/// Takes a request out of the table: it is settled or cancelled.
fn remove(method: Method, number: u32) -> Option<Pending> {
    with(|cell| {
        let pending = cell.pending.remove(&(method as u8, number))?;
        cell.live_timers -= u32::from(matches!(pending, Pending::Timer(_)));
        Some(pending)
    })
}

/// Installs the tools of a catalog.
///
/// # Panics
///
/// When a catalog was installed or a cell was started before.
pub fn install(tools: &[String], servers: &[Server]) -> engine::Result<()> {
    assert!(CELL.with_borrow(Option::is_none) && catalog::is_empty(), "a catalog is installed once, and first");
    catalog::install(tools, servers)?;
    // What the catalog holds isn't the cell's to collect.
    engine::heap::note_base();
    Ok(())
}

/// Starts the cell and runs its first turn.
///
/// # Panics
///
/// When a cell was started before.
pub fn start(input: StartInput) -> Turn {
    CELL.with_borrow_mut(|cell| {
        assert!(cell.is_none(), "an instance runs one cell");
        *cell = Some(Cell {
            limits: input.limits,
            file_name: input.file_name.clone(),
            started_at_ms: input.started_at,
            promise: None,
            value: None,
            numbers: BTreeMap::new(),
            pending: BTreeMap::new(),
            delivering: BTreeMap::new(),
            live_timers: 0,
            firing: None,
            cancelled_interval: false,
            is_queue_full: false,
        });
    });
    engine::heap::set_limit(usize::try_from(input.limits.heap_bytes).unwrap_or(usize::MAX));
    random::reseed(input.seed);
    let started = catalog::seal().and_then(|()| evaluate(&input.source, &input.file_name));
    match started {
        Ok(promise) => with(|cell| cell.promise = Some(promise)),
        Err(Thrown) => return refused_source(&input.file_name),
    }
    pump();
    turn()
}

/// The source as the body of an async arrow function. The wrapper has lines of its own, so that the submitted text keeps
/// its coordinates.
fn evaluate(source: &[u8], file_name: &str) -> engine::Result<Value> {
    /// Two lines before the source. The engine takes zero for "not given", so one line wouldn't do.
    const FIRST_LINE: i32 = -1;
    let source = String::from_utf8_lossy(source);
    let wrapped = format!("(\nasync()=>{{\n{source}\n}})()");
    let file_name = CString::new(file_name).unwrap_or_default();
    engine::evaluate(&wrapped, &file_name, FIRST_LINE)
}

fn refused_source(file_name: &str) -> Turn {
    let thrown = engine::take_exception();
    let (kind, text) = report::failure_of(&thrown, file_name, FailureKind::SyntaxError);
    failed(kind, text)
}

/// Delivers settlements, each followed by the jobs that it causes, so that the winner of a race is the true one.
///
/// # Panics
///
/// When a settlement names a request that isn't pending: a broken host, and a trap is the documented answer.
#[expect(clippy::expect_used, reason = "documented in wit/cell.wit as a trap")]
pub fn settle(settlements: Vec<Settlement>, seed: Option<crate::codemode::cell::types::Seed>) -> Turn {
    if let Some(seed) = seed {
        random::reseed(seed);
    }
    // First out of the table, all of them: a callback of this batch may cancel a timer that is in it too.
    for settlement in &settlements {
        let id = (settlement.method as u8, settlement.number);
        let pending = remove(settlement.method, settlement.number).expect("a settlement is for a pending request");
        with(|cell| cell.delivering.insert(id, pending));
    }
    for settlement in settlements {
        let id = (settlement.method as u8, settlement.number);
        // Only a timer that was cancelled meanwhile is gone.
        let Some(pending) = with(|cell| cell.delivering.remove(&id)) else { continue };
        if let Err(Thrown) = deliver(pending, settlement.outcome) {
            let thrown = engine::take_exception();
            rejections::remember(Value::undefined(), thrown);
        }
        pump();
        if engine::is_stopped() || has_failed() {
            break;
        }
    }
    turn()
}

/// Whether the cell is over already: no more of its code runs.
fn has_failed() -> bool {
    let (is_queue_full, promise) = with(|cell| (cell.is_queue_full, cell.promise.clone()));
    is_queue_full || promise.is_some_and(|promise| matches!(engine::promise_state(&promise), PromiseState::Rejected(_)))
}

fn deliver(pending: Pending, outcome: Result<Vec<u8>, RequestError>) -> engine::Result<()> {
    match (pending, outcome) {
        (Pending::Timer(timer), _) => fire(timer),
        (Pending::Promise { deferred, shape, .. }, Ok(json)) => {
            let value = if json.is_empty() { Ok(Value::undefined()) } else { engine::parse_json(&json) };
            let (value, is_frozen) = match shape {
                Shape::Data => (value, false),
                Shape::Frozen => (value, true),
                Shape::Handles => (value.and_then(|indexes| catalog::handles_of(&indexes)), true),
            };
            match value {
                Ok(value) => engine::resolve_with_data(&deferred, value, is_frozen),
                // A reply that the engine can't hold, for instance one that is nested too deeply.
                Err(Thrown) => deferred.reject.call(&Value::undefined(), &[engine::take_exception()]),
            }
            .map(drop)
        }
        (Pending::Promise { deferred, call_site, .. }, Err(error)) => {
            let reason = match crate::natives::complete_error(&call_site, &error) {
                Ok(()) => call_site,
                // The guest made the error immutable, or there is no memory for it: the call fails all the same.
                Err(Thrown) => engine::take_exception(),
            };
            deferred.reject.call(&Value::undefined(), &[reason]).map(drop)
        }
    }
}

/// Runs jobs until none is left, or until the host has asked to stop. The flag is read after every job: an interrupt
/// that the guest caught must not let it run on.
fn pump() {
    while !engine::is_stopped() {
        match engine::run_job() {
            Ok(true) => {}
            Ok(false) => return,
            // A callback of queueMicrotask threw: nobody can handle that any more.
            Err(Thrown) => {
                let thrown = engine::take_exception();
                rejections::remember(Value::undefined(), thrown);
            }
        }
    }
}

fn turn() -> Turn {
    if with(|cell| cell.is_queue_full) {
        return failed(FailureKind::QueueFull, String::from("too many requests or timers are pending at once"));
    }
    let Some(promise) = with(|cell| cell.promise.clone()) else {
        return failed(FailureKind::Stalled, String::from("the cell has no promise"));
    };
    match engine::promise_state(&promise) {
        PromiseState::Pending if with(|cell| cell.pending.is_empty()) => failed(
            FailureKind::Stalled,
            String::from("the cell awaits a promise that nothing can settle: no tool call, timer or yield is pending"),
        ),
        PromiseState::Pending => Turn::Awaiting,
        PromiseState::Rejected(reason) => {
            rejections::forget(&promise);
            thrown(&reason, FailureKind::UncaughtException)
        }
        PromiseState::Fulfilled(value) => fulfilled(&value),
    }
}

fn fulfilled(value: &Value) -> Turn {
    if with(|cell| cell.value.is_none()) {
        // Getters may call tools and write output, so what they started is drained like everything else.
        match adapt(value) {
            Ok(json) => with(|cell| cell.value = Some(json)),
            Err(turn) => return turn,
        }
        pump();
        if with(|cell| cell.is_queue_full) {
            return turn();
        }
    }
    if with(|cell| !cell.pending.is_empty()) {
        return Turn::Draining;
    }
    match rejections::first_unhandled() {
        Some(reason) => thrown(&reason, FailureKind::UnhandledRejection),
        None => match with(|cell| cell.value.take()) {
            Some(Json::Start(start)) => Turn::FinishedBeyond(JsonStart { text: start.text, bytes: start.bytes }),
            Some(Json::Whole(json)) => Turn::Finished(json),
            None => Turn::Finished(Vec::new()),
        },
    }
}

fn adapt(value: &Value) -> Result<Json, Turn> {
    let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (bytes_max, start_bytes) = with(|cell| (size(cell.limits.value_bytes), size(cell.limits.output_bytes)));
    adapter::to_json_or_start(value, bytes_max, start_bytes).map_err(|refusal| match refusal {
        Refusal::Thrown => thrown(&engine::take_exception(), FailureKind::UncaughtException),
        Refusal::TooDeep => failed(
            FailureKind::ValueTooDeep,
            String::from("the returned value is nested deeper than 1000 levels; return a flatter one"),
        ),
        Refusal::TooLarge => failed(
            FailureKind::UncaughtException,
            format!("the returned value is longer than {bytes_max} bytes of JSON; return a smaller one"),
        ),
    })
}

fn thrown(reason: &Value, otherwise: FailureKind) -> Turn {
    let file_name = with(|cell| cell.file_name.clone());
    let (kind, text) = report::failure_of(reason, &file_name, otherwise);
    failed(kind, text)
}

fn failed(kind: FailureKind, mut text: String) -> Turn {
    let bytes_max = with(|cell| cell.limits.error_text_bytes);
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    text.truncate(text.floor_char_boundary(bytes_max));
    Turn::Failed(Failure { kind, text: text.into_bytes() })
}
