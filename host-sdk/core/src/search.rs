//! Finding tools by words: Okapi BM25 over names, labels, descriptions and parameters, with light stemming and a few
//! synonyms (B 6). Host ids are no part of it: a query must never match by where a tool comes from.

use std::collections::BTreeMap;

use serde_json::Value;

const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The weight of a word that the caller didn't type.
const SYNONYM_WEIGHT: f64 = 0.35;
/// Levels of a schema whose parameters are searched.
const PARAMETER_LEVELS: usize = 4;

/// What is searched of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The name that the guest calls.
    pub callable_name: &'a str,
    /// The tool's own name.
    pub tool_name: &'a str,
    /// A short title.
    pub label: Option<&'a str>,
    /// What it does.
    pub description: &'a str,
    /// Its input schema, when it is trusted to be searched.
    pub input_schema: Option<&'a Value>,
}

/// An index over the tools of one catalog.
#[derive(Debug)]
pub struct Index {
    documents: Vec<Entry>,
    /// In how many documents each word stands.
    spread: BTreeMap<String, u64>,
    average_length: f64,
}

#[derive(Debug)]
struct Entry {
    callable_name: String,
    tool_name: String,
    words: BTreeMap<String, u64>,
    length: f64,
}

impl Index {
    /// Indexes these tools; results are their places in this list.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let documents: Vec<Entry> = documents.into_iter().map(Entry::new).collect();
        let mut spread = BTreeMap::new();
        for word in documents.iter().flat_map(|document| document.words.keys()) {
            *spread.entry(word.clone()).or_insert(0) += 1;
        }
        let total: f64 = documents.iter().map(|document| document.length).sum();
        let average_length = total / precise(documents.len().max(1) as u64);
        Self { documents, spread, average_length }
    }

    /// The best `limit` tools for a query, best first. A query that is a tool's exact name gives that tool alone.
    pub fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        if let Some(exact) = self.exact(query.trim()) {
            return vec![exact];
        }
        let typed = stems(query);
        let weights = weighted(&typed, query);
        let mut hits: Vec<(bool, f64, usize)> = self
            .documents
            .iter()
            .enumerate()
            .filter_map(|(place, document)| {
                let score: f64 = weights.iter().map(|(word, weight)| weight * self.score(document, word)).sum();
                let is_literal = typed.iter().any(|word| document.words.contains_key(word));
                (score > 0.0).then_some((is_literal, score, place))
            })
            .collect();
        let name = |place: usize| self.documents.get(place).map(|document| document.callable_name.as_str());
        hits.sort_by(|(literal_a, score_a, a), (literal_b, score_b, b)| {
            literal_b.cmp(literal_a).then(score_b.total_cmp(score_a)).then_with(|| name(*a).cmp(&name(*b)))
        });
        hits.into_iter().take(limit).map(|(_, _, place)| place).collect()
    }

    /// Callable name before tool name, the same case before another.
    fn exact(&self, query: &str) -> Option<usize> {
        let find = |matches: &dyn Fn(&Entry) -> bool| self.documents.iter().position(matches);
        find(&|entry| entry.callable_name == query)
            .or_else(|| find(&|entry| entry.tool_name == query))
            .or_else(|| find(&|entry| entry.callable_name.eq_ignore_ascii_case(query)))
            .or_else(|| find(&|entry| entry.tool_name.eq_ignore_ascii_case(query)))
    }

    fn score(&self, document: &Entry, word: &str) -> f64 {
        let Some(count) = document.words.get(word) else { return 0.0 };
        let count = precise(*count);
        let spread = precise(self.spread.get(word).copied().unwrap_or(0));
        let rarity = (1.0 + (precise(self.documents.len() as u64) - spread + 0.5) / (spread + 0.5)).ln();
        let length = 1.0 - B + B * document.length / self.average_length.max(1.0);
        rarity * count * (K1 + 1.0) / (count + K1 * length)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of words and tools are far below 2^53")]
fn precise(count: u64) -> f64 {
    count as f64
}

impl Entry {
    fn new(document: Document<'_>) -> Self {
        let mut text =
            format!("{} {} {}", document.tool_name, document.label.unwrap_or_default(), document.description);
        if let Some(schema) = document.input_schema {
            push_parameters(&mut text, schema, 1);
        }
        let mut words = BTreeMap::new();
        let mut length = 0;
        for word in stems(&text) {
            *words.entry(word).or_insert(0) += 1;
            length += 1;
        }
        Self {
            callable_name: document.callable_name.to_owned(),
            tool_name: document.tool_name.to_owned(),
            words,
            length: precise(length),
        }
    }
}

/// Adds names and descriptions of parameters. Recursion is bounded by `PARAMETER_LEVELS`.
fn push_parameters(text: &mut String, schema: &Value, level: usize) {
    if level > PARAMETER_LEVELS {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        text.push(' ');
        text.push_str(name);
        if let Some(description) = property.get("description").and_then(Value::as_str) {
            text.push(' ');
            text.push_str(description);
        }
        push_parameters(text, property, level + 1);
    }
    if let Some(items) = schema.get("items") {
        push_parameters(text, items, level + 1);
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

/// Words in lower case, each with its parts when it is made of several: `getUserURL` is also `get`, `user`, `url`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        if word.is_empty() {
            continue;
        }
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

fn weighted(typed: &[String], query: &str) -> BTreeMap<String, f64> {
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
