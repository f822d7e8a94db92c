//! The functions that the guest can call. Each copies its arguments first, then enqueues through one import, and returns
//! before anything happens.

use core::ffi::{CStr, c_int};
use std::cell::Cell as Counter;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::adapter::{self, Json, Mode, Refusal, Start};
use crate::catalog;
use crate::cell::{self, Cancelled, Pending, QueueFull, Shape};
use crate::codemode::cell::catalog as host;
use crate::codemode::cell::types::{ApiFile, JsonStart, Method, RequestError};
use crate::codemode::cell::{control, namespaces, output, results, timers, tools};
use crate::engine::{self, Attributes, Call, Key, Kind, Primordials, Result, Value};
use crate::{crypto, encoding, inspect, json_text, random, report};

/// A function of the guest.
pub struct Entry {
    /// Its name.
    pub name: &'static CStr,
    /// The length that it shows.
    pub length: c_int,
    /// What runs.
    pub run: engine::Native,
    /// What `run` is told besides the call.
    pub magic: i32,
    /// Where it stands.
    place: Place,
}

/// Where a native stands, and as what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A fixed global of the runtime.
    Global,
    /// A global that the web has too: like a built-in.
    WebGlobal,
    /// In the fixed global of this name.
    Fixed(&'static str),
    /// In this global, which is like a built-in.
    Web(&'static str),
    /// In `Math`.
    Math,
    /// A constructor; methods and getters of the same name are its prototype's.
    Constructor,
    /// A method of the class of this name.
    Method(&'static str),
    /// A getter of the class, or of the object, of this name.
    Getter(&'static str),
    /// Nowhere: it is put into objects later.
    Later,
}

const fn entry(place: Place, name: &'static CStr, length: c_int, run: engine::Native, magic: i32) -> Entry {
    Entry { name, length, run, magic, place }
}

/// All natives. Their places in this table are fixed in the base image.
pub static TABLE: &[Entry] = &[
    entry(Place::Global, c"text", 1, text, 0),
    entry(Place::Global, c"json", 1, json, 0),
    entry(Place::Global, c"yield_control", 1, yield_control, 0),
    entry(Place::Global, c"setTimeout", 2, set_timer, 0),
    entry(Place::Global, c"clearTimeout", 1, clear_timer, 0),
    entry(Place::WebGlobal, c"setInterval", 2, set_timer, 1),
    entry(Place::WebGlobal, c"clearInterval", 1, clear_timer, 0),
    entry(Place::WebGlobal, c"structuredClone", 1, crate::clone::structured_clone, 0),
    entry(Place::Fixed("console"), c"log", 0, console, 0),
    entry(Place::Fixed("console"), c"info", 0, console, 1),
    entry(Place::Fixed("console"), c"warn", 0, console, 2),
    entry(Place::Fixed("console"), c"error", 0, console, 3),
    entry(Place::Fixed("console"), c"debug", 0, console, 4),
    entry(Place::Math, c"random", 0, math_random, 0),
    entry(Place::Web("performance"), c"now", 0, performance_now, 0),
    entry(Place::Getter("performance"), c"timeOrigin", 0, performance_time_origin, 0),
    entry(Place::Web("crypto"), c"getRandomValues", 1, crypto::get_random_values, 0),
    entry(Place::Web("crypto"), c"randomUUID", 0, crypto::random_uuid, 0),
    entry(Place::Fixed("catalog"), c"search", 2, search, 0),
    entry(Place::Fixed("catalog"), c"all", 0, all, 0),
    entry(Place::Fixed("API"), c"list", 1, list_files, 0),
    entry(Place::Fixed("API"), c"read", 1, read_file, 0),
    entry(Place::Fixed("results"), c"save", 1, save_result, 0),
    entry(Place::Fixed("results"), c"load", 1, load_result, 0),
    entry(Place::Fixed("results"), c"delete", 1, delete_result, 0),
    entry(Place::Constructor, c"TextEncoder", 0, encoding::new_encoder, 0),
    entry(Place::Getter("TextEncoder"), c"encoding", 0, encoding::encoder_encoding, 0),
    entry(Place::Method("TextEncoder"), c"encode", 0, encoding::encode, 0),
    entry(Place::Method("TextEncoder"), c"encodeInto", 2, encoding::encode_into, 0),
    entry(Place::Constructor, c"TextDecoder", 0, encoding::new_decoder, 0),
    entry(Place::Getter("TextDecoder"), c"encoding", 0, encoding::decoder_property, 0),
    entry(Place::Getter("TextDecoder"), c"fatal", 0, encoding::decoder_property, 1),
    entry(Place::Getter("TextDecoder"), c"ignoreBOM", 0, encoding::decoder_property, 2),
    entry(Place::Method("TextDecoder"), c"decode", 0, encoding::decode, 0),
    entry(Place::Later, DESCRIBE_NAME, 0, describe, 0),
    entry(Place::Later, TO_JSON_NAME, 0, handle_to_json, 0),
    entry(Place::Later, API_NAME, 2, api, 0),
];

const DESCRIBE_NAME: &CStr = c"describe";
const TO_JSON_NAME: &CStr = c"toJSON";
const API_NAME: &CStr = c"$api";

const CONSOLE_PREFIXES: &[&str] = &["", "[info] ", "[warn] ", "[error] ", "[debug] "];
/// UTF-16 units of JSON that the console entries of a cell may have together.
const CONSOLE_UNITS_MAX: usize = 16_384;
/// What the notice about a full console takes of that.
const CONSOLE_NOTICE_UNITS: usize = 100;
/// Bytes of the text of a yield that the host takes; it shows 512 UTF-16 units of it.
const YIELD_REASON_BYTES_MAX: usize = 2_048;
/// Bytes of a search query, or of a path or name that is looked up, that are used.
const QUERY_BYTES_MAX: usize = 4_096;
const CONSOLE_NOTICE: &str = "[console output truncated]";

/// Installs everything that is the same in every cell.
///
/// # Panics
///
/// When the engine refuses, which only the build can see.
#[expect(clippy::expect_used, reason = "runs while the component is built, never in a cell")]
pub fn install() {
    let global = Value::global();
    let mut holders: BTreeMap<&str, Value> = BTreeMap::new();
    for (place, entry) in (0i32..).zip(TABLE) {
        let name = entry.name.to_str().expect("names are ASCII");
        let key = Key::named(name);
        let function = engine::native_function(entry.name, entry.length, place);
        let mut holder = |name| holders.entry(name).or_insert_with(|| Value::object().expect("an object")).clone();
        match entry.place {
            Place::Global => global.define(&key, function, Attributes::Fixed),
            Place::WebGlobal => global.define(&key, function, Attributes::Hidden),
            Place::Fixed(of) | Place::Web(of) => holder(of).define(&key, function, Attributes::Fixed),
            Place::Math => global.data_property(&Key::named("Math")).expect("the engine has Math").define(
                &key,
                function,
                Attributes::Hidden,
            ),
            Place::Constructor => {
                let prototype = holder(name);
                let tag = Value::string(name).expect("a string");
                prototype.define(&Key::to_string_tag(), tag, Attributes::Tag).expect("a fresh property");
                let constructor = engine::class::constructor(entry.name, entry.length, place, &prototype);
                global.define(&key, constructor, Attributes::Hidden)
            }
            Place::Method(of) => holder(of).define(&key, function, Attributes::Open),
            Place::Getter(of) => engine::class::define_getter(&holder(of), &key, function),
            Place::Later => Ok(()),
        }
        .expect("a fresh property");
    }
    for (name, holder) in &holders {
        let is = |place| TABLE.iter().any(|entry| entry.place == place);
        let attributes = if is(Place::Fixed(name)) { Attributes::Fixed } else { Attributes::Hidden };
        if is(Place::Fixed(name)) || is(Place::Web(name)) {
            holder.freeze().expect("a plain object");
            // javy brings a console of its own, which is configurable.
            global.define(&Key::named(name), holder.clone(), attributes).expect("a configurable global");
        }
    }
    let namespaces = Value::bare_object().expect("an object");
    global.define(&Key::named("namespaces"), namespaces.clone(), Attributes::Fixed).expect("a fresh global");
    let later = |name: &'static CStr| {
        let (place, entry) = (0i32..).zip(TABLE).find(|(_, entry)| entry.name == name).expect("it is in the table");
        engine::native_function(entry.name, entry.length, place)
    };
    catalog::capture(later(DESCRIBE_NAME), later(TO_JSON_NAME), namespaces);
    // Both let guest code run whenever the engine makes an error, also inside of natives. Without them the names are
    // ordinary properties.
    let error = global.data_property(&Key::named("Error")).expect("the engine has Error");
    for name in ["prepareStackTrace", "stackTraceLimit"] {
        error.delete(&Key::named(name)).expect("a configurable property");
    }
    // An own promise's `constructor` decides whether `await` looks at `then`. Fixing it keeps what the guest does to
    // `Promise.prototype.then` away from our promises.
    let promise = global.data_property(&Key::named("Promise")).expect("the engine has Promise");
    let prototype = promise.data_property(&Key::named("prototype")).expect("Promise has a prototype");
    prototype.define(&Key::named("constructor"), promise, Attributes::Locked).expect("a configurable property");
}

fn text(call: &Call<'_>, _: i32) -> Result<Value> {
    let value = call.argument(0);
    let (value_bytes, start_bytes) = output_sizes();
    let emit = |text: &str| {
        if text.len() <= value_bytes {
            output::text(text.as_bytes());
        } else {
            emit_beyond(text, json_text::string_bytes(text), start_bytes);
        }
    };
    if matches!(value.kind(), Kind::String) {
        value.with_text(emit)?;
        return Ok(Value::undefined());
    }
    match adapted(&value)? {
        Json::Whole(json) => emit(&String::from_utf8_lossy(&json)),
        Json::Start(start) => {
            let bytes = start.bytes + start.escapes + 2;
            emit_beyond(&String::from_utf8_lossy(&start.text), bytes, start_bytes);
        }
    }
    Ok(Value::undefined())
}

/// Counts a text that is too long: the beginning of its JSON, and the bytes of all of it.
fn emit_beyond(text: &str, bytes: u64, start_bytes: usize) {
    const PART_BYTES: usize = 4_096;
    let mut start = vec![b'"'];
    let mut rest = text;
    while start.len() < start_bytes && !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        json_text::push_escaped(&mut start, part);
        rest = after;
    }
    start.truncate(json_text::letter_boundary(&start, start_bytes));
    output::beyond(true, &JsonStart { text: start, bytes });
}

fn json(call: &Call<'_>, _: i32) -> Result<Value> {
    match adapted(&call.argument(0))? {
        Json::Whole(json) => output::json(&json),
        Json::Start(start) => output::beyond(false, &JsonStart { text: start.text, bytes: start.bytes }),
    }
    Ok(Value::undefined())
}

/// Bytes of what leaves the guest whole, and of the beginning of what doesn't.
fn output_sizes() -> (usize, usize) {
    let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
    cell::with(|cell| (size(cell.limits.value_bytes), size(cell.limits.output_bytes)))
}

fn adapted(value: &Value) -> Result<Json> {
    let (value_bytes, start_bytes) = output_sizes();
    adapter::to_json_or_start(value, value_bytes, start_bytes).map_err(|refusal| match refusal {
        Refusal::Thrown => engine::Thrown,
        Refusal::TooDeep => engine::throw_range_error("the value is nested deeper than 1000 levels"),
        Refusal::TooLarge => engine::throw_range_error("the value is too large"),
    })
}

thread_local! {
    static CONSOLE_UNITS: Counter<usize> = const { Counter::new(0) };
    static CONSOLE_IS_FULL: Counter<bool> = const { Counter::new(false) };
}

fn console(call: &Call<'_>, level: i32) -> Result<Value> {
    if CONSOLE_IS_FULL.get() {
        return Ok(Value::undefined());
    }
    let prefix = usize::try_from(level).ok().and_then(|level| CONSOLE_PREFIXES.get(level)).copied().unwrap_or_default();
    let arguments: Vec<Value> = (0..call.count()).map(|index| call.argument(index)).collect();
    let message = inspect::message(prefix, &arguments);
    let units = CONSOLE_UNITS.get() + entry_units(&message);
    if units > CONSOLE_UNITS_MAX - CONSOLE_NOTICE_UNITS {
        CONSOLE_IS_FULL.set(true);
        output::console(CONSOLE_NOTICE.as_bytes());
    } else {
        CONSOLE_UNITS.set(units);
        output::console(message.as_bytes());
    }
    Ok(Value::undefined())
}

/// The UTF-16 length of the JSON of a text entry.
fn entry_units(text: &str) -> usize {
    const FRAME: usize = r#"{"type":"text","text":}"#.len();
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json_text::push_string(&mut quoted, text);
    FRAME + String::from_utf8_lossy(&quoted).chars().map(char::len_utf16).sum::<usize>()
}

fn math_random(_: &Call<'_>, _: i32) -> Result<Value> {
    Ok(Value::number(random::unit_interval()))
}

/// Whole milliseconds since the cell started.
fn performance_now(_: &Call<'_>, _: i32) -> Result<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let started = u128::from(cell::with(|cell| cell.started_at_ms));
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a cell's life are far below 2^53")]
    let elapsed = now.saturating_sub(started) as f64;
    Ok(Value::number(elapsed))
}

/// When the cell started, in milliseconds since the Unix epoch.
fn performance_time_origin(_: &Call<'_>, _: i32) -> Result<Value> {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
    let started = cell::with(|cell| cell.started_at_ms) as f64;
    Ok(Value::number(started))
}

fn yield_control(call: &Call<'_>, _: i32) -> Result<Value> {
    let reason = call.argument(0);
    let reason = match reason.kind() {
        Kind::Undefined | Kind::Null => None,
        Kind::String => Some(reason.to_text()?),
        _ => Some(match adapted(&reason)? {
            Json::Whole(json) | Json::Start(Start { text: json, .. }) => String::from_utf8_lossy(&json).into_owned(),
        }),
    };
    let reason = reason.as_ref().map(|text| {
        let end = text.floor_char_boundary(YIELD_REASON_BYTES_MAX);
        text.get(..end).unwrap_or_default().as_bytes()
    });
    request(Method::Yield, Shape::Data, |number| control::yield_(number, reason))
}

/// `setTimeout`, and with `repeats` other than zero `setInterval`.
fn set_timer(call: &Call<'_>, repeats: i32) -> Result<Value> {
    let callback = call.argument(0);
    if !callback.is_function() {
        return Err(engine::throw_type_error("a timer needs a function as its first argument"));
    }
    let delay = call.argument(1);
    let delay_ms = if delay.is_undefined() { 0.0 } else { delay.to_number()? };
    // NaN, infinity and negative numbers become zero; the host clamps.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is what is wanted")]
    let delay_ms = if delay_ms.is_finite() { delay_ms.floor() as u64 } else { 0 };
    let arguments = (2..call.count()).map(|index| call.argument(index)).collect();
    let every_ms = (repeats != 0).then_some(delay_ms);
    let number = cell::submit_timer(callback, arguments, every_ms).map_err(queue_is_full)?;
    timers::set(number, delay_ms);
    Ok(Value::number(f64::from(number)))
}

/// `clearTimeout` and `clearInterval`, which do the same.
fn clear_timer(call: &Call<'_>, _: i32) -> Result<Value> {
    let id = match call.argument(0).kind() {
        Kind::Int(id) => u32::try_from(id).ok(),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a whole u32")]
        Kind::Float(id) if id.fract() == 0.0 && id > 0.0 && id <= f64::from(u32::MAX) => Some(id as u32),
        _ => None,
    };
    match id.and_then(cell::cancel_timer) {
        Some(Cancelled::Pending(number, timer)) => {
            timers::clear(number);
            drop(timer);
        }
        Some(Cancelled::Delivering(timer)) => drop(timer),
        None => {}
    }
    Ok(Value::undefined())
}

fn search(call: &Call<'_>, _: i32) -> Result<Value> {
    let query = call.argument(0);
    if !matches!(query.kind(), Kind::String) {
        return rejected(engine::throw_type_error("catalog.search needs a string as its query"));
    }
    let limit = match search_limit(&call.argument(1)) {
        Ok(limit) => limit,
        Err(thrown) => return rejected(thrown),
    };
    let mut json = b"{\"query\":".to_vec();
    json_text::push_string(&mut json, &query_text(&query)?);
    if let Some(limit) = limit {
        json.extend_from_slice(b",\"limit\":");
        json_text::push_integer(&mut json, limit);
    }
    json.push(b'}');
    request(Method::Search, Shape::Handles, |number| host::search(number, &json))
}

/// The limit among the options; one that isn't a number is ignored.
fn search_limit(options: &Value) -> Result<Option<i64>> {
    if !options.is_object() {
        return Ok(None);
    }
    let limit = options.get(&Key::named("limit"))?;
    let number = match limit.kind() {
        Kind::Int(number) => f64::from(number),
        Kind::Float(number) => number,
        _ => return Ok(None),
    };
    if number.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&number) {
        return Err(engine::throw_range_error("the limit of catalog.search must be a whole number from 1 upward"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to be a whole u32")]
    let number = number as i64;
    Ok(Some(number))
}

fn all(_: &Call<'_>, _: i32) -> Result<Value> {
    catalog::all()
}

fn describe(call: &Call<'_>, _: i32) -> Result<Value> {
    match call.this().handle_index() {
        Some(tool) => request(Method::Describe, Shape::Data, |number| host::describe(number, tool)),
        None => {
            rejected(engine::throw_type_error("describe is a method of tool handles: call it as handle.describe()"))
        }
    }
}

fn handle_to_json(call: &Call<'_>, _: i32) -> Result<Value> {
    catalog::metadata_of(&call.this())
}

/// `$api` of all servers, or of the server at a place.
pub fn api_of(server: Option<usize>) -> Result<Value> {
    let place = TABLE.iter().position(|entry| entry.name == API_NAME).and_then(|place| i32::try_from(place).ok());
    let server = server.and_then(|server| i32::try_from(server).ok()).map_or_else(Value::undefined, Value::integer);
    engine::bound_function(API_NAME, 2, place.unwrap_or(i32::MAX), &server)
}

/// Answered at once: no request, no suspension.
fn api(call: &Call<'_>, _: i32) -> Result<Value> {
    let server = match call.bound().kind() {
        Kind::Int(server) => u32::try_from(server).ok(),
        _ => None,
    };
    let name = match call.argument(0).kind() {
        Kind::String => Some(query_text(&call.argument(0))?),
        _ => None,
    };
    let with_schemas = match call.argument(1) {
        options if options.is_object() => match options.get(&Key::named("schema")) {
            Ok(flag) => matches!(flag.kind(), Kind::Bool(true)),
            Err(thrown) => return rejected(thrown),
        },
        _ => false,
    };
    match host::api(server, name.as_ref().map(String::as_bytes), with_schemas) {
        Ok(json) => resolved(engine::parse_json(&catalog::terminated(json)), false),
        Err(message) => rejected(engine::throw_type_error(&message)),
    }
}

fn list_files(call: &Call<'_>, _: i32) -> Result<Value> {
    let prefix = match call.argument(0).kind() {
        Kind::Undefined | Kind::Null => String::new(),
        Kind::String => query_text(&call.argument(0))?,
        _ => return rejected(engine::throw_type_error("API.list needs a string as its prefix")),
    };
    match host::list_files(prefix.as_bytes()) {
        Ok(json) => resolved(catalog::file_list(json), true),
        Err(message) => rejected(engine::throw_type_error(&message)),
    }
}

fn read_file(call: &Call<'_>, _: i32) -> Result<Value> {
    if !matches!(call.argument(0).kind(), Kind::String) {
        return rejected(engine::throw_type_error("API.read needs a path; API.list() gives them"));
    }
    let path = query_text(&call.argument(0))?;
    match host::read_file(path.as_bytes()) {
        Ok(ApiFile::Content(json)) => resolved(engine::parse_json(&catalog::terminated(json)), true),
        Ok(ApiFile::Tool(tool)) => request(Method::Describe, Shape::Frozen, |number| host::declare(number, tool)),
        Err(message) => rejected(engine::throw_type_error(&message)),
    }
}

fn save_result(call: &Call<'_>, _: i32) -> Result<Value> {
    let value = call.argument(0);
    if value.is_function() && value.handle_index().is_none() {
        return rejected(engine::throw_type_error("a function can't be saved; save the data that it gives"));
    }
    let bytes_max = cell::with(|cell| cell.limits.result_bytes);
    match adapter::to_json(&value, Mode::Strict, usize::try_from(bytes_max).unwrap_or(usize::MAX)) {
        Ok(json) => request(Method::ResultSave, Shape::Data, |number| results::save(number, &json)),
        Err(refusal) => reject_call(refusal, "a saved result", bytes_max),
    }
}

fn load_result(call: &Call<'_>, _: i32) -> Result<Value> {
    with_result_id(call, Method::ResultLoad, "results.load needs the id of a saved result", results::load)
}

fn delete_result(call: &Call<'_>, _: i32) -> Result<Value> {
    with_result_id(call, Method::ResultDelete, "results.delete needs the id of a saved result", results::delete)
}

fn with_result_id(call: &Call<'_>, method: Method, advice: &str, enqueue: fn(u32, &[u8])) -> Result<Value> {
    let id = match call.argument(0).kind() {
        Kind::String => query_text(&call.argument(0))?,
        _ => String::new(),
    };
    if id.is_empty() {
        return rejected(engine::throw_type_error(advice));
    }
    request(method, Shape::Data, |number| enqueue(number, id.as_bytes()))
}

/// The text of a string argument, cut to what the host takes.
fn query_text(text: &Value) -> Result<String> {
    text.with_text(|text| {
        let end = text.floor_char_boundary(QUERY_BYTES_MAX);
        text.get(..end).unwrap_or_default().to_owned()
    })
}

/// A promise of data that is there already.
fn resolved(value: Result<Value>, is_frozen: bool) -> Result<Value> {
    match value {
        Ok(value) => {
            let deferred = engine::deferred()?;
            engine::resolve_with_data(&deferred, value, is_frozen)?;
            Ok(deferred.promise)
        }
        Err(thrown) => rejected(thrown),
    }
}

/// A promise that is rejected with what was just thrown.
fn rejected(engine::Thrown: engine::Thrown) -> Result<Value> {
    if engine::is_stopped() {
        // An interrupt isn't an outcome of the call.
        return Err(engine::Thrown);
    }
    let reason = engine::take_exception();
    let deferred = engine::deferred()?;
    deferred.reject.call(&Value::undefined(), &[reason])?;
    Ok(deferred.promise)
}

/// A call of the tool at `tool`, through its global, its handle or its namespace, with `count` arguments.
pub fn call_tool(tool: u32, argument: &Value, count: u32) -> Result<Value> {
    let is_member = catalog::is_member(tool);
    if is_member && count > 1 {
        return rejected(engine::throw_type_error("a tool of a server takes one object as its only argument"));
    }
    let bytes_max = cell::with(|cell| cell.limits.argument_bytes);
    let arguments = match argument.kind() {
        Kind::Undefined => Ok(b"{}".to_vec()),
        _ => adapter::to_json(argument, Mode::Strict, usize::try_from(bytes_max).unwrap_or(usize::MAX)),
    };
    match arguments {
        Ok(arguments) if is_member && arguments.first() != Some(&b'{') => rejected(engine::throw_type_error(
            "a tool of a server takes one object of named arguments, for instance { query: \"…\" }",
        )),
        Ok(arguments) if is_member => {
            request(Method::Namespace, Shape::Data, |number| namespaces::call(number, tool, &arguments))
        }
        Ok(arguments) => request(Method::CallValue, Shape::Data, |number| tools::call_value(number, tool, &arguments)),
        Err(refusal) => reject_call(refusal, "the arguments of one call", bytes_max),
    }
}

/// A value that can't be passed rejects its call and nothing else; nothing is dispatched.
fn reject_call(refusal: Refusal, what: &str, bytes_max: u32) -> Result<Value> {
    match refusal {
        Refusal::Thrown => rejected(engine::Thrown),
        Refusal::TooDeep => rejected(engine::throw_type_error(&format!(
            "{what} may be nested 1000 levels deep; pass something flatter"
        ))),
        Refusal::TooLarge => {
            let engine::Thrown = engine::throw_type_error(&format!(
                "{what} may have {bytes_max} bytes of JSON; pass less, or pass it in parts"
            ));
            let reason = engine::take_exception();
            reason.define(&Key::named("code"), Value::string("invalid_input")?, Attributes::Open)?;
            rejected(engine::throw(reason))
        }
    }
}

/// Makes a request that is answered through a promise.
fn request(method: Method, shape: Shape, enqueue: impl FnOnce(u32)) -> Result<Value> {
    let call_site = Primordials::get().error.construct(&[])?;
    let deferred = engine::deferred()?;
    let promise = deferred.promise.clone();
    let number = cell::submit(method, Pending::Promise { deferred, call_site, shape }).map_err(queue_is_full)?;
    enqueue(number);
    Ok(promise)
}

fn queue_is_full(_: QueueFull) -> engine::Thrown {
    engine::throw_range_error("too many requests or timers are pending at once; await some before making more")
}

/// Makes the error of a failed request out of the one that was created where it was called.
pub fn complete_error(error: &Value, failure: &RequestError) -> Result<()> {
    let file_name = cell::with(|cell| cell.file_name.clone());
    let location = report::frames(error, &file_name).join("\n");
    error.define(&Key::named("message"), Value::string(&failure.message)?, Attributes::Hidden)?;
    error.define(&Key::named("location"), Value::string(location.trim_start())?, Attributes::Open)?;
    if let Some(code) = &failure.code {
        error.define(&Key::named("code"), Value::string(code)?, Attributes::Open)?;
        error.define(&Key::named("effectStatus"), Value::string("unknown")?, Attributes::Open)?;
    }
    Ok(())
}
