//! What `exec` and `wait` return: one union, and the closed lists of codes, kinds and phases. It serialises to the JSON
//! that the model reads.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::ids::{RequestId, RunId};
use crate::json;
use crate::model_text::ModelContext;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

names! {
    /// The coarse code of a failure (contract 2.5).
    ErrorCode {
        /// The input was refused: arguments, source, a run id, or a quota of the cell.
        InvalidInput = "invalid_input",
        /// No capacity, or a part of the runtime is missing.
        RuntimeUnavailable = "runtime_unavailable",
        /// The caller or the owner cancelled.
        Aborted = "aborted",
        /// The guest computed past its budget.
        Timeout = "timeout",
        /// Reserved; never produced, because large output is truncated and stays successful.
        OutputLimitExceeded = "output_limit_exceeded",
        /// The cell is too large to be parked.
        SnapshotLimitExceeded = "snapshot_limit_exceeded",
        /// A headless script used up its tool calls.
        ToolBudgetExceeded = "tool_budget_exceeded",
        /// Everything that goes wrong inside the guest, and our own mistakes.
        InternalError = "internal_error",
    }
}

names! {
    /// The fine name of a failure (contract 2.4).
    Kind {
        /// An argument of `exec` or `wait` has the wrong type or is missing.
        BadArguments = "bad_arguments",
        /// The source is longer than `sourceBytes`.
        SourceTooLarge = "source_too_large",
        /// The source isn't the body of an async function.
        SyntaxError = "syntax_error",
        /// The source loads modules.
        ModuleAccess = "module_access",
        /// The source looks like a shell command.
        ShellSource = "shell_source",
        /// The language isn't available.
        LanguageDisabled = "language_disabled",
        /// The type checker refused the source.
        Typecheck = "typecheck",
        /// The cell threw.
        UncaughtException = "uncaught_exception",
        /// A promise was rejected and nobody handled it.
        UnhandledRejection = "unhandled_rejection",
        /// The cell ended by an out-of-memory error.
        OutOfMemory = "out_of_memory",
        /// The cell ended by a stack overflow.
        StackOverflow = "stack_overflow",
        /// The cell awaits what nothing can settle.
        Stalled = "stalled",
        /// A value is nested too deeply.
        ValueTooDeep = "value_too_deep",
        /// The guest computed past its budget.
        Timeout = "timeout",
        /// The caller or the owner cancelled.
        Aborted = "aborted",
        /// No such run.
        UnknownRun = "unknown_run",
        /// The run idled for too long.
        ExpiredRun = "expired_run",
        /// The run belongs to somebody else.
        ForeignRun = "foreign_run",
        /// Another `wait` for the run is in flight.
        BusyRun = "busy_run",
        /// No slot is free for a cell with host work.
        SlotsFull = "slots_full",
        /// More requests or timers than a cell may have.
        QueueFull = "queue_full",
        /// A replayable cell asked for what can't be replayed.
        NotReplaySafe = "not_replay_safe",
        /// The parked form is larger than `maxSnapshotBytes`.
        SnapshotTooLarge = "snapshot_too_large",
        /// The snapshot couldn't be restored.
        RestoreFailed = "restore_failed",
        /// A pending call can't leave this process.
        PendingNotSealable = "pending_not_sealable",
        /// A headless script used up its tool calls.
        ToolBudgetExceeded = "tool_budget_exceeded",
        /// Too many turns wait for a worker.
        Overloaded = "overloaded",
        /// A part of the runtime is missing.
        Unavailable = "unavailable",
        /// The guest claimed something that the host's tables refute.
        ProtocolViolation = "protocol_violation",
        /// A mistake of ours.
        Internal = "internal",
    }
}

names! {
    /// Where a failure happened (contract 11.6).
    FailurePhase {
        /// Before the guest started, or by a quota.
        Input = "input",
        /// In the guest, before anything was dispatched.
        Guest = "guest",
        /// After something was dispatched: effects may exist.
        Bridge = "bridge",
        /// In the host.
        Host = "host",
    }
}

impl Kind {
    /// The code that this kind comes with.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::BadArguments
            | Self::SourceTooLarge
            | Self::SyntaxError
            | Self::ModuleAccess
            | Self::ShellSource
            | Self::LanguageDisabled
            | Self::Typecheck
            | Self::UnknownRun
            | Self::ExpiredRun
            | Self::ForeignRun
            | Self::BusyRun
            | Self::SlotsFull
            | Self::QueueFull
            | Self::NotReplaySafe
            | Self::PendingNotSealable => ErrorCode::InvalidInput,
            Self::UncaughtException
            | Self::UnhandledRejection
            | Self::OutOfMemory
            | Self::StackOverflow
            | Self::Stalled
            | Self::ValueTooDeep
            | Self::RestoreFailed
            | Self::ProtocolViolation
            | Self::Internal => ErrorCode::InternalError,
            Self::Timeout => ErrorCode::Timeout,
            Self::Aborted => ErrorCode::Aborted,
            Self::SnapshotTooLarge => ErrorCode::SnapshotLimitExceeded,
            Self::ToolBudgetExceeded => ErrorCode::ToolBudgetExceeded,
            Self::Overloaded | Self::Unavailable => ErrorCode::RuntimeUnavailable,
        }
    }

    /// The phase of a failure of this kind.
    pub const fn phase(self, bridge_dispatch_started: bool) -> FailurePhase {
        if bridge_dispatch_started {
            return FailurePhase::Bridge;
        }
        match self {
            Self::BadArguments
            | Self::SourceTooLarge
            | Self::SyntaxError
            | Self::ModuleAccess
            | Self::ShellSource
            | Self::LanguageDisabled
            | Self::Typecheck
            | Self::UnknownRun
            | Self::ExpiredRun
            | Self::ForeignRun
            | Self::BusyRun
            | Self::SlotsFull
            | Self::QueueFull
            | Self::NotReplaySafe
            | Self::PendingNotSealable => FailurePhase::Input,
            Self::Overloaded | Self::Unavailable | Self::RestoreFailed | Self::ProtocolViolation | Self::Internal => {
                FailurePhase::Host
            }
            Self::UncaughtException
            | Self::UnhandledRejection
            | Self::OutOfMemory
            | Self::StackOverflow
            | Self::Stalled
            | Self::ValueTooDeep
            | Self::Timeout
            | Self::Aborted
            | Self::SnapshotTooLarge
            | Self::ToolBudgetExceeded => FailurePhase::Guest,
        }
    }
}

/// Why a cell waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Every pending request is a yield.
    Yield,
    /// A tool, a timer or the like is pending.
    PendingTools,
}

/// A request that isn't settled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall(pub RequestId);

impl Serialize for PendingCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("id", &self.0.to_string())?;
        map.serialize_entry("method", self.0.method.as_str())?;
        map.end()
    }
}

/// Counters for the embedder and the model (B 1.2.16). They are cumulative for the catalog that the cell runs with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// Tools in the catalog.
    pub catalog_size: u64,
    /// The same by source.
    pub sources: SourceCounts,
    /// Names the catalog that the counters belong to.
    pub counter_scope: String,
    /// Searches so far.
    pub search_count: u64,
    /// Descriptions so far.
    pub describe_count: u64,
    /// Calls dispatched so far.
    pub call_count: u64,
    /// The tools that the model sees.
    pub visible_tools: Vec<String>,
}

/// Tools by source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCounts {
    /// Native tools.
    pub openclaw: u64,
    /// MCP tools.
    pub mcp: u64,
    /// Tools of the client.
    pub client: u64,
}

/// The result of `exec` or `wait`.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Whether replaying the cell would repeat no effect.
    pub replay_safe: bool,
    /// See [`Telemetry`].
    pub telemetry: Telemetry,
    /// What the cell emitted and the caller hasn't seen: an array.
    pub output: Box<RawValue>,
    /// Set when the result carries data from outside: sixteen hexadecimal digits that mark it in [`Outcome::text`].
    pub untrusted: Option<String>,
    /// What the model that reads [`Outcome::text`] can take in, when that is known.
    pub context: Option<ModelContext>,
    /// Calls of tools that the cell made, over its whole life.
    pub tool_calls: u64,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Status {
    /// The cell is done.
    Completed {
        /// Its value.
        value: Box<RawValue>,
    },
    /// The cell is parked; `wait` resumes it.
    Waiting {
        /// What to pass to `wait`.
        run_id: RunId,
        /// Why.
        reason: WaitReason,
        /// Every unsettled request, queued ones included.
        pending: Vec<PendingCall>,
        /// The text of the earliest pending yield, when every pending request is a yield.
        yield_reason: Option<String>,
    },
    /// The cell, or the call, failed.
    Failed(Failure),
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened; decides the code.
    pub kind: Kind,
    /// The text for the model.
    pub error: String,
    /// Whether a request that reaches outside was dispatched in this cell's life.
    pub bridge_dispatch_started: bool,
}

impl Outcome {
    /// The whole result as compact JSON, for programs.
    ///
    /// # Panics
    ///
    /// Never: every part serialises.
    pub fn to_json(&self) -> String {
        #[expect(clippy::expect_used, reason = "strings, numbers and checked JSON always serialise")]
        serde_json::to_string(self).expect("every part serialises")
    }

    /// The result of a script, for whoever started it (B 1.9.58): `{status, value, output, toolCallCount}`, or with `code`,
    /// `kind` and `error` in place of the value.
    pub fn to_script_json(&self) -> String {
        let mut fields = serde_json::Map::new();
        let mut put = |key: &str, value: serde_json::Value| drop(fields.insert(key.to_owned(), value));
        match &self.status {
            Status::Completed { value } => {
                put("status", "completed".into());
                put("value", json::parse(value).unwrap_or_default());
            }
            Status::Failed(failure) => {
                put("status", "failed".into());
                put("code", failure.kind.code().as_str().into());
                put("kind", failure.kind.as_str().into());
                put("error", failure.error.as_str().into());
            }
            Status::Waiting { .. } => put("status", "waiting".into()),
        }
        put("output", json::parse(&self.output).unwrap_or_default());
        put("toolCallCount", self.tool_calls.into());
        serde_json::Value::Object(fields).to_string()
    }

    /// Whether `wait` can go on with it.
    pub fn is_waiting(&self) -> bool {
        matches!(self.status, Status::Waiting { .. })
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.status {
            Status::Completed { .. } => map.serialize_entry("status", "completed")?,
            Status::Waiting { run_id, reason, pending, yield_reason } => {
                map.serialize_entry("status", "waiting")?;
                map.serialize_entry("runId", run_id)?;
                map.serialize_entry("reason", reason)?;
                if let Some(text) = yield_reason {
                    map.serialize_entry("yieldReason", text)?;
                }
                map.serialize_entry("pendingToolCalls", pending)?;
            }
            Status::Failed(failure) => {
                map.serialize_entry("status", "failed")?;
                map.serialize_entry("code", &failure.kind.code())?;
                map.serialize_entry("kind", &failure.kind)?;
                map.serialize_entry("failurePhase", &failure.kind.phase(failure.bridge_dispatch_started))?;
                map.serialize_entry("bridgeDispatchStarted", &failure.bridge_dispatch_started)?;
            }
        }
        map.serialize_entry("replaySafe", &self.replay_safe)?;
        map.serialize_entry("telemetry", &self.telemetry)?;
        map.serialize_entry("output", &self.output)?;
        match &self.status {
            Status::Completed { value } => map.serialize_entry("value", value)?,
            Status::Failed(failure) => map.serialize_entry("error", &failure.error)?,
            Status::Waiting { .. } => {}
        }
        map.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ids::Method;

    pub(crate) fn outcome(status: Status) -> Outcome {
        Outcome {
            status,
            replay_safe: false,
            telemetry: Telemetry::default(),
            untrusted: None,
            context: None,
            tool_calls: 0,
            output: RawValue::from_string("[]".into()).unwrap(),
        }
    }

    #[test]
    fn a_failure_names_code_kind_and_phase() {
        let failure = Failure { kind: Kind::Stalled, error: "nothing".into(), bridge_dispatch_started: false };
        let json: serde_json::Value = serde_json::from_str(&outcome(Status::Failed(failure)).to_json()).unwrap();
        assert_eq!(json["code"], "internal_error");
        assert_eq!(json["kind"], "stalled");
        assert_eq!(json["failurePhase"], "guest");
        assert_eq!(json["output"], serde_json::json!([]));
        assert_eq!(json["error"], "nothing");
    }

    #[test]
    fn a_dispatch_moves_every_failure_to_the_bridge() {
        for kind in Kind::ALL {
            assert_eq!(kind.phase(true), FailurePhase::Bridge, "{kind:?}");
        }
    }

    #[test]
    fn a_waiting_result_lists_its_requests() {
        let pending = vec![PendingCall(RequestId { method: Method::Yield, number: 2 })];
        let status =
            Status::Waiting { run_id: RunId::new("x"), reason: WaitReason::Yield, pending, yield_reason: None };
        let json: serde_json::Value = serde_json::from_str(&outcome(status).to_json()).unwrap();
        assert_eq!(json["runId"], "cm_x");
        assert_eq!(json["reason"], "yield");
        assert_eq!(json["pendingToolCalls"], serde_json::json!([{"id": "bridge:yield:2", "method": "yield"}]));
        assert!(json.get("yieldReason").is_none());
    }
}
