//! Compact signatures: a JSON Schema in one line of TypeScript-like text, for the quick index and the metadata of handles
//! (B 7, contract 7.5). A hint is short and may be partial; the full schema is a `describe()` away.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// What an unknown part is called.
pub const UNKNOWN: &str = "unknown";

/// Characters that a property name may have to be shown.
const NAME_CHARS_MAX: usize = 128;
/// Alternatives of a union that are shown, and how many when each is a literal.
const VARIANTS_MAX: usize = 5;
const LITERAL_VARIANTS_MAX: usize = 8;
/// Literals of an enumeration that are shown, and the characters that they may have together.
const LITERALS_MAX: usize = 8;
const LITERALS_CHARS_MAX: usize = 96;

/// Schemas that one rendering looks at. Long lists of properties count too.
const NODES_MAX: usize = 2_048;
/// Names in a list that cost as much as a schema.
pub(crate) const NAMES_PER_NODE: usize = 16;

/// How much may be shown.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    depth: usize,
    properties: usize,
    /// Whether bounds of numbers are worth showing.
    shows_number_bounds: bool,
    /// Schemas that were looked at.
    nodes: &'a Cell<usize>,
}

impl Bounds<'_> {
    /// Takes note of that much work, and says whether it is too much.
    fn is_spent(&self, nodes: usize) -> bool {
        self.nodes.set(self.nodes.get() + nodes);
        self.nodes.get() > NODES_MAX
    }
}

/// The bounds of a hint.
#[derive(Clone, Copy)]
struct Size {
    chars: usize,
    depth: usize,
    properties: usize,
    shows_number_bounds: bool,
}

const INPUT: Size = Size { chars: 300, depth: 4, properties: 16, shows_number_bounds: true };
const OUTPUT: Size = Size { chars: 800, depth: 6, properties: 22, shows_number_bounds: false };

/// A rendered part, and whether it says all that the schema does.
struct Hint {
    text: String,
    is_complete: bool,
}

impl Hint {
    fn complete(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_complete: true }
    }

    fn partial(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_complete: false }
    }
}

/// The hint of an input schema; it may be partial.
///
/// ```
/// use codemode_core::hints::input;
/// let schema = serde_json::json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
/// assert_eq!(input(&schema), "{ id: string }");
/// assert_eq!(input(&serde_json::json!("nope")), "unknown");
/// ```
pub fn input(schema: &Value) -> String {
    fitted(schema, INPUT).text
}

/// The hint of an output schema, when it is complete.
pub fn output(schema: &Value) -> Option<String> {
    let hint = fitted(schema, OUTPUT);
    (hint.is_complete && hint.text != UNKNOWN).then_some(hint.text)
}

/// Renders with fewer and fewer properties until the text fits.
fn fitted(schema: &Value, size: Size) -> Hint {
    let Size { depth, shows_number_bounds, .. } = size;
    for properties in (1..=size.properties).rev() {
        let nodes = Cell::new(0);
        let hint = render(schema, Bounds { depth, properties, shows_number_bounds, nodes: &nodes }, 1);
        if hint.text.chars().count() <= size.chars {
            return hint;
        }
    }
    Hint::partial(UNKNOWN)
}

/// Recursion is bounded by the depth in `bounds`.
fn render(schema: &Value, bounds: Bounds<'_>, level: usize) -> Hint {
    let Some(fields) = schema.as_object() else { return Hint::partial(UNKNOWN) };
    if fields.is_empty() {
        return Hint::complete(UNKNOWN);
    }
    if level > bounds.depth || bounds.is_spent(1) {
        return Hint::partial(UNKNOWN);
    }
    let mut hint = typed(fields, bounds, level);
    if fields.get("nullable") == Some(&Value::Bool(true)) && !hint.text.split(" | ").any(|part| part == "null") {
        hint.text.push_str(" | null");
    }
    hint.is_complete &= !has_unshown_keyword(fields);
    hint
}

fn has_unshown_keyword(fields: &Map<String, Value>) -> bool {
    const UNSHOWN: &[&str] = &[
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "patternProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "dependentSchemas",
        "dependencies",
        "if",
        "then",
        "else",
        "prefixItems",
        "not",
    ];
    UNSHOWN.iter().any(|keyword| fields.contains_key(*keyword))
}

fn typed(fields: &Map<String, Value>, bounds: Bounds<'_>, level: usize) -> Hint {
    if let Some(literal) = fields.get("const") {
        return Hint::complete(literal.to_string());
    }
    if let Some(literals) = fields.get("enum").and_then(Value::as_array) {
        return enumeration(literals, fields);
    }
    match (fields.get("anyOf"), fields.get("oneOf")) {
        (Some(_), Some(_)) => return Hint::partial(UNKNOWN),
        (Some(Value::Array(variants)), None) | (None, Some(Value::Array(variants))) => {
            let mut hint = union(variants, bounds, level);
            hint.is_complete &= !fields.contains_key("type") && !fields.contains_key("properties");
            return hint;
        }
        (Some(_), None) | (None, Some(_)) => return Hint::partial(UNKNOWN),
        (None, None) => {}
    }
    match fields.get("type") {
        Some(Value::String(name)) => of_type(name, fields, bounds, level),
        Some(Value::Array(names)) => {
            let parts: Vec<Hint> = names
                .iter()
                .filter_map(Value::as_str)
                .take(VARIANTS_MAX)
                .map(|name| of_type(name, fields, bounds, level))
                .collect();
            joined(parts, names.len() <= VARIANTS_MAX)
        }
        None if fields.contains_key("properties") => object(fields, bounds, level),
        _ => Hint::partial(UNKNOWN),
    }
}

fn of_type(name: &str, fields: &Map<String, Value>, bounds: Bounds<'_>, level: usize) -> Hint {
    match name {
        "string" | "boolean" | "null" => Hint::complete(name),
        "number" | "integer" => Hint::complete(number(name == "integer", fields, bounds)),
        "array" => match fields.get("items") {
            None => Hint::complete("Array<unknown>"),
            Some(items) => {
                let items = render(items, bounds, level + 1);
                Hint { text: format!("Array<{}>", items.text), is_complete: items.is_complete }
            }
        },
        "object" => object(fields, bounds, level),
        _ => Hint::partial(UNKNOWN),
    }
}

fn number(is_integer: bool, fields: &Map<String, Value>, bounds: Bounds<'_>) -> String {
    let mut notes = Vec::new();
    if bounds.shows_number_bounds {
        if is_integer {
            notes.push(String::from("integer"));
        }
        for (keyword, sign) in
            [("minimum", ">="), ("maximum", "<="), ("exclusiveMinimum", ">"), ("exclusiveMaximum", "<")]
        {
            if let Some(bound) = fields.get(keyword).filter(|bound| bound.is_number()) {
                notes.push(format!("{sign} {bound}"));
            }
        }
    }
    if notes.is_empty() { String::from("number") } else { format!("number /* {} */", notes.join(", ")) }
}

fn enumeration(literals: &[Value], fields: &Map<String, Value>) -> Hint {
    let text = literals.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    if !literals.is_empty() && literals.len() <= LITERALS_MAX && text.chars().count() <= LITERALS_CHARS_MAX {
        return Hint::complete(text);
    }
    match fields.get("type").and_then(Value::as_str) {
        Some(name @ ("string" | "boolean")) => Hint::partial(name),
        Some("number" | "integer") => Hint::partial("number"),
        _ => Hint::partial(UNKNOWN),
    }
}

fn union(variants: &[Value], bounds: Bounds<'_>, level: usize) -> Hint {
    let are_literals = variants.iter().all(|variant| variant.get("const").is_some());
    let most = if are_literals { LITERAL_VARIANTS_MAX } else { VARIANTS_MAX };
    if variants.is_empty() || variants.len() > most {
        return Hint::partial(UNKNOWN);
    }
    joined(variants.iter().map(|variant| render(variant, bounds, level + 1)).collect(), true)
}

fn joined(parts: Vec<Hint>, are_all_there: bool) -> Hint {
    if parts.is_empty() {
        return Hint::partial(UNKNOWN);
    }
    let is_complete = are_all_there && parts.iter().all(|part| part.is_complete);
    let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
    Hint { text: texts.join(" | "), is_complete }
}

fn object(fields: &Map<String, Value>, bounds: Bounds<'_>, level: usize) -> Hint {
    let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
    let Some(properties) = fields.get("properties").and_then(Value::as_object) else {
        return if is_closed { Hint::complete("{}") } else { Hint::partial("{ ... }") };
    };
    let required_count = fields.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    if bounds.is_spent((properties.len() + required_count) / NAMES_PER_NODE) {
        return Hint::partial("{ ... }");
    }
    let required: BTreeSet<&str> =
        fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut names: Vec<(bool, &String)> = properties
        .keys()
        .filter(|name| name.len() <= NAME_CHARS_MAX || name.chars().count() <= NAME_CHARS_MAX)
        .map(|name| (!required.contains(name.as_str()), name))
        .collect();
    let mut is_cut = names.len() > bounds.properties || names.len() < properties.len();
    if names.len() > bounds.properties {
        // Sorting all of them takes too long when there are thousands.
        names.select_nth_unstable(bounds.properties);
        names.truncate(bounds.properties);
    }
    names.sort_unstable();
    is_cut |= required.iter().any(|name| !properties.contains_key(*name));
    let mut is_complete = is_closed && !is_cut;
    let mut parts = Vec::new();
    for (is_optional, name) in names {
        let value =
            properties.get(name).map_or_else(|| Hint::partial(UNKNOWN), |value| render(value, bounds, level + 1));
        is_complete &= value.is_complete;
        let mark = if is_optional { "?" } else { "" };
        parts.push(format!("{}{mark}: {}", property_name(name), value.text));
    }
    if is_cut {
        parts.push(String::from("..."));
    }
    let text = if parts.is_empty() { String::from("{}") } else { format!("{{ {} }}", parts.join("; ")) };
    Hint { text, is_complete }
}

/// The name as it is when it is an identifier, else quoted.
pub(crate) fn property_name(name: &str) -> String {
    let is_start = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '_' | '$');
    let is_identifier =
        name.starts_with(is_start) && name.chars().all(|letter| is_start(letter) || letter.is_ascii_digit());
    if is_identifier { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, expected_input: &str, expected_output: Option<&str>) {
        assert_eq!(input(schema), expected_input, "{schema}");
        assert_eq!(output(schema).as_deref(), expected_output, "{schema}");
    }

    fn property(schema: &Value) -> Value {
        json!({"type": "object", "properties": {"a": schema}})
    }

    #[test]
    fn objects() {
        check(&json!({"type": "object", "properties": {}}), "{}", None);
        check(&json!({"type": "object", "properties": {}, "additionalProperties": false}), "{}", Some("{}"));
        check(&json!({"type": "object"}), "{ ... }", None);
        check(
            &json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}},
                "b": {"type": "boolean"}}, "required": ["b"], "additionalProperties": false}),
            "{ b: boolean; a?: Array<string> }",
            Some("{ b: boolean; a?: Array<string> }"),
        );
        check(
            &json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "z"]}),
            "{ a: string; ... }",
            None,
        );
        check(
            &json!({"type": "object", "properties": {"x": {}}, "additionalProperties": false}),
            "{ x?: unknown }",
            Some("{ x?: unknown }"),
        );
        check(&json!({"type": "object", "properties": {"a-b": {"type": "null"}}}), "{ \"a-b\"?: null }", None);
    }

    #[test]
    fn numbers_enumerations_and_unions() {
        check(&property(&json!({"type": "integer", "minimum": 1})), "{ a?: number /* integer, >= 1 */ }", None);
        check(
            &property(&json!({"type": "number", "maximum": 10, "exclusiveMinimum": 0})),
            "{ a?: number /* <= 10, > 0 */ }",
            None,
        );
        check(&property(&json!({"enum": ["x", "y", null, 1]})), "{ a?: \"x\" | \"y\" | null | 1 }", None);
        check(&property(&json!({"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]})), "{ a?: unknown }", None);
        check(
            &property(&json!({"type": "string", "enum": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]})),
            "{ a?: string }",
            None,
        );
        check(&property(&json!({"type": "string", "nullable": true})), "{ a?: string | null }", None);
        check(&property(&json!({"oneOf": [{}, {}, {}, {}, {}, {}]})), "{ a?: unknown }", None);
        check(&property(&json!({"$ref": "#/x"})), "{ a?: unknown }", None);
        check(&json!("nope"), "unknown", None);
        check(&json!(true), "unknown", None);
    }

    #[test]
    fn a_hint_that_overflows_loses_properties_from_the_end() {
        let names: Vec<String> = (0..12).map(|number| format!("a_rather_long_property_name_{number:02}")).collect();
        let properties: Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        let hint = input(&json!({"type": "object", "properties": properties}));
        assert!(hint.chars().count() <= INPUT.chars && hint.ends_with("; ... }"), "{hint}");
        assert!(hint.contains("_00?") && !hint.contains("_11"), "{hint}");
        let long = "x".repeat(200);
        let one = json!({"type": "object", "properties": {"a": {"const": "y".repeat(400)}, long: {}}});
        assert_eq!(input(&one), UNKNOWN);
    }

    #[test]
    fn deep_schemas_end() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "array", "items": schema});
        }
        assert_eq!(input(&schema), "Array<Array<Array<Array<unknown>>>>");
    }
}
