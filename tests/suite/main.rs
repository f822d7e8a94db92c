//! Tests that cross crates, in one binary: facts about the built component, hostile cells, the public API as a stranger
//! uses it, and rules about the source tree.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that fails this way says where"
)]

mod approvals;
mod build_facts;
mod catalog;
mod declarations;
mod globals;
mod hostile;
mod lifecycle;
mod properties;
mod public_api;
mod recovery;
mod results;
mod sequential;
mod spans;
mod tidy;

use codemode::{Engine, EngineConfig, ExecInput, Limits, Outcome, Session, SlotPool};
use serde_json::Value;

fn engine() -> Engine {
    Engine::new(EngineConfig { slots: slots(), ..EngineConfig::default() }).unwrap()
}

/// A pool of the test's own: other tests may run in this process.
fn slots() -> SlotPool {
    SlotPool::new(64).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

fn session(engine: &Engine, runtime: &tokio::runtime::Runtime, limits: &[(&str, &str)]) -> Session {
    let mut set = Limits::default();
    for (key, value) in limits {
        set.set(key, value).unwrap();
    }
    engine.session().limits(set).runtime(runtime.handle().clone()).build().unwrap()
}

fn parsed(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.to_json()).unwrap()
}

fn exec(runtime: &tokio::runtime::Runtime, session: &Session, source: &str) -> Value {
    parsed(&runtime.block_on(session.exec(ExecInput::javascript(source))))
}
