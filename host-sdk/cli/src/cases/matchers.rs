//! Compares a result with what a case expects of it. Each mismatch is a short line.

use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::format::Expected;
use super::mock::Calls;

/// A result and what is known about how it came about.
pub struct Found<'a> {
    /// The text for the model.
    pub text: &'a str,
    /// The same, parsed.
    pub result: &'a Value,
    /// How long the call took.
    pub took: Duration,
    /// The run id of the result before.
    pub run_id_before: Option<&'a str>,
    /// Calls of tools so far.
    pub calls: &'a Calls,
    /// What the model reads of `exec`.
    pub exec_description: &'a str,
    /// By how many bytes the process grew.
    pub rss_growth_bytes: u64,
}

/// What doesn't hold.
pub fn mismatches(expected: &Expected, found: &Found<'_>) -> Vec<String> {
    let mut report = Report(Vec::new());
    envelope(expected, found, &mut report);
    value(expected, found, &mut report);
    error(expected, found, &mut report);
    output(expected, found, &mut report);
    bounds(expected, found, &mut report);
    if let Some(alternatives) = &expected.any_of {
        let tried: Vec<Vec<String>> = alternatives.iter().map(|one| mismatches(one, found)).collect();
        if !tried.iter().any(Vec::is_empty) {
            let reasons: Vec<String> = tried.iter().map(|reasons| reasons.join(", ")).collect();
            report.0.push(format!("none of any_of: {}", reasons.join(" | ")));
        }
    }
    report.0
}

struct Report(Vec<String>);

impl Report {
    fn equal(&mut self, what: &str, expected: Option<&Value>, found: Option<&Value>) {
        if let Some(expected) = expected {
            let found = found.unwrap_or(&Value::Null);
            if expected != found {
                self.0.push(format!("{what}: expected {}, found {}", short(expected), short(found)));
            }
        }
    }

    fn text(&mut self, what: &str, expected: Option<&String>, found: Option<&Value>) {
        self.equal(what, expected.cloned().map(Value::String).as_ref(), found);
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }

    fn matches(&mut self, what: &str, pattern: Option<&String>, text: &str) {
        let Some(pattern) = pattern else { return };
        match Regex::new(pattern) {
            Ok(regex) => self.check(regex.is_match(text), || format!("{what}: {pattern:?} doesn't match {text:.200}")),
            Err(error) => self.0.push(format!("{what}: {error}")),
        }
    }

    fn contains(&mut self, what: &str, parts: Option<&Vec<String>>, text: &str, wanted: bool) {
        for part in parts.into_iter().flatten() {
            let word = if wanted { "lacks" } else { "contains" };
            self.check(text.contains(part) == wanted, || format!("{what}: {word} {part:?}: {text:.300}"));
        }
    }
}

fn short(value: &Value) -> String {
    const SHOWN: usize = 300;
    let text = value.to_string();
    if text.len() <= SHOWN {
        text
    } else {
        format!("{}… ({} bytes)", &text[..text.floor_char_boundary(SHOWN)], text.len())
    }
}

fn envelope(expected: &Expected, found: &Found<'_>, report: &mut Report) {
    let result = found.result;
    report.text("status", expected.status.as_ref(), result.get("status"));
    report.text("code", expected.code.as_ref(), result.get("code"));
    report.text("kind", expected.kind.as_ref(), result.get("kind"));
    report.text("failurePhase", expected.failure_phase.as_ref(), result.get("failurePhase"));
    report.text("reason", expected.reason.as_ref(), result.get("reason"));
    report.text("yieldReason", expected.yield_reason.as_ref(), result.get("yieldReason"));
    let flag = |flag: Option<bool>| flag.map(Value::Bool);
    report.equal("replaySafe", flag(expected.replay_safe).as_ref(), result.get("replaySafe"));
    report.equal(
        "bridgeDispatchStarted",
        flag(expected.bridge_dispatch_started).as_ref(),
        result.get("bridgeDispatchStarted"),
    );
    if let Some(pending) = &expected.pending {
        let found: Vec<&Value> =
            result.get("pendingToolCalls").and_then(Value::as_array).into_iter().flatten().collect();
        let same = found.len() == pending.len() && pending.iter().all(|entry| found.contains(&entry));
        report.check(same, || format!("pendingToolCalls: expected {pending:?}, found {found:?}"));
    }
    let run_id = result.get("runId").and_then(Value::as_str);
    report.matches("runId", expected.run_id_matches.as_ref(), run_id.unwrap_or_default());
    if let Some(same) = expected.run_id_same {
        report.check((run_id == found.run_id_before) == same, || {
            format!("runId: {run_id:?} after {:?}", found.run_id_before)
        });
    }
    if let Some(subset) = &expected.telemetry_subset {
        let telemetry = result.get("telemetry").unwrap_or(&Value::Null);
        report.check(is_subset(subset, telemetry), || format!("telemetry: expected {subset}, found {telemetry}"));
    }
}

fn value(expected: &Expected, found: &Found<'_>, report: &mut Report) {
    let value = found.result.get("value").unwrap_or(&Value::Null);
    let json = value.to_string();
    report.equal("value", expected.value.as_ref(), Some(value));
    if let Some(expected) = &expected.value_json {
        report.check(*expected == json, || format!("value_json: expected {expected}, found {json:.300}"));
    }
    if let Some(subset) = &expected.value_subset {
        report.check(is_subset(subset, value), || format!("value: expected at least {subset}, found {}", short(value)));
    }
    if let Some(shape) = &expected.value_shape {
        let length = value.as_array().map(|items| format!("array:{}", items.len()));
        report.check(length.as_deref() == Some(shape), || format!("value: expected {shape}, found {}", short(value)));
    }
    report.matches("value", expected.value_matches.as_ref(), value.as_str().unwrap_or(&json));
    report.contains("value", expected.value_not_contains.as_ref(), &json, false);
    if let Some(pattern) = &expected.value_all_strings_not_matching {
        match Regex::new(pattern) {
            Ok(regex) => strings(value, &mut |text| {
                report.check(!regex.is_match(text), || format!("value: {text:?} matches {pattern:?}"));
            }),
            Err(error) => report.0.push(format!("value: {error}")),
        }
    }
    if let Some(wanted) = expected.value_has_reference {
        let has = value.get("reference").and_then(|reference| reference.get("id")).is_some();
        report.check(has == wanted, || format!("value: reference is {has}"));
    }
    if let Some(bytes) = expected.value_marker_original_bytes {
        report.check(original_bytes(value) == Some(bytes), || {
            format!("value marker: expected {bytes} original bytes, found {:?}", original_bytes(value))
        });
    }
}

fn strings(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, visit)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            visit(key);
            strings(value, visit);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether everything in `part` is in `whole`, in depth.
fn is_subset(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| is_subset(value, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_subset(part, whole))
        }
        _ => part == whole,
    }
}

fn error(expected: &Expected, found: &Found<'_>, report: &mut Report) {
    let error = found.result.get("error").and_then(Value::as_str).unwrap_or_default();
    report.contains("error", expected.error_contains.as_ref(), error, true);
    report.contains("error", expected.error_not_contains.as_ref(), error, false);
    report.matches("error", expected.error_matches.as_ref(), error);
    if let Some(length) = expected.error_min_length {
        report.check(error.chars().count() >= length, || format!("error: shorter than {length}: {error:?}"));
    }
}

fn output(expected: &Expected, found: &Found<'_>, report: &mut Report) {
    let output: Vec<&Value> = found.result.get("output").and_then(Value::as_array).into_iter().flatten().collect();
    let is = |entry: &Value, kind: &str| entry.get("type").and_then(Value::as_str) == Some(kind);
    let texts: Vec<&str> = output
        .iter()
        .filter(|entry| is(entry, "text"))
        .filter_map(|entry| entry.get("text").and_then(Value::as_str))
        .collect();
    let all = serde_json::to_string(&output).unwrap_or_default();
    if let Some(expected) = &expected.output_text {
        report.check(*expected == texts, || format!("output text: expected {expected:?}, found {texts:.300?}"));
    }
    if let Some(expected) = &expected.output_json {
        let found: Vec<&Value> =
            output.iter().filter(|entry| is(entry, "json")).filter_map(|entry| entry.get("value")).collect();
        report.check(expected.iter().eq(found.iter().copied()), || {
            format!("output json: expected {expected:?}, found {found:?}")
        });
    }
    for (place, expected) in expected.output_text_at.iter().flatten() {
        let found = place.parse().ok().and_then(|place: usize| output.get(place)?.get("text")?.as_str());
        report.check(found == Some(expected), || {
            format!("output at {place}: expected {expected:.200?}, found {found:.200?}")
        });
    }
    if let Some(expected) = &expected.output_kinds {
        let kinds: Vec<&str> = output.iter().filter_map(|entry| entry.get("type").and_then(Value::as_str)).collect();
        report.check(*expected == kinds, || format!("output kinds: expected {expected:?}, found {kinds:?}"));
    }
    if let Some(count) = expected.output_count {
        report.check(output.len() == count, || format!("output: expected {count} entries, found {}", output.len()));
    }
    report.contains("output", expected.output_contains.as_ref(), &all, true);
    report.contains("output", expected.output_not_contains.as_ref(), &all, false);
    if let Some(last) = &expected.output_last_text {
        report.check(texts.last() == Some(&last.as_str()), || format!("last text: found {:?}", texts.last()));
    }
    for (text, count) in expected.output_text_count_of.iter().flatten() {
        let found = texts.iter().filter(|other| *other == text).count();
        report.check(found == *count, || format!("output: {text:?} {found} times instead of {count}"));
    }
    if let Some(units) = expected.output_each_max_units {
        for text in &texts {
            let found = text.encode_utf16().count();
            report.check(found <= units, || format!("output: an entry of {found} units, {units} are allowed"));
        }
    }
    if expected.output_no_split_surrogates == Some(true) {
        report.check(!all.contains('\u{FFFD}'), || String::from("output: a surrogate pair was split"));
    }
    markers(expected, &output, report);
}

fn markers(expected: &Expected, output: &[&Value], report: &mut Report) {
    let marker = output.iter().find(|entry| entry.get("truncated").is_some());
    if let Some(bytes) = expected.marker_original_bytes {
        let found = marker.and_then(|marker| original_bytes(marker));
        report.check(found == Some(bytes), || format!("marker: expected {bytes} original bytes, found {found:?}"));
    }
    if let Some(start) = &expected.marker_prefix_starts {
        let prefix = marker.and_then(|marker| marker.get("prefix")?.as_str()).unwrap_or_default();
        report.check(prefix.starts_with(start), || format!("marker: {start:?} doesn't start {prefix:.100}"));
    }
}

fn original_bytes(marker: &Value) -> Option<u64> {
    let prefix = marker.get("prefix")?.as_str()?;
    Some(marker.get("omittedBytes")?.as_u64()? + prefix.len() as u64)
}

fn bounds(expected: &Expected, found: &Found<'_>, report: &mut Report) {
    for (tool, count) in expected.calls.iter().flatten() {
        let calls = found.calls.of(tool);
        report.check(calls == *count, || format!("calls of {tool}: expected {count}, found {calls}"));
    }
    for (tool, most) in expected.calls_max.iter().flatten() {
        let calls = found.calls.of(tool);
        report.check(calls <= *most, || format!("calls of {tool}: at most {most}, found {calls}"));
    }
    if let Some(ms) = expected.max_ms {
        report.check(found.took <= Duration::from_millis(ms), || format!("took {:?}, {ms} ms are allowed", found.took));
    }
    if let Some(bytes) = expected.result_max_bytes {
        report
            .check(found.text.len() <= bytes, || format!("result of {} bytes, {bytes} are allowed", found.text.len()));
    }
    if let Some(bytes) = expected.host_rss_growth_max_bytes {
        report
            .check(found.rss_growth_bytes <= bytes, || format!("the process grew by {} bytes", found.rss_growth_bytes));
    }
    report.matches("result text", expected.result_text_matches.as_ref(), found.text);
    report.contains("result text", expected.result_text_not_contains.as_ref(), found.text, false);
    if expected.result_text_compact == Some(true) {
        let compact = found.result.to_string();
        report.check(compact == found.text, || String::from("result text: not the compact JSON of the result"));
    }
    let description = found.exec_description;
    report.contains("exec description", expected.exec_description_contains.as_ref(), description, true);
    report.contains("exec description", expected.exec_description_not_contains.as_ref(), description, false);
    report.matches("exec description", expected.exec_description_matches.as_ref(), description);
    let needs_history = expected.history_contains.is_some() || expected.history_not_contains.is_some();
    report.check(!needs_history, || String::from("needs source redaction"));
}
