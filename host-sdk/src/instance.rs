//! One instance of the component in its store: start, settle, take the image, restore. It turns whatever wasmtime says
//! into how the turn ended; it knows nothing of requests' meaning.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use codemode_core::cell::{CancelReason, Lost, Reply, Turn, TurnReport};
use codemode_core::envelope::Refused;
use codemode_core::ids::RequestId;
use codemode_core::json;
use codemode_core::limits::{self, Limits};
use codemode_core::outcome::Kind;
use codemode_core::output::{FinalValue, JsonStart, Ledger};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::component::{ComponentNamedList, Instance as Component, Lift, Lower, TypedFunc, WasmList};
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::bindings::{self, RequestError, Seed, Settlement, StartInput};
use crate::bridge::{Host, Stage, Stop};
use crate::catalog::Catalog;
use crate::engine::Shared;
use crate::snapshot::RestoreCursor;

/// Bytes that one import may copy besides its payload.
const HOSTCALL_OVERHEAD_BYTES: usize = 64 * 1024;
const WASM_PAGE_BYTES: u64 = 64 * 1024;

/// A live instance.
pub(crate) struct Instance {
    store: Store<Host>,
    instance: Component,
    settle: TypedFunc<(Vec<Settlement>, Option<Seed>), (bindings::Turn,)>,
    /// The largest thing that a turn may pass at once.
    passed_bytes_max: u64,
    memory_bytes_max: u64,
    engine: Arc<Shared>,
    /// Gives the place in the pool back.
    _permit: OwnedSemaphorePermit,
}

/// How a turn is run: what it may use, and where its output goes.
pub(crate) struct TurnContext {
    /// When the budget of the call is spent.
    pub deadline: Instant,
    /// Takes the output; given back after the turn.
    pub ledger: Box<Ledger>,
}

/// What came of a turn.
pub(crate) struct TurnResult {
    /// Its report, or why there is none. Without one the instance must be thrown away.
    pub report: Result<TurnReport, Lost>,
    /// The ledger that was lent.
    pub ledger: Box<Ledger>,
    /// Whether the guest was told what a server says about itself.
    pub has_read_remote_text: bool,
}

impl Instance {
    /// A fresh instance.
    ///
    /// # Errors
    ///
    /// `unavailable` when wasmtime can't make one.
    pub fn fresh(
        engine: &Arc<Shared>,
        limits: &Limits,
        cancelled: &Arc<AtomicBool>,
        catalog: &Catalog,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, Lost> {
        let host = Host::new(limits, cancelled.clone(), catalog.clone());
        let mut store = Store::new(&engine.wasmtime, host);
        store.limiter(|host| host);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            let now = Instant::now();
            let host = context.data_mut();
            host.check_stop(now);
            Ok(if host.is_stop_overdue(now) { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) })
        });
        let made = engine.pre.instantiate(&mut store).and_then(|instance| {
            let settle = instance.get_typed_func(&mut store, engine.exports.settle)?;
            Ok((instance, settle))
        });
        let (instance, settle) = made
            .map_err(|error| Lost { kind: Kind::Unavailable, error: format!("no instance could be made: {error}") })?;
        engine.count_instantiation();
        let memory_bytes_max = limits.memory_limit_bytes();
        let passed_bytes_max =
            limits.value_bytes().max(limits.inbox_bytes()).max(limits::fixed(&limits::ARGUMENT_BYTES));
        Ok(Self {
            store,
            instance,
            settle,
            passed_bytes_max,
            memory_bytes_max,
            engine: engine.clone(),
            _permit: permit,
        })
    }

    /// Installs the tools of this instance's catalog. Only in an instance that never ran.
    ///
    /// # Errors
    ///
    /// `out_of_memory` when they don't fit into the cell's memory, else as a turn that trapped.
    pub fn install(&mut self, deadline: Instant) -> Result<(), Lost> {
        let host = self.store.data_mut();
        host.stage = Stage::Live;
        host.deadline = deadline;
        let catalog = host.catalog.clone();
        self.arm(0);
        let engine = self.engine.clone();
        let ticking = engine.ticker.tick();
        let installed = self.call::<(Vec<&str>, Vec<bindings::Server<'_>>), (Result<(), ()>,)>(
            &engine.exports.install,
            catalog.0.to_install(),
        );
        drop(ticking);
        let installed = installed?;
        let host = self.store.data();
        if let Some((stop, _)) = host.stop {
            return Err(stopped(stop));
        }
        // An engine that is short of memory may leave something out without saying so.
        if installed.0.is_err() || host.memory_was_refused { Err(no_room_for_tools(&catalog)) } else { Ok(()) }
    }

    /// Runs the first turn.
    pub fn start(&mut self, input: StartInput, context: TurnContext) -> TurnResult {
        let exports = &self.engine.exports;
        match self.instance.get_typed_func::<(StartInput,), (bindings::Turn,)>(&mut self.store, &exports.start) {
            Ok(start) => self.turn(context, start, (input,)),
            Err(error) => TurnResult {
                report: Err(Lost { kind: Kind::Internal, error: error.to_string() }),
                ledger: context.ledger,
                has_read_remote_text: false,
            },
        }
    }

    /// Delivers replies and runs the guest on; `seed` after a restore.
    pub fn settle(&mut self, replies: Vec<(RequestId, Reply)>, seed: Option<Seed>, context: TurnContext) -> TurnResult {
        let settlements = replies.into_iter().map(|(id, reply)| settlement(id, reply)).collect();
        let settle = self.settle;
        self.turn(context, settle, (settlements, seed))
    }

    fn turn<P>(&mut self, context: TurnContext, function: TypedFunc<P, (bindings::Turn,)>, parameters: P) -> TurnResult
    where
        P: ComponentNamedList + Lower,
    {
        self.store.data_mut().begin_turn(context.deadline, context.ledger);
        self.arm(self.passed_bytes_max);
        let ticking = self.engine.ticker.tick();
        let called = function.call(&mut self.store, parameters);
        drop(ticking);
        let report = match called {
            Ok((turn,)) => self.report(turn),
            Err(error) => Err(self.lost(&error)),
        };
        let host = self.store.data_mut();
        let ledger = host.ledger.take().unwrap_or_else(|| Box::new(Ledger::new(0)));
        TurnResult { report, ledger, has_read_remote_text: host.has_read_remote_text }
    }

    /// Before every call: the next tick runs the callback, and one import may copy no more than this.
    fn arm(&mut self, copied_bytes_max: u64) {
        self.store.set_epoch_deadline(1);
        let copied = usize::try_from(copied_bytes_max).unwrap_or(usize::MAX);
        self.store.set_hostcall_fuel(copied.saturating_add(HOSTCALL_OVERHEAD_BYTES));
    }

    fn report(&mut self, turn: bindings::Turn) -> Result<TurnReport, Lost> {
        // Whatever the guest made of the interrupt: the flag decides.
        if let Some((stop, _)) = self.store.data().stop {
            return Err(stopped(stop));
        }
        let turn = match turn {
            bindings::Turn::Awaiting => Turn::Awaiting,
            bindings::Turn::Draining => Turn::Draining,
            bindings::Turn::Finished(value) => Turn::Finished(FinalValue::Whole(checked_value(&value)?)),
            bindings::Turn::FinishedBeyond(start) => Turn::Finished(self.checked_start(start)?),
            bindings::Turn::Failed(failure) => {
                Turn::Failed(Lost { kind: failure.kind.into(), error: checked_text(failure.text)? })
            }
        };
        let host = self.store.data_mut();
        Ok(TurnReport {
            turn,
            requests: std::mem::take(&mut host.requests),
            cleared: std::mem::take(&mut host.cleared),
        })
    }

    fn checked_start(&self, start: bindings::JsonStart) -> Result<FinalValue, Lost> {
        let start = String::from_utf8(start.text)
            .ok()
            .and_then(|text| JsonStart::new(text, start.bytes, &self.store.data().limits))
            .ok_or_else(|| violation("the beginning of a value that isn't one"))?;
        Ok(FinalValue::Beyond(start))
    }

    /// Why a turn trapped. The host's own flags come before anything that the trap says.
    fn lost(&self, error: &wasmtime::Error) -> Lost {
        let host = self.store.data();
        if let Some(what) = host.violation {
            return violation(what);
        }
        if let Some((stop, _)) = host.stop {
            return stopped(stop);
        }
        if host.memory_was_refused {
            return Lost { kind: Kind::OutOfMemory, error: String::from("InternalError: out of memory") };
        }
        match error.downcast_ref::<Trap>() {
            // The guest's own stack lies at the bottom of memory: growing past it leaves memory.
            Some(Trap::StackOverflow | Trap::MemoryOutOfBounds) => {
                Lost { kind: Kind::StackOverflow, error: String::from("RangeError: Maximum call stack size exceeded") }
            }
            Some(trap) => Lost { kind: Kind::Internal, error: format!("the guest trapped: {trap}") },
            // What it returned or passed couldn't be read: too large, or no value of its type.
            None => violation("a value that can't be read"),
        }
    }

    /// Shows the instance's image to `visit`, garbage collected first.
    ///
    /// # Errors
    ///
    /// As a turn that trapped: collecting is guest code, and has a budget.
    pub fn image<T>(&mut self, deadline: Instant, visit: impl FnOnce(&[u8]) -> T) -> Result<T, Lost> {
        self.store.data_mut().deadline = deadline;
        self.arm(limits::fixed(&limits::IMPORT_BYTES) * 4);
        let engine = self.engine.clone();
        let ticking = engine.ticker.tick();
        let image = self.call::<(bool,), (WasmList<u8>,)>(&engine.exports.image, (true,));
        drop(ticking);
        let (image,) = image?;
        let bytes = image.as_le_slice(&self.store);
        let memory_bytes = u64::from(self.engine.base.address) + bytes.len() as u64;
        if !memory_bytes.is_multiple_of(WASM_PAGE_BYTES) || memory_bytes > self.memory_bytes_max {
            return Err(violation("an image of the wrong length"));
        }
        Ok(visit(bytes))
    }

    /// Puts a checked snapshot in place. Only in an instance that never ran.
    ///
    /// # Errors
    ///
    /// `restore_failed` when the instance can't take it.
    pub fn restore(&mut self, cursor: RestoreCursor) -> Result<(), Lost> {
        let failed =
            |why: &str| Lost { kind: Kind::RestoreFailed, error: format!("the snapshot can't be restored: {why}") };
        if !matches!(self.store.data().stage, Stage::Fresh) {
            return Err(failed("the instance was used already"));
        }
        let memory_bytes =
            u32::try_from(cursor.memory_bytes).ok().filter(|bytes| u64::from(*bytes) <= self.memory_bytes_max);
        let memory_bytes = memory_bytes.ok_or_else(|| failed("its memory is larger than the limit"))?;
        self.store.data_mut().stage = Stage::Restoring(cursor);
        self.store.data_mut().deadline = far_future();
        self.arm(0);
        let engine = self.engine.clone();
        self.call::<(u32,), ()>(&engine.exports.restore, (memory_bytes,)).map_err(|lost| {
            // Restoring has no deadline: only whoever cancelled can have stopped it.
            if self.store.data().stop.is_some() { lost } else { failed(&lost.error) }
        })?;
        match std::mem::replace(&mut self.store.data_mut().stage, Stage::Live) {
            Stage::Restoring(cursor) if cursor.is_done() => Ok(()),
            Stage::Restoring(_) | Stage::Fresh | Stage::Live => Err(failed("the guest didn't take all of it")),
        }
    }

    fn call<P, R>(&mut self, export: &wasmtime::component::ComponentExportIndex, parameters: P) -> Result<R, Lost>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let function = self.instance.get_typed_func::<P, R>(&mut self.store, export);
        let result = function.and_then(|function| function.call(&mut self.store, parameters));
        result.map_err(|error| self.lost(&error))
    }
}

/// The base image that a snapshot of a fresh instance of this component would be compared with, and its address.
pub(crate) fn base_image(
    store: &mut Store<Host>,
    instance: &Component,
    exports: &crate::engine::Exports,
) -> wasmtime::Result<(u32, Vec<u8>)> {
    let address = instance.get_typed_func::<(), (u32,)>(&mut *store, &exports.image_base)?;
    let (address,) = address.call(&mut *store, ())?;
    let image = instance.get_typed_func::<(bool,), (WasmList<u8>,)>(&mut *store, &exports.image)?;
    let (image,) = image.call(&mut *store, (false,))?;
    Ok((address, image.as_le_slice(&*store).to_vec()))
}

/// A deadline for work that has none.
pub(crate) fn far_future() -> Instant {
    const A_DAY: std::time::Duration = std::time::Duration::from_secs(86_400);
    Instant::now() + A_DAY
}

fn settlement(id: RequestId, reply: Reply) -> Settlement {
    let outcome = match reply {
        Reply::Value(value) => {
            let mut json = Box::<str>::from(value).into_string().into_bytes();
            json.push(0);
            Ok(json)
        }
        Reply::Done => Ok(Vec::new()),
        Reply::Failed { message, code } => Err(RequestError { message, code: code.map(str::to_owned) }),
    };
    Settlement { method: id.method.into(), number: id.number, outcome }
}

fn checked_value(value: &[u8]) -> Result<Box<RawValue>, Lost> {
    json::check(value).map(ToOwned::to_owned).map_err(|_| violation("a value that isn't acceptable JSON"))
}

fn checked_text(text: Vec<u8>) -> Result<String, Lost> {
    if text.len() as u64 > limits::fixed(&limits::ERROR_TEXT_BYTES) {
        return Err(violation("an error text that is too long"));
    }
    String::from_utf8(text).map_err(|_| violation("an error text that isn't UTF-8"))
}

/// How a turn ended that was stopped.
pub(crate) fn stopped(stop: Stop) -> Lost {
    match stop {
        Stop::Timeout => Lost { kind: Kind::Timeout, error: String::from("the cell computed past its time budget") },
        Stop::Aborted => CancelReason::Caller.lost(),
    }
}

/// A catalog that is too large for the memory of a cell.
pub(crate) fn no_room_for_tools(catalog: &Catalog) -> Lost {
    let error = format!(
        "InternalError: out of memory: the {} tools of the catalog don't fit into the memory of a cell",
        catalog.0.entries.len()
    );
    Lost { kind: Kind::OutOfMemory, error }
}

fn violation(what: &str) -> Lost {
    Lost { kind: Kind::ProtocolViolation, error: format!("the guest broke the protocol: {what}") }
}

/// A snapshot that was refused before any byte of it was used.
pub(crate) fn refused(refusal: Refused) -> Lost {
    Lost { kind: Kind::RestoreFailed, error: refusal.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codemode_core::ids::Method;
    use std::sync::Arc;

    use crate::engine::{Engine, EngineConfig};

    fn fresh(engine: &Arc<Shared>) -> Instance {
        let permit = engine.instances.clone().try_acquire_owned().unwrap();
        Instance::fresh(engine, &Limits::default(), &Arc::default(), &Catalog::default(), permit).unwrap()
    }

    fn context() -> TurnContext {
        TurnContext { deadline: far_future(), ledger: Box::new(Ledger::new(1_024)) }
    }

    /// An instance with a cell that yields, and the snapshot of it.
    fn parked(engine: &Arc<Shared>) -> (Instance, Vec<u8>) {
        let mut instance = fresh(engine);
        let source = "const seen = [1]; await yield_control(); return seen";
        let limits = bindings::GuestLimits {
            heap_bytes: 1 << 25,
            unsettled_requests: 16,
            live_timers: 16,
            argument_bytes: 1_024,
            result_bytes: 1_024,
            value_bytes: 1_024,
            output_bytes: 1_024,
            error_text_bytes: 1_024,
        };
        let input = StartInput {
            source: source.as_bytes().into(),
            file_name: "cell.js".into(),
            limits,
            seed: (1, 2, 3, 4),
            started_at: 0,
        };
        let report = instance.start(input, context()).report.unwrap();
        assert!(matches!(report.turn, Turn::Awaiting));
        let snapshot =
            instance.image(far_future(), |live| engine.base.with(None).delta(live, u64::MAX)).unwrap().unwrap();
        (instance, snapshot)
    }

    #[test]
    fn a_snapshot_goes_on_in_a_fresh_instance() {
        let engine = Engine::new(EngineConfig::default()).unwrap().0;
        let (_, snapshot) = parked(&engine);
        let mut instance = fresh(&engine);
        instance.restore(engine.base.with(None).open(snapshot.into()).unwrap()).unwrap();
        let replies = vec![(RequestId { method: Method::Yield, number: 1 }, Reply::Done)];
        let report = instance.settle(replies, Some((5, 6, 7, 8)), context()).report.unwrap();
        let Turn::Finished(FinalValue::Whole(value)) = report.turn else { panic!("{:?}", report.turn) };
        assert_eq!(value.get(), "[1]");
    }

    #[test]
    fn only_a_fresh_instance_is_restored() {
        let engine = Engine::new(EngineConfig::default()).unwrap().0;
        let (mut used, snapshot) = parked(&engine);
        let refused = used.restore(engine.base.with(None).open(snapshot.into()).unwrap()).unwrap_err();
        assert_eq!(refused.kind, Kind::RestoreFailed);
    }

    #[test]
    fn foreign_and_altered_snapshots_are_refused_before_a_byte_is_used() {
        let engine = Engine::new(EngineConfig::default()).unwrap().0;
        let (_, snapshot) = parked(&engine);
        assert!(engine.base.with(None).open(snapshot.clone().into()).is_ok());
        for place in (0..snapshot.len()).step_by(97) {
            let mut altered = snapshot.clone();
            altered[place] ^= 1 << (place % 8);
            assert!(engine.base.with(None).open(altered.into()).is_err(), "byte {place}");
        }
        let half = snapshot[..snapshot.len() / 2].to_vec();
        assert!(matches!(engine.base.with(None).open(half.into()), Err(Refused::Truncated { .. })));
        let foreign = crate::snapshot::BaseImage { component: [9; 32], ..engine.base.clone() };
        assert!(matches!(foreign.with(None).open(snapshot.into()), Err(Refused::ForeignComponent)));
    }

    #[test]
    fn a_settlement_that_nothing_waits_for_traps_and_closes() {
        let engine = Engine::new(EngineConfig::default()).unwrap().0;
        let (mut instance, _) = parked(&engine);
        let replies = vec![(RequestId { method: Method::Yield, number: 7 }, Reply::Done)];
        assert_eq!(instance.settle(replies, None, context()).report.unwrap_err().kind, Kind::Internal);
    }
}
