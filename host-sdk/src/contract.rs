//! Contracts of tools: whether an input may be passed on and an output handed to the guest, and what the guest is told
//! when not. Only native tools' schemas are enforced: a schema from elsewhere would decide how long a check takes.

use std::collections::HashMap;
use std::fmt::Write as _;

use codemode_core::declarations::required_without_default;
use codemode_core::json;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Details that one message lists, and bytes of each.
const DETAILS_MAX: usize = 5;
const DETAIL_BYTES_MAX: usize = 256;
/// Names that one message suggests.
const SUGGESTIONS_MAX: usize = 3;
/// Bytes of a value up to which its mistakes are described.
const LISTED_BYTES_MAX: usize = 16 * 1024;
/// Values in a schema, levels of it, and references that follow each other. What has more isn't enforced.
const SCHEMA_VALUES_MAX: usize = 8_192;
const SCHEMA_LEVELS_MAX: usize = 64;
const REFERENCES_MAX: u32 = 64;
/// Levels of a value that a recursive schema is followed into: checking recurses with it.
const VALUE_LEVELS_MAX: u32 = 128;
/// Bytes of a schema's pattern in compiled form.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
/// How often the same part of a value may be checked because a recursive schema offers several ways to read it.
const READINGS_MAX: f64 = 100_000.0;

/// Why a call isn't dispatched, or why its output isn't handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    /// For the guest.
    pub message: String,
    /// See B 4.6.23.
    pub code: &'static str,
}

/// A schema in the form that values are checked against.
pub(crate) struct Contract {
    validator: Validator,
    /// Values nested deeper than this are refused: checking them could take too long.
    levels_max: usize,
}

impl Contract {
    /// Compiles a schema of any draft. Nothing is ever fetched.
    ///
    /// # Errors
    ///
    /// Why it can't be enforced, for the embedder.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let mut left = SCHEMA_VALUES_MAX;
        if !fits(schema, SCHEMA_LEVELS_MAX, &mut left) {
            return Err(format!("it has more than {SCHEMA_VALUES_MAX} values or {SCHEMA_LEVELS_MAX} levels"));
        }
        let levels_max = levels_max(schema).ok_or("its references and combinations allow too many readings")?;
        let mut reason = None;
        // Most schemas in the wild don't say their draft, and some say the wrong one.
        for draft in [None, Some(Draft::Draft7), Some(Draft::Draft4)] {
            let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
            let mut options = jsonschema::options().with_pattern_options(patterns);
            if let Some(draft) = draft {
                options = options.with_draft(draft);
            }
            match options.build(schema) {
                Ok(validator) => return Ok(Self { validator, levels_max }),
                Err(error) => reason = reason.or_else(|| Some(located(&error))),
            }
        }
        Err(reason.unwrap_or_default())
    }

    /// What is wrong with a JSON text; nothing when it fits. Small texts get the details that `say` makes of mistakes.
    fn mistakes(&self, text: &RawValue, say: impl Fn(&ValidationError<'_>) -> String) -> Option<(Value, String)> {
        let Ok(value) = json::parse(text) else { return Some((Value::Null, String::from("it can't be read"))) };
        let mut any_number = usize::MAX;
        if !fits(&value, self.levels_max, &mut any_number) {
            let details = format!("it is nested deeper than the {} levels that can be checked", self.levels_max);
            return Some((value, details));
        }
        if self.validator.is_valid(&value) {
            return None;
        }
        if text.get().len() > LISTED_BYTES_MAX {
            // Describing mistakes costs far more than finding that there is one.
            return Some((value, String::from("it is too large for details; try with less")));
        }
        let details: Vec<String> =
            self.validator.iter_errors(&value).take(DETAILS_MAX).map(|error| say(&error)).collect();
        Some((value, details.join("; ")))
    }

    /// Checks the input of a native tool, whose compact hint is `hint`.
    ///
    /// # Errors
    ///
    /// `input_contract`, with the parameters that may be meant and the signature.
    pub fn check_input(&self, tool: &str, schema: &Value, hint: &str, input: &RawValue) -> Result<(), Breach> {
        let Some((given, details)) = self.mistakes(input, located) else { return Ok(()) };
        let mut message = not_called(tool, &details);
        let suggestions = suggestions(schema, &given);
        if !suggestions.is_empty() {
            // Writing to a string can't fail.
            let _ = write!(message, " Did you mean {}?", suggestions.join(" or "));
        }
        let _ = write!(message, " Expected {tool}({hint})");
        Err(Breach { message, code: "input_contract" })
    }

    /// Checks the output of a native tool. The value is never shown, because it may hold what the guest must not see.
    ///
    /// # Errors
    ///
    /// `output_contract`, with the places that break the schema.
    pub fn check_output(&self, tool: &str, output: &RawValue) -> Result<(), Breach> {
        let Some((_, details)) = self.mistakes(output, |mistake| cut(place_and_keyword(mistake))) else {
            return Ok(());
        };
        let message = format!("{tool} ran, but its output breaks its declared schema: {details}");
        Err(Breach { message, code: "output_contract" })
    }
}

/// Fills in the defaults that an MCP tool's schema has at its top, and asks for what is required; the server checks the
/// rest. `None` when the input stays as it is.
///
/// # Errors
///
/// `input_contract`, when a required parameter is missing.
pub(crate) fn complete_member_input(
    tool: &str,
    schema: Option<&Value>,
    input: &RawValue,
) -> Result<Option<Box<RawValue>>, Breach> {
    let Some(schema) = schema else { return Ok(None) };
    let Ok(Value::Object(mut given)) = json::parse(input) else { return Ok(None) };
    let missing: Vec<&str> =
        required_without_default(schema).into_iter().filter(|name| !given.contains_key(*name)).collect();
    if !missing.is_empty() {
        // Nothing else of a server's schema is shown: its text comes from outside.
        let details: Vec<String> =
            missing.iter().take(DETAILS_MAX).map(|name| cut(format!("{name:?} is required"))).collect();
        return Err(Breach { message: not_called(tool, &details.join("; ")), code: "input_contract" });
    }
    let before = given.len();
    for (name, property) in properties(schema).into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !given.contains_key(name)
        {
            given.insert(name.clone(), default.clone());
        }
    }
    if given.len() == before { Ok(None) } else { Ok(serde_json::value::to_raw_value(&given).ok()) }
}

fn not_called(tool: &str, details: &str) -> String {
    format!("{tool} wasn't called, its input doesn't fit: {details}.")
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// Parameters that are close to names which were given and don't exist, closest first.
fn suggestions(schema: &Value, given: &Value) -> Vec<String> {
    const GIVEN_MAX: usize = 8;
    const KNOWN_MAX: usize = 128;
    const NAME_CHARS_MAX: usize = 32;
    let (Some(known), Some(given)) = (properties(schema), given.as_object()) else { return Vec::new() };
    let is_short = |name: &&String| name.chars().count() <= NAME_CHARS_MAX;
    let mut close: Vec<(usize, &String)> = Vec::new();
    for wrong in given.keys().filter(|name| !known.contains_key(*name)).filter(is_short).take(GIVEN_MAX) {
        let reach = (wrong.chars().count() / 2).max(2);
        for name in known.keys().filter(|name| !given.contains_key(*name)).filter(is_short).take(KNOWN_MAX) {
            let distance = strsim::damerau_levenshtein(&wrong.to_lowercase(), &name.to_lowercase());
            if distance <= reach && !close.iter().any(|(_, listed)| *listed == name) {
                close.push((distance, name));
            }
        }
    }
    close.sort_unstable();
    close.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| format!("{name:?}")).collect()
}

fn located(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    if place.is_empty() { detail(error) } else { cut(format!("at {place}: {}", error.masked())) }
}

fn detail(error: &ValidationError<'_>) -> String {
    cut(error.masked().to_string())
}

fn place_and_keyword(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    format!("{} fails `{}`", if place.is_empty() { "the value" } else { place }, error.kind().keyword())
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(DETAIL_BYTES_MAX));
    text
}

/// Whether a value has at most that many levels, and no more values than are left. Stops at the first one too many, so
/// that its own recursion is bounded by `levels`.
fn fits(value: &Value, levels: usize, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    let Some(below) = levels.checked_sub(1) else {
        return !value.is_array() && !value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, below, left)),
        Value::Object(fields) => fields.values().all(|field| fits(field, below, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// How deep values may be nested that are checked; `None` when the schema can't be followed in acceptable time. Where
/// combinations offer several ways on, the number of readings of one part of a value grows with every reference.
fn levels_max(schema: &Value) -> Option<usize> {
    let ways = f64::from(widest_choice(schema).max(1));
    let affordable = |references: u32| ways.powi(references.try_into().unwrap_or(i32::MAX)) <= READINGS_MAX;
    match longest_chain(schema) {
        Some(chain) if chain <= REFERENCES_MAX && affordable(chain) => Some(usize::MAX),
        Some(_) => None,
        None => usize::try_from((1..=VALUE_LEVELS_MAX).rev().find(|levels| affordable(*levels))?).ok(),
    }
}

/// The most members of one combination that hold references.
fn widest_choice(schema: &Value) -> u32 {
    let inside = |value: &Value| match value {
        Value::Array(items) => items.iter().map(widest_choice).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(widest_choice).max().unwrap_or(0),
        _ => 0,
    };
    let own = ["allOf", "anyOf", "oneOf"].iter().filter_map(|keyword| schema.get(keyword)?.as_array()).map(|members| {
        let with_references = members.iter().filter(|member| !references(member).is_empty()).count();
        u32::try_from(with_references).unwrap_or(u32::MAX)
    });
    // A condition is checked beside what follows from it.
    let condition = u32::from(schema.get("if").is_some()) * 2;
    own.max().unwrap_or(0).max(condition).max(inside(schema))
}

/// The most references that follow each other; `None` when they lead back to where one came from, or out of the schema.
fn longest_chain(schema: &Value) -> Option<u32> {
    let mut lengths: HashMap<&str, u32> = HashMap::new();
    let longest = |names: &[&str], lengths: &HashMap<&str, u32>| {
        names.iter().filter_map(|name| lengths.get(name)).max().copied().unwrap_or(0)
    };
    let mut path = Vec::new();
    // A walk in depth. An entry stays while what it refers to is looked at; seen again it is done.
    let mut open = references(schema);
    while let Some(name) = open.last().copied() {
        let target = schema.pointer(name.strip_prefix('#')?)?;
        let next = references(target);
        if path.last() == Some(&name) {
            path.pop();
            lengths.insert(name, 1 + longest(&next, &lengths));
        }
        if lengths.contains_key(name) {
            open.pop();
            continue;
        }
        path.push(name);
        if name == "#" || next.iter().any(|next| path.contains(next)) {
            return None;
        }
        if path.len() > REFERENCES_MAX as usize {
            return Some(u32::MAX);
        }
        open.extend(next);
    }
    Some(longest(&references(schema), &lengths))
}

/// All references inside of a schema.
fn references(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match (key.as_str(), field) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(name)) => found.push(name.as_str()),
                        _ => open.push(field),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn check(schema: &Value, input: &Value) -> Result<(), String> {
        let contract = Contract::compile(schema).unwrap();
        contract
            .check_input("tool", schema, &codemode_core::hints::input(schema), &raw(input))
            .map_err(|breach| breach.message)
    }

    #[test]
    fn a_misspelt_parameter_is_named_with_the_one_that_is_meant() {
        let schema = json!({"type": "object", "properties": {"recipient": {"type": "string"}, "body": {}},
            "required": ["recipient"]});
        let message = check(&schema, &json!({"recipent": "x", "zzz": 1})).unwrap_err();
        assert_eq!(
            message,
            "tool wasn't called, its input doesn't fit: \"recipient\" is a required property. \
             Did you mean \"recipient\"? Expected tool({ recipient: string; body?: unknown })"
        );
        assert_eq!(check(&schema, &json!({"recipient": "x"})), Ok(()));
    }

    #[test]
    fn every_draft_is_understood_and_what_is_not_is_refused() {
        check(&json!({"items": [{"type": "string"}]}), &json!([1])).unwrap_err();
        check(&json!({"minimum": 0, "exclusiveMinimum": true}), &json!(0)).unwrap_err();
        check(&json!({"prefixItems": [{"type": "string"}]}), &json!([1])).unwrap_err();
        for broken in [
            json!({"type": "strnig"}),
            json!({"$ref": "#/$defs/nowhere"}),
            json!({"$ref": "https://example.com/x"}),
            json!("text"),
            json!({"pattern": "(?<=look)behind"}),
        ] {
            assert!(Contract::compile(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_output_is_never_shown() {
        let schema = json!({"properties": {"n": {"type": "number"}}});
        let breach =
            Contract::compile(&schema).unwrap().check_output("tool", &raw(&json!({"n": "secret"}))).unwrap_err();
        assert_eq!(breach.message, "tool ran, but its output breaks its declared schema: /n fails `type`");
    }

    #[test]
    fn defaults_are_filled_in_for_servers() {
        let schema = json!({"properties": {"q": {}, "limit": {"default": 10}}, "required": ["q", "limit"]});
        let complete = |input: Value| complete_member_input("tool", Some(&schema), &raw(&input));
        assert_eq!(complete(json!({"q": 1})).unwrap().unwrap().get(), r#"{"q":1,"limit":10}"#);
        assert!(complete(json!({"q": 1, "limit": null})).unwrap().is_none());
        assert!(complete(json!({})).unwrap_err().message.contains("\"q\" is required"));
    }

    #[test]
    fn a_schema_with_many_ways_into_itself_ends_all_the_same() {
        let branch = |key: &str| json!({"properties": {"next": {"$ref": "#"}, key: {"type": "null"}}});
        let schema = json!({"anyOf": [branch("a"), branch("b"), branch("c")]});
        assert_eq!(levels_max(&schema), Some(10));
        let mut input = json!({"next": 1, "a": 1, "b": 1, "c": 1});
        for _ in 0..60 {
            input = json!({"next": input, "a": 1});
        }
        let message = check(&schema, &input).unwrap_err();
        assert!(message.contains("deeper than the 10 levels that can be checked"), "{message}");
        let linear = json!({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}});
        assert_eq!(levels_max(&linear), Some(128));
        let chain = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {}}});
        assert_eq!((longest_chain(&chain), levels_max(&chain)), (Some(2), Some(usize::MAX)));
        let mut doubling = json!({"l00": {}});
        for level in 1..40 {
            let below = json!({"$ref": format!("#/$defs/l{:02}", level - 1)});
            doubling[format!("l{level:02}")] = json!({"allOf": [below, below]});
        }
        assert_eq!(levels_max(&json!({"$ref": "#/$defs/l39", "$defs": doubling})), None);
    }

    #[test]
    fn what_is_too_large_is_not_enforced() {
        let mut deep = json!({});
        for _ in 0..SCHEMA_LEVELS_MAX {
            deep = json!({"not": deep});
        }
        assert!(Contract::compile(&deep).is_err());
        let wide: Vec<Value> = (0..SCHEMA_VALUES_MAX).map(Value::from).collect();
        assert!(Contract::compile(&json!({"enum": wide})).is_err());
    }
}
