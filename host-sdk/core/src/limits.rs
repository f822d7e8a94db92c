//! The table of limits: what configures a cell, and what bounds the memory, time and stack that it can make the host use.
//! Bounds of one presentation, such as a hint's length, stand in the file that presents. Strict and lenient readers of the
//! configurable rows follow.

use std::fmt;

/// One limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, as configuration and the command line spell it.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The value when nothing is configured.
    pub default: u64,
    /// The smallest value allowed. Equal to `max` for a limit that can't be configured.
    pub min: u64,
    /// The largest value allowed.
    pub max: u64,
    /// Who keeps it.
    pub enforced_by: &'static str,
    /// What happens one beyond it; exactly at it everything still works.
    pub beyond: &'static str,
}

macro_rules! rows {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $unit:literal, $default:expr, $min:expr, $max:expr, $by:literal, $beyond:literal;)*) => {
        $($(#[$doc])* pub const $constant: Row = Row {
            name: $name, unit: $unit, default: $default, min: $min, max: $max, enforced_by: $by, beyond: $beyond,
        };)*
        /// Every row.
        pub const ROWS: &[&Row] = &[$(&$constant),*];
    };
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

rows! {
    /// The wall-clock budget of one `exec` or `wait` call.
    TIMEOUT_MS = "timeoutMs", "milliseconds", 10_000, 100, 60_000, "driver and epoch callback",
        "guest compute fails with `timeout`; host work parks the cell";
    /// The guest's whole linear memory.
    MEMORY_LIMIT_BYTES = "memoryLimitBytes", "bytes", 64 * MIB, 4 * MIB, 1024 * MIB, "store limiter, and the guest's allocator a little below it",
        "an out-of-memory error that the cell may catch; a cell that ends by it fails with `out_of_memory`";
    /// Output, final value and error of a cell together.
    MAX_OUTPUT_BYTES = "maxOutputBytes", "bytes of UTF-8 JSON", 64 * KIB, KIB, 10 * MIB, "output ledger",
        "output and value are replaced by truncation markers, an error is cut";
    /// The raw delta of a parked cell and its header.
    MAX_SNAPSHOT_BYTES = "maxSnapshotBytes", "bytes", 10 * MIB, 16 * KIB, 256 * MIB, "driver, when it parks",
        "the cell fails with `snapshot_too_large`";
    /// Requests in flight at once; more wait in a queue.
    MAX_PENDING_TOOL_CALLS = "maxPendingToolCalls", "requests", 16, 1, 128, "state machine",
        "requests are queued";
    /// How long a parked cell may idle.
    SNAPSHOT_TTL_SECONDS = "snapshotTtlSeconds", "seconds", 900, 1, 86_400, "parked store",
        "the cell is dropped; a wait fails with `expired_run`";
    /// Hits of a search that names no limit.
    SEARCH_DEFAULT_LIMIT = "searchDefaultLimit", "tools", 8, 1, 50, "catalog search",
        "fewer hits are returned than match";
    /// Hits of any search.
    MAX_SEARCH_LIMIT = "maxSearchLimit", "tools", 50, 1, 50, "catalog search",
        "a larger limit is lowered to this one";

    /// The wall-clock budget of a script without anybody who waits for it.
    SCRIPT_TIMEOUT_MS = "scriptTimeoutMs", "milliseconds", 30_000, 1, 900_000, "driver and epoch callback",
        "the script fails with `timeout`, also when it waits for tools";
    /// Calls of tools that such a script may make.
    SCRIPT_TOOL_CALLS = "scriptToolCalls", "calls", 5, 1, 200, "state machine",
        "the script fails with `tool_budget_exceeded`; what would have been one too many isn't dispatched";
    /// Parked cells and reservations, in one pool for the process unless the embedder brings its own.
    SLOTS = "slots", "cells", 64, 1, 100_000, "slot pool",
        "the cell fails with `slots_full` before anything is dispatched";
    /// Bytes of the snapshots of all parked cells of an engine, as they are kept.
    PARKED_BYTES = "parkedBytes", "bytes", 1024 * MIB, MIB, 1024 * 1024 * MIB, "engine",
        "the cell that would be parked fails with `overloaded`";
    /// Instances that are live at once in an engine.
    INSTANCES = "instances", "instances", 128, 1, 10_000, "engine",
        "idle cells are parked, and cells that find no instance wait for one; one that hasn't run when its time is spent fails with `overloaded`";
    /// Threads that run guest code. Unless configured, one for each core.
    WORKERS = "workers", "threads", 1, 1, 1_024, "engine",
        "turns wait for a thread";
    /// The context of the model that reads results. Unless it is configured, only `maxOutputBytes` bounds them.
    CONTEXT_TOKENS = "contextTokens", "tokens", 200_000, 16_384, 100_000_000, "text of an outcome",
        "output, value and error are cut to what the context allows";
    /// The name of a tool.
    TOOL_NAME_UNITS = "toolNameUnits", "UTF-16 units", 512, 512, 512, "catalog",
        "the tool is left out, with a diagnostic";
    /// Results that the cells of a run keep at once.
    SAVED_RESULTS = "savedResults", "results", 64, 64, 64, "results store",
        "saving is refused, and nothing is dropped";
    /// Requests that wait for a place in flight.
    QUEUED_REQUESTS = "queuedRequests", "requests", 128, 128, 128, "guest, and the state machine",
        "the cell fails with `queue_full`, also when it catches the error";
    /// Timers that are not settled.
    LIVE_TIMERS = "liveTimers", "timers", 128, 128, 128, "guest, and the state machine",
        "the cell fails with `queue_full`, also when it catches the error";
    /// The source text of a cell.
    SOURCE_BYTES = "sourceBytes", "bytes of UTF-8", MIB, MIB, MIB, "source checks",
        "refused with `source_too_large`";
    /// The arguments of one call.
    ARGUMENT_BYTES = "argumentBytes", "bytes of JSON", MIB, MIB, MIB, "guest, and the import",
        "that call is rejected with `invalid_input`";
    /// A search query, a path, or a name that is looked up.
    LOOKUP_BYTES = "lookupBytes", "bytes of UTF-8", 4 * KIB, 4 * KIB, 4 * KIB, "guest, and the import",
        "the text is cut; past the guest it is a `protocol_violation`";
    /// Containers nested in each other in a value, in arguments or in a `json` entry.
    JSON_DEPTH = "jsonDepth", "containers", 1_000, 1_000, 1_000, "the guest's adapter, and every import",
        "a value fails with `value_too_deep`, arguments reject their call; past the guest it is a `protocol_violation`";
    /// Brackets that are open at once in a source, those in strings counted.
    SOURCE_BRACKETS = "sourceBrackets", "brackets", 2_000, 2_000, 2_000, "source checks",
        "refused with `syntax_error`";
    /// The text of one error.
    ERROR_TEXT_BYTES = "errorTextBytes", "bytes of UTF-8", 16 * KIB, 16 * KIB, 16 * KIB, "guest, and the driver",
        "the text is cut";
    /// Console entries of a cell together, on the host.
    CONSOLE_BYTES = "consoleBytes", "bytes of UTF-8", 48 * KIB, 48 * KIB, 48 * KIB, "output import",
        "the cell is closed with `protocol_violation`: the guest keeps a smaller limit";
    /// Entries of output that are stored.
    OUTPUT_ENTRIES = "outputEntries", "entries", 262_144, 262_144, 262_144, "output ledger",
        "entries are counted, not stored";
    /// Bytes that one import may copy, whatever it is.
    IMPORT_BYTES = "importBytes", "bytes", 256 * MIB, 256 * MIB, 256 * MIB, "engine",
        "the turn traps, and the cell is closed";
    /// Text given to `yield_control`.
    YIELD_REASON_UNITS = "yieldReasonUnits", "UTF-16 units", 512, 512, 512, "driver",
        "the text is cut without splitting a surrogate pair";
    /// How long a turn may run on after it was asked to stop.
    STOP_GRACE_MS = "stopGraceMs", "milliseconds", 5, 5, 5, "epoch callback",
        "the turn traps";
    /// How long taking the state out of an instance may take, garbage collection included.
    PARK_MS = "parkMs", "milliseconds", 2_000, 2_000, 2_000, "epoch callback",
        "the cell fails with `timeout`";
    /// The delay of a timer.
    TIMER_DELAY_MS = "timerDelayMs", "milliseconds", 86_400_000, 86_400_000, 86_400_000, "driver",
        "a longer delay is lowered to this one";
    /// How long a parked cell idles before it is packed.
    PACK_AFTER_MS = "packAfterMs", "milliseconds", 1_000, 1_000, 1_000, "driver",
        "its snapshot is kept in a smaller form, and unpacked when the cell resumes";
    /// Expired run ids that are remembered.
    EXPIRED_RUNS = "expiredRuns", "run ids", 1_024, 1_024, 1_024, "parked store",
        "the oldest is forgotten; a wait for it fails with `unknown_run`";
    /// Turns that wait for a worker.
    QUEUED_TURNS = "queuedTurns", "turns", 4_096, 4_096, 4_096, "workers",
        "the cell fails with `overloaded`";
    /// The least time that must be left for resuming from a snapshot inside the same call.
    RESUME_MARGIN_MS = "resumeMarginMs", "milliseconds", 250, 250, 250, "state machine",
        "the cell stays parked until the next wait; half of a budget below 500 ms is the margin then";
}

/// What every limit that can't be configured by the number stands for: its value.
pub const fn fixed(row: &Row) -> u64 {
    row.default
}

/// Checks a value of a limit that is given by itself.
///
/// # Errors
///
/// [`LimitError::OutOfRange`].
pub fn check(row: &'static Row, value: u64) -> Result<(), LimitError> {
    if (row.min..=row.max).contains(&value) {
        return Ok(());
    }
    Err(LimitError::OutOfRange { key: row.name, value: value.to_string(), unit: row.unit, min: row.min, max: row.max })
}

/// A configured value that isn't allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No limit has this name.
    #[error("unknown limit `{key}`; the limits are {}", configurable_names())]
    UnknownKey {
        /// The name that was given.
        key: String,
    },
    /// The value isn't a whole number, or it is out of range.
    #[error("limit `{key}` is {value}; it must be a whole number of {unit} from {min} to {max}")]
    OutOfRange {
        /// The name of the limit.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// What it counts.
        unit: &'static str,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// The configuration isn't an object.
    #[error("limits must be an object of names and whole numbers")]
    NotAnObject,
}

fn configurable_names() -> String {
    CONFIGURABLE.iter().map(|(row, _)| row.name).collect::<Vec<_>>().join(", ")
}

type Field = fn(&mut Limits) -> &mut u64;

const CONFIGURABLE: &[(&Row, Field)] = &[
    (&TIMEOUT_MS, |limits| &mut limits.timeout_ms),
    (&MEMORY_LIMIT_BYTES, |limits| &mut limits.memory_limit_bytes),
    (&MAX_OUTPUT_BYTES, |limits| &mut limits.max_output_bytes),
    (&MAX_SNAPSHOT_BYTES, |limits| &mut limits.max_snapshot_bytes),
    (&MAX_PENDING_TOOL_CALLS, |limits| &mut limits.max_pending_tool_calls),
    (&SNAPSHOT_TTL_SECONDS, |limits| &mut limits.snapshot_ttl_seconds),
    (&SEARCH_DEFAULT_LIMIT, |limits| &mut limits.search_default_limit),
    (&MAX_SEARCH_LIMIT, |limits| &mut limits.max_search_limit),
];

/// The configured limits of a session. Every value is within the range of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    timeout_ms: u64,
    memory_limit_bytes: u64,
    max_output_bytes: u64,
    max_snapshot_bytes: u64,
    max_pending_tool_calls: u64,
    snapshot_ttl_seconds: u64,
    search_default_limit: u64,
    max_search_limit: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms: TIMEOUT_MS.default,
            memory_limit_bytes: MEMORY_LIMIT_BYTES.default,
            max_output_bytes: MAX_OUTPUT_BYTES.default,
            max_snapshot_bytes: MAX_SNAPSHOT_BYTES.default,
            max_pending_tool_calls: MAX_PENDING_TOOL_CALLS.default,
            snapshot_ttl_seconds: SNAPSHOT_TTL_SECONDS.default,
            search_default_limit: SEARCH_DEFAULT_LIMIT.default,
            max_search_limit: MAX_SEARCH_LIMIT.default,
        }
    }
}

impl Limits {
    /// Sets one limit, strictly.
    ///
    /// # Errors
    ///
    /// - [`LimitError::UnknownKey`] when no configurable limit has that name.
    /// - [`LimitError::OutOfRange`] when the value is no whole number within the range of its row.
    ///
    /// ```
    /// use codemode_core::limits::Limits;
    /// let mut limits = Limits::default();
    /// limits.set("timeoutMs", "300").unwrap();
    /// assert_eq!(limits.timeout_ms(), 300);
    /// let refusal = limits.set("timeoutMs", "0").unwrap_err().to_string();
    /// assert!(refusal.contains("timeoutMs") && refusal.contains("100 to 60000"));
    /// ```
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LimitError> {
        let (row, field) = configurable(key)?;
        let number = value.parse().ok().filter(|number| (row.min..=row.max).contains(number));
        *field(self) = number.ok_or_else(|| LimitError::OutOfRange {
            key: row.name,
            value: value.to_owned(),
            unit: row.unit,
            min: row.min,
            max: row.max,
        })?;
        self.keep_relations();
        Ok(())
    }

    /// Reads a configuration object strictly.
    ///
    /// # Errors
    ///
    /// As [`Limits::set`], and [`LimitError::NotAnObject`].
    pub fn from_json(config: &serde_json::Value) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        for (key, value) in config.as_object().ok_or(LimitError::NotAnObject)? {
            limits.set(key, &value.to_string())?;
        }
        Ok(limits)
    }

    /// Reads a configuration object leniently: what is unknown or no positive whole number is ignored, what is out of
    /// range is clamped (B 2.1).
    ///
    /// ```
    /// use codemode_core::limits::Limits;
    /// let limits = Limits::resolve(&serde_json::json!({"timeoutMs": 5, "maxOutputBytes": -1}));
    /// assert_eq!(limits.timeout_ms(), 100);
    /// assert_eq!(limits.max_output_bytes(), 65_536);
    /// ```
    pub fn resolve(config: &serde_json::Value) -> Self {
        let mut limits = Self::default();
        for (key, value) in config.as_object().into_iter().flatten() {
            if let (Ok((row, field)), Some(number @ 1..)) = (configurable(key), value.as_u64()) {
                *field(&mut limits) = number.clamp(row.min, row.max);
            }
        }
        limits.keep_relations();
        limits
    }

    fn keep_relations(&mut self) {
        self.search_default_limit = self.search_default_limit.min(self.max_search_limit);
    }

    /// See [`TIMEOUT_MS`].
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// See [`MEMORY_LIMIT_BYTES`].
    pub fn memory_limit_bytes(&self) -> u64 {
        self.memory_limit_bytes
    }

    /// See [`MAX_OUTPUT_BYTES`].
    pub fn max_output_bytes(&self) -> u64 {
        self.max_output_bytes
    }

    /// See [`MAX_SNAPSHOT_BYTES`].
    pub fn max_snapshot_bytes(&self) -> u64 {
        self.max_snapshot_bytes
    }

    /// See [`MAX_PENDING_TOOL_CALLS`].
    pub fn max_pending_tool_calls(&self) -> u64 {
        self.max_pending_tool_calls
    }

    /// See [`SNAPSHOT_TTL_SECONDS`].
    pub fn snapshot_ttl_seconds(&self) -> u64 {
        self.snapshot_ttl_seconds
    }

    /// See [`SEARCH_DEFAULT_LIMIT`].
    pub fn search_default_limit(&self) -> u64 {
        self.search_default_limit
    }

    /// See [`MAX_SEARCH_LIMIT`].
    pub fn max_search_limit(&self) -> u64 {
        self.max_search_limit
    }

    /// Bytes of replies that may wait for delivery, of arguments that may be pending (B 6.8), and of the results that the
    /// cells of a run keep (B 3.5.23).
    pub fn inbox_bytes(&self) -> u64 {
        self.memory_limit_bytes.min(self.max_snapshot_bytes)
    }

    /// Bytes of JSON that one value or output entry may have to leave the guest whole: as many as may be emitted, or kept as
    /// a result if the guest has the memory to make it. Of what is longer, the beginning and the length are enough.
    pub fn value_bytes(&self) -> u64 {
        const FRAME_BYTES: u64 = 64 * KIB;
        (self.memory_limit_bytes / 4).min(self.inbox_bytes()).max(self.max_output_bytes + FRAME_BYTES)
    }

    /// Requests, timers included, that may be unsettled at once: in flight and queued.
    pub fn unsettled_requests(&self) -> u64 {
        self.max_pending_tool_calls + fixed(&QUEUED_REQUESTS)
    }

    /// What a cell can make the host hold besides its own memory and its snapshot: arguments and replies that are pending, and
    /// stored output. Each part is charged where it comes in.
    pub fn host_bytes(&self) -> u64 {
        2 * self.inbox_bytes() + 2 * self.max_output_bytes
    }

    /// What the guest's engine may hold: a sixteenth and the stack below the memory limit, so that a cell which catches
    /// an out-of-memory error has room to go on.
    pub fn heap_bytes(&self) -> u64 {
        const STACK_AND_IMAGE_BYTES: u64 = 2 * MIB;
        self.memory_limit_bytes - self.memory_limit_bytes / 16 - STACK_AND_IMAGE_BYTES
    }
}

fn configurable(key: &str) -> Result<(&'static Row, Field), LimitError> {
    CONFIGURABLE
        .iter()
        .find(|(row, _)| row.name == key)
        .map(|(row, field)| (*row, *field))
        .ok_or_else(|| LimitError::UnknownKey { key: key.to_owned() })
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} {} ({} to {})", self.name, self.default, self.unit, self.min, self.max)
    }
}

const _: () = {
    assert!(SEARCH_DEFAULT_LIMIT.default <= MAX_SEARCH_LIMIT.default, "a search without a limit is an allowed one");
    assert!(CONSOLE_BYTES.default < MAX_OUTPUT_BYTES.default, "the console alone doesn't use up the default output");
    assert!(MEMORY_LIMIT_BYTES.min - MEMORY_LIMIT_BYTES.min / 16 > 2 * MIB, "the smallest memory has a heap");
    assert!(IMPORT_BYTES.default >= MAX_SNAPSHOT_BYTES.max, "the largest snapshot can be restored");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_its_range() {
        for row in ROWS {
            assert!((row.min..=row.max).contains(&row.default), "{row}");
        }
    }

    #[test]
    fn strict_reading_tests_both_edges() {
        for (row, _) in CONFIGURABLE {
            let set = |value: u64| Limits::default().set(row.name, &value.to_string());
            assert_eq!(set(row.min), Ok(()), "{row}");
            assert_eq!(set(row.max), Ok(()), "{row}");
            assert!(set(row.min - 1).is_err(), "{row}");
            assert!(set(row.max + 1).is_err(), "{row}");
        }
    }

    #[test]
    fn strict_reading_names_key_value_and_range() {
        let check = |config: serde_json::Value, expected: &str| {
            assert_eq!(Limits::from_json(&config).unwrap_err().to_string(), expected);
        };
        check(
            serde_json::json!({"maxPendingToolCalls": 1.5}),
            "limit `maxPendingToolCalls` is 1.5; it must be a whole number of requests from 1 to 128",
        );
        check(
            serde_json::json!({"timeoutMs": "300"}),
            "limit `timeoutMs` is \"300\"; it must be a whole number of milliseconds from 100 to 60000",
        );
        assert!(Limits::from_json(&serde_json::json!({"timeout": 1})).unwrap_err().to_string().contains("timeoutMs"));
        assert_eq!(Limits::from_json(&serde_json::json!([])), Err(LimitError::NotAnObject));
    }

    #[test]
    fn the_default_search_limit_follows_a_lower_maximum() {
        let limits = Limits::from_json(&serde_json::json!({"maxSearchLimit": 3})).unwrap();
        assert_eq!(limits.search_default_limit(), 3);
    }
}
