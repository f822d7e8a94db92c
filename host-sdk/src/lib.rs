//! Code Mode: a model writes one program that calls many tools; this runs that program, which is hostile, in a sandbox
//! of its own, parks it while tools are slow, and resumes it from a snapshot of its memory.
//!
//! An [`Engine`] holds the compiled guest; one per process is enough. A [`Session`] says whose cells run, with which
//! [`Tool`]s and [`Limits`]. [`Session::exec`] and [`Session::wait`] return an [`Outcome`], which serialises to the JSON
//! that the model reads. Whatever the model does wrong is an outcome; a Rust `Err` means that the embedder did.
//!
//! A fresh cell reaches nothing but its session's tools: no files, no network, no environment, no other cell.
//!
//! See `ARCHITECTURE.md` for how it works inside.

mod alarms;
mod answer;
mod bindings;
mod bridge;
mod call;
mod catalog;
mod contract;
mod dispatch;
mod drive;
mod engine;
#[cfg(feature = "file-tools")]
pub mod file_tools;
mod instance;
mod reins;
mod results;
mod session;
mod snapshot;
mod source;
mod starter;
mod ticker;
mod tool;
mod turnstile;
mod watch;
mod workers;

pub use catalog::{Catalog, Diagnostic};
pub use codemode_core::ids::{Owner, RunId};
pub use codemode_core::input::{ExecInput, Language, exec_schema, wait_schema};
pub use codemode_core::limits::{LimitError, Limits};
pub use codemode_core::outcome::{ErrorCode, Failure, FailurePhase, Kind, Outcome, PendingCall, Status, WaitReason};
pub use codemode_core::results::Saved;
pub use engine::{Engine, EngineConfig, EngineError, PoolReset, SlotPool, Statistics};
pub use session::{
    CancelHandle, CatalogChange, CellEvent, Decision, ExecCall, Execution, ScriptLimits, Session, SessionBuilder,
    SessionError,
};
pub use tool::{
    ApprovalGuard, Call, Definition, Exposure, Operation, Output, Source, Tool, ToolError, ToolFuture, from_fn,
};

/// The examples of the README, so that they are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
