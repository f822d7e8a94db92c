//! The catalog of a session: which tools its cells see, under which names, and how a call reaches one.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use codemode_core::hints;
use codemode_core::names::callable_names;
use codemode_core::outcome::SourceCounts;
use codemode_core::search::{Document, Index};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::RwLock;

use crate::tool::{Definition, Source, Tool};

/// Names of controls, which never recurse through the catalog. The shell's `exec` is an ordinary tool.
const CONTROLS: &[&str] = &["wait", "tool_search", "tool_search_code", "tool_describe", "tool_call"];

/// UTF-16 units that a name may have, as most providers count.
const NAME_UNITS_MAX: usize = 512;

/// A tool that the catalog left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The tool's name as it was given.
    pub tool: String,
    /// Why it was left out, and what to do.
    pub reason: String,
}

/// The tools of one session.
pub(crate) struct Catalog {
    pub entries: Vec<Entry>,
    pub diagnostics: Vec<Diagnostic>,
    pub sources: SourceCounts,
    /// What the guest gets, as JSON; empty without tools.
    pub metadata: Arc<[u8]>,
    pub replay_safe: Arc<[bool]>,
    /// Whether any tool is sequential.
    pub has_sequential: bool,
    /// A sequential tool holds it alone, any other shares it.
    pub turnstile: Arc<RwLock<()>>,
    /// Built when the first cell searches.
    index: OnceLock<Index>,
}

/// One tool.
pub(crate) struct Entry {
    pub definition: Definition,
    pub callable_name: String,
    pub tool: Arc<dyn Tool>,
    /// The compact hint of its input.
    input: String,
    /// The compact hint of its output, when it is known in full.
    output: Option<String>,
}

/// What `describe()` gives.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description<'a> {
    callable_name: &'a str,
    source: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    description: &'a str,
    input: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    parameters: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
}

impl Entry {
    fn new(definition: Definition, callable_name: String, tool: Arc<dyn Tool>) -> Self {
        // What a client says of its tools isn't trusted to be put before the model.
        let is_trusted = definition.source != Source::Client;
        let input = definition.input_schema.as_ref().filter(|_| is_trusted);
        let input = input.map_or_else(|| hints::UNKNOWN.to_owned(), hints::input);
        let output = definition.output_schema.as_ref().filter(|_| is_trusted).and_then(hints::output);
        Self { definition, callable_name, tool, input, output }
    }

    /// The tool in full.
    pub fn description(&self) -> Description<'_> {
        let is_client = self.definition.source == Source::Client;
        Description {
            callable_name: &self.callable_name,
            source: self.definition.source.as_str(),
            name: &self.definition.name,
            label: self.definition.label.as_deref(),
            description: &self.definition.description,
            input: &self.input,
            output: self.output.as_deref(),
            parameters: self.definition.input_schema.as_ref(),
            output_schema: self.definition.output_schema.as_ref().filter(|_| !is_client),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    callable_name: &'a str,
    tool_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    description: &'a str,
    source: &'a str,
    input: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
}

impl Catalog {
    /// The indexes of the best tools for a query, best first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        let index = self.index.get_or_init(|| {
            Index::build(self.entries.iter().map(|entry| Document {
                callable_name: &entry.callable_name,
                tool_name: &entry.definition.name,
                label: entry.definition.label.as_deref(),
                description: &entry.definition.description,
                input_schema:
                    entry.definition.input_schema.as_ref().filter(|_| entry.definition.source != Source::Client),
            }))
        });
        index.search(query, limit)
    }

    /// Builds the catalog: one winner for each name, controls and broken tools left out with a diagnostic.
    pub fn build(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut diagnostics = Vec::new();
        let mut winners: BTreeMap<String, (Definition, Arc<dyn Tool>)> = BTreeMap::new();
        let mut order = Vec::new();
        for tool in tools {
            let definition = tool.definition();
            if let Some(reason) = refusal(&definition) {
                diagnostics.push(Diagnostic { tool: definition.name, reason: reason.to_owned() });
                continue;
            }
            let name = definition.name.clone();
            match winners.get(&name) {
                // A client's tool replaces any other; else the first one stays.
                Some((winner, _)) if definition.source != Source::Client || winner.source == Source::Client => {
                    let reason = format!("another tool is named {name:?}; rename one of them");
                    diagnostics.push(Diagnostic { tool: name, reason });
                }
                Some(_) => drop(winners.insert(name, (definition, tool))),
                None => {
                    order.push(name.clone());
                    winners.insert(name, (definition, tool));
                }
            }
        }
        let winners = order.into_iter().filter_map(|name| winners.remove(&name)).collect();
        Self::name(winners, diagnostics)
    }

    fn name(winners: Vec<(Definition, Arc<dyn Tool>)>, diagnostics: Vec<Diagnostic>) -> Self {
        let host_ids: Vec<String> = winners.iter().map(|(definition, _)| host_id(definition)).collect();
        let pairs: Vec<(&str, &str)> = host_ids
            .iter()
            .map(String::as_str)
            .zip(winners.iter().map(|(definition, _)| definition.name.as_str()))
            .collect();
        let names = callable_names(&pairs);
        let entries: Vec<Entry> = winners
            .into_iter()
            .zip(names)
            .map(|((definition, tool), callable_name)| Entry::new(definition, callable_name, tool))
            .collect();
        let count = |source| entries.iter().filter(|entry| entry.definition.source == source).count() as u64;
        let sources =
            SourceCounts { openclaw: count(Source::Native), mcp: count(Source::Mcp), client: count(Source::Client) };
        let replay_safe = entries.iter().map(|entry| entry.definition.replay_safe).collect();
        let has_sequential = entries.iter().any(|entry| entry.definition.sequential);
        let metadata = metadata(&entries);
        Self {
            metadata,
            replay_safe,
            sources,
            diagnostics,
            entries,
            has_sequential,
            turnstile: Arc::default(),
            index: OnceLock::new(),
        }
    }
}

fn refusal(definition: &Definition) -> Option<&'static str> {
    let name = definition.name.as_str();
    if name.trim().is_empty() {
        Some("its name is blank; give it one")
    } else if name.encode_utf16().count() > NAME_UNITS_MAX {
        Some("its name is longer than 512 UTF-16 units; shorten it")
    } else if CONTROLS.contains(&name) {
        Some("its name belongs to a control of the runtime; rename it")
    } else {
        None
    }
}

fn host_id(definition: &Definition) -> String {
    format!("{}:core:{}", definition.source.as_str(), definition.name)
}

#[expect(clippy::expect_used, reason = "strings always serialise")]
fn metadata(entries: &[Entry]) -> Arc<[u8]> {
    if entries.is_empty() {
        return Arc::default();
    }
    let list: Vec<Metadata<'_>> = entries
        .iter()
        .map(|entry| Metadata {
            callable_name: &entry.callable_name,
            tool_name: &entry.definition.name,
            label: entry.definition.label.as_deref(),
            description: &entry.definition.description,
            source: entry.definition.source.as_str(),
            input: &entry.input,
            output: entry.output.as_deref(),
        })
        .collect();
    serde_json::to_vec(&list).expect("strings serialise").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, source: Source) -> Arc<dyn Tool> {
        let definition = Definition { source, ..Definition::new(name, "") };
        Arc::new(crate::from_fn(definition, |_, (): ()| async { Ok(()) }))
    }

    #[test]
    fn a_client_tool_shadows_a_native_one_and_the_rest_is_reported() {
        let catalog = Catalog::build(vec![
            tool("read", Source::Native),
            tool("read", Source::Client),
            tool("read", Source::Native),
            tool(" ", Source::Native),
            tool("wait", Source::Native),
            tool("exec", Source::Native),
        ]);
        let names: Vec<&str> = catalog.entries.iter().map(|entry| entry.callable_name.as_str()).collect();
        assert_eq!(names, ["read", "exec"]);
        assert_eq!(catalog.entries[0].definition.source, Source::Client);
        let reported: Vec<&str> = catalog.diagnostics.iter().map(|diagnostic| diagnostic.tool.as_str()).collect();
        assert_eq!(reported, ["read", " ", "wait"]);
    }
}
