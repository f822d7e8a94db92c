//! Where the tools of MCP servers stand below the namespace `MCP`: an identifier for each server, and a path below it for
//! each tool (B 5.3.11-12, contract 11.15). Names in, names out; what a call does lives elsewhere.

use std::collections::{BTreeSet, HashMap};

use crate::names::{RESERVED_WORDS, is_reserved};

/// What a tool of a server does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A call of one of the server's tools.
    #[default]
    Tool,
    /// Lists the server's resources.
    ResourcesList,
    /// Reads one resource.
    ResourcesRead,
    /// Lists the server's prompts.
    PromptsList,
    /// Gets one prompt.
    PromptsGet,
}

impl Operation {
    /// Its name in `$api`; for all but tools also the path below the server.
    ///
    /// ```
    /// assert_eq!(codemode_core::mcp::Operation::ResourcesRead.as_str(), "resources.read");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::ResourcesList => "resources.list",
            Self::ResourcesRead => "resources.read",
            Self::PromptsList => "prompts.list",
            Self::PromptsGet => "prompts.get",
        }
    }

    /// The fields of a native result that the guest gets.
    pub const fn result_fields(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &["content", "structuredContent", "isError"],
            Self::ResourcesList => &["resources", "nextCursor"],
            Self::ResourcesRead => &["contents"],
            Self::PromptsList => &["prompts"],
            Self::PromptsGet => &["messages", "description"],
        }
    }
}

/// A tool of a server, before it has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member<'a> {
    /// The server's own name.
    pub server: &'a str,
    /// The tool's own name.
    pub tool: &'a str,
    /// What it does.
    pub operation: Operation,
}

/// Where a tool stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The server's property of `MCP`.
    pub server: String,
    /// The path below it: `listInvoices`, or `resources.list`.
    pub path: String,
}

/// Reserved in every namespace: what would make a namespace look like a promise or hide how it turns into text.
const RESERVED_ANYWHERE: &[&str] =
    &["__proto__", "constructor", "prototype", "then", "toJSON", "toString", "valueOf", "let"];
/// Reserved below a server.
const RESERVED_IN_SERVER: &[&str] = &["resources", "prompts"];

/// A place for each member, in the order given. Equal sets of members give equal places, whatever their order.
///
/// ```
/// use codemode_core::mcp::{Member, Operation, places};
/// let member = Member { server: "chrome-devtools", tool: "list_pages", operation: Operation::Tool };
/// assert_eq!((places(&[member])[0].server.as_str(), places(&[member])[0].path.as_str()), ("chromeDevtools", "listPages"));
/// ```
pub fn places(members: &[Member<'_>]) -> Vec<Place> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|place| members.get(*place));
    let mut places = vec![Place { server: String::new(), path: String::new() }; members.len()];
    let mut servers = Names::default();
    let (mut current, mut identifier, mut tools) = (None, String::new(), Names::default());
    for place in order {
        let Some(member) = members.get(place) else { continue };
        if current != Some(member.server) {
            current = Some(member.server);
            identifier = servers.free(&camel_case(member.server, "server"), is_reserved);
            tools = Names::default();
        }
        let path = match member.operation {
            Operation::Tool => tools.free(&camel_case(member.tool, "tool"), |name| {
                RESERVED_IN_SERVER.contains(&name) || RESERVED_WORDS.contains(&name)
            }),
            operation => tools.free(operation.as_str(), |_| false),
        };
        if let Some(slot) = places.get_mut(place) {
            *slot = Place { server: identifier.clone(), path };
        }
    }
    places
}

/// Names that are taken, and the number to try next for each that was wanted.
#[derive(Default)]
struct Names {
    taken: BTreeSet<String>,
    next: HashMap<String, u64>,
}

impl Names {
    /// The name itself, or with the first number from 2 upward that is free.
    fn free(&mut self, base: &str, is_kept: impl Fn(&str) -> bool) -> String {
        let is_free = |name: &str| !self.taken.contains(name) && !is_kept(name) && !RESERVED_ANYWHERE.contains(&name);
        let mut name = base.to_owned();
        if !is_free(&name) {
            let first = self.next.get(base).copied().unwrap_or(2);
            for number in first.. {
                name = format!("{base}{number}");
                if is_free(&name) {
                    self.next.insert(base.to_owned(), number + 1);
                    break;
                }
            }
        }
        self.taken.insert(name.clone());
        name
    }
}

/// Joins the words of a name: `list_invoices` is `listInvoices`, `GitHub` is `gitHub`.
fn camel_case(name: &str, fallback: &str) -> String {
    let mut joined = String::new();
    for word in name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        if joined.is_empty() {
            joined.push_str(&first.to_ascii_lowercase());
        } else {
            joined.push_str(&first.to_ascii_uppercase());
        }
        joined.push_str(rest);
    }
    let start = joined.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic());
    if start.is_empty() { fallback.to_owned() } else { start.to_owned() }
}

/// The part of an MCP tool's flat name that stands for its server (B 5.3.10): no host id shows more of a server than this.
///
/// ```
/// assert_eq!(codemode_core::mcp::safe_server_name(" my server! "), "my-server-");
/// assert_eq!(codemode_core::mcp::safe_server_name("9patch"), "mcp-9patch");
/// ```
pub fn safe_server_name(name: &str) -> String {
    safe_name(name, "mcp-", SERVER_CHARS_MAX)
}

const SERVER_CHARS_MAX: usize = 30;
const FLAT_CHARS_MAX: usize = 64;

fn safe_name(name: &str, prefix: &str, chars_max: usize) -> String {
    let kept = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let safe: String = name.trim().chars().map(|letter| if kept(letter) { letter } else { '-' }).collect();
    let safe =
        if safe.starts_with(|first: char| first.is_ascii_alphabetic()) { safe } else { format!("{prefix}{safe}") };
    safe.chars().take(chars_max).collect()
}

/// The flat name under which a provider shows a tool of a server directly: `server__tool`, at most 64 characters, with
/// `-2` and so on when it is taken, in whatever case.
///
/// ```
/// use std::collections::BTreeSet;
/// let mut taken = BTreeSet::new();
/// assert_eq!(codemode_core::mcp::flat_name("docs", "ask.it", &mut taken), "docs__ask-it");
/// assert_eq!(codemode_core::mcp::flat_name("Docs", "ask_it", &mut taken), "Docs__ask_it");
/// assert_eq!(codemode_core::mcp::flat_name("Docs", "ask-it", &mut taken), "Docs__ask-it-2");
/// ```
pub fn flat_name(server: &str, tool: &str, taken: &mut BTreeSet<String>) -> String {
    let whole = format!("{}__{}", safe_server_name(server), safe_name(tool, "tool-", FLAT_CHARS_MAX));
    let cut = |length: usize| whole.chars().take(length).collect::<String>();
    let mut name = cut(FLAT_CHARS_MAX);
    for number in 2u64.. {
        if taken.insert(name.to_ascii_lowercase()) {
            break;
        }
        let suffix = format!("-{number}");
        name = cut(FLAT_CHARS_MAX - suffix.len()) + &suffix;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(members: &[(&str, &str)], expected: &[(&str, &str)]) {
        let members: Vec<Member<'_>> =
            members.iter().map(|(server, tool)| Member { server, tool, operation: Operation::Tool }).collect();
        let found = places(&members);
        let found: Vec<(&str, &str)> = found.iter().map(|place| (place.server.as_str(), place.path.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_are_joined() {
        check(&[("accounting", "list_invoices")], &[("accounting", "listInvoices")]);
        check(&[("google-workspace", "calendar.respondToEvent")], &[("googleWorkspace", "calendarRespondToEvent")]);
        check(&[("GitHub", "9-patch"), ("GitHub", "日本")], &[("gitHub", "Patch"), ("gitHub", "tool")]);
    }

    #[test]
    fn what_is_taken_or_reserved_gets_a_number() {
        check(&[("a b", "x-y"), ("a-b", "x_y"), ("a b", "x y")], &[("aB", "xY2"), ("aB2", "xY"), ("aB", "xY")]);
        check(
            &[("catalog", "constructor"), ("catalog", "delete"), ("catalog", "resources"), ("catalog", "then")],
            &[("catalog2", "constructor2"), ("catalog2", "delete2"), ("catalog2", "resources2"), ("catalog2", "then2")],
        );
    }

    #[test]
    fn other_operations_have_fixed_paths() {
        let operation = Operation::PromptsGet;
        assert_eq!(places(&[Member { server: "s", tool: "whatever", operation }])[0].path, "prompts.get");
    }
}
