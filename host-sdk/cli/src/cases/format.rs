//! The form of a conformance case, as its JSON file has it. An unknown key is an error, so that no expectation is ever
//! skipped by a typing mistake.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// One case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its stable id.
    pub id: String,
    /// What it is about.
    pub category: String,
    /// What `exec` gets as `language`.
    pub language: String,
    /// The source.
    pub code: Option<String>,
    /// Makes the source by repetition.
    pub code_repeat: Option<Repeated>,
    /// The whole input of `exec`.
    pub exec_input: Option<Value>,
    /// A hook that rewrites the input.
    pub hook: Option<Hook>,
    /// Whether the type checker runs.
    pub typecheck: Option<bool>,
    /// Limits, by the names that cases use.
    #[serde(default)]
    pub limits: CaseLimits,
    /// Mock tools.
    #[serde(default)]
    pub tools: Vec<MockTool>,
    /// Mock nodes.
    pub nodes: Option<Value>,
    /// A granted directory.
    pub files: Option<BTreeMap<String, Value>>,
    /// The modes that it runs in; both when absent.
    pub modes: Option<Vec<String>>,
    /// What to call, in order.
    pub steps: Option<Vec<Step>>,
    /// Runs the whole case several times.
    pub repeat: Option<BTreeMap<String, u32>>,
    /// What the terminal result must be.
    pub expected: Expected,
    /// A question that the contract leaves open.
    pub open: Option<Value>,
    /// Where the expectation comes from.
    pub basis: Option<Value>,
    /// Rules that it was written for.
    pub rules: Option<Value>,
    /// Where the case comes from.
    pub source: Option<Value>,
    /// For people.
    pub notes: Option<String>,
}

/// A policy hook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Fields that it must see.
    #[serde(default)]
    pub original: BTreeMap<String, Value>,
    /// Fields that it sets.
    pub replace: BTreeMap<String, Value>,
}

/// A text that is repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// What.
    pub text: String,
    /// How often.
    pub times: usize,
    /// What follows.
    #[serde(default)]
    pub then: String,
}

impl Repeated {
    /// The whole text.
    pub fn expand(&self) -> String {
        format!("{}{}", self.text.repeat(self.times), self.then)
    }
}

/// Limits of a case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the limit of that name")]
pub struct CaseLimits {
    pub timeout_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub max_output_bytes: Option<u64>,
    pub max_snapshot_bytes: Option<u64>,
    pub max_pending: Option<u64>,
    pub snapshot_ttl_seconds: Option<u64>,
    pub slots: Option<u64>,
}

/// A mock tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockTool {
    /// Its name.
    pub name: String,
    /// `openclaw`, `client` or `mcp`.
    pub source: Option<String>,
    /// The server of an MCP tool.
    pub server: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Makes its description by repetition.
    pub description_repeat: Option<Repeated>,
    /// Its input schema.
    #[serde(rename = "inputSchema")]
    pub input_schema: Option<Value>,
    /// A file with its input schema.
    pub schema_file: Option<String>,
    /// Its output schema.
    #[serde(rename = "outputSchema")]
    pub output_schema: Option<Value>,
    /// Whether it may be repeated.
    #[serde(default)]
    pub replay_safe: bool,
    /// Whether it runs alone.
    pub sequential: Option<bool>,
    /// That many copies.
    pub times: Option<u32>,
    /// What it does.
    #[serde(default)]
    pub behaviour: Value,
}

/// One call of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What to do.
    pub call: Call,
    /// What the result must be.
    pub expect: Option<Expected>,
    /// What the other of two results must be.
    pub expect_other: Option<Expected>,
    /// Milliseconds to sleep.
    pub ms: Option<u64>,
    /// The source of another cell.
    pub code: Option<String>,
    /// The run to wait for.
    pub run_id: Option<String>,
    /// Another caller.
    #[serde(default, deserialize_with = "present")]
    pub as_session: Option<Option<String>>,
    /// Another caller.
    #[serde(default, deserialize_with = "present")]
    pub as_agent: Option<Option<String>>,
    /// When the embedder cancels this call.
    pub cancel_after_ms: Option<u64>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is the step of that name")]
pub enum Call {
    Exec,
    Wait,
    WaitUntilTerminal,
    WaitTwice,
    ExecSecond,
    ExecOtherRun,
    Sleep,
    CancelRun,
    SealAndWait,
}

/// What a result must be. Every field that is there must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the matcher of that name")]
pub struct Expected {
    pub status: Option<String>,
    pub code: Option<String>,
    pub kind: Option<String>,
    pub failure_phase: Option<String>,
    pub bridge_dispatch_started: Option<bool>,
    pub replay_safe: Option<bool>,
    pub reason: Option<String>,
    pub yield_reason: Option<String>,
    pub pending: Option<Vec<Value>>,
    pub run_id_matches: Option<String>,
    pub run_id_same: Option<bool>,
    pub telemetry_subset: Option<Value>,
    pub any_of: Option<Vec<Expected>>,
    #[serde(default, deserialize_with = "present")]
    pub value: Option<Value>,
    pub value_json: Option<String>,
    pub value_subset: Option<Value>,
    pub value_shape: Option<String>,
    pub value_matches: Option<String>,
    pub value_not_contains: Option<Vec<String>>,
    pub value_all_strings_not_matching: Option<String>,
    pub value_same_across_runs: Option<bool>,
    pub value_has_reference: Option<bool>,
    pub error_contains: Option<Vec<String>>,
    pub error_not_contains: Option<Vec<String>>,
    pub error_matches: Option<String>,
    pub error_min_length: Option<usize>,
    pub output_text: Option<Vec<String>>,
    pub output_json: Option<Vec<Value>>,
    pub output_text_at: Option<BTreeMap<String, String>>,
    pub output_kinds: Option<Vec<String>>,
    pub output_count: Option<usize>,
    pub output_contains: Option<Vec<String>>,
    pub output_not_contains: Option<Vec<String>>,
    pub output_last_text: Option<String>,
    pub output_text_count_of: Option<BTreeMap<String, usize>>,
    pub output_each_max_units: Option<usize>,
    pub output_no_split_surrogates: Option<bool>,
    pub marker_original_bytes: Option<u64>,
    pub value_marker_original_bytes: Option<u64>,
    pub marker_prefix_starts: Option<String>,
    pub result_text_matches: Option<String>,
    pub result_text_not_contains: Option<Vec<String>>,
    pub result_text_compact: Option<bool>,
    pub exec_description_contains: Option<Vec<String>>,
    pub exec_description_not_contains: Option<Vec<String>>,
    pub exec_description_matches: Option<String>,
    pub history_contains: Option<Vec<String>>,
    pub history_not_contains: Option<Vec<String>>,
    pub calls: Option<BTreeMap<String, u64>>,
    pub calls_max: Option<BTreeMap<String, u64>>,
    pub max_ms: Option<u64>,
    pub result_max_bytes: Option<usize>,
    pub host_rss_growth_max_bytes: Option<u64>,
}

/// Tells a key with `null` from a missing one.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl Case {
    /// Whether it says how long a call may take: such a case runs alone.
    pub fn is_timed(&self) -> bool {
        let steps = self.steps.iter().flatten();
        let expectations = steps.filter_map(|step| step.expect.as_ref()).chain([&self.expected]);
        expectations.into_iter().any(Expected::is_timed)
    }
}

impl Expected {
    fn is_timed(&self) -> bool {
        self.max_ms.is_some()
            || self.host_rss_growth_max_bytes.is_some()
            || self.any_of.iter().flatten().any(Self::is_timed)
    }
}
