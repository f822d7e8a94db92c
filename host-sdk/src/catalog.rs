//! The catalog: which tools cells see, under which names, and what is known about each. Built once, shared by sessions,
//! never changed: a session that gets other tools gets another catalog.

mod entry;
mod files;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use codemode_core::limits::{self, Limits};
use codemode_core::mcp::{self, Member};
use codemode_core::names::callable_names;
use codemode_core::outcome::SourceCounts;
use codemode_core::quick_index::{Line, Surface, exec_description, quick_index};
use codemode_core::search::Index;
use serde_json::{Value, json};

pub(crate) use entry::Entry;
pub(crate) use files::{File, reply};

use crate::bindings::Server as ServerToInstall;
use crate::snapshot::{BaseImage, CatalogImage};
use crate::tool::{Definition, Exposure, Source, Tool};

/// Names of controls, which never recurse through the catalog. The shell's `exec` is an ordinary tool.
const CONTROLS: &[&str] = &["wait", "tool_search", "tool_search_code", "tool_describe", "tool_call"];
/// The tools that the model sees in any case.
const ALWAYS_VISIBLE: [&str; 2] = ["exec", "wait"];

/// Something about a tool that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The tool's name as it was given.
    pub tool: String,
    /// What is wrong, and what to do.
    pub reason: String,
    /// Whether the catalog left the tool out. Else it works, without the check that the reason speaks of.
    pub is_left_out: bool,
}

impl Diagnostic {
    /// As [`Catalog::to_json`] has it: `{tool, reason, leftOut}`.
    pub fn to_json(&self) -> Value {
        json!({"tool": self.tool, "reason": self.reason, "leftOut": self.is_left_out})
    }
}

/// The tools that cells can call. Cloning it shares it; sessions with the same tools should share one, because what it
/// takes to install it into a cell is worked out once.
///
/// ```
/// use codemode::{Catalog, Definition, from_fn};
/// let add = from_fn(Definition::new("add-two", "Adds."), |_, (a, b): (i64, i64)| async move { Ok(a + b) });
/// let catalog = Catalog::new([std::sync::Arc::new(add) as _]);
/// assert!(catalog.quick_index().contains("- add_two unknown -> ?"));
/// assert_eq!(catalog.visible_tools(), ["exec", "wait"]);
/// ```
#[derive(Clone)]
pub struct Catalog(pub(crate) Arc<Tools>);

impl Default for Catalog {
    /// A catalog without tools.
    fn default() -> Self {
        Self::new([])
    }
}

impl Catalog {
    /// Builds the catalog of these tools: one winner for each name, callable names, controls and broken tools left out.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self(Arc::new(Build::default().all(tools)))
    }

    /// What is wrong with tools: those that were left out, and schemas that can't be enforced. The schemas of all tools
    /// are compiled for the answer, which takes a while when there are thousands.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let unenforced = self.0.entries.iter().filter_map(|entry| {
            let (which, reason) = entry.unenforced()?;
            Some(Diagnostic {
                tool: entry.definition.name.clone(),
                reason: format!("its {which} schema isn't enforced: {reason}; correct the schema"),
                is_left_out: false,
            })
        });
        self.0.left_out.iter().cloned().chain(unenforced).collect()
    }

    /// The names of the tools that the model is to see: `exec`, `wait`, and those that are exposed directly.
    pub fn visible_tools(&self) -> &[String] {
        &self.0.visible
    }

    /// The quick index: callable names with compact signatures, for the description of `exec`. Empty without tools.
    pub fn quick_index(&self) -> &str {
        self.0.quick_index.get_or_init(|| {
            let line = |entry: &'_ Entry| {
                let (input, output) = entry.hints();
                (entry.callable_name.clone(), input.to_owned(), output.map(str::to_owned))
            };
            let lines: Vec<_> = self.0.globals().iter().map(line).collect();
            quick_index(
                lines
                    .iter()
                    .map(|(callable_name, input, output)| Line { callable_name, input, output: output.as_deref() })
                    .collect(),
            )
        })
    }

    /// The callable names of the best tools for a query, best first: what `catalog.search` finds in a cell.
    ///
    /// ```
    /// let catalog = codemode::Catalog::default();
    /// assert!(catalog.search("anything", 8).is_empty());
    /// ```
    pub fn search(&self, query: &str, limit: usize) -> Vec<&str> {
        let places = self.0.search(query, limit);
        places.into_iter().filter_map(|place| Some(self.0.entries.get(place)?.callable_name.as_str())).collect()
    }

    /// The description of the `exec` tool for the model, with the quick index, for sessions with these limits.
    pub fn exec_description(&self, limits: &Limits) -> String {
        let is_shell = |entry: &&Entry| {
            let definition = &entry.definition;
            definition.name == "exec" && definition.source == Source::Native && definition.owner.is_none()
        };
        let surface = Surface {
            index: self.quick_index(),
            shell: self.0.globals().iter().find(is_shell).map(|entry| entry.callable_name.as_str()),
            servers: self.0.servers.iter().map(|server| server.identifier.as_str()).collect(),
        };
        exec_description(limits, &surface)
    }

    /// The declaration files that cells can read, as paths and TypeScript text.
    pub fn declarations(&self) -> Vec<(String, String)> {
        self.0.declarations()
    }

    /// Everything about the catalog as JSON, for people and tests: each tool in full, and what is wrong with tools.
    pub fn to_json(&self) -> Value {
        let tools: Vec<Value> = self.0.entries.iter().map(|entry| json!(entry.description())).collect();
        let diagnostics: Vec<Value> = self.diagnostics().iter().map(Diagnostic::to_json).collect();
        json!({"visibleTools": self.visible_tools(), "tools": tools, "diagnostics": diagnostics})
    }

    /// Whether cells that run with `old` may go on when this catalog takes its place: tools may be added and described
    /// anew, not replaced or taken away.
    pub(crate) fn only_adds_to(&self, old: &Self) -> bool {
        let now: HashMap<&str, &Entry> =
            self.0.entries.iter().map(|entry| (entry.callable_name.as_str(), entry)).collect();
        old.0
            .entries
            .iter()
            .all(|entry| now.get(entry.callable_name.as_str()).is_some_and(|now| now.is_refresh_of(entry)))
    }
}

/// What a [`Catalog`] shares.
#[derive(Default)]
pub(crate) struct Tools {
    /// Globals by callable name, then members of servers by server and path.
    pub entries: Vec<Entry>,
    globals: usize,
    servers: Vec<Server>,
    left_out: Vec<Diagnostic>,
    visible: Vec<String>,
    pub sources: SourceCounts,
    /// Built when the first cell searches.
    index: OnceLock<Index>,
    quick_index: OnceLock<String>,
    /// The declaration of all servers together.
    server_index: OnceLock<String>,
    /// What installing it changes, made by the first cell. For the engine of that cell only, if several share a catalog.
    pub image: OnceLock<CatalogImage>,
}

/// A server and its tools.
pub(crate) struct Server {
    identifier: String,
    name: String,
    /// Its tools among the entries.
    members: Range<usize>,
    /// Its declaration file.
    declaration: OnceLock<String>,
}

impl Tools {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tool at an index that came from a guest.
    pub fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn globals(&self) -> &[Entry] {
        self.entries.get(..self.globals).unwrap_or_default()
    }

    /// The image, when there is one and it belongs to this base.
    pub fn image_over(&self, base: &BaseImage) -> Option<&CatalogImage> {
        self.image.get().filter(|image| image.component == base.component)
    }

    /// What the guest installs: the names of globals, and the servers.
    pub fn to_install(&self) -> (Vec<&str>, Vec<ServerToInstall<'_>>) {
        let globals = self.globals().iter().map(|entry| entry.callable_name.as_str()).collect();
        let servers = self.servers.iter().map(|server| ServerToInstall {
            identifier: &server.identifier,
            server_name: &server.name,
            members: self.members(server).iter().filter_map(Entry::path).collect(),
        });
        (globals, servers.collect())
    }

    fn members(&self, server: &Server) -> &[Entry] {
        self.entries.get(server.members.clone()).unwrap_or_default()
    }

    /// The indexes of the best tools for a query, best first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        self.index.get_or_init(|| Index::build(self.entries.iter().map(Entry::document))).search(query, limit)
    }
}

/// A catalog being built.
#[derive(Default)]
struct Build {
    left_out: Vec<Diagnostic>,
    /// Names of tools that the model sees, in lower case.
    taken: BTreeSet<String>,
    visible: Vec<String>,
}

type Candidate = (Definition, Arc<dyn Tool>);

impl Build {
    fn all(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Tools {
        self.visible.extend(ALWAYS_VISIBLE.map(str::to_owned));
        self.taken.extend(ALWAYS_VISIBLE.map(str::to_owned));
        let mut globals: Vec<Candidate> = Vec::new();
        let mut members: Vec<Candidate> = Vec::new();
        let (mut places, mut seen) = (HashMap::new(), BTreeSet::new());
        for tool in tools {
            let definition = tool.definition();
            if let Some(reason) = refusal(&definition) {
                self.leave_out(&definition, reason);
                continue;
            }
            if definition.exposure != Exposure::Catalog {
                self.show(&definition);
            }
            if definition.exposure == Exposure::Direct {
                continue;
            }
            if definition.source == Source::Mcp {
                let key = (definition.server.clone(), definition.operation, definition.name.clone());
                if seen.insert(key) {
                    members.push((definition, tool));
                } else {
                    self.leave_out(&definition, "its server has another tool of this name; rename one of them");
                }
                continue;
            }
            match places.get(&definition.name).copied().and_then(|place: usize| globals.get_mut(place)) {
                None => {
                    places.insert(definition.name.clone(), globals.len());
                    globals.push((definition, tool));
                }
                // A client's tool replaces any other; else the first one stays.
                Some(winner) if definition.source == Source::Client && winner.0.source != Source::Client => {
                    *winner = (definition, tool);
                }
                Some(_) => self.leave_out(&definition, "another tool has this name; rename one of them"),
            }
        }
        self.finish(name_globals(globals), place_members(members))
    }

    fn leave_out(&mut self, definition: &Definition, reason: &str) {
        let (tool, reason) = (definition.name.clone(), reason.to_owned());
        self.left_out.push(Diagnostic { tool, reason, is_left_out: true });
    }

    fn show(&mut self, definition: &Definition) {
        match &definition.server {
            Some(server) if definition.source == Source::Mcp => {
                self.visible.push(mcp::flat_name(server, &definition.name, &mut self.taken));
            }
            _ if self.taken.insert(definition.name.to_ascii_lowercase()) => self.visible.push(definition.name.clone()),
            _ => self.leave_out(definition, "the model sees another tool of this name already; rename one of them"),
        }
    }

    fn finish(self, globals: Vec<Entry>, members: Vec<Entry>) -> Tools {
        let mut servers: Vec<Server> = Vec::new();
        for (offset, place) in members.iter().enumerate().filter_map(|(offset, entry)| Some((offset, entry.place()?))) {
            let end = globals.len() + offset + 1;
            match servers.last_mut() {
                Some(server) if server.identifier == place.server => server.members.end = end,
                _ => servers.push(Server {
                    identifier: place.server.clone(),
                    name: members.get(offset).and_then(|entry| entry.definition.server.clone()).unwrap_or_default(),
                    members: end - 1..end,
                    declaration: OnceLock::new(),
                }),
            }
        }
        let globals_count = globals.len();
        let entries: Vec<Entry> = globals.into_iter().chain(members).collect();
        let count = |source| entries.iter().filter(|entry| entry.definition.source == source).count() as u64;
        let sources =
            SourceCounts { openclaw: count(Source::Native), mcp: count(Source::Mcp), client: count(Source::Client) };
        Tools {
            sources,
            entries,
            globals: globals_count,
            servers,
            left_out: self.left_out,
            visible: self.visible,
            ..Tools::default()
        }
    }
}

/// Globals by callable name.
fn name_globals(globals: Vec<Candidate>) -> Vec<Entry> {
    let host_ids: Vec<String> = globals.iter().map(|(definition, _)| host_id(definition)).collect();
    let pairs: Vec<(&str, &str)> = host_ids
        .iter()
        .map(String::as_str)
        .zip(globals.iter().map(|(definition, _)| definition.name.as_str()))
        .collect();
    let names = callable_names(&pairs);
    let mut entries: Vec<Entry> = globals
        .into_iter()
        .zip(names)
        .map(|((definition, tool), callable_name)| Entry::global(definition, callable_name, tool))
        .collect();
    entries.sort_by(|a, b| a.callable_name.cmp(&b.callable_name));
    entries
}

/// Members by server and path.
fn place_members(members: Vec<Candidate>) -> Vec<Entry> {
    let listed: Vec<Member<'_>> = members
        .iter()
        .map(|(definition, _)| Member {
            server: definition.server.as_deref().unwrap_or_default(),
            tool: &definition.name,
            operation: definition.operation,
        })
        .collect();
    let places = mcp::places(&listed);
    let mut entries: Vec<Entry> = members
        .into_iter()
        .zip(places)
        .map(|((definition, tool), place)| Entry::member(definition, place, tool))
        .collect();
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    entries
}

fn refusal(definition: &Definition) -> Option<&'static str> {
    let name = definition.name.as_str();
    if name.trim().is_empty() {
        Some("its name is blank; give it one")
    } else if name.encode_utf16().count() as u64 > limits::fixed(&limits::TOOL_NAME_UNITS) {
        Some("its name is longer than 512 UTF-16 units; shorten it")
    } else if definition.source == Source::Mcp {
        let has_server = definition.server.as_ref().is_some_and(|server| !server.trim().is_empty());
        (!has_server).then_some("it is an MCP tool without a server; name the server")
    } else if CONTROLS.contains(&name) {
        Some("its name belongs to a control of the runtime; rename it")
    } else {
        None
    }
}

/// What tells tools apart that have one name. It never leaves the host, except as a digest.
fn host_id(definition: &Definition) -> String {
    let owner = definition.owner.as_deref().unwrap_or("core");
    format!("{}:{owner}:{}", definition.source.as_str(), definition.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(definition: Definition) -> Arc<dyn Tool> {
        Arc::new(crate::from_fn(definition, |_, (): ()| async { Ok(()) }))
    }

    fn named(name: &str, source: Source) -> Definition {
        Definition { source, ..Definition::new(name, "") }
    }

    fn member(server: &str, name: &str) -> Definition {
        Definition { server: Some(server.into()), ..named(name, Source::Mcp) }
    }

    fn callable_names(catalog: &Catalog) -> Vec<&str> {
        catalog.0.entries.iter().map(|entry| entry.callable_name.as_str()).collect()
    }

    #[test]
    fn a_client_tool_shadows_a_native_one_and_the_rest_is_reported() {
        let native = |name| tool(named(name, Source::Native));
        let client = tool(named("read", Source::Client));
        let catalog =
            Catalog::new([native("read"), client, native("read"), native(" "), native("wait"), native("exec")]);
        assert_eq!(callable_names(&catalog), ["exec", "read"]);
        assert_eq!(catalog.0.entries[1].definition.source, Source::Client);
        let reported: Vec<String> = catalog.diagnostics().into_iter().map(|diagnostic| diagnostic.tool).collect();
        assert_eq!(reported, ["read", " ", "wait"]);
    }

    #[test]
    fn members_stand_below_their_servers_and_never_compete_with_globals() {
        let catalog = Catalog::new([
            tool(member("b b", "list")),
            tool(named("list", Source::Native)),
            tool(member("a", "list")),
            tool(member("b b", "get")),
            tool(member("a", "list")),
            tool(named("orphan", Source::Mcp)),
        ]);
        assert_eq!(callable_names(&catalog), ["list", "MCP.a.list", "MCP.bB.get", "MCP.bB.list"]);
        let (globals, servers) = catalog.0.to_install();
        assert_eq!((globals, servers.len()), (vec!["list"], 2));
        assert_eq!((servers[1].server_name, servers[1].members.as_slice()), ("b b", ["get", "list"].as_slice()));
        let reported: Vec<String> = catalog.diagnostics().into_iter().map(|diagnostic| diagnostic.tool).collect();
        assert_eq!(reported, ["list", "orphan"]);
    }

    #[test]
    fn direct_tools_are_visible_and_not_callable() {
        let exposed = |exposure, definition| tool(Definition { exposure, ..definition });
        let catalog = Catalog::new([
            exposed(Exposure::Direct, named("screenshot", Source::Native)),
            exposed(Exposure::Both, named("message", Source::Native)),
            exposed(Exposure::Direct, member("web", "page.get")),
            exposed(Exposure::Direct, named("Exec", Source::Native)),
        ]);
        assert_eq!(catalog.visible_tools(), ["exec", "wait", "screenshot", "message", "web__page-get"]);
        assert_eq!(callable_names(&catalog), ["message"]);
        assert_eq!(catalog.diagnostics()[0].tool, "Exec");
    }

    #[test]
    fn a_schema_that_cannot_be_enforced_is_reported_and_the_tool_stays() {
        let broken = Definition { input_schema: Some(json!({"type": "strnig"})), ..named("t", Source::Native) };
        let catalog = Catalog::new([tool(broken)]);
        let found = catalog.diagnostics();
        assert!(!found[0].is_left_out && found[0].reason.contains("input schema"), "{found:?}");
        assert_eq!(callable_names(&catalog), ["t"]);
    }

    #[test]
    fn adding_and_describing_anew_keep_cells_and_the_rest_does_not() {
        let of = |definitions: &[Definition]| Catalog::new(definitions.iter().cloned().map(tool));
        let (a, b) = (named("a", Source::Native), member("s", "b"));
        let old = of(&[a.clone(), b.clone()]);
        let described = Definition { description: "new".into(), label: Some("new".into()), ..a.clone() };
        assert!(of(&[described, b.clone(), named("c", Source::Client)]).only_adds_to(&old));
        assert!(!of(std::slice::from_ref(&a)).only_adds_to(&old), "taken away");
        let replaced = Definition { input_schema: Some(json!({})), ..a.clone() };
        assert!(!of(&[replaced, b.clone()]).only_adds_to(&old), "replaced");
        assert!(!of(&[a, named("a", Source::Client), b]).only_adds_to(&old), "shadowed");
    }
}
