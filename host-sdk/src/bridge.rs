//! What the guest can call: every import of the world. Each one checks sizes before it copies a byte, puts what it was
//! told into the turn's outbox or the output ledger, and returns. Nothing is dispatched from here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use codemode_core::cell::{Payload, Request};
use codemode_core::ids::{Method, RequestId};
use codemode_core::json;
use codemode_core::limits::{self, Limits};
use codemode_core::output::{Entry, JsonStart, Ledger};
use serde::Deserialize;
use serde_json::value::RawValue;
use wasmtime::component::{Linker, LinkerInstance, WasmList};
use wasmtime::{ResourceLimiter, StoreContextMut};

use crate::bindings::{Datetime, JsonStartInPlace};
use crate::catalog::{Catalog, File};
use crate::instance::far_future;
use crate::snapshot::RestoreCursor;

/// Why a turn has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its budget is spent.
    Timeout,
    /// Somebody cancelled.
    Aborted,
}

/// What an instance may do with its memory: only a fresh one may be restored.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Never entered.
    Fresh,
    /// Pulling the runs of a snapshot.
    Restoring(RestoreCursor),
    /// Runs, or ran, guest code.
    Live,
}

/// The host's side of one instance.
pub(crate) struct Host {
    /// See [`Stage`].
    pub stage: Stage,
    /// What the turn asked for so far.
    pub requests: Vec<Request>,
    /// Timers of earlier turns that it cancelled.
    pub cleared: Vec<u32>,
    /// Where output goes; lent by the cell for a turn.
    pub ledger: Option<Box<Ledger>>,
    /// Set once the turn has to stop, and never cleared.
    pub stop: Option<(Stop, Instant)>,
    /// When the turn's budget is spent.
    pub deadline: Instant,
    /// Set by whoever cancels the cell.
    pub cancelled: Arc<AtomicBool>,
    /// What the guest did that the protocol doesn't allow.
    pub violation: Option<&'static str>,
    /// Whether memory was refused.
    pub memory_was_refused: bool,
    /// The limits of the cell.
    pub limits: Limits,
    /// What it may call and look at.
    pub catalog: Catalog,
    /// Whether the guest was told what a server says about itself.
    pub has_read_remote_text: bool,
    inbox_bytes: u64,
    memory_bytes_max: usize,
    value_bytes_max: usize,
    /// Bytes of arguments that the turn passed so far, and how many may be pending.
    argument_bytes: u64,
    argument_bytes_max: u64,
}

impl Host {
    pub fn new(limits: &Limits, cancelled: Arc<AtomicBool>, catalog: Catalog) -> Self {
        Self {
            limits: limits.clone(),
            stage: Stage::Fresh,
            requests: Vec::new(),
            cleared: Vec::new(),
            ledger: None,
            stop: None,
            deadline: far_future(),
            cancelled,
            violation: None,
            memory_was_refused: false,
            catalog,
            has_read_remote_text: false,
            inbox_bytes: limits.inbox_bytes(),
            memory_bytes_max: usize::try_from(limits.memory_limit_bytes()).unwrap_or(usize::MAX),
            value_bytes_max: usize::try_from(limits.value_bytes()).unwrap_or(usize::MAX),
            argument_bytes: 0,
            argument_bytes_max: limits.inbox_bytes(),
        }
    }

    /// Begins a turn.
    pub fn begin_turn(&mut self, deadline: Instant, ledger: Box<Ledger>) {
        self.stage = Stage::Live;
        self.deadline = deadline;
        self.ledger = Some(ledger);
        self.argument_bytes = 0;
        self.check_stop(Instant::now());
    }

    /// Looks at the flags of whoever may stop the turn.
    pub fn check_stop(&mut self, now: Instant) {
        if self.stop.is_some() {
            return;
        }
        if self.cancelled.load(Ordering::Relaxed) {
            self.stop = Some((Stop::Aborted, now));
        } else if now >= self.deadline {
            self.stop = Some((Stop::Timeout, now));
        }
    }

    /// Whether the guest had its time to stop by itself.
    pub fn is_stop_overdue(&self, now: Instant) -> bool {
        let grace = Duration::from_millis(limits::fixed(&limits::STOP_GRACE_MS));
        self.stop.is_some_and(|(_, since)| now.saturating_duration_since(since) >= grace)
    }

    fn submit(&mut self, method: Method, number: u32, payload: Payload, replay_safe: bool) -> wasmtime::Result<()> {
        // The exact count is checked when the turn ends; this only bounds what a broken guest can make the host hold.
        let most = limits::MAX_PENDING_TOOL_CALLS.max + limits::fixed(&limits::QUEUED_REQUESTS);
        if self.requests.len() as u64 > most {
            return Err(self.violated("more requests than it may have"));
        }
        self.requests.push(Request { id: RequestId { method, number }, payload, replay_safe });
        Ok(())
    }

    fn violated(&mut self, what: &'static str) -> wasmtime::Error {
        self.violation = Some(what);
        wasmtime::Error::msg(what)
    }
}

impl ResourceLimiter for Host {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let fits = desired <= self.memory_bytes_max;
        self.memory_was_refused |= !fits;
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The guest's tables are as large as the component says, for good.
        Ok(current == 0 || desired == current)
    }
}

type Caller<'a> = StoreContextMut<'a, Host>;

/// Defines every import.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    link_tools(&mut linker.instance("codemode:cell/tools@0.1.0")?)?;
    link_namespaces(&mut linker.instance("codemode:cell/namespaces@0.1.0")?)?;
    link_catalog(&mut linker.instance("codemode:cell/catalog@0.1.0")?)?;
    link_results(&mut linker.instance("codemode:cell/results@0.1.0")?)?;
    link_timers(&mut linker.instance("codemode:cell/timers@0.1.0")?)?;
    link_output(&mut linker.instance("codemode:cell/output@0.1.0")?)?;
    link_control(&mut linker.instance("codemode:cell/control@0.1.0")?)?;
    link_restore_source(&mut linker.instance("codemode:cell/restore-source@0.1.0")?)?;
    link_clocks(linker)
}

fn link_tools(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("call-value", |mut caller: Caller<'_>, (number, tool, arguments): Calling| {
        submit_call(&mut caller, Method::CallValue, number, tool, &arguments)
    })
}

fn link_namespaces(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("call", |mut caller: Caller<'_>, (number, tool, arguments): Calling| {
        submit_call(&mut caller, Method::Namespace, number, tool, &arguments)
    })
}

/// Number, tool and arguments.
type Calling = (u32, u32, WasmList<u8>);

fn submit_call(
    caller: &mut Caller<'_>,
    method: Method,
    number: u32,
    tool: u32,
    arguments: &WasmList<u8>,
) -> wasmtime::Result<()> {
    if arguments.len() as u64 > limits::fixed(&limits::ARGUMENT_BYTES) {
        return Err(caller.data_mut().violated("arguments that are too large"));
    }
    let payload = match argument(caller, arguments)? {
        Some(arguments) => Payload::Tool { index: tool, arguments },
        None => Payload::Oversized,
    };
    let host = caller.data_mut();
    let is_object = !matches!(&payload, Payload::Tool { arguments, .. } if !arguments.get().starts_with('{'));
    if method == Method::Namespace && !is_object {
        return Err(host.violated("arguments for a server that aren't an object"));
    }
    let catalog = host.catalog.clone();
    match catalog.0.entry(tool) {
        Some(entry) if entry.is_member() == (method == Method::Namespace) => {
            host.submit(method, number, payload, entry.is_replay_safe())
        }
        Some(_) | None => Err(host.violated("a tool that isn't in the catalog")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    limit: Option<u64>,
}

fn link_catalog(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("search", |mut caller: Caller<'_>, (number, query): (u32, WasmList<u8>)| {
        if query.len() as u64 > limits::fixed(&limits::ARGUMENT_BYTES) {
            return Err(caller.data_mut().violated("a query that is too long"));
        }
        let query: Result<Query, _> = serde_json::from_slice(query.as_le_slice(&caller));
        let host = caller.data_mut();
        match query {
            Ok(Query { query, .. }) if query.len() as u64 > limits::fixed(&limits::LOOKUP_BYTES) => {
                Err(host.violated("a query that is too long"))
            }
            Ok(Query { query, limit }) => host.submit(Method::Search, number, Payload::Search { query, limit }, true),
            Err(_) => Err(host.violated("a query that isn't one")),
        }
    })?;
    linker.func_wrap("describe", |mut caller: Caller<'_>, (number, index): (u32, u32)| {
        submit_describe(caller.data_mut(), number, index, Payload::Describe { index })
    })?;
    linker.func_wrap("declare", |mut caller: Caller<'_>, (number, index): (u32, u32)| {
        submit_describe(caller.data_mut(), number, index, Payload::Declare { index })
    })?;
    link_answers(linker)
}

fn submit_describe(host: &mut Host, number: u32, index: u32, payload: Payload) -> wasmtime::Result<()> {
    if host.catalog.0.entry(index).is_none() {
        return Err(host.violated("a tool that isn't in the catalog"));
    }
    host.submit(Method::Describe, number, payload, true)
}

/// What is answered at once, because a catalog never changes.
fn link_answers(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("metadata", |mut caller: Caller<'_>, (tool,): (u32,)| {
        let catalog = answering(caller.data_mut())?;
        let host = caller.data_mut();
        let Some(entry) = catalog.0.entry(tool) else {
            return Err(host.violated("a tool that isn't in the catalog"));
        };
        host.has_read_remote_text |= entry.is_member();
        Ok((entry.metadata(),))
    })?;
    linker.func_wrap(
        "api",
        |mut caller: Caller<'_>, (server, name, schemas): (Option<u32>, Option<WasmList<u8>>, bool)| {
            let name = name.map(|name| lookup_text(&mut caller, &name)).transpose()?;
            let host = caller.data_mut();
            let catalog = answering(host)?;
            host.has_read_remote_text = true;
            Ok((catalog.0.api(server, name.as_deref(), schemas, host.inbox_bytes),))
        },
    )?;
    linker.func_wrap("list-files", |mut caller: Caller<'_>, (prefix,): (WasmList<u8>,)| {
        let prefix = lookup_text(&mut caller, &prefix)?;
        let host = caller.data_mut();
        Ok((answering(host)?.0.list_files(&prefix, host.inbox_bytes),))
    })?;
    linker.func_wrap("read-file", |mut caller: Caller<'_>, (path,): (WasmList<u8>,)| {
        let path = lookup_text(&mut caller, &path)?;
        let host = caller.data_mut();
        let file = answering(host)?.0.read_file(&path, host.inbox_bytes);
        host.has_read_remote_text |= matches!(file, Ok(File { is_remote: true, .. }));
        Ok((file.map(|file| file.found),))
    })
}

/// The catalog, for a guest that asks during a turn: what it learns is taken note of when the turn ends.
fn answering(host: &mut Host) -> wasmtime::Result<Catalog> {
    if host.ledger.is_none() {
        return Err(host.violated("a question outside of a turn"));
    }
    Ok(host.catalog.clone())
}

/// The text of a name or path that the guest looks up.
fn lookup_text(caller: &mut Caller<'_>, text: &WasmList<u8>) -> wasmtime::Result<String> {
    if text.len() as u64 > limits::fixed(&limits::LOOKUP_BYTES) {
        return Err(caller.data_mut().violated("a name that is too long"));
    }
    Ok(String::from_utf8_lossy(text.as_le_slice(&*caller)).into_owned())
}

fn link_results(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("save", |mut caller: Caller<'_>, (number, value): (u32, WasmList<u8>)| {
        // The store refuses what is too large for it; this bounds what is copied.
        if value.len() as u64 > caller.data().inbox_bytes {
            return Err(caller.data_mut().violated("a result that is too large"));
        }
        let payload = argument(&mut caller, &value)?.map_or(Payload::Oversized, |value| Payload::Save { value });
        caller.data_mut().submit(Method::ResultSave, number, payload, false)
    })?;
    linker.func_wrap("load", |mut caller: Caller<'_>, (number, id): (u32, WasmList<u8>)| {
        let id = lookup_text(&mut caller, &id)?;
        caller.data_mut().submit(Method::ResultLoad, number, Payload::Load { id }, false)
    })?;
    linker.func_wrap("delete", |mut caller: Caller<'_>, (number, id): (u32, WasmList<u8>)| {
        let id = lookup_text(&mut caller, &id)?;
        caller.data_mut().submit(Method::ResultDelete, number, Payload::Delete { id }, false)
    })
}

fn link_timers(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("set", |mut caller: Caller<'_>, (number, delay_ms): (u32, u64)| {
        let delay_ms = delay_ms.min(limits::fixed(&limits::TIMER_DELAY_MS));
        caller.data_mut().submit(Method::Sleep, number, Payload::Timer { delay_ms }, true)
    })?;
    linker.func_wrap("clear", |mut caller: Caller<'_>, (number,): (u32,)| {
        let host = caller.data_mut();
        let id = RequestId { method: Method::Sleep, number };
        if let Some(place) = host.requests.iter().rposition(|request| request.id == id) {
            // Set in this very turn: it never leaves.
            host.requests.remove(place);
            return Ok(());
        }
        if host.cleared.len() as u64 >= limits::fixed(&limits::LIVE_TIMERS) {
            return Err(host.violated("more timers cancelled than can be set"));
        }
        host.cleared.push(number);
        Ok(())
    })
}

fn link_output(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("text", |mut caller: Caller<'_>, (entry,): (WasmList<u8>,)| {
        with_ledger(&mut caller, &entry, |ledger, bytes| {
            ledger.push(Entry::Text(std::str::from_utf8(bytes).map_err(|_| "text that isn't UTF-8")?));
            Ok(())
        })
    })?;
    linker.func_wrap("json", |mut caller: Caller<'_>, (entry,): (WasmList<u8>,)| {
        with_ledger(&mut caller, &entry, |ledger, bytes| {
            ledger.push(Entry::Json(json::check(bytes).map_err(|_| "an entry that isn't acceptable JSON")?));
            Ok(())
        })
    })?;
    linker.func_wrap("beyond", |mut caller: Caller<'_>, (is_text, content): (bool, JsonStartInPlace)| {
        let limits = caller.data().limits.clone();
        if content.text.len() as u64 > limits.max_output_bytes() {
            return Err(caller.data_mut().violated("the beginning of an entry that is too large"));
        }
        with_ledger(&mut caller, &content.text, |ledger, start| {
            let start = String::from_utf8(start.to_vec()).ok();
            let start = start.and_then(|text| JsonStart::new(text, content.bytes, &limits));
            ledger.push_beyond(is_text, start.ok_or("the beginning of an entry that isn't one")?);
            Ok(())
        })
    })?;
    linker.func_wrap("console", |mut caller: Caller<'_>, (line,): (WasmList<u8>,)| {
        with_ledger(&mut caller, &line, |ledger, bytes| {
            let text = std::str::from_utf8(bytes).map_err(|_| "text that isn't UTF-8")?;
            ledger.push_console(text).map_err(|_| "more console output than it may have")
        })
    })
}

/// Lends the ledger and the bytes of an entry to `use_both`, once the entry's size is checked.
fn with_ledger(
    caller: &mut Caller<'_>,
    entry: &WasmList<u8>,
    use_both: impl FnOnce(&mut Ledger, &[u8]) -> Result<(), &'static str>,
) -> wasmtime::Result<()> {
    if entry.len() > caller.data().value_bytes_max {
        return Err(caller.data_mut().violated("an entry that is too large"));
    }
    let Some(mut ledger) = caller.data_mut().ledger.take() else {
        return Err(caller.data_mut().violated("output outside of a turn"));
    };
    let used = use_both(&mut ledger, entry.as_le_slice(&*caller));
    let host = caller.data_mut();
    host.ledger = Some(ledger);
    used.map_err(|what| host.violated(what))
}

fn link_control(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("yield", |mut caller: Caller<'_>, (number, reason): (u32, Option<WasmList<u8>>)| {
        let mut text = None;
        if let Some(reason) = reason {
            // Four bytes of UTF-8 for each unit that is shown.
            if reason.len() as u64 > limits::fixed(&limits::YIELD_REASON_UNITS) * 4 {
                return Err(caller.data_mut().violated("a reason that is too long"));
            }
            text = Some(String::from_utf8_lossy(reason.as_le_slice(&caller)).into_owned());
        }
        caller.data_mut().submit(Method::Yield, number, Payload::Yield { reason: text }, true)
    })?;
    linker.func_wrap("stop-requested", |caller: Caller<'_>, (): ()| Ok((caller.data().stop.is_some(),)))
}

fn link_restore_source(linker: &mut LinkerInstance<'_, Host>) -> wasmtime::Result<()> {
    linker.func_wrap("next-run", |mut caller: Caller<'_>, (): ()| {
        let host = caller.data_mut();
        let Stage::Restoring(cursor) = &mut host.stage else {
            return Err(host.violated("a restore that nobody started"));
        };
        Ok((cursor.announce(),))
    })?;
    linker.func_wrap("run-bytes", |mut caller: Caller<'_>, (): ()| {
        let host = caller.data_mut();
        let Stage::Restoring(cursor) = &mut host.stage else {
            return Err(host.violated("a restore that nobody started"));
        };
        Ok((cursor.take(),))
    })
}

/// The two clocks, in whole milliseconds.
fn link_clocks(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let started = Instant::now();
    linker.instance("wasi:clocks/wall-clock@0.2.0")?.func_wrap("now", |_: Caller<'_>, (): ()| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = now.subsec_millis() * 1_000_000;
        Ok((Datetime { seconds: now.as_secs(), nanoseconds },))
    })?;
    linker.instance("wasi:clocks/monotonic-clock@0.2.0")?.func_wrap("now", move |_: Caller<'_>, (): ()| {
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX / 1_000_000);
        Ok((elapsed_ms * 1_000_000,))
    })
}

/// Arguments, copied out of the guest, when they fit beside those that the turn passed before.
fn argument(caller: &mut Caller<'_>, json: &WasmList<u8>) -> wasmtime::Result<Option<Box<RawValue>>> {
    let host = caller.data_mut();
    let bytes = host.argument_bytes + json.len() as u64;
    if bytes > host.argument_bytes_max {
        return Ok(None);
    }
    host.argument_bytes = bytes;
    match json::check(json.as_le_slice(&*caller)) {
        Ok(json) => Ok(Some(json.to_owned())),
        Err(_) => Err(caller.data_mut().violated("arguments that aren't acceptable JSON")),
    }
}
