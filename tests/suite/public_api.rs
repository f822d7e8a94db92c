//! The SDK as a stranger uses it: only public items, no knowledge of the inside.

use std::future::Future as _;
use std::time::Duration;

use codemode::{
    Call, CancelHandle, Definition, Engine, EngineConfig, ExecInput, Output, Session, SessionError, Tool, ToolError,
    ToolFuture, from_fn,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{engine, exec, parsed, runtime};

fn with_tools(engine: &Engine, runtime: &tokio::runtime::Runtime) -> Session {
    engine
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(Definition::new("never", ""), |_, _: Value| async {
            std::future::pending::<()>().await;
            Ok(())
        }))
        .tool(from_fn(Definition::new("fails", ""), |_, _: Value| async { Err::<(), _>(ToolError::new("kaput")) }))
        .tool(Panics)
        .build()
        .unwrap()
}

/// A tool that breaks in every way it can.
struct Panics;

impl Tool for Panics {
    fn definition(&self) -> Definition {
        Definition::new("panics", "")
    }

    fn call(&self, _: Call, input: Box<RawValue>) -> ToolFuture {
        assert!(!input.get().contains("at once"), "as it was asked to");
        Box::pin(async move { Err::<Output, _>(panic_later(&input)) })
    }
}

fn panic_later(input: &RawValue) -> ToolError {
    panic!("as it was asked to with {input}")
}

#[test]
fn a_session_needs_a_runtime() {
    assert_eq!(engine().session().build().err(), Some(SessionError::NoRuntime));
}

#[test]
fn bad_configurations_are_refused() {
    for config in [
        EngineConfig { workers: 0, ..EngineConfig::default() },
        EngineConfig { workers: 1_025, ..EngineConfig::default() },
        EngineConfig { instances: 0, ..EngineConfig::default() },
        EngineConfig { parked_bytes: 1, ..EngineConfig::default() },
    ] {
        let error = Engine::new(config).err().unwrap().to_string();
        assert!(error.contains("must be a whole number of"), "{error}");
    }
    let error = Engine::from_component(EngineConfig::default(), b"not wasm").err().unwrap().to_string();
    assert!(error.contains("component"), "{error}");
}

#[test]
fn a_tool_that_fails_or_panics_rejects_its_call() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    let source = "const seen = []; \
        for (const call of [() => fails(), () => panics(), () => panics('at once')]) \
            try { await call() } catch (e) { seen.push([e.message, e.code, e.effectStatus]) } \
        return seen";
    let result = exec(&runtime, &session, source);
    assert_eq!(
        result["value"],
        serde_json::json!([
            ["kaput", "tool_error", "unknown"],
            ["the tool failed unexpectedly", "tool_error", "unknown"],
            ["the tool failed unexpectedly", "tool_error", "unknown"],
        ])
    );
}

#[test]
fn a_cancelled_call_returns_and_its_slot_is_free() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    for source in ["await never()", "for (;;) await null"] {
        let execution = session.exec(ExecInput::javascript(source));
        let handle: CancelHandle = execution.cancel_handle();
        let outcome = runtime.block_on(async {
            let cancel = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                handle.cancel();
            };
            tokio::join!(execution, cancel).0
        });
        assert_eq!(parsed(&outcome)["code"], "aborted", "{source}");
        assert_eq!(engine.statistics().slots_taken, 0, "{source}");
    }
}

#[test]
fn dropping_a_call_cancels_its_cell() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    runtime.block_on(async {
        let mut execution = Box::pin(session.exec(ExecInput::javascript("await never()")));
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(execution.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        wait_for(|| engine.statistics().slots_taken == 1).await;
        drop(execution);
        wait_for(|| engine.statistics().slots_taken == 0).await;
    });
}

#[test]
fn closing_a_session_releases_its_parked_cells() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    let waiting = exec(&runtime, &session, "await yield_control('pause'); return 1");
    assert_eq!((&waiting["status"], &waiting["yieldReason"]), (&"waiting".into(), &"pause".into()));
    assert_eq!(engine.statistics().slots_taken, 1);
    session.close();
    assert_eq!(engine.statistics().slots_taken, 0);
    let id = waiting["runId"].as_str().unwrap();
    assert_eq!(parsed(&runtime.block_on(session.wait(id)))["kind"], "unknown_run");
    assert_eq!(exec(&runtime, &session, "return 1")["code"], "aborted");
    let another = with_tools(&engine, &runtime);
    assert_eq!(parsed(&runtime.block_on(another.wait(id)))["kind"], "unknown_run");
}

#[test]
fn a_cell_that_idles_is_packed_and_goes_on_all_the_same() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    let source = "const rows = Array.from({ length: 2000 }, (_, i) => ({ i, name: 'row ' + i })); \
        await yield_control(); return rows.length + rows[1999].name";
    let waiting = exec(&runtime, &session, source);
    let raw = engine.statistics().parked_bytes;
    runtime.block_on(wait_for(|| engine.statistics().parked_bytes < raw / 3));
    let done = parsed(&runtime.block_on(session.wait(waiting["runId"].as_str().unwrap())));
    assert_eq!(done["value"], "2000row 1999", "{done}");
    assert_eq!(engine.statistics().parked_bytes, 0);
}

#[test]
fn a_handle_cancels_its_own_call_only() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    let execution = session.exec(ExecInput::javascript("await yield_control(); return 1"));
    let handle = execution.cancel_handle();
    let waiting = parsed(&runtime.block_on(execution));
    handle.cancel();
    let done = parsed(&runtime.block_on(session.wait(waiting["runId"].as_str().unwrap())));
    assert_eq!(done["value"], 1, "{done}");
}

#[test]
fn a_wait_that_is_dropped_before_it_runs_leaves_nothing_behind() {
    let (engine, runtime) = (engine(), runtime());
    let session = with_tools(&engine, &runtime);
    let waiting = exec(&runtime, &session, "await yield_control(); return 1");
    let id = waiting["runId"].as_str().unwrap();
    drop(session.wait(id));
    assert_eq!(engine.statistics().slots_taken, 0);
    assert_eq!(parsed(&runtime.block_on(session.wait(id)))["kind"], "unknown_run");
}

#[test]
fn a_cell_without_an_instance_waits_with_what_it_has() {
    let engine = Engine::new(EngineConfig { instances: 1, ..EngineConfig::default() }).unwrap();
    let runtime = runtime();
    let mut limits = codemode::Limits::default();
    limits.set("timeoutMs", "400").unwrap();
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .limits(limits)
        .tool(from_fn(Definition::new("slow", ""), |_, _: Value| async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            Ok(1)
        }))
        .build()
        .unwrap();
    runtime.block_on(async {
        let busy = "const end = Date.now() + 360; await slow(); while (Date.now() < end); return 'computed'";
        let first = tokio::spawn(session.exec(ExecInput::javascript("text('kept'); return await slow()")));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let second = tokio::spawn(session.exec(ExecInput::javascript(busy)));
        let (first, second) = (parsed(&first.await.unwrap()), parsed(&second.await.unwrap()));
        // Whoever got the instance first: nothing is lost, and nobody is told that nothing was dispatched.
        for result in [&first, &second] {
            let is_kept = matches!(result["status"].as_str(), Some("completed" | "waiting"));
            assert!(is_kept, "{result}");
        }
        assert_eq!(first["output"][0]["text"], "kept", "{first}");
    });
}

#[test]
fn more_cells_than_instances_take_turns() {
    let engine = Engine::new(EngineConfig { instances: 2, ..EngineConfig::default() }).unwrap();
    let runtime = runtime();
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(Definition::new("slow", ""), |_, input: Value| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(input)
        }))
        .build()
        .unwrap();
    runtime.block_on(async {
        let cells: Vec<_> = (0..12)
            .map(|number| {
                let source = format!("const a = await slow({{ n: {number} }}); const b = await slow(a); return b.n");
                tokio::spawn(session.exec(ExecInput::javascript(source)))
            })
            .collect();
        for (number, cell) in cells.into_iter().enumerate() {
            assert_eq!(parsed(&cell.await.unwrap())["value"], number);
        }
    });
}

/// Waits until something that happens on other threads has happened.
pub async fn wait_for(holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never happened");
}
