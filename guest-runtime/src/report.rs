//! What the model reads of a failed cell: the thrown value, its frames in submitted coordinates, its causes. Reading
//! runs no guest code.

use crate::adapter::{self, Mode};
use crate::codemode::cell::types::FailureKind;
use crate::engine::{self, Class, Key, Kind, Property, Value};

/// Causes that are shown under an error.
const CAUSES_MAX: usize = 3;
/// Errors of an AggregateError that are shown.
const AGGREGATED_MAX: u32 = 5;
/// Bytes of JSON that are shown of a thrown object that is no Error.
const THROWN_OBJECT_BYTES_MAX: usize = 4_096;
/// What the engine says when the stack is used up.
const STACK_OVERFLOW_MESSAGE: &str = "Maximum call stack size exceeded";

/// Globals that models reach for and that don't exist here, with what to do instead.
const ABSENT: &[(&str, &str)] = &[
    ("require", "modules can't be loaded here; call the tools, which are async global functions"),
    ("module", "modules can't be loaded here; return the value instead of exporting it"),
    ("process", "there is no process here; use the tools for files, commands and environment"),
    ("fetch", "there is no network here; call a tool that fetches, if there is one"),
    ("exports", "return the value instead of exporting it"),
    ("global", "the global object is called globalThis"),
    ("window", "there is no browser here; the global object is called globalThis"),
    ("document", "there is no browser here; call a tool that loads pages, if there is one"),
    ("setImmediate", "use setTimeout(callback, 0)"),
    ("tools", "tools are async global functions; catalog.all() and catalog.search(words) list them"),
    ("ALL_TOOLS", "catalog.all() lists the tools"),
    ("XMLHttpRequest", "there is no network here; call a tool that fetches, if there is one"),
    ("URL", "take the text apart with a regular expression or split"),
    ("URLSearchParams", "build the query with encodeURIComponent"),
    ("Intl", "format numbers and dates by hand, for instance with toFixed and toISOString"),
    ("Buffer", "use Uint8Array with TextEncoder and TextDecoder, and btoa or atob for base64"),
];

/// The kind and the text of a failed cell whose reason is `thrown`; `otherwise` when nothing more exact applies.
pub fn failure_of(thrown: &Value, file_name: &str, otherwise: FailureKind) -> (FailureKind, String) {
    let kind = if engine::heap::limit_was_hit() && is_out_of_memory(thrown) {
        FailureKind::OutOfMemory
    } else if is_stack_overflow(thrown) {
        FailureKind::StackOverflow
    } else {
        otherwise
    };
    let text = match kind {
        FailureKind::OutOfMemory => String::from("InternalError: out of memory"),
        _ => describe(thrown, file_name),
    };
    (kind, text)
}

/// An engine that is out of memory throws an InternalError, or `null` when there is no room even for that.
fn is_out_of_memory(thrown: &Value) -> bool {
    match thrown.kind() {
        Kind::Null => true,
        Kind::Object => text_property(thrown, "name").as_deref() == Some("InternalError"),
        _ => false,
    }
}

fn is_stack_overflow(thrown: &Value) -> bool {
    is_error(thrown)
        && text_property(thrown, "name").as_deref() == Some("RangeError")
        && text_property(thrown, "message").as_deref() == Some(STACK_OVERFLOW_MESSAGE)
}

/// The text of a thrown value.
pub fn describe(thrown: &Value, file_name: &str) -> String {
    if !is_error(thrown) {
        return short(thrown);
    }
    let mut text = header(thrown);
    if let Some(advice) = advice_for(thrown) {
        text.push_str(" (");
        text.push_str(advice);
        text.push(')');
    }
    for frame in frames(thrown, file_name) {
        text.push('\n');
        text.push_str(&frame);
    }
    let mut cause = own_value(thrown, "cause");
    for _ in 0..CAUSES_MAX {
        let Some(this) = cause else { break };
        text.push_str("\nCaused by: ");
        text.push_str(&header(&this));
        cause = own_value(&this, "cause");
    }
    push_aggregated(&mut text, thrown);
    text
}

fn push_aggregated(text: &mut String, thrown: &Value) {
    let Some(errors) = own_value(thrown, "errors").filter(|errors| errors.is_object() && !errors.is_proxy()) else {
        return;
    };
    if errors.class() != Class::Array {
        return;
    }
    for index in 0..AGGREGATED_MAX {
        let Ok(Some(Property::Data(error))) = errors.own_property(&Key::element(index)) else { break };
        text.push_str("\nError ");
        text.push_str(&(index + 1).to_string());
        text.push_str(": ");
        text.push_str(&header(&error));
    }
}

/// `Name: message`, or the short text of what is no Error.
fn header(value: &Value) -> String {
    if !is_error(value) {
        return short(value);
    }
    let name = text_property(value, "name").unwrap_or_else(|| String::from("Error"));
    match text_property(value, "message") {
        Some(message) if !message.is_empty() => format!("{name}: {message}"),
        _ => name,
    }
}

fn short(value: &Value) -> String {
    match value.kind() {
        Kind::Undefined => String::from("undefined"),
        Kind::String => value.to_text().unwrap_or_default(),
        Kind::Symbol => value.symbol_description().map(|text| format!("Symbol({text})")).unwrap_or_default(),
        Kind::Object if value.is_proxy() => String::from("[object Proxy]"),
        Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::BigInt | Kind::Object => {
            match adapter::to_json(value, Mode::Inert, THROWN_OBJECT_BYTES_MAX) {
                Ok(json) => String::from_utf8(json).unwrap_or_default(),
                Err(refusal) => {
                    if matches!(refusal, adapter::Refusal::Thrown) {
                        drop(engine::take_exception());
                    }
                    String::from("[object]")
                }
            }
        }
    }
}

fn advice_for(thrown: &Value) -> Option<&'static str> {
    if text_property(thrown, "name").as_deref() != Some("ReferenceError") {
        return None;
    }
    let message = text_property(thrown, "message")?;
    let missing = message.strip_suffix(" is not defined")?.trim_matches('\'');
    ABSENT.iter().find(|(name, _)| *name == missing).map(|(_, advice)| *advice)
}

/// The frames of the submitted source, in its own coordinates.
pub fn frames(error: &Value, file_name: &str) -> Vec<String> {
    let stack = text_property(error, "stack").unwrap_or_default();
    stack.lines().filter_map(|line| frame(line, file_name)).collect()
}

/// `    at name (cell.js:3:5)`, without the name when it is the cell itself. Nothing for frames of other sources.
fn frame(line: &str, file_name: &str) -> Option<String> {
    let line = line.trim_start().strip_prefix("at ")?;
    let (name, place) = match line.split_once(" (") {
        Some((name, place)) => (name, place.strip_suffix(')')?),
        None => ("", line),
    };
    let position = place.strip_prefix(file_name)?.strip_prefix(':')?;
    let (row, column) = position.split_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // The script around the cell.
    if !is_number(row) || !is_number(column) || name == "<eval>" {
        return None;
    }
    // The engine notes positions of calls and throws. Before the first of them it only knows where the cell starts, and
    // that is the wrapper's own line.
    let place = if row == "0" { format!("{file_name}:1:1") } else { place.to_owned() };
    Some(if name.is_empty() || name == "<anonymous>" {
        format!("    at {place}")
    } else {
        format!("    at {name} ({place})")
    })
}

fn is_error(value: &Value) -> bool {
    value.is_object() && value.class() == Class::Error
}

fn text_property(object: &Value, name: &str) -> Option<String> {
    if object.is_object() { object.error_text(name) } else { None }
}

/// An own data property; no guest code runs.
fn own_value(object: &Value, name: &str) -> Option<Value> {
    if !object.is_object() || object.is_proxy() {
        return None;
    }
    match object.own_property(&Key::named(name)) {
        Ok(Some(Property::Data(value))) => Some(value),
        _ => None,
    }
}
