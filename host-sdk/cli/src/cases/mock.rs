//! Mock tools: what a case says that a tool does, done and counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use codemode::{Call, Definition, Source, Tool, ToolError, ToolFuture};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::format::{MockTool, Repeated};

/// How often each tool was called, by its own name.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<BTreeMap<String, u64>>>);

impl Calls {
    fn count(&self, name: &str) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.to_owned()).or_insert(0);
        *count += 1;
        *count
    }

    /// The calls of one tool.
    pub fn of(&self, name: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or(0)
    }

    /// The calls of all tools.
    pub fn total(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

struct Mock {
    definition: Definition,
    behaviour: Value,
    calls: Calls,
}

/// The tools of a case.
///
/// # Errors
///
/// When a tool has an unknown source.
pub fn tools(mocks: &[MockTool], calls: &Calls) -> Result<Vec<Arc<dyn Tool>>, String> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for mock in mocks {
        let source = match mock.source.as_deref() {
            None | Some("openclaw") => Source::Native,
            Some("client") => Source::Client,
            Some("mcp") => Source::Mcp,
            Some(other) => return Err(format!("unknown tool source {other:?}")),
        };
        let repeated = mock.description_repeat.as_ref().map(Repeated::expand);
        let description = repeated.or_else(|| mock.description.clone()).unwrap_or_default();
        let copies = mock.times.unwrap_or(1);
        for copy in 1..=copies {
            let name = if copies > 1 { mock.name.replace('#', &format!("{copy:03}")) } else { mock.name.clone() };
            tools.push(Arc::new(Mock {
                definition: Definition {
                    label: mock.label.clone(),
                    source,
                    server: mock.server.clone(),
                    input_schema: mock.input_schema.clone(),
                    output_schema: mock.output_schema.clone(),
                    replay_safe: mock.replay_safe,
                    sequential: mock.sequential,
                    ..Definition::new(name, description.clone())
                },
                behaviour: mock.behaviour.clone(),
                calls: calls.clone(),
            }));
        }
    }
    Ok(tools)
}

impl Tool for Mock {
    fn definition(&self) -> Definition {
        self.definition.clone()
    }

    fn call(&self, _: Call, input: Box<RawValue>) -> ToolFuture {
        let number = self.calls.count(&self.definition.name);
        let input = deep(input.get()).unwrap_or(Value::Null);
        let echo = json!({"tool": self.definition.name, "input": input});
        // The native result of a server carries it as structured content.
        let echo = match self.definition.source {
            Source::Mcp => json!({"content": [], "structuredContent": echo}),
            Source::Native | Source::Client => echo,
        };
        Box::pin(behave(echo, input, number, self.behaviour.clone()))
    }
}

async fn behave(echo: Value, input: Value, number: u64, mut behaviour: Value) -> Result<Box<RawValue>, ToolError> {
    loop {
        let Some(keys) = behaviour.as_object() else { return raw(&behaviour) };
        if let Some(ms) = keys.get("delay_ms").and_then(Value::as_u64) {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            behaviour = keys.get("then").cloned().unwrap_or(Value::Null);
        } else if let Some(choices) = keys.get("sequence").and_then(Value::as_array) {
            let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
            behaviour = choices.get(place).or(choices.last()).cloned().unwrap_or(Value::Null);
        } else if let (Some(key), Some(table)) = (keys.get("by").and_then(Value::as_str), keys.get("table")) {
            let chosen = input.get(key).map(text_of).unwrap_or_else(|| String::from("undefined"));
            behaviour = table.get(&chosen).or(keys.get("default")).cloned().unwrap_or(Value::Null);
        } else if keys.get("never").is_some() {
            std::future::pending::<()>().await;
        } else if let Some(message) = keys.get("throw") {
            return Err(ToolError::new(message.as_str().unwrap_or_default()));
        } else if keys.get("echo").is_some() {
            return raw(&echo);
        } else if let Some(text) = keys.get("return_json").and_then(Value::as_str) {
            return RawValue::from_string(text.to_owned()).map_err(|error| ToolError::new(error.to_string()));
        } else if let Some(repeated) = keys.get("return_repeat") {
            let repeated: Repeated =
                serde_json::from_value(repeated.clone()).map_err(|error| ToolError::new(error.to_string()))?;
            return raw(&Value::String(repeated.expand()));
        } else {
            return raw(keys.get("return").unwrap_or(&behaviour));
        }
    }
}

/// `String(value)` of a JSON value.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn raw(value: &Value) -> Result<Box<RawValue>, ToolError> {
    serde_json::value::to_raw_value(value).map_err(|error| ToolError::new(error.to_string()))
}

/// Parses JSON of any depth.
pub fn deep(json: &str) -> serde_json::Result<Value> {
    use serde::Deserialize as _;
    let mut parser = serde_json::Deserializer::from_str(json);
    parser.disable_recursion_limit();
    Value::deserialize(&mut parser)
}
