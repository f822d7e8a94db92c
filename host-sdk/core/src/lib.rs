//! The pure part of the Code Mode host. No files, clocks, randomness, threads or wasm: time and ids come in as arguments,
//! so that every run can be replayed.
//!
//! Reading order: [`limits`] (every number), [`ids`], [`outcome`] (what the caller gets), [`input`] (what the model
//! sends), [`budget`], [`slots`], [`output`], [`results`], [`cell`] (the state machine: [`cell::Event`] in, [`cell::Action`] out),
//! [`envelope`] (the form of a snapshot).

pub mod budget;
pub mod cell;
pub mod declarations;
pub mod descriptor;
pub mod envelope;
pub mod fair;
pub mod hints;
pub mod ids;
pub mod input;
pub mod json;
pub mod limits;
pub mod mcp;
pub mod model_text;
pub mod names;
pub mod outcome;
pub mod output;
pub mod quick_index;
pub mod results;
pub mod search;
pub mod slots;
pub mod untrusted;
