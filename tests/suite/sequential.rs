//! Which calls of tools may run beside each other, and those that would wait for themselves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use codemode::{Definition, ExecInput, Session, Source, from_fn};
use serde_json::Value;

use super::lifecycle::{Seen, builder, slow};
use super::{engine, exec, parsed, runtime};

/// A tool that writes down when it begins and when it ends.
fn logged(log: &Arc<Mutex<Vec<String>>>, definition: Definition) -> impl codemode::Tool {
    let (log, name) = (log.clone(), definition.name.clone());
    from_fn(definition, move |_, number: Value| {
        let (log, name) = (log.clone(), name.clone());
        async move {
            log.lock().unwrap().push(format!("{name}{number} begins"));
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            log.lock().unwrap().push(format!("{name}{number} ends"));
            Ok(())
        }
    })
}

#[test]
fn sequential_tools_run_alone_and_in_the_order_of_their_calls() {
    let (engine, runtime) = (engine(), runtime());
    let log = Arc::default();
    let session = builder(&engine, &runtime)
        .tool(logged(&log, Definition { sequential: Some(true), ..Definition::new("s", "") }))
        .tool(logged(&log, Definition::new("p", "")))
        .build()
        .unwrap();
    for round in 0..30 {
        log.lock().unwrap().clear();
        exec(&runtime, &session, "await Promise.all([p(1), s(2), s(3), p(4), p(5), s(6)])");
        let log = log.lock().unwrap().clone();
        let place = |what: &str| log.iter().position(|line| line == what).unwrap();
        for (before, after) in [("p1", "s2"), ("s2", "s3"), ("s3", "p4"), ("s3", "p5"), ("p4", "s6"), ("p5", "s6")] {
            let is_in_order = place(&format!("{before} ends")) < place(&format!("{after} begins"));
            assert!(is_in_order, "round {round}: {before} before {after} in {log:?}");
        }
        assert!(place("p5 begins") < place("p4 ends") || place("p4 begins") < place("p5 ends"));
    }
}

#[test]
fn tools_of_servers_run_alone_unless_they_say_otherwise() {
    let (engine, runtime) = (engine(), runtime());
    for (sequential, overlaps) in [(None, false), (Some(false), true)] {
        let log = Arc::default();
        let member = |name: &str| Definition {
            source: Source::Mcp,
            server: Some("s".into()),
            sequential,
            ..Definition::new(name, "")
        };
        // A server's results are checked by nobody here: any value will do.
        let session =
            builder(&engine, &runtime).tool(logged(&log, member("a"))).tool(logged(&log, member("b"))).build().unwrap();
        exec(&runtime, &session, "await Promise.allSettled([MCP.s.a({}), MCP.s.b({})])");
        let log = log.lock().unwrap().clone();
        assert_eq!(log.len(), 4, "{log:?}");
        assert_eq!(log[1].ends_with("begins"), overlaps, "{log:?}");
    }
}

#[test]
fn a_program_started_by_a_sequential_tool_cannot_wait_for_that_tool() {
    let (engine, runtime) = (engine(), runtime());
    let inner: Arc<Mutex<Option<Arc<Session>>>> = Arc::default();
    let nested = |name: &str, sequential| {
        let inner = inner.clone();
        let definition = Definition { sequential: Some(sequential), ..Definition::new(name, "") };
        from_fn(definition, move |_, source: String| {
            let session = inner.lock().unwrap().clone().unwrap();
            async move { Ok(parsed(&session.exec(ExecInput::javascript(source)).await)) }
        })
    };
    let session = builder(&engine, &runtime)
        .tool(nested("alone", true))
        .tool(nested("shared", false))
        .tool(slow(&Seen::default(), Definition::new("slow", "")))
        .tool(slow(&Seen::default(), Definition { sequential: Some(true), ..Definition::new("strict", "") }))
        .build()
        .unwrap();
    let session = Arc::new(session);
    *inner.lock().unwrap() = Some(session.clone());
    for (outer, called, is_refused) in [
        ("alone", "slow(1)", true),
        ("alone", "strict(1)", true),
        ("shared", "strict(1)", true),
        ("shared", "slow(1)", false),
        ("shared", "Promise.all([slow(1), slow(2)])", false),
    ] {
        // Somebody who wants to run alone waits meanwhile, and must not come between.
        let inside = format!("return await {called}");
        let source = format!("const [one] = await Promise.all([{outer}({inside:?}), strict(1)]); return one");
        let result = exec(&runtime, &session, &source);
        let inner = &result["value"];
        let was_refused = inner["error"].as_str().is_some_and(|error| error.contains("would wait for itself"));
        assert_eq!(was_refused, is_refused, "{outer} {called}: {result}");
        assert!(is_refused || inner["status"] == "completed", "{outer} {called}: {result}");
        assert_eq!(inner["bridgeDispatchStarted"].as_bool(), is_refused.then_some(false), "refused, so not dispatched");
    }
    *inner.lock().unwrap() = None;
}
