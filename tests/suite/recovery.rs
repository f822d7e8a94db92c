//! The recipe for an agent whose process ended in the middle of a turn. Parked cells are gone with the process, but the
//! transcript still has the call of `exec` and its last result:
//!
//! 1. The result isn't `waiting`: nothing is lost, the turn goes on with it.
//! 2. It is `waiting` with `replaySafe: true`: every call that the cell made may be repeated without effect. Run the source
//!    of the transcript again, with `restartSafe: true`, and put the new result in place of the old one.
//! 3. It is `waiting` with `replaySafe: false`: effects may exist. Don't run it again; tell the model that the cell was
//!    interrupted, and what it had emitted by then.
//!
//! A model is asked to write a program with `restartSafe: true` when a restart is to be expected, and never otherwise.

use codemode::{Definition, Engine, EngineConfig, Session, from_fn};
use serde_json::{Value, json};

use super::{parsed, runtime};

/// A process: its engine, and a session with one tool that may be repeated and one that may not.
fn process(runtime: &tokio::runtime::Runtime) -> Session {
    let safe = Definition { replay_safe: true, ..Definition::new("read", "") };
    Engine::new(EngineConfig::default())
        .unwrap()
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(safe, |_, path: String| async move { Ok(format!("content of {path}")) }))
        .tool(from_fn(Definition::new("write", ""), |_, _: Value| async { Ok(()) }))
        .build()
        .unwrap()
}

/// What the new process does with a call of `exec` and its last result from the transcript.
fn recover(session: &Session, runtime: &tokio::runtime::Runtime, call: &Value, last: &Value) -> Value {
    if last["status"] != "waiting" {
        return last.clone();
    }
    if last["replaySafe"] != true {
        return json!({"status": "interrupted", "output": last["output"]});
    }
    let mut again = call.clone();
    again["restartSafe"] = json!(true);
    parsed(&runtime.block_on(session.exec_json(&again)))
}

#[test]
fn an_interrupted_turn_is_recovered_from_its_transcript() {
    let runtime = runtime();
    let first = process(&runtime);
    let run = |call: &Value| parsed(&runtime.block_on(first.exec_json(call)));
    let finished = json!({"code": "return await read('a')"});
    let pausing =
        json!({"code": "const a = await read('a'); text(a); await yield_control(); return a", "restartSafe": true});
    let writing = json!({"code": "text('began'); await write('a'); await yield_control(); return 1"});
    let transcript: Vec<(Value, Value)> =
        [finished, pausing, writing].into_iter().map(|call| (call.clone(), run(&call))).collect();
    let refused = run(&json!({"code": "await write('a')", "restartSafe": true}));
    assert_eq!((&refused["kind"], &refused["replaySafe"]), (&json!("not_replay_safe"), &json!(true)), "{refused}");
    drop(first);

    let second = process(&runtime);
    let recovered: Vec<Value> = transcript.iter().map(|(call, last)| recover(&second, &runtime, call, last)).collect();
    assert_eq!(recovered[0]["value"], "content of a");
    assert_eq!((&recovered[1]["status"], &recovered[1]["replaySafe"]), (&json!("waiting"), &json!(true)));
    let done = parsed(&runtime.block_on(second.wait(recovered[1]["runId"].as_str().unwrap())));
    assert_eq!(done["value"], "content of a");
    let interrupted = json!({"status": "interrupted", "output": [{"type": "text", "text": "began"}]});
    assert_eq!(recovered[2], interrupted);
    let gone = parsed(&runtime.block_on(second.wait(transcript[1].1["runId"].as_str().unwrap())));
    assert_eq!(gone["kind"], "unknown_run", "parked cells end with their process");
}
