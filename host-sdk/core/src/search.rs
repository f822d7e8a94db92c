//! Finding tools by words: Okapi BM25 over names, labels, descriptions and parameters, with light stemming and a few
//! synonyms (B 6). Host ids are no part of it: a query must never match by where a tool comes from.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The weight of a word that the caller didn't type.
const SYNONYM_WEIGHT: f64 = 0.35;
/// Levels of a schema whose parameters are searched, and how many of them.
const PARAMETER_LEVELS: usize = 4;
const PARAMETERS_MAX: usize = 1_024;
/// Bytes of a tool's text that are searched.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// What is searched of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The name that the guest calls; for a tool of a server the whole path, `MCP.github.createIssue`.
    pub callable_name: &'a str,
    /// The tool's own name.
    pub tool_name: &'a str,
    /// A short title.
    pub label: Option<&'a str>,
    /// What it does.
    pub description: &'a str,
    /// Its input schema, when it is trusted to be searched.
    pub input_schema: Option<&'a Value>,
    /// Whether it is a tool of a server.
    pub is_member: bool,
}

/// An index over the tools of one catalog.
#[derive(Debug, Default)]
pub struct Index {
    documents: Vec<Entry>,
    /// The number of each stem.
    stems: HashMap<String, usize>,
    /// By stem: in which documents it stands, and how often.
    postings: Vec<Vec<(usize, u64)>>,
    average_length: f64,
    names: Names,
}

#[derive(Debug)]
struct Entry {
    callable_name: String,
    length: f64,
}

/// Names that find their tool directly, each kind for itself. Of equal names the first tool has it.
#[derive(Debug, Default)]
struct Names {
    members: HashMap<String, usize>,
    members_any_case: HashMap<String, usize>,
    callable: HashMap<String, usize>,
    tools: HashMap<String, usize>,
    any_case: HashMap<String, usize>,
}

impl Names {
    fn add(&mut self, document: &Document<'_>, place: usize) {
        let (callable, tool) = (document.callable_name, document.tool_name);
        if document.is_member {
            self.members.entry(callable.to_owned()).or_insert(place);
            self.members_any_case.entry(callable.to_lowercase()).or_insert(place);
            return;
        }
        self.callable.entry(callable.to_owned()).or_insert(place);
        self.tools.entry(tool.to_owned()).or_insert(place);
        for name in [callable, tool] {
            self.any_case.entry(name.to_lowercase()).or_insert(place);
        }
    }

    /// The same case before another; among globals the callable name before the tool's own.
    fn member(&self, query: &str) -> Option<usize> {
        self.members.get(query).or_else(|| self.members_any_case.get(&query.to_lowercase())).copied()
    }

    fn global(&self, query: &str) -> Option<usize> {
        let exact = self.callable.get(query).or_else(|| self.tools.get(query));
        exact.or_else(|| self.any_case.get(&query.to_lowercase())).copied()
    }
}

impl Index {
    /// Indexes these tools; results are their places in this list.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut index = Self::default();
        // Catalogs repeat their words: each is taken apart and stemmed once.
        let mut known: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, document) in documents.into_iter().enumerate() {
            index.names.add(&document, place);
            let mut length = 0;
            let text = text_of(&document);
            for word in words(&text) {
                if !known.contains_key(word) {
                    let stems = stems(word).into_iter().map(|stem| index.number_of(stem)).collect();
                    known.insert(word.to_owned(), stems);
                }
                let stems = known.get(word).map(Vec::as_slice).unwrap_or_default();
                stems.iter().for_each(|stem| index.count(*stem, place));
                length += stems.len() as u64;
            }
            index.documents.push(Entry { callable_name: document.callable_name.to_owned(), length: precise(length) });
        }
        let total: f64 = index.documents.iter().map(|document| document.length).sum();
        index.average_length = total / precise(index.documents.len().max(1) as u64);
        index
    }

    fn number_of(&mut self, stem: String) -> usize {
        let next = self.postings.len();
        let number = *self.stems.entry(stem).or_insert(next);
        if number == next {
            self.postings.push(Vec::new());
        }
        number
    }

    /// Notes that a stem stands in the document at `place`, which is the last one so far.
    fn count(&mut self, stem: usize, place: usize) {
        let Some(postings) = self.postings.get_mut(stem) else { return };
        match postings.last_mut() {
            Some((last, count)) if *last == place => *count += 1,
            _ => postings.push((place, 1)),
        }
    }

    /// The best `limit` tools for a query, best first. A query that is the exact name of a global gives that tool alone;
    /// one that is the path of a server's tool gives that tool first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        let name = query.trim();
        let first = self.names.member(name);
        if first.is_none()
            && let Some(exact) = self.names.global(name)
        {
            return vec![exact];
        }
        let mut hits = self.hits(query);
        hits.retain(|hit| Some(hit.place) != first);
        let wanted = limit.saturating_sub(usize::from(first.is_some()));
        if wanted < hits.len() && wanted > 0 {
            hits.select_nth_unstable_by(wanted - 1, |a, b| self.order(a, b));
        }
        hits.truncate(wanted);
        hits.sort_by(|a, b| self.order(a, b));
        first.into_iter().chain(hits.into_iter().map(|hit| hit.place)).take(limit).collect()
    }

    fn hits(&self, query: &str) -> Vec<Hit> {
        let typed: BTreeSet<String> = stems(query).into_iter().collect();
        let mut scores = vec![0.0; self.documents.len()];
        let mut is_literal = vec![false; self.documents.len()];
        let mut places = Vec::new();
        for (word, weight) in weighted(&typed, query) {
            let Some(postings) = self.stems.get(&word).and_then(|stem| self.postings.get(*stem)) else { continue };
            let is_typed = typed.contains(&word);
            let rarity = self.rarity(postings.len());
            for (place, count) in postings {
                let (Some(score), Some(literal)) = (scores.get_mut(*place), is_literal.get_mut(*place)) else {
                    continue;
                };
                if *score == 0.0 {
                    places.push(*place);
                }
                *score += weight * rarity * self.frequency(*place, *count);
                *literal |= is_typed;
            }
        }
        let hit = |place: usize| {
            let score = scores.get(place).copied().unwrap_or(0.0);
            Hit { place, score, is_literal: is_literal.get(place).copied().unwrap_or(false) }
        };
        places.into_iter().map(hit).collect()
    }

    /// Words that the caller typed before words that may be meant, then the score, then the name.
    fn order(&self, a: &Hit, b: &Hit) -> Ordering {
        let name = |hit: &Hit| self.documents.get(hit.place).map(|document| document.callable_name.as_str());
        b.is_literal
            .cmp(&a.is_literal)
            .then(b.score.total_cmp(&a.score))
            .then_with(|| name(a).cmp(&name(b)))
            .then(a.place.cmp(&b.place))
    }

    fn rarity(&self, spread: usize) -> f64 {
        let (all, spread) = (precise(self.documents.len() as u64), precise(spread as u64));
        (1.0 + (all - spread + 0.5) / (spread + 0.5)).ln()
    }

    fn frequency(&self, place: usize, count: u64) -> f64 {
        let count = precise(count);
        let length = self.documents.get(place).map_or(0.0, |document| document.length);
        let length = 1.0 - B + B * length / self.average_length.max(1.0);
        count * (K1 + 1.0) / (count + K1 * length)
    }
}

struct Hit {
    place: usize,
    score: f64,
    is_literal: bool,
}

fn text_of(document: &Document<'_>) -> String {
    let mut text = format!("{} {} {}", document.tool_name, document.label.unwrap_or_default(), document.description);
    if let Some(schema) = document.input_schema {
        push_parameters(&mut text, schema, 1, &mut PARAMETERS_MAX.to_owned());
    }
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[expect(clippy::cast_precision_loss, reason = "counts of words and tools are far below 2^53")]
fn precise(count: u64) -> f64 {
    count as f64
}

/// Adds names and descriptions of parameters. Recursion is bounded by `PARAMETER_LEVELS`.
fn push_parameters(text: &mut String, schema: &Value, level: usize, left: &mut usize) {
    if level > PARAMETER_LEVELS {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        text.push(' ');
        text.push_str(name);
        if let Some(description) = property.get("description").and_then(Value::as_str) {
            text.push(' ');
            text.push_str(description);
        }
        push_parameters(text, property, level + 1, left);
    }
    if let Some(items) = schema.get("items") {
        push_parameters(text, items, level + 1, left);
    }
}

const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "do",
    "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no",
    "not", "of", "on", "or", "our", "should", "so", "some", "that", "the", "their", "them", "then", "there", "these",
    "this", "those", "to", "us", "was", "we", "were", "what", "when", "where", "which", "who", "will", "with", "would",
    "you", "your",
];

/// Words that end like plurals and aren't.
const NOT_PLURAL: &[&str] =
    &["alias", "analysis", "bus", "canvas", "focus", "gas", "lens", "news", "plus", "status", "address", "process"];

/// Query words and what else they may mean.
const SYNONYMS: &[(&[&str], &[&str])] = &[
    (&["look", "lookup", "google", "research"], &["search", "web", "find"]),
    (&["current", "today", "latest", "now", "recent", "news", "price", "weather"], &["search", "web"]),
    (&["url", "link", "page", "article", "site"], &["fetch", "web", "browse"]),
    (&["remember", "recall", "memory", "earlier"], &["memory", "recall", "history"]),
    (
        &["remind", "later", "tomorrow", "daily", "weekly", "recurring"],
        &["schedule", "automations", "cron", "reminder"],
    ),
    (&["say", "tell", "reply", "respond", "answer"], &["message", "send"]),
    (&["picture", "photo", "meme", "screenshot"], &["image"]),
    (&["speak", "say", "voice"], &["audio", "speech"]),
    (&["run", "execute", "command", "shell", "terminal"], &["exec", "process"]),
    (&["directory", "folder", "path"], &["file", "list"]),
];

/// The stems of a text, stop words left out.
fn stems(text: &str) -> Vec<String> {
    tokens(text).into_iter().filter(|token| !STOP_WORDS.contains(&token.as_str())).map(|token| stem(&token)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Words in lower case, each with its parts when it is made of several: `getUserURL` is also `get`, `user`, `url`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for word in words(text) {
        tokens.push(word.to_lowercase());
        let parts = parts(word);
        if parts.len() > 1 {
            tokens.extend(parts);
        }
    }
    tokens
}

/// Splits at underscores, and where the case or kind of letter changes as between words.
fn parts(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let mut parts = vec![String::new()];
    for (place, letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(place + 1);
        let starts_word = before.is_some_and(|before| {
            (before.is_lowercase() && letter.is_uppercase())
                || (before.is_numeric() != letter.is_numeric())
                // The last capital of an acronym begins the next word; a plural acronym stays whole.
                || (before.is_uppercase()
                    && letter.is_uppercase()
                    && after.is_some_and(|after| after.is_lowercase())
                    && letters.get(place + 1..).is_some_and(|rest| rest != ['s']))
        });
        if (*letter == '_' || starts_word) && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if *letter != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Strips up to three endings.
fn stem(word: &str) -> String {
    const PASSES: usize = 3;
    let mut word = word.to_owned();
    for _ in 0..PASSES {
        let next = stem_once(&word);
        if next == word {
            break;
        }
        word = next;
    }
    word
}

fn stem_once(word: &str) -> String {
    const WORD_CHARS_MIN: usize = 4;
    const STEM_CHARS_MIN: usize = 3;
    if word.chars().count() < WORD_CHARS_MIN || NOT_PLURAL.contains(&word) {
        return word.to_owned();
    }
    if let Some(start) = word.strip_suffix("ies").filter(|start| start.chars().count() >= 2) {
        return format!("{start}y");
    }
    for ending in ["ing", "ed", "ly", "es", "er", "s", "e"] {
        let Some(start) = word.strip_suffix(ending) else { continue };
        if start.chars().count() < STEM_CHARS_MIN || (ending == "s" && start.ends_with('s')) {
            continue;
        }
        let is_doubling = matches!(ending, "ing" | "ed" | "er");
        return if is_doubling { undoubled(start) } else { start.to_owned() };
    }
    word.to_owned()
}

/// `runn` is `run`; `fill` stays.
fn undoubled(start: &str) -> String {
    let mut letters = start.chars().rev();
    match (letters.next(), letters.next()) {
        (Some(last), Some(before)) if last == before && !"aeioulsfz".contains(last) => {
            start.get(..start.len() - last.len_utf8()).unwrap_or(start).to_owned()
        }
        _ => start.to_owned(),
    }
}

fn weighted(typed: &BTreeSet<String>, query: &str) -> BTreeMap<String, f64> {
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    let words = tokens(query);
    for (triggers, meanings) in SYNONYMS {
        let is_meant = words
            .iter()
            .any(|word| triggers.contains(&word.trim_end_matches('s')) || triggers.contains(&word.as_str()));
        if is_meant {
            for meaning in *meanings {
                weights.insert(stem(meaning), SYNONYM_WEIGHT);
            }
        }
    }
    for word in typed {
        weights.insert(word.clone(), 1.0);
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tools: &[(&str, &str)], query: &str, expected: &[&str]) {
        let index = Index::build(tools.iter().map(|(name, description)| Document {
            callable_name: name,
            tool_name: name,
            label: None,
            description,
            input_schema: None,
            is_member: name.starts_with("MCP."),
        }));
        let found: Vec<&str> = index.search(query, 8).into_iter().map(|place| tools[place].0).collect();
        assert_eq!(found, expected, "{query}");
    }

    const TOOLS: &[(&str, &str)] = &[
        ("create_ticket", "Create a support ticket"),
        ("weather", "Forecast for a city"),
        ("getUserURL", "Returns the address of a user"),
        ("exec", "Runs a program"),
    ];

    #[test]
    fn words_find_their_tools() {
        check(TOOLS, "support tickets", &["create_ticket"]);
        check(TOOLS, "user url", &["getUserURL"]);
        check(TOOLS, "forecasting", &["weather"]);
        check(TOOLS, "nothing_like_this", &[]);
        check(TOOLS, "the of and", &[]);
        check(TOOLS, "", &[]);
    }

    #[test]
    fn an_exact_name_stands_alone() {
        check(&[("report", "x"), ("report_daily", "report every day")], "report", &["report"]);
        check(&[("Report", "x"), ("report", "y")], " report ", &["report"]);
        check(&[("Report", "x")], "report", &["Report"]);
    }

    #[test]
    fn the_path_of_a_member_comes_first_and_others_follow() {
        let tools = [("MCP.github.createIssue", "opens one"), ("create_issue", "GitHub"), ("x", "mcp")];
        check(&tools, "MCP.github.createIssue", &["MCP.github.createIssue", "create_issue", "x"]);
        check(&tools, "mcp.github.createissue", &["MCP.github.createIssue", "x", "create_issue"]);
        check(&tools, "create_issue", &["create_issue"]);
    }

    #[test]
    fn ties_go_by_name_and_typed_words_before_meant_ones() {
        check(&[("pay_c", "pay an invoice"), ("pay_a", "pay an invoice")], "invoice", &["pay_a", "pay_c"]);
        check(&[("shell", "a terminal"), ("process_list", "lists them")], "terminal", &["shell", "process_list"]);
    }

    #[test]
    fn stems_meet() {
        for (one, other) in [("running", "run"), ("queries", "query"), ("files", "file"), ("searched", "search")] {
            assert_eq!(stem(one), stem(other), "{one} and {other}");
        }
        assert_eq!(stem("status"), "status");
        assert_eq!(parts("getUserURL"), ["get", "user", "url"]);
        assert_eq!(parts("URLs"), ["urls"]);
    }
}
