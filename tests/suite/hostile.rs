//! Cells that attack the sandbox. After each of them the same engine runs the next cell, and the host is alive.

use serde_json::{Value, json};

use super::{engine, exec, parsed, runtime, session};
use codemode::{CellEvent, Definition, ExecInput, Limits, from_fn};

/// Runs `source`, then an innocent cell on the same engine.
fn attack(source: &str, limits: &[(&str, &str)]) -> Value {
    let (engine, runtime) = (engine(), runtime());
    let result = exec(&runtime, &session(&engine, &runtime, limits), source);
    let next = exec(&runtime, &session(&engine, &runtime, &[]), "return 1");
    assert_eq!(next["value"], 1, "the next cell after {source}: {next}");
    assert_eq!(engine.statistics().slots_taken, 0, "a slot leaked after {source}");
    result
}

fn check_failure(source: &str, limits: &[(&str, &str)], kind: &str) {
    let result = attack(source, limits);
    assert_eq!(result["kind"], kind, "{source}: {result}");
}

const RECURSIONS: [&str; 5] = [
    "function down() { return down() + 1 } try { down() } catch (e) { return e.name }",
    "const o = { get x() { return this.x } }; try { o.x } catch (e) { return e.name }",
    "function sort() { return [2, 1].sort(() => { sort(); return 0 }) } try { sort() } catch (e) { return e.name }",
    "try { JSON.parse('['.repeat(100000)) } catch (e) { return e.name }",
    "let p = {}; for (let i = 0; i < 20000; i++) p = new Proxy(p, {}); try { p.x } catch (e) { return e.name }",
];

#[test]
fn deep_recursion_is_a_range_error() {
    for source in RECURSIONS {
        let result = attack(source, &[]);
        assert!(result["value"] == "RangeError" || result["kind"] == "stack_overflow", "{source}: {result}");
    }
}

#[test]
fn uncaught_recursion_is_a_stack_overflow() {
    check_failure("(function down() { return down() + 1 })()", &[], "stack_overflow");
    check_failure(
        "let it = [1].values(); for (let i = 0; i < 50000; i++) it = it.map(x => x); return it.next().value",
        &[],
        "stack_overflow",
    );
}

#[test]
fn a_caller_with_a_small_stack_survives_recursion_in_the_guest() {
    const STACK_BYTES: usize = 256 * 1024;
    let caller = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let result = attack(RECURSIONS[0], &[]);
        assert_eq!(result["value"], "RangeError", "{result}");
    });
    caller.unwrap().join().unwrap();
}

#[test]
fn a_caught_interrupt_does_not_complete() {
    let limits = [("timeoutMs", "200")];
    check_failure("return await new Promise(() => { for (;;); }).catch(() => 'caught')", &limits, "timeout");
    check_failure("try { for (;;); } catch { return 1 } finally { return 2 }", &limits, "timeout");
    check_failure("const f = () => Promise.resolve().then(f); f(); await new Promise(() => {})", &limits, "timeout");
}

#[test]
fn cyclic_garbage_far_beyond_the_memory_limit_is_collected() {
    let source = "for (let i = 0; i < 2000; i++) { const a = { b: new Uint8Array(100000) }; a.a = a } return 'ok'";
    assert_eq!(attack(source, &[("memoryLimitBytes", "67108864")])["value"], "ok");
}

#[test]
fn a_heap_of_200_mib_is_parked_and_resumed() {
    let (engine, runtime) = (engine(), runtime());
    let limits = [("memoryLimitBytes", "536870912"), ("maxSnapshotBytes", "268435456"), ("timeoutMs", "60000")];
    let session = session(&engine, &runtime, &limits);
    let source = "const big = new Uint8Array(200 * 1024 * 1024); big.fill(7); await yield_control(); \
                  return [big.length, big[0], big[big.length - 1]]";
    let waiting = exec(&runtime, &session, source);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    let done = parsed(&runtime.block_on(session.wait(waiting["runId"].as_str().unwrap())));
    assert_eq!(done["value"], json!([200 * 1024 * 1024, 7, 7]), "{done}");
}

#[test]
fn a_heap_beyond_the_snapshot_limit_fails_when_it_parks() {
    let source = "const big = new Uint8Array(20 * 1024 * 1024).fill(7); await yield_control(); return big.length";
    check_failure(source, &[], "snapshot_too_large");
}

#[test]
fn overwritten_promises_change_nothing() {
    let sources = [
        "Promise.prototype.then = () => { throw new Error('mine') }; return await double({ n: 2 })",
        "Promise.prototype.constructor = function () {}; return await double({ n: 2 })",
        "Promise.prototype.then = function () { return this }; Promise.resolve = Promise.reject = null; \
         Promise = undefined; return await double({ n: 2 })",
        "Object.defineProperty(Promise, Symbol.species, { value: null }); return await double({ n: 2 })",
    ];
    for source in sources {
        let (engine, runtime) = (engine(), runtime());
        for park in [false, true] {
            let session = engine
                .session()
                .runtime(runtime.handle().clone())
                .tool(from_fn(Definition::new("double", ""), |_, input: Value| async move {
                    Ok(input["n"].as_i64().map(|n| n * 2))
                }))
                .park_at_every_suspension(park)
                .build()
                .unwrap();
            let result = exec(&runtime, &session, source);
            assert_eq!(result["value"], 4, "{source}, parking {park}: {result}");
        }
    }
}

#[test]
fn a_cell_that_parks_at_every_suspension_gives_the_same_result() {
    let (engine, runtime) = (engine(), runtime());
    let source =
        "const seen = []; for (let i = 0; i < 5; i++) { seen.push(await echo({ i })); text(String(i)) } return seen";
    let mut results = Vec::new();
    for park in [false, true] {
        let parked = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = parked.clone();
        let session = engine
            .session()
            .runtime(runtime.handle().clone())
            .limits(Limits::default())
            .tool(from_fn(Definition::new("echo", ""), |_, input: Value| async move { Ok(input) }))
            .park_at_every_suspension(park)
            .observer(move |event| {
                if matches!(event, CellEvent::Parked { .. }) {
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            })
            .build()
            .unwrap();
        let before = engine.statistics().instantiations;
        let result = parsed(&runtime.block_on(session.exec(ExecInput::javascript(source))));
        let instances = engine.statistics().instantiations - before;
        let parks = parked.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((instances, parks), if park { (6, 5) } else { (1, 0) }, "parking {park}");
        results.push((result["value"].clone(), result["output"].clone()));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0].0, json!([{"i": 0}, {"i": 1}, {"i": 2}, {"i": 3}, {"i": 4}]));
}

/// Runs `source` to its end, waiting whenever it waits, with a delay before the first wait.
fn run_waiting(source: &str, before_wait: std::time::Duration) -> Value {
    let (engine, runtime) = (engine(), runtime());
    let session = session(&engine, &runtime, &[]);
    let mut result = exec(&runtime, &session, source);
    std::thread::sleep(before_wait);
    while result["status"] == "waiting" {
        result = parsed(&runtime.block_on(session.wait(result["runId"].as_str().unwrap())));
    }
    result
}

#[test]
fn a_timer_may_cancel_another_that_fires_with_it() {
    let source = "const seen = []; let b; \
        setTimeout(() => { seen.push('a'); clearTimeout(b) }, 1); b = setTimeout(() => seen.push('b'), 2); \
        await yield_control(); await new Promise(resolve => setTimeout(resolve, 5)); return seen";
    let result = run_waiting(source, std::time::Duration::from_millis(40));
    assert_eq!(result["value"], json!(["a"]), "{result}");
}

#[test]
fn nothing_of_a_cell_runs_after_it_has_failed() {
    let source = "let reject; const failing = new Promise((_, no) => { reject = no }); \
        setTimeout(() => reject(new Error('over')), 1); setTimeout(() => text('late'), 2); \
        yield_control(); await failing";
    let result = run_waiting(source, std::time::Duration::from_millis(40));
    assert_eq!((&result["kind"], &result["output"]), (&json!("uncaught_exception"), &json!([])), "{result}");
    let result = attack(
        "throw { get a() { text('late'); for (;;); }, b: 1, c: new Proxy({}, { ownKeys() { for (;;); } }) }",
        &[],
    );
    assert_eq!(result["error"], r#"{"b":1,"c":"[object Proxy]"}"#, "{result}");
    assert_eq!(result["output"], json!([]));
}

#[test]
fn hooks_of_the_error_constructor_are_ordinary_properties() {
    let source = "Error.prepareStackTrace = () => { text('mine'); return '' }; \
        Error.stackTraceLimit = { valueOf() { text('mine'); return 1 } }; \
        json([new Date(NaN), Object(true)]); \
        try { null.x } catch (e) { return typeof e.stack }";
    let result = attack(source, &[]);
    assert_eq!(result["value"], "string", "{result}");
    assert_eq!(result["output"], json!([{"type": "json", "value": [null, true]}]));
}

#[test]
fn a_poisoned_prototype_does_not_replace_replies() {
    let (engine, runtime) = (engine(), runtime());
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(Definition::new("echo", ""), |_, input: Value| async move { Ok(input) }))
        .build()
        .unwrap();
    let source = "Object.prototype.then = function (resolve) { delete Object.prototype.then; resolve('poison') }; \
        const reply = await echo({ a: 1 }); delete Object.prototype.then; return [reply, Object.keys(reply)]";
    assert_eq!(exec(&runtime, &session, source)["value"], json!([{"a": 1}, ["a"]]));
}

#[test]
fn a_dom_exception_is_an_error() {
    let result = attack("atob('*')", &[]);
    assert!(result["error"].as_str().unwrap().starts_with("InvalidCharacterError: "), "{result}");
}

#[test]
fn large_arguments_reject_their_calls_under_any_limits() {
    let (engine, runtime) = (engine(), runtime());
    let mut limits = Limits::default();
    limits.set("maxSnapshotBytes", "16384").unwrap();
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .limits(limits)
        .tool(from_fn(Definition::new("echo", ""), |_, _: Value| async { Ok(1) }))
        .build()
        .unwrap();
    let source = "try { await echo('x'.repeat(200000)) } catch (e) { return e.code }";
    let result = exec(&runtime, &session, source);
    assert_eq!(result["value"], "invalid_input", "{result}");
}

#[test]
fn a_large_typed_array_on_the_console_costs_what_it_shows() {
    let result = attack("console.log(new Uint8Array(12e6)); return 1", &[]);
    assert_eq!(result["value"], 1, "{result}");
    assert!(result["output"][0]["text"].as_str().unwrap().starts_with(r#"{"0":0,"1":0"#), "{result}");
}

#[test]
fn floods_end_at_their_caps() {
    check_failure("for (let i = 0; i < 1000; i++) setTimeout(() => {}, 1e6)", &[], "queue_full");
    check_failure("for (;;) setTimeout(() => {}, 0)", &[("timeoutMs", "300")], "queue_full");
    let result = attack(
        "for (let i = 0; i < 200000; i++) { const t = setTimeout(() => {}, 0); clearTimeout(t) } return 'ok'",
        &[],
    );
    assert_eq!(result["value"], "ok", "{result}");
    let result = attack("for (let i = 0; i < 100000; i++) text('0123456789'); return 1", &[]);
    assert_eq!(result["output"][0]["type"], "truncated", "{result}");
}
