//! The output ledger of one cell: what it emitted, what was delivered, and how output, value and error share one budget
//! of bytes over the cell's whole life (B 1.9, contract 2.14). Everything is counted as UTF-8 JSON.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::descriptor::{DESCRIPTOR_BYTES_MAX, Descriptor};
use crate::limits::{self, Limits};

/// Ends an error that was cut.
const ERROR_CUT_SUFFIX: &str = " [error truncated]";
const OUTPUT_GUIDANCE: &str =
    "Output exceeded its budget. Emit less: filter, aggregate or page before text() and json().";
const TEXT_ENTRY_START: &str = r#"{"type":"text","text":"#;
const JSON_ENTRY_START: &str = r#"{"type":"json","value":"#;
const OUTPUT_TYPE: &str = r#""type":"truncated","#;
const KEPT_GUIDANCE_START: &str =
    "The value exceeded its budget and is kept whole. In a later program, take what you need of await results.load(\"";
const KEPT_GUIDANCE_END: &str = "\"). Samples in the preview are no schema.";
const VALUE_GUIDANCE: &str = "The value exceeded its budget. Return less: filter, aggregate or page before returning.";
/// An empty array.
const EMPTY_BYTES: u64 = 2;

/// What is left of an output when it is put into a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivered {
    /// This many entries were delivered one by one.
    Entries(usize),
    /// A summary of this many bytes of output was delivered in their place.
    Summary(u64),
}

/// Output of one cell.
#[derive(Debug)]
pub struct Ledger {
    bytes_max: u64,
    entries: Vec<String>,
    /// Bytes of the whole array, dropped entries included.
    total_bytes: u64,
    /// Bytes of the entries that are stored.
    stored_bytes: u64,
    /// Whether every entry is stored whole.
    is_whole: bool,
    count: u64,
    console_bytes: u64,
    delivered: Delivered,
}

/// The guest emitted more console output than its own limit lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsoleFlood;

/// The final value of a cell.
#[derive(Debug)]
pub enum FinalValue {
    /// All of it.
    Whole(Box<RawValue>),
    /// The beginning of one that was too long to leave the guest.
    Beyond(JsonStart),
}

impl FinalValue {
    /// As much of its JSON as there is here.
    pub fn start(&self) -> &str {
        match self {
            Self::Whole(value) => value.get(),
            Self::Beyond(start) => &start.text,
        }
    }
}

/// The beginning of JSON that was too long to leave the guest.
#[derive(Debug)]
pub struct JsonStart {
    text: String,
    /// Bytes of all of it.
    bytes: u64,
}

impl JsonStart {
    /// The beginning of JSON that has `bytes` bytes in all, for cells with these limits. `None` when it isn't what an honest
    /// guest passes: all of it should have come whole, the beginning is too long, or no guest could have written that much
    /// in its time.
    pub fn new(text: String, bytes: u64, limits: &Limits) -> Option<Self> {
        const BYTES_MAX: u64 = 1 << 40;
        let is_possible = (limits.value_bytes() + 1..BYTES_MAX).contains(&bytes);
        (is_possible && length(&text) <= limits.max_output_bytes()).then_some(Self { text, bytes })
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What stands for a value that exceeds its budget.
#[derive(Debug)]
pub enum Overflow {
    /// The beginning of it.
    Cut,
    /// The beginning of it, with the reason why the whole wasn't kept.
    NotKept(String),
    /// A reference to the whole, which is kept: see [`reference()`].
    Kept(Box<RawValue>),
}

/// The value that stands for one that was kept as the result of `id`: `{truncated, reference, guidance}` in at most
/// `bytes_max` bytes (B 3.5.29). The reference shrinks to fit; `None` when not even its identity does.
pub fn reference(id: &str, value: &RawValue, bytes_max: u64) -> Option<Box<RawValue>> {
    let with = |descriptor: &str| {
        let guidance = quoted(&format!("{KEPT_GUIDANCE_START}{id}{KEPT_GUIDANCE_END}"));
        format!(r#"{{"truncated":true,"reference":{descriptor},"guidance":{guidance}}}"#)
    };
    let room = bytes_max.checked_sub(length(&with("")))?;
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(DESCRIPTOR_BYTES_MAX);
    Some(raw(with(Descriptor::of(id, value).to_json(room)?.get())))
}

/// One entry that the guest emitted.
#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    /// Plain text, from `text` or the console.
    Text(&'a str),
    /// Checked JSON, from `json`.
    Json(&'a RawValue),
}

impl Ledger {
    /// A ledger with this budget.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            entries: Vec::new(),
            total_bytes: EMPTY_BYTES,
            stored_bytes: 0,
            is_whole: true,
            count: 0,
            console_bytes: 0,
            delivered: Delivered::Entries(0),
        }
    }

    /// Adds an entry. What can't be part of any result is counted and not stored: the end of an entry that exceeds the
    /// budget, and everything after it.
    pub fn push(&mut self, entry: Entry<'_>) {
        let bytes = entry_bytes(entry);
        let is_last =
            self.stored_bytes + bytes > self.bytes_max || self.count >= limits::fixed(&limits::OUTPUT_ENTRIES);
        if self.is_whole {
            let stored = if is_last { entry_start(entry, self.bytes_max) } else { entry_json(entry) };
            self.stored_bytes += length(&stored);
            self.entries.push(stored);
            self.is_whole = !is_last;
        }
        self.count(bytes);
    }

    /// Adds an entry that was too long to leave the guest.
    pub fn push_beyond(&mut self, is_text: bool, content: JsonStart) {
        let frame = if is_text { TEXT_ENTRY_START } else { JSON_ENTRY_START };
        if self.is_whole {
            let start = format!("{frame}{}", content.text);
            self.stored_bytes += length(&start);
            self.entries.push(start);
            self.is_whole = false;
        }
        self.count(length(frame) + content.bytes + length("}"));
    }

    fn count(&mut self, bytes: u64) {
        // A guest that lies may count further than there is to count.
        self.total_bytes = self.total_bytes.saturating_add(bytes + u64::from(self.count > 0));
        self.count += 1;
    }

    /// Bytes that it holds.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Adds a console line.
    ///
    /// # Errors
    ///
    /// [`ConsoleFlood`] when the lines of the cell together have more than [`limits::CONSOLE_BYTES`].
    pub fn push_console(&mut self, line: &str) -> Result<(), ConsoleFlood> {
        self.console_bytes += length(line);
        if self.console_bytes > limits::fixed(&limits::CONSOLE_BYTES) {
            return Err(ConsoleFlood);
        }
        self.push(Entry::Text(line));
        Ok(())
    }

    /// The output and the value of a completed cell. The value is guaranteed half of the budget, the output gets what
    /// the value leaves, and the value gets what the output leaves. When that doesn't suffice, `overflow` says what stands
    /// for the value; it is told how many bytes it may have.
    pub fn complete(
        &mut self,
        value: FinalValue,
        overflow: impl FnOnce(&FinalValue, u64) -> Overflow,
    ) -> (Box<RawValue>, Box<RawValue>) {
        let value_bytes = match &value {
            FinalValue::Whole(value) => length(value.get()),
            FinalValue::Beyond(start) => start.bytes,
        };
        let guaranteed = value_bytes.min(self.bytes_max / 2);
        let output = self.deliver(self.bytes_max - guaranteed);
        let left = self.bytes_max.saturating_sub(self.charged(self.bytes_max - guaranteed));
        let value = match value {
            FinalValue::Whole(value) if value_bytes <= left => return (output, value),
            value => value,
        };
        let cut = |guidance: &str| raw(marker("", guidance, value.start(), value_bytes, left));
        let value = match overflow(&value, left) {
            Overflow::Cut => cut(VALUE_GUIDANCE),
            Overflow::NotKept(reason) => cut(&format!("{VALUE_GUIDANCE} It wasn't kept: {reason}.")),
            Overflow::Kept(reference) => reference,
        };
        (output, value)
    }

    /// The output and the error of a failed cell. The error may use all that the output leaves, and half of the budget
    /// at least.
    pub fn fail(&mut self, error: &str) -> (Box<RawValue>, String) {
        let reserved = self.total_bytes.min(self.bytes_max / 2);
        let error = cut_error(error, self.bytes_max - reserved);
        let left = self.bytes_max.saturating_sub(json_string_bytes(&error));
        (self.deliver(left), error)
    }

    /// The output of a cell that waits.
    pub fn wait(&mut self) -> Box<RawValue> {
        self.deliver(self.bytes_max)
    }

    /// How much of an allowance the whole output takes.
    fn charged(&self, allowance: u64) -> u64 {
        self.total_bytes.min(allowance)
    }

    /// Entries that weren't delivered, or a summary of all of them when they don't fit.
    fn deliver(&mut self, allowance: u64) -> Box<RawValue> {
        if self.is_whole && self.total_bytes <= allowance {
            let Delivered::Entries(seen) = self.delivered else { return empty() };
            self.delivered = Delivered::Entries(self.entries.len());
            let fresh = self.entries.get(seen..).unwrap_or_default();
            return raw(format!("[{}]", fresh.join(",")));
        }
        if self.delivered == Delivered::Summary(self.total_bytes) {
            return empty();
        }
        self.delivered = Delivered::Summary(self.total_bytes);
        let text = format!("[{}", self.entries.join(","));
        let marker = marker(OUTPUT_TYPE, OUTPUT_GUIDANCE, &text, self.total_bytes, allowance - EMPTY_BYTES);
        raw(format!("[{marker}]"))
    }
}

/// A value as a truncation marker of at most `bytes_max` bytes, for a result that has to become shorter. A marker stays
/// one of the same original.
pub(crate) fn cut_value(value: &RawValue, bytes_max: u64) -> Box<RawValue> {
    let (text, original_bytes) = Marker::read(value.get()).unwrap_or_else(|| whole(value.get()));
    raw(marker("", VALUE_GUIDANCE, &text, original_bytes, bytes_max))
}

/// An array of entries as one that holds a truncation marker only.
pub(crate) fn cut_output(output: &RawValue, bytes_max: u64) -> Box<RawValue> {
    let bytes_max = bytes_max.saturating_sub(EMPTY_BYTES);
    let only = output.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let (text, original_bytes) = only.and_then(Marker::read).unwrap_or_else(|| whole(output.get()));
    raw(format!("[{}]", marker(OUTPUT_TYPE, OUTPUT_GUIDANCE, &text, original_bytes, bytes_max)))
}

fn whole(text: &str) -> (String, u64) {
    (text.to_owned(), length(text))
}

/// A truncation marker that was written here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Marker {
    #[serde(rename = "type")]
    _type: Option<String>,
    #[serde(rename = "truncated")]
    _truncated: bool,
    omitted_bytes: u64,
    #[serde(rename = "guidance")]
    _guidance: String,
    prefix: String,
}

impl Marker {
    /// The prefix, and how many bytes the original has.
    fn read(json: &str) -> Option<(String, u64)> {
        let marker: Self = serde_json::from_str(json).ok()?;
        let original_bytes = marker.omitted_bytes.checked_add(length(&marker.prefix))?;
        Some((marker.prefix, original_bytes))
    }
}

fn empty() -> Box<RawValue> {
    raw(String::from("[]"))
}

#[expect(clippy::expect_used, reason = "built from checked JSON and quoted strings only")]
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("the ledger writes valid JSON")
}

fn length(text: &str) -> u64 {
    text.len() as u64
}

fn entry_json(entry: Entry<'_>) -> String {
    match entry {
        Entry::Text(text) => format!("{TEXT_ENTRY_START}{}}}", quoted(text)),
        Entry::Json(value) => format!("{JSON_ENTRY_START}{}}}", value.get()),
    }
}

/// The start of an entry, enough for a prefix of `bytes_max` bytes.
fn entry_start(entry: Entry<'_>, bytes_max: u64) -> String {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut start = match entry {
        Entry::Text(text) => entry_json(Entry::Text(start_of(text, bytes_max))),
        Entry::Json(value) => format!("{JSON_ENTRY_START}{}", start_of(value.get(), bytes_max)),
    };
    start.truncate(start.floor_char_boundary(bytes_max));
    // Escapes may have made it many times as long.
    start.shrink_to_fit();
    start
}

fn start_of(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

fn entry_bytes(entry: Entry<'_>) -> u64 {
    match entry {
        Entry::Text(text) => length(TEXT_ENTRY_START) + json_string_bytes(text) + length("}"),
        Entry::Json(value) => length(JSON_ENTRY_START) + length(value.get()) + length("}"),
    }
}

#[expect(clippy::expect_used, reason = "a string always serialises")]
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string serialises")
}

fn json_string_bytes(text: &str) -> u64 {
    EMPTY_BYTES + text.bytes().map(escaped_bytes).sum::<u64>()
}

/// How many bytes of a JSON string one byte of text becomes.
fn escaped_bytes(byte: u8) -> u64 {
    match byte {
        b'"' | b'\\' | 0x08 | 0x0C | b'\n' | b'\r' | b'\t' => 2,
        0x00..=0x1F => 6,
        _ => 1,
    }
}

/// The longest start of `text` whose JSON form has at most `bytes_max` bytes, quotes not counted.
fn fitting(text: &str, bytes_max: u64) -> &str {
    let mut used = 0;
    for (index, byte) in text.bytes().enumerate() {
        used += escaped_bytes(byte);
        if used > bytes_max {
            return text.get(..text.floor_char_boundary(index)).unwrap_or_default();
        }
    }
    text
}

/// A truncation marker of at most `bytes_max` bytes with as much as fits of `text`, the start of a JSON text that has
/// `original_bytes` bytes in all. Its keys are in the order that B 1.9.54 gives.
fn marker(first: &str, guidance: &str, text: &str, original_bytes: u64, bytes_max: u64) -> String {
    let with = |omitted: u64, prefix: &str| {
        format!(
            r#"{{{first}"truncated":true,"omittedBytes":{omitted},"guidance":{},"prefix":{}}}"#,
            quoted(guidance),
            quoted(prefix)
        )
    };
    let frame = length(&with(original_bytes, ""));
    let prefix = fitting(text, bytes_max.saturating_sub(frame));
    with(original_bytes.saturating_sub(length(prefix)), prefix)
}

/// An error of at most `bytes_max` bytes of JSON.
pub(crate) fn cut_error(error: &str, bytes_max: u64) -> String {
    if json_string_bytes(error) <= bytes_max {
        return error.to_owned();
    }
    let room = bytes_max.saturating_sub(EMPTY_BYTES + length(ERROR_CUT_SUFFIX));
    format!("{}{ERROR_CUT_SUFFIX}", fitting(error, room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const BUDGET: u64 = 1_024;

    fn ledger(texts: &[&str]) -> Ledger {
        let mut ledger = Ledger::new(BUDGET);
        for text in texts {
            ledger.push(Entry::Text(text));
        }
        ledger
    }

    fn parsed(json: &RawValue) -> Value {
        serde_json::from_str(json.get()).unwrap()
    }

    #[test]
    fn entries_are_delivered_once() {
        let mut ledger = ledger(&["a"]);
        assert_eq!(ledger.wait().get(), r#"[{"type":"text","text":"a"}]"#);
        assert_eq!(ledger.wait().get(), "[]");
        ledger.push(Entry::Text("b"));
        assert_eq!(ledger.wait().get(), r#"[{"type":"text","text":"b"}]"#);
    }

    #[test]
    fn output_exactly_at_the_budget_is_whole_and_one_byte_more_is_summarised() {
        let frame = r#"[{"type":"text","text":""}]"#.len();
        for (extra, is_whole) in [(0, true), (1, false)] {
            let text = "x".repeat(usize::try_from(BUDGET).unwrap() - frame + extra);
            let output = ledger(&[&text]).wait();
            assert!(output.get().len() as u64 <= BUDGET);
            assert_eq!(parsed(&output)[0]["type"] == "text", is_whole);
        }
    }

    #[test]
    fn a_summary_counts_every_byte_once() {
        let text = "é\"\n".repeat(2_000);
        let mut ledger = ledger(&[&text, &text]);
        let original = serde_json::to_string(&serde_json::json!([
            {"type": "text", "text": text}, {"type": "text", "text": text}
        ]))
        .unwrap();
        let output = ledger.wait();
        assert!(output.get().len() as u64 <= BUDGET);
        let marker = &parsed(&output)[0];
        let prefix = marker["prefix"].as_str().unwrap();
        assert_eq!(marker["omittedBytes"].as_u64().unwrap() + prefix.len() as u64, original.len() as u64);
        assert_eq!(marker["type"], "truncated");
        assert!(prefix.starts_with(r#"[{"type":"text","text":"é"#));
    }

    #[test]
    fn an_unchanged_summary_is_not_repeated_and_a_changed_one_is() {
        let mut ledger = ledger(&[&"x".repeat(3_000)]);
        assert_ne!(ledger.wait().get(), "[]");
        assert_eq!(ledger.wait().get(), "[]");
        ledger.push(Entry::Text("more"));
        assert_ne!(ledger.wait().get(), "[]");
    }

    #[test]
    fn a_large_value_keeps_half_and_takes_what_output_leaves() {
        let value = |bytes: usize| RawValue::from_string(format!("\"{}\"", "v".repeat(bytes))).unwrap();
        let (output, kept) = ledger(&["small"]).complete(FinalValue::Whole(value(900)), |_, _| Overflow::Cut);
        assert_eq!(parsed(&output)[0]["text"], "small");
        assert_eq!(kept.get().len(), 902);
        let (output, cut) =
            ledger(&[&"o".repeat(5_000)]).complete(FinalValue::Whole(value(5_000)), |_, _| Overflow::Cut);
        assert!(output.get().len() as u64 + cut.get().len() as u64 <= BUDGET);
        let marker = parsed(&cut);
        assert_eq!(marker["truncated"], true);
        assert!(marker.get("type").is_none(), "only the marker inside output is typed");
        assert_eq!(marker["omittedBytes"].as_u64().unwrap() + marker["prefix"].as_str().unwrap().len() as u64, 5_002);
    }

    #[test]
    fn a_reference_stands_for_a_value_that_is_kept_and_gets_what_output_leaves() {
        let rows = serde_json::to_string(&vec!["row"; 500]).unwrap();
        let rows = RawValue::from_string(rows).unwrap();
        for emitted in [0, 5_000] {
            let (output, value) =
                ledger(&[&"o".repeat(emitted)]).complete(FinalValue::Whole(rows.clone()), |value, bytes_max| {
                    assert_eq!(value.start(), rows.get());
                    Overflow::Kept(reference("result_1", &rows, bytes_max).unwrap())
                });
            assert!(output.get().len() as u64 + value.get().len() as u64 <= BUDGET);
            let value = parsed(&value);
            assert_eq!(value["reference"]["id"], "result_1");
            assert_eq!(value["reference"]["count"], 500);
            assert!(value["guidance"].as_str().unwrap().contains(r#"results.load("result_1")"#));
        }
        assert!(reference("result_1", &rows, 320).is_some());
        assert!(reference("result_1", &rows, 200).is_none(), "no reference without an identity");
        let (_, value) =
            ledger(&[]).complete(FinalValue::Whole(rows), |_, _| Overflow::NotKept("the store is full".into()));
        assert!(parsed(&value)["guidance"].as_str().unwrap().ends_with("It wasn't kept: the store is full."));
    }

    #[test]
    fn what_was_too_long_to_leave_the_guest_is_counted_like_everything_else() {
        let mut limits = Limits::default();
        limits.set("maxOutputBytes", "1024").unwrap();
        limits.set("maxSnapshotBytes", "16384").unwrap();
        let most = limits.value_bytes();
        let bytes = most + 1;
        let start = |text: &str| JsonStart::new(text.to_owned(), bytes, &limits).unwrap();
        for (is_text, prefix) in [(true, r#"[{"type":"text","text":"abc"#), (false, r#"[{"type":"json","value":"abc"#)]
        {
            let mut ledger = ledger(&[]);
            ledger.push_beyond(is_text, start("\"abc"));
            ledger.push(Entry::Text("later"));
            let later = length(r#",{"type":"text","text":"later"}"#);
            let (output, value) = ledger.complete(FinalValue::Beyond(start("[1,2")), |_, _| Overflow::Cut);
            let (output, value) = (parsed(&output), parsed(&value));
            let original = |marker: &Value| {
                marker["omittedBytes"].as_u64().unwrap() + marker["prefix"].as_str().unwrap().len() as u64
            };
            assert!(output[0]["prefix"].as_str().unwrap().starts_with(prefix), "{output}");
            assert_eq!(original(&output[0]), length(prefix) - 4 + bytes + 1 + later + 1);
            assert_eq!((original(&value), &value["prefix"]), (bytes, &serde_json::json!("[1,2")));
        }
        assert!(JsonStart::new(String::new(), most, &limits).is_none(), "it should have come whole");
        assert!(JsonStart::new("x".repeat(1_024), bytes, &limits).is_some());
        assert!(JsonStart::new("x".repeat(1_025), bytes, &limits).is_none());
        assert!(JsonStart::new(String::new(), u64::MAX, &limits).is_none());
        let mut ledger = ledger(&[]);
        ledger.total_bytes = u64::MAX - 5;
        ledger.push_beyond(true, start("\"abc"));
        assert_eq!(parsed(&ledger.wait())[0]["truncated"], true, "whatever the guest counts");
    }

    #[test]
    fn a_long_error_keeps_its_start() {
        let (output, error) = ledger(&["kept"]).fail(&"e".repeat(5_000));
        assert_eq!(parsed(&output)[0]["text"], "kept");
        assert!(error.starts_with("eee") && error.ends_with(ERROR_CUT_SUFFIX));
        assert!(output.get().len() as u64 + json_string_bytes(&error) <= BUDGET);
    }

    #[test]
    fn console_output_is_bounded_on_the_host_too() {
        let mut ledger = Ledger::new(BUDGET);
        let most = usize::try_from(limits::fixed(&limits::CONSOLE_BYTES)).unwrap();
        assert_eq!(ledger.push_console(&"c".repeat(most)), Ok(()));
        assert_eq!(ledger.push_console("c"), Err(ConsoleFlood));
    }

    #[test]
    fn one_huge_entry_is_counted_and_its_start_stored() {
        let huge = "\u{1}".repeat(1 << 20);
        let value = RawValue::from_string(serde_json::to_string(&huge).unwrap()).unwrap();
        for (entry, whole) in [
            (Entry::Text(&huge), serde_json::json!([{"type": "text", "text": huge}])),
            (Entry::Json(&value), serde_json::json!([{"type": "json", "value": huge}])),
        ] {
            let mut ledger = ledger(&[]);
            ledger.push(entry);
            assert!(ledger.stored_bytes < 2 * BUDGET, "{}", ledger.stored_bytes);
            assert!(ledger.entries[0].capacity() as u64 <= BUDGET, "{}", ledger.entries[0].capacity());
            let output = parsed(&ledger.wait());
            let (prefix, whole) = (output[0]["prefix"].as_str().unwrap(), whole.to_string());
            assert!(prefix.len() > 700 && whole.starts_with(&prefix[..40]), "{prefix}");
            assert_eq!(output[0]["omittedBytes"].as_u64().unwrap() + prefix.len() as u64, whole.len() as u64);
        }
    }

    #[test]
    fn more_entries_than_are_stored_are_summarised_even_when_their_bytes_fit() {
        let most = limits::fixed(&limits::OUTPUT_ENTRIES);
        let mut ledger = Ledger::new(limits::MAX_OUTPUT_BYTES.max);
        for _ in 0..most {
            ledger.push(Entry::Text(""));
        }
        assert_eq!(parsed(&ledger.wait()).as_array().unwrap().len() as u64, most);
        ledger.push(Entry::Text(""));
        assert_eq!(parsed(&ledger.wait())[0]["type"], "truncated");
    }

    #[test]
    fn a_flood_is_counted_and_not_stored() {
        let mut ledger = Ledger::new(BUDGET);
        for _ in 0..100_000 {
            ledger.push(Entry::Text("0123456789"));
        }
        assert!(ledger.stored_bytes < 2 * BUDGET);
        let entry = r#"{"type":"text","text":"0123456789"}"#.len() as u64;
        assert_eq!(ledger.total_bytes, 2 + 100_000 * (entry + 1) - 1);
    }
}
