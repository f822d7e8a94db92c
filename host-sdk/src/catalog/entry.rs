//! One tool of a catalog: its definition, its names, and what a cell, the index and the checks need to know of it.

use std::sync::{Arc, OnceLock};

use codemode_core::hints;
use codemode_core::mcp::Place;
use codemode_core::search::Document;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::contract::{Breach, Contract, complete_member_input};
use crate::tool::{Definition, Source, Tool};

/// UTF-16 units of a remote description that a handle shows.
const REMOTE_DESCRIPTION_UNITS_MAX: usize = 512;

/// One tool.
pub(crate) struct Entry {
    pub definition: Definition,
    /// The global, or `MCP.server.path`.
    pub callable_name: String,
    pub tool: Arc<dyn Tool>,
    /// Where a member of a server stands.
    place: Option<Place>,
    /// The compact hints of input and output.
    hints: OnceLock<(String, Option<String>)>,
    input_contract: OnceLock<Option<Result<Contract, String>>>,
    output_contract: OnceLock<Option<Result<Contract, String>>>,
}

impl Entry {
    pub fn global(definition: Definition, callable_name: String, tool: Arc<dyn Tool>) -> Self {
        Self {
            definition,
            callable_name,
            tool,
            place: None,
            hints: OnceLock::new(),
            input_contract: OnceLock::new(),
            output_contract: OnceLock::new(),
        }
    }

    pub fn member(definition: Definition, place: Place, tool: Arc<dyn Tool>) -> Self {
        let callable_name = format!("MCP.{}.{}", place.server, place.path);
        Self { place: Some(place), ..Self::global(definition, callable_name, tool) }
    }

    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The path below the server.
    pub fn path(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.path.as_str())
    }

    /// Whether it is a tool of a server.
    pub fn is_member(&self) -> bool {
        self.place.is_some()
    }

    /// Members are sorted by this.
    pub fn order(&self) -> Option<(&str, &str)> {
        self.place.as_ref().map(|place| (place.server.as_str(), place.path.as_str()))
    }

    /// Whether repeating a call has no effect. What others than the embedder say about that isn't relied on (B 1.8.50).
    pub fn is_replay_safe(&self) -> bool {
        self.definition.replay_safe && self.definition.source == Source::Native
    }

    /// Whether its replies carry data from outside.
    pub fn is_network(&self) -> bool {
        self.definition.network || self.is_member()
    }

    /// The schema when it is one to rely on: only those of native tools are.
    fn native_schema<'a>(&self, schema: &'a Option<Value>) -> Option<&'a Value> {
        schema.as_ref().filter(|_| self.definition.source == Source::Native)
    }

    /// The compact hints of input and output; what a client says of its tools isn't trusted to be put before the model.
    pub fn hints(&self) -> (&str, Option<&str>) {
        let (input, output) = self.hints.get_or_init(|| {
            let (input, output) = self.declared_schemas();
            (input.map_or_else(|| hints::UNKNOWN.to_owned(), hints::input), output.and_then(hints::output))
        });
        (input, output.as_deref())
    }

    /// What is searched.
    pub fn document(&self) -> Document<'_> {
        Document {
            callable_name: &self.callable_name,
            tool_name: &self.definition.name,
            label: self.definition.label.as_deref(),
            description: &self.definition.description,
            input_schema: self.native_schema(&self.definition.input_schema),
            is_member: self.is_member(),
        }
    }

    /// What its handle shows, as JSON.
    pub fn metadata(&self) -> Vec<u8> {
        let definition = &self.definition;
        let mut metadata = Metadata {
            callable_name: &self.callable_name,
            tool_name: &definition.name,
            label: None,
            description: &definition.description,
            source: definition.source.as_str(),
            input: None,
            output: None,
            api_path: None,
        };
        if let Some(place) = &self.place {
            metadata.description = cut_units(&definition.description, REMOTE_DESCRIPTION_UNITS_MAX);
            metadata.api_path = Some(format!("mcp/{}.d.ts", place.server));
        } else {
            let (input, output) = self.hints();
            (metadata.label, metadata.input, metadata.output) = (definition.label.as_deref(), Some(input), output);
        }
        to_json(&metadata)
    }

    /// The tool in full.
    pub fn description(&self) -> Description<'_> {
        let definition = &self.definition;
        let (input, output) = self.hints();
        let is_client = definition.source == Source::Client;
        Description {
            callable_name: &self.callable_name,
            source: definition.source.as_str(),
            name: &definition.name,
            label: definition.label.as_deref(),
            description: &definition.description,
            input,
            output,
            parameters: definition.input_schema.as_ref(),
            output_schema: definition.output_schema.as_ref().filter(|_| !is_client),
        }
    }

    /// The schemas that its declaration shows; what a client says of its tools isn't trusted to be a type.
    pub fn declared_schemas(&self) -> (Option<&Value>, Option<&Value>) {
        (self.native_schema(&self.definition.input_schema), self.native_schema(&self.definition.output_schema))
    }

    /// Whether calls that hold `old` may go on with this definition: nothing but words may differ.
    pub fn is_refresh_of(&self, old: &Self) -> bool {
        let words_of_old = Definition {
            description: old.definition.description.clone(),
            label: old.definition.label.clone(),
            ..self.definition.clone()
        };
        words_of_old == old.definition
    }

    fn input_contract(&self) -> Option<&Result<Contract, String>> {
        let compile = || self.native_schema(&self.definition.input_schema).map(Contract::compile);
        self.input_contract.get_or_init(compile).as_ref()
    }

    fn output_contract(&self) -> Option<&Result<Contract, String>> {
        let compile = || self.native_schema(&self.definition.output_schema).map(Contract::compile);
        self.output_contract.get_or_init(compile).as_ref()
    }

    /// Which schema can't be enforced, and why.
    pub fn unenforced(&self) -> Option<(&'static str, &str)> {
        let input = self.input_contract().and_then(|contract| contract.as_ref().err());
        let output = || self.output_contract().and_then(|contract| contract.as_ref().err());
        input.map(|reason| ("input", reason.as_str())).or_else(|| output().map(|reason| ("output", reason.as_str())))
    }

    /// The input that the tool gets for what the guest passed.
    ///
    /// # Errors
    ///
    /// A [`Breach`] of its contract; the tool isn't called then.
    pub fn accept(&self, mut input: Box<RawValue>) -> Result<Box<RawValue>, Breach> {
        if input.get() == "null" {
            input = no_input();
        }
        if self.is_member() {
            let schema = self.definition.input_schema.as_ref();
            return Ok(complete_member_input(&self.callable_name, schema, &input)?.unwrap_or(input));
        }
        if let (Some(Ok(contract)), Some(schema)) = (self.input_contract(), self.declared_schemas().0) {
            contract.check_input(&self.callable_name, schema, self.hints().0, &input)?;
        }
        Ok(input)
    }

    /// What the guest gets of the tool's output: a native tool's as it is, of a server's result the fields that the
    /// operation has.
    ///
    /// # Errors
    ///
    /// A [`Breach`] when it isn't what was declared.
    pub fn hand_on(&self, output: Box<RawValue>) -> Result<Box<RawValue>, Breach> {
        if self.is_member() {
            return self.projected(&output);
        }
        if let Some(Ok(contract)) = self.output_contract() {
            contract.check_output(&self.callable_name, &output)?;
        }
        Ok(output)
    }

    fn projected(&self, output: &RawValue) -> Result<Box<RawValue>, Breach> {
        let fields: Fields = serde_json::from_str(output.get()).map_err(|_| Breach {
            message: format!("{} ran, but its server's result isn't an object", self.callable_name),
            code: "output_contract",
        })?;
        let kept = self.definition.operation.result_fields().iter().filter_map(|name| {
            let (name, value) = fields.get_key_value(*name)?;
            // A server that doesn't say whether the call failed says nothing.
            (name != "isError" || matches!(value.get(), "true" | "false")).then_some((name, value))
        });
        let kept: Vec<String> = kept.map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value)).collect();
        Ok(raw(format!("{{{}}}", kept.join(","))))
    }
}

type Fields = std::collections::HashMap<String, Box<RawValue>>;

/// What `describe()` gives of a global.
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    callable_name: &'a str,
    tool_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    description: &'a str,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_path: Option<String>,
}

#[expect(clippy::expect_used, reason = "strings, numbers and JSON always serialise")]
pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it serialises")
}

#[expect(clippy::expect_used, reason = "built from checked JSON and quoted strings only")]
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("an object of checked JSON")
}

/// What a tool gets when the guest passed nothing.
fn no_input() -> Box<RawValue> {
    raw(String::from("{}"))
}

/// The longest start of at most that many UTF-16 units. Code points stay whole.
fn cut_units(text: &str, units_max: usize) -> &str {
    let mut units = 0;
    for (place, letter) in text.char_indices() {
        units += letter.len_utf16();
        if units > units_max {
            return text.get(..place).unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(operation: crate::tool::Operation) -> Entry {
        let place = Place { server: "s".into(), path: "t".into() };
        let definition = Definition { source: Source::Mcp, operation, ..Definition::new("t", "") };
        let tool = crate::from_fn(definition.clone(), |_, (): ()| async { Ok(()) });
        Entry::member(definition, place, Arc::new(tool))
    }

    #[test]
    fn a_native_result_keeps_what_its_operation_has() {
        let result = json!({"_meta": {}, "content": [{"_meta": 1}], "isError": "no", "structuredContent": {"a": 1},
            "resources": [1], "nextCursor": "n"});
        let check = |operation, expected: Value| {
            let output = member(operation).hand_on(raw(result.to_string())).unwrap();
            assert_eq!(serde_json::from_str::<Value>(output.get()).unwrap(), expected);
        };
        check(crate::tool::Operation::Tool, json!({"content": [{"_meta": 1}], "structuredContent": {"a": 1}}));
        check(crate::tool::Operation::ResourcesList, json!({"resources": [1], "nextCursor": "n"}));
        let breach = member(crate::tool::Operation::Tool).hand_on(raw("[1]".into())).unwrap_err();
        assert_eq!(breach.code, "output_contract");
    }

    #[test]
    fn a_remote_description_is_cut_between_code_points() {
        assert_eq!(cut_units("ab😀c", 3), "ab");
        assert_eq!(cut_units("ab😀c", 4), "ab😀");
        assert_eq!(cut_units("", 0), "");
    }
}
