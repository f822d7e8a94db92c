//! JSON Schemas as TypeScript types, and the declaration files that `API.read` gives (B 5.5, 5.6, contract 7.7). What a
//! schema says that a type can't say is left out: a type may be wider than its schema, never narrower. Everything here
//! compiles under `tsc --strict`, whatever the schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::hints::{NAMES_PER_NODE, UNKNOWN, property_name};
use crate::mcp::Operation;

/// Levels of a type of a tool, and of a tool of a server.
const TOOL_LEVELS: usize = 12;
const MEMBER_LEVELS: usize = 8;
/// Properties of one object, literals of one enumeration, alternatives of one union, items of one tuple.
const PARTS_MAX: usize = 256;
/// Names of types in one list: there are seven.
const TYPES_MAX: usize = 7;
/// Schemas that are looked at for one type. Long lists of properties and required names count too.
const NODES_MAX: usize = 4_096;
/// Alternatives that an intersection of unions may have: the compiler multiplies them.
const ALTERNATIVES_MAX: usize = 1_000;
/// Characters of one type.
const CHARS_MAX: usize = 32_768;
/// Lines of a description that a declaration repeats, and characters of each line of a comment.
const DESCRIPTION_LINES_MAX: usize = 12;
const COMMENT_CHARS_MAX: usize = 512;

/// In which order an object shows its properties.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By name.
    Sorted,
    /// The required ones first, both groups as the schema has them.
    RequiredFirst,
}

/// The TypeScript type of a schema.
///
/// ```
/// use codemode_core::declarations::type_of;
/// let schema = serde_json::json!({"type": "array", "items": {"enum": ["a", 1]}});
/// assert_eq!(type_of(&schema), r#"Array<"a" | 1>"#);
/// assert_eq!(type_of(&serde_json::json!({"$ref": "#/nowhere"})), "unknown");
/// ```
pub fn type_of(schema: &Value) -> String {
    Renderer::new(schema, TOOL_LEVELS, Order::Sorted).whole()
}

/// The declaration of a tool that is a global.
///
/// ```
/// let text = codemode_core::declarations::tool("add", Some(&serde_json::json!({"required": ["a"]})), None);
/// assert!(text.ends_with("declare function add(input: unknown): Promise<unknown>;\n"));
/// ```
pub fn tool(callable_name: &str, input: Option<&Value>, output: Option<&Value>) -> String {
    let type_or_unknown = |schema: Option<&Value>| schema.map_or_else(|| UNKNOWN.to_owned(), type_of);
    let mut left = NODES_MAX;
    let mark = if input.is_none_or(|schema| accepts_no_input(schema, schema, &mut left)) { "?" } else { "" };
    format!(
        "// A tool of this session, made from its JSON Schemas. Call it with await; a call that fails throws.\n\
         // Where a type says unknown, look at a value before using it.\n\
         // The whole schemas: await {callable_name}.describe()\n\
         declare function {callable_name}(input{mark}: {}): Promise<{}>;\n",
        type_or_unknown(input),
        type_or_unknown(output),
    )
}

/// One tool of a server, for its declaration.
#[derive(Debug, Clone, Copy)]
pub struct Method<'a> {
    /// The path below the server.
    pub path: &'a str,
    /// What it does.
    pub operation: Operation,
    /// What its server says that it does.
    pub description: &'a str,
    /// Its input schema.
    pub input: Option<&'a Value>,
}

/// The types that all servers share.
pub const SERVER_TYPES: &str = "\
interface McpToolResult {
  content: Array<{ type: string; text?: string; [key: string]: unknown }>; structuredContent?: unknown; isError?: boolean;
}
interface McpResourcesListResult { resources: Array<{ uri: string; [key: string]: unknown }>; nextCursor?: string }
interface McpResourcesReadResult { contents: Array<{ uri: string; [key: string]: unknown }> }
interface McpPromptsListResult { prompts: Array<{ name: string; [key: string]: unknown }> }
interface McpPromptsGetResult { messages: Array<{ [key: string]: unknown }>; description?: string }
interface McpApiTool { method: string; path: string; mcpTool: string; operation: string; description: string }
interface McpServerApi {
  kind: \"mcp_api\"; scope: \"tool\" | \"server\"; server: { identifier: string; serverName: string };
  header: string; tools: Array<McpApiTool>; schemas?: { [method: string]: unknown }; note: string;
}
interface McpRootApi {
  kind: \"mcp_api\"; scope: \"root\"; header: string; note: string;
  servers: Array<{ identifier: string; serverName: string; toolCount: number }>;
}
";

/// What `mcp/index.d.ts` declares besides [`SERVER_TYPES`].
pub const ROOT_DECLARATION: &str = "declare namespace MCP {\n  function $api(): Promise<McpRootApi>;\n}\n";

/// The namespace of one server, without [`SERVER_TYPES`]. Methods come in code point order of their paths.
pub fn server(identifier: &str, methods: &[Method<'_>]) -> String {
    let mut text = format!(
        "declare namespace MCP.{identifier} {{\n  const $serverName: string;\n  \
         function $api(name?: string, options?: {{ schema?: boolean }}): Promise<McpServerApi>;\n"
    );
    let mut group = "";
    for method in methods {
        let (this_group, name) = method.path.split_once('.').unwrap_or(("", method.path));
        if this_group != group {
            if !group.is_empty() {
                text.push_str("  }\n");
            }
            if !this_group.is_empty() {
                // Writing to a string can't fail.
                let _ = writeln!(text, "  namespace {this_group} {{");
            }
            group = this_group;
        }
        push_method(&mut text, method, name, if group.is_empty() { "  " } else { "    " });
    }
    if !group.is_empty() {
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

fn push_method(text: &mut String, method: &Method<'_>, name: &str, indent: &str) {
    let lines = comment_lines(method);
    if !lines.is_empty() {
        let _ = writeln!(text, "{indent}/**");
        for line in lines {
            let _ = writeln!(text, "{indent} * {line}");
        }
        let _ = writeln!(text, "{indent} */");
    }
    let input = method.input.map_or_else(
        || String::from("Record<string, unknown>"),
        |schema| Renderer::new(schema, MEMBER_LEVELS, Order::RequiredFirst).whole(),
    );
    let mark = if method.input.is_none_or(|schema| required_without_default(schema).is_empty()) { "?" } else { "" };
    let result = match method.operation {
        Operation::Tool => "McpToolResult",
        Operation::ResourcesList => "McpResourcesListResult",
        Operation::ResourcesRead => "McpResourcesReadResult",
        Operation::PromptsList => "McpPromptsListResult",
        Operation::PromptsGet => "McpPromptsGetResult",
    };
    let _ = writeln!(text, "{indent}function {name}(input{mark}: {input}): Promise<{result}>;");
}

/// The parameters that a caller has to give: required, and without a default that is filled in.
///
/// ```
/// use codemode_core::declarations::required_without_default;
/// let schema = serde_json::json!({"required": ["a", "b"], "properties": {"b": {"default": 1}}});
/// assert_eq!(required_without_default(&schema), ["a"]);
/// ```
pub fn required_without_default(schema: &Value) -> Vec<&str> {
    let has_default = |name: &str| schema.get("properties").and_then(|all| all.get(name)?.get("default")).is_some();
    required_names(schema).into_iter().filter(|name| !has_default(name)).collect()
}

fn required_names(schema: &Value) -> Vec<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn comment_lines(method: &Method<'_>) -> Vec<String> {
    let mut lines: Vec<String> = method
        .description
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(DESCRIPTION_LINES_MAX)
        .map(comment_text)
        .collect();
    let Some(schema) = method.input else { return lines };
    let required = required_without_default(schema);
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, property) in properties.take(PARTS_MAX) {
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let default = property.get("default").map(|value| format!(" Default: {value}.")).unwrap_or_default();
        if description.is_empty() && default.is_empty() {
            continue;
        }
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        let description: Vec<&str> = description.split_whitespace().collect();
        lines.push(comment_text(&format!("@param {name}{mark} {}{default}", description.join(" "))));
    }
    lines
}

/// One line of a comment, which it can't end.
fn comment_text(line: &str) -> String {
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(COMMENT_CHARS_MAX).collect();
    line.replace("*/", "* /").replace(['\u{2028}', '\u{2029}'], " ")
}

/// Whether `{}` is an input that the schema allows, as far as one can tell by looking at `left` schemas. Each counts as
/// one and costs at most one level of recursion, so that the stack is bounded as well.
fn accepts_no_input(schema: &Value, root: &Value, left: &mut usize) -> bool {
    let Some(fields) = schema.as_object() else { return schema != &Value::Bool(false) };
    const STEP: usize = 32;
    let Some(rest) = left.checked_sub(STEP) else { return true };
    *left = rest;
    let members = |keyword: &str| fields.get(keyword).and_then(Value::as_array).into_iter().flatten();
    let takes_objects = match fields.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().take(TYPES_MAX).any(|name| name == "object"),
        _ => true,
    };
    let is_there = |keyword: &str| fields.get(keyword).is_some_and(|value| !value.is_null());
    let is_refused = !takes_objects
        || is_there("const")
        || is_there("enum")
        || fields.get("required").and_then(Value::as_array).is_some_and(|required| !required.is_empty())
        || fields.get("minProperties").and_then(Value::as_u64).unwrap_or(0) > 0;
    if is_refused {
        return false;
    }
    let referenced = fields.get("$ref").and_then(|name| target(root, name));
    if !members("allOf").chain(referenced).all(|member| accepts_no_input(member, root, left)) {
        return false;
    }
    ["anyOf", "oneOf"].iter().all(|keyword| {
        members(keyword).next().is_none() || members(keyword).any(|member| accepts_no_input(member, root, left))
    })
}

/// What a local reference points to.
fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str()?.strip_prefix('#')?;
    root.pointer(&percent_decoded(pointer)?)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.map(char::from).and_then(|digit| digit.to_digit(16));
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

struct Renderer<'a> {
    root: &'a Value,
    levels: usize,
    order: Order,
    nodes: usize,
    chars: usize,
    /// References that are being followed.
    open: Vec<&'a str>,
}

impl<'a> Renderer<'a> {
    fn new(root: &'a Value, levels: usize, order: Order) -> Self {
        Self { root, levels, order, nodes: 0, chars: 0, open: Vec::new() }
    }

    fn whole(mut self) -> String {
        let text = self.render(self.root, 1);
        if text.chars().count() > CHARS_MAX { UNKNOWN.to_owned() } else { text }
    }

    /// Recursion is bounded by `levels`, and by the references that are open.
    fn render(&mut self, schema: &'a Value, level: usize) -> String {
        self.nodes += 1;
        let fields = match schema {
            Value::Bool(false) => return String::from("never"),
            Value::Object(fields) => fields,
            _ => return UNKNOWN.to_owned(),
        };
        if self.nodes > NODES_MAX || self.chars > CHARS_MAX || level > self.levels {
            return UNKNOWN.to_owned();
        }
        let mut parts = vec![self.own_type(fields, level)];
        if let Some(Value::String(reference)) = fields.get("$ref") {
            parts.push(self.referenced(reference, level));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(variants) = fields.get(keyword).and_then(Value::as_array) {
                parts.push(self.union(variants, level));
            }
        }
        for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten().take(PARTS_MAX) {
            parts.push(self.render(part, level + 1));
        }
        let mut text = intersection(parts);
        if fields.get("nullable") == Some(&Value::Bool(true)) && !fields.contains_key("enum") && text != UNKNOWN {
            text = joined(vec![text, String::from("null")]);
        }
        self.chars += text.len();
        text
    }

    fn referenced(&mut self, reference: &'a String, level: usize) -> String {
        let is_open = self.open.iter().any(|open| open == reference);
        let Some(found) = target(self.root, &Value::String(reference.clone())).filter(|_| !is_open) else {
            return UNKNOWN.to_owned();
        };
        self.open.push(reference);
        let text = self.render(found, level + 1);
        self.open.pop();
        text
    }

    fn union(&mut self, variants: &'a [Value], level: usize) -> String {
        if variants.is_empty() || variants.len() > PARTS_MAX {
            return UNKNOWN.to_owned();
        }
        joined(variants.iter().map(|variant| self.render(variant, level + 1)).collect())
    }

    /// What the schema says without its references and combinations.
    fn own_type(&mut self, fields: &'a Map<String, Value>, level: usize) -> String {
        if let Some(value) = fields.get("const") {
            return literal(value);
        }
        if let Some(literals) = fields.get("enum").and_then(Value::as_array)
            && literals.len() <= PARTS_MAX
        {
            let is_of_type = |value: &&Value| fields.get("type").is_none_or(|name| has_type(value, name));
            return joined(literals.iter().filter(is_of_type).map(literal).collect());
        }
        match fields.get("type") {
            Some(Value::String(name)) => self.named(name, fields, level),
            Some(Value::Array(names)) if !names.is_empty() && names.len() <= TYPES_MAX => {
                joined(names.iter().map(|name| self.named(name.as_str().unwrap_or_default(), fields, level)).collect())
            }
            None if fields.contains_key("properties") => self.object(fields, level),
            None if fields.contains_key("items") || fields.contains_key("prefixItems") => self.array(fields, level),
            _ => UNKNOWN.to_owned(),
        }
    }

    fn named(&mut self, name: &str, fields: &'a Map<String, Value>, level: usize) -> String {
        match name {
            "string" | "boolean" | "null" | "number" => name.to_owned(),
            "integer" => String::from("number"),
            "array" => self.array(fields, level),
            "object" => self.object(fields, level),
            _ => UNKNOWN.to_owned(),
        }
    }

    fn array(&mut self, fields: &'a Map<String, Value>, level: usize) -> String {
        // Tuples: `prefixItems` and `items`, or as older drafts have it `items` as a list and `additionalItems`.
        let (first, rest) = match (fields.get("prefixItems"), fields.get("items")) {
            (Some(Value::Array(first)), rest) => (first, rest),
            (_, Some(Value::Array(first))) => (first, fields.get("additionalItems")),
            (_, items) => {
                let items = items.map_or_else(|| UNKNOWN.to_owned(), |items| self.render(items, level + 1));
                return format!("Array<{items}>");
            }
        };
        if first.len() > PARTS_MAX {
            return format!("Array<{UNKNOWN}>");
        }
        let least = fields.get("minItems").and_then(Value::as_u64).and_then(|least| usize::try_from(least).ok());
        let mut items = Vec::new();
        for (place, item) in first.iter().enumerate() {
            let item = self.render(item, level + 1);
            items.push(if least.is_some_and(|least| place < least) { item } else { format!("({item})?") });
        }
        if rest != Some(&Value::Bool(false)) {
            let rest = rest.map_or_else(|| UNKNOWN.to_owned(), |rest| self.render(rest, level + 1));
            items.push(format!("...Array<{rest}>"));
        }
        format!("[{}]", items.join(", "))
    }

    fn object(&mut self, fields: &'a Map<String, Value>, level: usize) -> String {
        let properties = fields.get("properties").and_then(Value::as_object);
        let required_count = fields.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        self.nodes += (properties.map_or(0, Map::len) + required_count) / NAMES_PER_NODE;
        let required: BTreeSet<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut named: Vec<(&str, Option<&'a Value>)> =
            properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), Some(schema))).collect();
        named.extend(
            required
                .iter()
                .filter(|name| properties.is_none_or(|all| !all.contains_key(**name)))
                .map(|name| (*name, None)),
        );
        match self.order {
            Order::Sorted => named.sort_by_key(|(name, _)| *name),
            Order::RequiredFirst => named.sort_by_key(|(name, _)| !required.contains(name)),
        }
        named.dedup_by_key(|(name, _)| *name);
        let is_cut = named.len() > PARTS_MAX;
        named.truncate(PARTS_MAX);
        let mut parts = Vec::new();
        for (name, schema) in &named {
            let mark = if required.contains(name) { "" } else { "?" };
            let value = schema.map_or_else(|| UNKNOWN.to_owned(), |schema| self.render(schema, level + 1));
            parts.push(format!("{}{mark}: {value}", property_name(name)));
        }
        let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
            && !fields.contains_key("patternProperties")
            && !is_cut;
        match (is_closed, fields.get("additionalProperties")) {
            (true, _) if parts.is_empty() => return String::from("Record<string, never>"),
            (true, _) => {}
            (false, Some(values @ Value::Object(_)))
                if parts.is_empty() && !fields.contains_key("patternProperties") =>
            {
                let values = self.render(values, level + 1);
                parts.push(format!("[key: string]: {values}"));
            }
            (false, _) => parts.push(format!("[key: string]: {UNKNOWN}")),
        }
        format!("{{ {} }}", parts.join("; "))
    }
}

/// Whether a literal is of the type, or of one of the types, that the schema names.
fn has_type(value: &Value, name: &Value) -> bool {
    match name {
        Value::String(name) => match name.as_str() {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "number" | "integer" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        },
        Value::Array(names) => names.iter().take(TYPES_MAX).any(|name| name.is_string() && has_type(value, name)),
        _ => true,
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Array(_) => format!("Array<{UNKNOWN}>"),
        Value::Object(_) => format!("Record<string, {UNKNOWN}>"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// A union without repetitions. What is unknown swallows the rest.
fn joined(parts: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for part in parts {
        if part == UNKNOWN {
            return part;
        }
        if part != "never" && !distinct.contains(&part) {
            distinct.push(part);
        }
    }
    if distinct.is_empty() { String::from("never") } else { distinct.join(" | ") }
}

/// What all parts together say. What is unknown says nothing.
fn intersection(parts: Vec<String>) -> String {
    let mut said: Vec<String> = Vec::new();
    for part in parts {
        if part != UNKNOWN && !said.contains(&part) {
            said.push(part);
        }
    }
    let width = |part: &String| part.matches(" | ").count() + 1;
    if said.iter().map(width).fold(1, usize::saturating_mul) > ALTERNATIVES_MAX {
        said.sort_by_key(width);
        said.truncate(1);
    }
    match said.as_slice() {
        [] => UNKNOWN.to_owned(),
        [only] => only.clone(),
        several => several.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" & "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, expected: &str) {
        assert_eq!(type_of(schema), expected, "{schema}");
    }

    #[test]
    fn objects_are_open_unless_they_say_otherwise() {
        let string = json!({"type": "string"});
        check(
            &json!({"type": "object", "properties": {"b": string, "a-b": {}}, "required": ["b"]}),
            r#"{ "a-b"?: unknown; b: string; [key: string]: unknown }"#,
        );
        check(&json!({"type": "object", "additionalProperties": false}), "Record<string, never>");
        check(&json!({"type": "object", "additionalProperties": string}), "{ [key: string]: string }");
        check(
            &json!({"properties": {"a": false}, "additionalProperties": false, "required": ["z"]}),
            "{ a?: never; z: unknown }",
        );
    }

    #[test]
    fn references_are_followed_within_the_schema() {
        check(&json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "integer"}}}), "number");
        check(
            &json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false}),
            "{ next?: { next?: unknown } }",
        );
        check(&json!({"$ref": "https://example.com/schema"}), "unknown");
    }

    #[test]
    fn combinations_and_literals() {
        check(&json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string | null");
        check(&json!({"type": "string", "nullable": true}), "string | null");
        check(&json!({"type": "string", "enum": ["a", null, 1]}), r#""a""#);
        check(&json!({"enum": []}), "never");
        check(&json!({"allOf": [{"type": "string"}, {"enum": ["a"]}]}), r#"(string) & ("a")"#);
        check(&json!({"const": {"deep": 1}}), "Record<string, unknown>");
        check(&json!({"prefixItems": [{"type": "null"}], "minItems": 1, "items": false}), "[null]");
        check(&json!({"items": [{"type": "null"}]}), "[(null)?, ...Array<unknown>]");
    }

    #[test]
    fn a_comment_cannot_be_closed_from_inside() {
        let schema = json!({"properties": {"a": {"description": "x */ y\n z", "default": "*/"}}});
        let method = Method {
            path: "resources.list",
            operation: Operation::ResourcesList,
            description: "*/ declare const evil: 1;",
            input: Some(&schema),
        };
        let text = server("s", &[method]);
        assert_eq!(text.matches("*/").count(), 1, "{text}");
        assert!(text.contains("  namespace resources {\n    /**\n     * * / declare"), "{text}");
        assert!(text.contains(r#"@param a? x * / y z Default: "* /"."#), "{text}");
        assert!(text.contains("function list(input?: { a?: unknown; [key: string]: unknown }): "), "{text}");
    }

    #[test]
    fn a_tool_without_a_required_parameter_may_be_called_without_input() {
        let optional = tool("t", Some(&json!({"type": "object", "properties": {"a": {}}})), None);
        assert!(optional.contains("t(input?: {"), "{optional}");
        for needed in [json!({"required": ["a"]}), json!({"type": "string"}), json!({"anyOf": [{"required": ["a"]}]})] {
            assert!(tool("t", Some(&needed), None).contains("t(input: "), "{needed}");
        }
    }
}
