//! The types of `wit/types.wit` as wasmtime lifts and lowers them. Written by hand, because shared text is lowered without
//! a copy, and because arguments of imports (in `bridge`) stay in the guest's memory until their length is checked. What
//! a turn returns is copied within the store's hostcall fuel. wasmtime compares each type with the component.

use std::sync::Arc;

use codemode_core::ids;
use codemode_core::outcome::Kind;
use wasmtime::component::{ComponentType, Lift, Lower, WasmList};

#[derive(ComponentType, Lift, Lower, Clone, Copy, Debug, PartialEq, Eq)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum Method {
    #[component(name = "search")]
    Search,
    #[component(name = "describe")]
    Describe,
    #[component(name = "call-value")]
    CallValue,
    #[component(name = "result-save")]
    ResultSave,
    #[component(name = "result-load")]
    ResultLoad,
    #[component(name = "result-delete")]
    ResultDelete,
    #[component(name = "nodes")]
    Nodes,
    #[component(name = "yield")]
    Yield,
    #[component(name = "namespace")]
    Namespace,
    #[component(name = "sleep")]
    Sleep,
}

impl From<ids::Method> for Method {
    fn from(method: ids::Method) -> Self {
        match method {
            ids::Method::Search => Self::Search,
            ids::Method::Describe => Self::Describe,
            ids::Method::CallValue => Self::CallValue,
            ids::Method::ResultSave => Self::ResultSave,
            ids::Method::ResultLoad => Self::ResultLoad,
            ids::Method::ResultDelete => Self::ResultDelete,
            ids::Method::Nodes => Self::Nodes,
            ids::Method::Yield => Self::Yield,
            ids::Method::Namespace => Self::Namespace,
            ids::Method::Sleep => Self::Sleep,
        }
    }
}

#[derive(ComponentType, Lower, Clone, Copy, Debug)]
#[component(record)]
pub(crate) struct GuestLimits {
    #[component(name = "heap-bytes")]
    pub heap_bytes: u32,
    #[component(name = "unsettled-requests")]
    pub unsettled_requests: u32,
    #[component(name = "live-timers")]
    pub live_timers: u32,
    #[component(name = "argument-bytes")]
    pub argument_bytes: u32,
    #[component(name = "result-bytes")]
    pub result_bytes: u32,
    #[component(name = "value-bytes")]
    pub value_bytes: u32,
    #[component(name = "output-bytes")]
    pub output_bytes: u32,
    #[component(name = "error-text-bytes")]
    pub error_text_bytes: u32,
}

pub(crate) type Seed = (u64, u64, u64, u64);

#[derive(ComponentType, Lower, Clone, Debug)]
#[component(record)]
pub(crate) struct Server<'a> {
    #[component(name = "identifier")]
    pub identifier: &'a str,
    #[component(name = "server-name")]
    pub server_name: &'a str,
    #[component(name = "members")]
    pub members: Vec<&'a str>,
}

#[derive(ComponentType, Lower, Clone, Debug)]
#[component(variant)]
pub(crate) enum ApiFile {
    #[component(name = "content")]
    Content(Vec<u8>),
    #[component(name = "tool")]
    Tool(u32),
}

#[derive(ComponentType, Lower, Clone, Debug)]
#[component(record)]
pub(crate) struct StartInput {
    #[component(name = "source")]
    pub source: Arc<[u8]>,
    #[component(name = "file-name")]
    pub file_name: Arc<str>,
    #[component(name = "limits")]
    pub limits: GuestLimits,
    #[component(name = "seed")]
    pub seed: Seed,
    #[component(name = "started-at")]
    pub started_at: u64,
}

#[derive(ComponentType, Lower, Clone, Debug)]
#[component(record)]
pub(crate) struct RequestError {
    #[component(name = "message")]
    pub message: String,
    #[component(name = "code")]
    pub code: Option<String>,
}

#[derive(ComponentType, Lower, Clone, Debug)]
#[component(record)]
pub(crate) struct Settlement {
    #[component(name = "method")]
    pub method: Method,
    #[component(name = "number")]
    pub number: u32,
    #[component(name = "outcome")]
    pub outcome: Result<Vec<u8>, RequestError>,
}

#[derive(ComponentType, Lift, Clone, Copy, Debug, PartialEq, Eq)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "wasmtime makes these from what the guest returns")]
pub(crate) enum FailureKind {
    #[component(name = "syntax-error")]
    SyntaxError,
    #[component(name = "uncaught-exception")]
    UncaughtException,
    #[component(name = "unhandled-rejection")]
    UnhandledRejection,
    #[component(name = "out-of-memory")]
    OutOfMemory,
    #[component(name = "stack-overflow")]
    StackOverflow,
    #[component(name = "stalled")]
    Stalled,
    #[component(name = "value-too-deep")]
    ValueTooDeep,
    #[component(name = "queue-full")]
    QueueFull,
}

impl From<FailureKind> for Kind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::SyntaxError => Self::SyntaxError,
            FailureKind::UncaughtException => Self::UncaughtException,
            FailureKind::UnhandledRejection => Self::UnhandledRejection,
            FailureKind::OutOfMemory => Self::OutOfMemory,
            FailureKind::StackOverflow => Self::StackOverflow,
            FailureKind::Stalled => Self::Stalled,
            FailureKind::ValueTooDeep => Self::ValueTooDeep,
            FailureKind::QueueFull => Self::QueueFull,
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Failure {
    #[component(name = "kind")]
    pub kind: FailureKind,
    #[component(name = "text")]
    pub text: Vec<u8>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct JsonStart {
    #[component(name = "text")]
    pub text: Vec<u8>,
    #[component(name = "bytes")]
    pub bytes: u64,
}

/// The same, in the guest's memory still.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct JsonStartInPlace {
    #[component(name = "text")]
    pub text: WasmList<u8>,
    #[component(name = "bytes")]
    pub bytes: u64,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Turn {
    #[component(name = "awaiting")]
    Awaiting,
    #[component(name = "draining")]
    Draining,
    #[component(name = "finished")]
    Finished(Vec<u8>),
    #[component(name = "finished-beyond")]
    FinishedBeyond(JsonStart),
    #[component(name = "failed")]
    Failed(Failure),
}

/// `wasi:clocks/wall-clock`'s record.
#[derive(ComponentType, Lower, Clone, Copy, Debug)]
#[component(record)]
pub(crate) struct Datetime {
    #[component(name = "seconds")]
    pub seconds: u64,
    #[component(name = "nanoseconds")]
    pub nanoseconds: u32,
}
