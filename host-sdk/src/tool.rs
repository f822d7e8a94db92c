//! Tools: what the embedder gives, and what one call of it gets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use codemode_core::cell::Event;
use codemode_core::ids::Owner;
pub use codemode_core::mcp::Operation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The embedder's own, or a plugin's.
    #[default]
    Native,
    /// The client of the current run.
    Client,
    /// An MCP server.
    Mcp,
}

impl Source {
    /// The label that the guest sees.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "openclaw",
            Self::Client => "client",
            Self::Mcp => "mcp",
        }
    }
}

/// Where a tool can be called from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// From cells. The model doesn't see it beside `exec`.
    #[default]
    Catalog,
    /// By the model directly, beside `exec` and `wait`; not from cells.
    Direct,
    /// Both.
    Both,
}

/// What a tool is.
///
/// ```
/// use codemode::Definition;
/// let definition = Definition::new("read_file", "Reads one file.");
/// assert!(!definition.replay_safe);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// Its name. Names that aren't JavaScript identifiers are repaired for the guest.
    pub name: String,
    /// For people and the model.
    pub description: String,
    /// A short title.
    pub label: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// Who brings a native tool, for instance a plugin. Never shown to a cell or a model; two tools of one name get
    /// different callable names by it. Default: the embedder.
    pub owner: Option<String>,
    /// The server of an MCP tool, which must have one.
    pub server: Option<String>,
    /// What an MCP tool does for its server. Default: it is one of the server's tools.
    pub operation: Operation,
    /// Where it can be called from. Default: from cells only.
    pub exposure: Exposure,
    /// The JSON Schema of its input, if there is one. A native tool is only called with input that it allows. Of an MCP
    /// tool, defaults at the top are filled in and required parameters asked for; the rest is the server's to check. A
    /// client's schema is shown and not enforced.
    pub input_schema: Option<Value>,
    /// The JSON Schema of its output, if there is one. A native tool's output is checked against it.
    pub output_schema: Option<Value>,
    /// Whether its replies carry data from outside, as those of all MCP tools do: text for the model is wrapped then.
    pub network: bool,
    /// Whether repeating a call has no effect beyond the first. Default: no.
    pub replay_safe: bool,
    /// Whether it must run alone among the tools of its session: it waits for calls that came before it, and holds up those
    /// that come after it. Default: tools of MCP servers must, others need not. Say `Some(false)` for those of a server that
    /// declares support of parallel calls.
    pub sequential: Option<bool>,
}

impl Definition {
    /// A tool with this name and description, and defaults for the rest.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }

    /// Whether it runs alone.
    pub(crate) fn is_sequential(&self) -> bool {
        self.sequential.unwrap_or(self.source == Source::Mcp)
    }

    /// Reads a definition in the shape of MCP's `tools/list`: `name`, `title`, `description`, `inputSchema` and
    /// `outputSchema`. It is a native tool; set [`Definition::source`] and [`Definition::server`] for one of a server.
    ///
    /// # Errors
    ///
    /// A [`ToolError`] that says what is wrong when the value is no object, or its `name` no string. Other fields of the
    /// wrong type are left out.
    ///
    /// ```
    /// use codemode::Definition;
    /// let tool = Definition::from_json(&serde_json::json!({"name": "add", "inputSchema": {"type": "object"}}))?;
    /// assert_eq!(tool.name, "add");
    /// assert!(Definition::from_json(&serde_json::json!(["add"])).is_err());
    /// # Ok::<(), codemode::ToolError>(())
    /// ```
    pub fn from_json(tool: &Value) -> Result<Self, ToolError> {
        let fields = tool.as_object().ok_or_else(|| ToolError::new("the definition isn't an object"))?;
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let name = text("name").ok_or_else(|| ToolError::new("the definition has no `name` that is a string"))?;
        let schema = |key: &str| fields.get(key).filter(|schema| !schema.is_null()).cloned();
        Ok(Self {
            label: text("title").map(str::to_owned),
            input_schema: schema("inputSchema"),
            output_schema: schema("outputSchema"),
            ..Self::new(name, text("description").unwrap_or_default())
        })
    }
}

/// A failed call. The guest sees an `Error` with this message and the code `tool_error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What went wrong, for the model. Keep host paths and secrets out of it.
    pub message: String,
}

impl ToolError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// What a call is told besides its input.
#[derive(Clone, Debug)]
pub struct Call {
    /// The id of the request, unique within the cell: `bridge:callValue:3`.
    pub request_id: String,
    /// Who owns the session of the cell.
    pub owner: Arc<Owner>,
    /// When the budget of the running `exec` or `wait` is spent. The call goes on then, and its answer is for the next one.
    /// Far in the future while an approval is awaited, and when the call begins as its cell is being parked.
    pub deadline: Instant,
    /// Cancelled when nobody waits for the answer any more.
    pub cancellation: CancellationToken,
    /// The span `tool_call` of the target `codemode`, below that of `exec` or `wait`. The tool's future runs inside of it.
    pub span: Span,
    pub(crate) events: UnboundedSender<Event>,
}

impl Call {
    /// Says that the call waits for somebody's approval, until the guard is dropped. Meanwhile the budget of `exec` or `wait`
    /// is paused, and the observer is told so that the owner's budget can be paused as well (B 1.4.31).
    ///
    /// ```
    /// use codemode::{Call, ToolError};
    /// # async fn ask_somebody() -> bool { true }
    /// async fn delete(call: Call, path: String) -> Result<(), ToolError> {
    ///     let waiting = call.approval();
    ///     let is_allowed = ask_somebody().await;
    ///     drop(waiting);
    ///     if is_allowed { Ok(()) } else { Err(ToolError::new("denied")) }
    /// }
    /// ```
    #[must_use = "the approval is over when the guard is dropped"]
    pub fn approval(&self) -> ApprovalGuard {
        // A cell that is gone has no budget.
        let _ = self.events.send(Event::ApprovalAsked);
        ApprovalGuard(self.events.clone())
    }
}

/// Somebody's approval is awaited as long as this lives: see [`Call::approval`].
#[derive(Debug)]
pub struct ApprovalGuard(UnboundedSender<Event>);

impl Drop for ApprovalGuard {
    fn drop(&mut self) {
        let _ = self.0.send(Event::ApprovalAnswered);
    }
}

/// The reply of a tool: compact JSON.
pub type Output = Box<RawValue>;

/// What a call runs.
pub type ToolFuture = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send>>;

/// A tool.
///
/// A call runs as a task of the embedder's tokio runtime; its first step may run on a thread of ours, inside of that
/// runtime. When nobody waits for its answer any more, its token is
/// cancelled and its future is dropped at its next await; spawn what has to finish all the same. A panic becomes a
/// failed call.
pub trait Tool: Send + Sync + 'static {
    /// What it is. Asked once, when a session is built.
    fn definition(&self) -> Definition;

    /// Starts a call. `input` is compact JSON; `{}` when the guest passed nothing.
    fn call(&self, call: Call, input: Box<RawValue>) -> ToolFuture;
}

/// A tool from a function over typed input and output.
///
/// ```
/// use codemode::{Definition, from_fn};
/// let double = from_fn(Definition::new("double", "Doubles n."), |_call, input: serde_json::Value| async move {
///     input["n"].as_i64().map(|n| n * 2).ok_or_else(|| codemode::ToolError::new("n must be a whole number"))
/// });
/// ```
pub fn from_fn<I, O, F, R>(definition: Definition, function: F) -> impl Tool
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(Call, I) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    FromFn { definition, function, types: std::marker::PhantomData }
}

struct FromFn<I, O, F> {
    definition: Definition,
    function: F,
    types: std::marker::PhantomData<fn(I) -> O>,
}

impl<I, O, F, R> Tool for FromFn<I, O, F>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(Call, I) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    fn definition(&self) -> Definition {
        self.definition.clone()
    }

    fn call(&self, call: Call, input: Box<RawValue>) -> ToolFuture {
        let started = parse_input(&input).map(|input| (self.function)(call, input));
        Box::pin(async move {
            let output = started?.await?;
            serde_json::value::to_raw_value(&output)
                .map_err(|error| ToolError::new(format!("the tool's output isn't JSON: {error}")))
        })
    }
}

/// Input may be nested as deeply as the guest's adapter allows, which is deeper than the parser's default.
fn parse_input<I: DeserializeOwned>(input: &RawValue) -> Result<I, ToolError> {
    let mut parser = serde_json::Deserializer::from_str(input.get());
    parser.disable_recursion_limit();
    I::deserialize(&mut parser).map_err(|error| ToolError::new(format!("the input doesn't fit: {error}")))
}
