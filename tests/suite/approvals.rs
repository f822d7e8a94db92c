//! Approvals, policies and scripts through the public API: what the core's tests check with a manual clock, here with
//! real tools.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use codemode::{
    Call, CellEvent, Decision, Definition, ExecCall, ExecInput, Language, Limits, ScriptLimits, Session, ToolError,
    from_fn,
};
use serde_json::{Value, json};

use super::{engine, exec, parsed, runtime};

type Told = Arc<Mutex<Vec<&'static str>>>;

/// Tools that ask somebody: one that is answered after a while, one that fails meanwhile.
fn asking(runtime: &tokio::runtime::Runtime, timeout_ms: &str) -> (Session, Told) {
    let told = Told::default();
    let listener = told.clone();
    let mut limits = Limits::default();
    limits.set("timeoutMs", timeout_ms).unwrap();
    let session = engine()
        .session()
        .runtime(runtime.handle().clone())
        .limits(limits)
        .tool(from_fn(Definition::new("ask", ""), |call: Call, ms: u64| async move {
            let waiting = call.approval();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            drop(waiting);
            Ok("allowed")
        }))
        .tool(from_fn(Definition::new("breaks", ""), |call: Call, _: Value| async move {
            let _waiting = call.approval();
            tokio::time::sleep(Duration::from_millis(30)).await;
            if call.request_id.is_empty() { Ok(()) } else { panic!("as it was asked to") }
        }))
        .observer(move |event| {
            let what = match event {
                CellEvent::BudgetPaused => "paused",
                CellEvent::BudgetResumed => "resumed",
                CellEvent::Parked { .. } | CellEvent::Resumed { .. } => return,
            };
            listener.lock().unwrap().push(what);
        })
        .build()
        .unwrap();
    (session, told)
}

fn said(told: &Told) -> Vec<&'static str> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn waiting_for_an_approval_costs_no_budget() {
    let runtime = runtime();
    let (session, told) = asking(&runtime, "200");
    let result = exec(&runtime, &session, "return await ask(600)");
    assert_eq!(result["value"], "allowed", "{result}");
    assert_eq!(said(&told), ["paused", "resumed"]);
    let result = exec(&runtime, &session, "return await Promise.all([ask(300), ask(500)])");
    assert_eq!(result["value"], json!(["allowed", "allowed"]), "{result}");
    assert_eq!(said(&told), ["paused", "resumed", "paused", "resumed"], "the guest ran in between");
}

#[test]
fn a_tool_that_breaks_or_a_call_that_is_cancelled_ends_the_pause() {
    let runtime = runtime();
    let (session, told) = asking(&runtime, "200");
    let result = exec(&runtime, &session, "try { await breaks({}) } catch (e) { return e.message }");
    assert_eq!(result["value"], "the tool failed unexpectedly", "{result}");
    assert_eq!(said(&told), ["paused", "resumed"]);
    let execution = session.exec(ExecInput::javascript("await ask(60000)"));
    let handle = execution.cancel_handle();
    let outcome = runtime.block_on(async {
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            handle.cancel();
        };
        tokio::join!(execution, cancel).0
    });
    assert_eq!(parsed(&outcome)["code"], "aborted");
    assert_eq!(said(&told), ["paused", "resumed"]);
}

#[test]
fn an_approval_beside_a_yield_is_awaited_by_the_next_wait() {
    let runtime = runtime();
    let (session, told) = asking(&runtime, "200");
    let waiting = exec(&runtime, &session, "const asked = ask(700); await yield_control(); return await asked");
    assert_eq!(waiting["reason"], "pending_tools", "{waiting}");
    let done = parsed(&runtime.block_on(session.wait(waiting["runId"].as_str().unwrap())));
    assert_eq!(done["value"], "allowed", "{done}");
    assert_eq!(said(&told), ["paused", "resumed"]);
}

#[test]
fn a_policy_sees_rewrites_and_refuses_calls() {
    let (engine, runtime) = (engine(), runtime());
    let seen: Arc<Mutex<Vec<ExecCall>>> = Arc::default();
    let calls = seen.clone();
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .before_exec(move |call| {
            calls.lock().unwrap().push(call.clone());
            match call.arguments["command"].as_str() {
                Some("return 1") => {
                    let mut arguments = call.arguments.clone();
                    arguments["command"] = json!("return 2");
                    Decision::Rewrite(arguments)
                }
                Some("return 3") => Decision::Refuse("three is forbidden".into()),
                _ => Decision::Proceed,
            }
        })
        .build()
        .unwrap();
    let run = |arguments: Value| parsed(&runtime.block_on(session.exec_json(&arguments)));
    assert_eq!(run(json!({"code": "return 1"}))["value"], 2);
    let refused = run(json!({"code": "return 3"}));
    assert_eq!((&refused["kind"], &refused["error"]), (&json!("bad_arguments"), &json!("three is forbidden")));
    assert_eq!(run(json!({"code": "return 4", "language": "klingon"}))["kind"], "bad_arguments");
    assert_eq!(exec(&runtime, &session, "return 1")["value"], 2, "the typed way in is asked too");
    let seen = seen.lock().unwrap();
    let kinds: Vec<Option<Language>> = seen.iter().map(|call| call.tool_input_kind).collect();
    let javascript = Some(Language::JavaScript);
    assert_eq!(kinds, [javascript, javascript, None, javascript]);
    assert!(seen.iter().all(|call| call.tool_kind == "code_mode_exec" && call.arguments["code"].is_string()));
}

#[test]
fn a_script_has_limits_of_its_own_and_never_waits() {
    let (engine, runtime) = (engine(), runtime());
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(Definition::new("one", ""), |_, _: Value| async { Ok(1) }))
        .tool(from_fn(Definition::new("never", ""), |_, _: Value| async {
            std::future::pending::<()>().await;
            Err::<(), _>(ToolError::new("unreachable"))
        }))
        .build()
        .unwrap();
    let run = |source: &str, limits: ScriptLimits| {
        let outcome = runtime.block_on(session.run_script(ExecInput::javascript(source), limits));
        serde_json::from_str::<Value>(&outcome.to_script_json()).unwrap()
    };
    let two = ScriptLimits::new(5_000, 2).unwrap();
    assert_eq!(
        run("text('t'); await yield_control('on'); return await one() + await one()", two),
        json!({"status": "completed", "value": 2, "output": [{"type": "text", "text": "t"}], "toolCallCount": 2})
    );
    let spent = run("for (;;) await one()", two);
    assert_eq!((&spent["code"], &spent["toolCallCount"]), (&json!("tool_budget_exceeded"), &json!(2)), "{spent}");
    let late = run("await never()", ScriptLimits::new(100, 2).unwrap());
    assert_eq!((&late["code"], &late["kind"]), (&json!("timeout"), &json!("timeout")), "{late}");
    assert_eq!(engine.statistics().slots_taken, 0);
    for (ms, calls) in [(0, 5), (900_001, 5), (1, 0), (1, 201)] {
        assert!(ScriptLimits::new(ms, calls).is_err(), "{ms} {calls}");
    }
}
