//! Who may end a cell, when, and what is left afterwards: cancelling, closing, expiry and overload at awkward moments. Each
//! test names the moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use codemode::{
    Catalog, CatalogChange, CellEvent, Definition, Engine, EngineConfig, ExecInput, Execution, Limits, Owner, Session,
    SessionBuilder, SlotPool, from_fn,
};
use codemode_cli::memory::resident_bytes;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::public_api::wait_for;
use super::{engine, exec, parsed, runtime, slots};

const PAUSE: &str = "text('before'); await yield_control(); return 1";

pub fn builder(engine: &Engine, runtime: &Runtime) -> SessionBuilder {
    engine.session().runtime(runtime.handle().clone())
}

pub fn limited(key: &str, value: &str) -> Limits {
    let mut limits = Limits::default();
    limits.set(key, value).unwrap();
    limits
}

pub fn javascript(session: &Session, source: &str) -> Pin<Box<Execution>> {
    Box::pin(session.exec(ExecInput::javascript(source)))
}

pub async fn poll_once(execution: &mut Pin<Box<Execution>>) {
    let polled = std::future::poll_fn(|context| Poll::Ready(execution.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "it isn't done at once");
}

/// The cell was resumed, which takes its snapshot away, and is parked again.
async fn parked_again(engine: &Engine) {
    wait_for(|| engine.statistics().parked_bytes == 0).await;
    wait_for(|| engine.statistics().parked_bytes > 0).await;
    // The bytes are charged a little before the cell can be resumed.
    tokio::time::sleep(Duration::from_millis(5)).await;
}

fn run_id(waiting: &Value) -> String {
    waiting["runId"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned()
}

/// How many calls of the tools below have begun, and how many of their futures are gone.
#[derive(Clone, Default)]
pub struct Seen {
    begun: Arc<AtomicU64>,
    gone: Arc<AtomicU64>,
    cancelled: Arc<AtomicU64>,
}

struct CountWhenDropped(Seen, tokio_util::sync::CancellationToken);

impl Drop for CountWhenDropped {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, SeqCst);
        self.0.cancelled.fetch_add(u64::from(self.1.is_cancelled()), SeqCst);
    }
}

/// A tool that answers after as many milliseconds as it is told, and never when it is told none.
pub fn slow(seen: &Seen, definition: Definition) -> impl codemode::Tool {
    let seen = seen.clone();
    from_fn(definition, move |call, ms: Value| {
        let seen = seen.clone();
        async move {
            seen.begun.fetch_add(1, SeqCst);
            let _counts = CountWhenDropped(seen, call.cancellation.clone());
            match ms.as_u64() {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
            Ok(ms)
        }
    })
}

#[test]
fn cancelling_between_parking_and_returning_cancels() {
    let (engine, runtime) = (engine(), runtime());
    type End = fn(&Session, &Execution);
    let ends: [(End, &str); 3] = [
        (|_, execution| execution.cancel_handle().cancel(), "cancelled"),
        (|session, _| session.close(), "closed"),
        (
            |session, _| assert_eq!(session.set_catalog(Catalog::default()), CatalogChange::Replaced),
            "tools or permissions of this run have changed",
        ),
    ];
    for (end, text) in ends {
        let session =
            builder(&engine, &runtime).tool(slow(&Seen::default(), Definition::new("slow", ""))).build().unwrap();
        let outcome = runtime.block_on(async {
            let source = format!("const until = Date.now() + 30; while (Date.now() < until); {PAUSE}");
            let mut execution = javascript(&session, &source);
            poll_once(&mut execution).await;
            wait_for(|| engine.statistics().parked_bytes > 0).await;
            end(&session, &execution);
            parsed(&execution.await)
        });
        assert_eq!(
            (&outcome["code"], &outcome["output"][0]["text"]),
            (&json!("aborted"), &json!("before")),
            "{outcome}"
        );
        assert!(outcome["error"].as_str().unwrap().contains(text), "{outcome}");
        assert_eq!((engine.statistics().slots_taken, engine.statistics().parked_bytes), (0, 0), "{text}");
    }
}

#[test]
fn a_wait_that_begins_before_the_last_call_returned_has_a_handle_of_its_own() {
    let (engine, runtime) = (engine(), runtime());
    let session = builder(&engine, &runtime).build().unwrap();
    let id = run_id(&exec(
        &runtime,
        &session,
        "for (;;) { await yield_control(); const until = Date.now() + 30; while (Date.now() < until); }",
    ));
    runtime.block_on(async {
        for drops_first in [false, true] {
            let mut first = Box::pin(session.wait(&id));
            poll_once(&mut first).await;
            parked_again(&engine).await;
            // It is parked again, and its first waiter hasn't looked yet.
            let mut second = Box::pin(session.wait(&id));
            if drops_first {
                drop(first);
                assert_eq!(parsed(&second.await)["status"], "waiting");
                continue;
            }
            assert_eq!(parsed(&first.await)["status"], "waiting");
            poll_once(&mut second).await;
            assert_eq!(parsed(&second.await)["status"], "waiting");
        }
        let mut first = Box::pin(session.wait(&id));
        poll_once(&mut first).await;
        parked_again(&engine).await;
        let second = session.wait(&id);
        assert_eq!(parsed(&first.await)["status"], "waiting");
        second.cancel_handle().cancel();
        assert_eq!(parsed(&second.await)["code"], "aborted");
    });
    assert_eq!(engine.statistics().slots_taken, 0);
}

#[test]
fn whatever_ends_a_cell_stops_its_calls() {
    let (engine, runtime) = (engine(), runtime());
    type End = fn(&Session, &mut Option<Pin<Box<Execution>>>);
    let ends: [End; 4] = [
        |_, execution| execution.as_ref().unwrap().cancel_handle().cancel(),
        |session, _| session.close(),
        |_, execution| *execution = None,
        |session, _| assert_eq!(session.set_catalog(Catalog::default()), CatalogChange::Replaced),
    ];
    for end in ends {
        let seen = Seen::default();
        let session = builder(&engine, &runtime).tool(slow(&seen, Definition::new("slow", ""))).build().unwrap();
        runtime.block_on(async {
            let mut execution = javascript(&session, "await slow(null)");
            poll_once(&mut execution).await;
            wait_for(|| seen.begun.load(SeqCst) == 1).await;
            let mut execution = Some(execution);
            end(&session, &mut execution);
            if let Some(execution) = execution {
                assert_eq!(parsed(&execution.await)["code"], "aborted");
            }
            wait_for(|| seen.gone.load(SeqCst) == 1).await;
        });
        assert_eq!((seen.cancelled.load(SeqCst), engine.statistics().slots_taken), (1, 0));
    }
}

#[test]
fn cancelling_a_wait_ends_its_cell_and_dropping_one_does() {
    let (engine, runtime) = (engine(), runtime());
    for drops in [false, true] {
        let seen = Seen::default();
        let session = builder(&engine, &runtime).tool(slow(&seen, Definition::new("slow", ""))).build().unwrap();
        let id = run_id(&exec(&runtime, &session, "const call = slow(null); await yield_control(); await call"));
        runtime.block_on(async {
            let mut wait = Box::pin(session.wait(&id));
            poll_once(&mut wait).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            if drops {
                drop(wait);
            } else {
                wait.cancel_handle().cancel();
                assert_eq!(parsed(&wait.await)["code"], "aborted");
            }
            wait_for(|| seen.gone.load(SeqCst) == 1 && engine.statistics().slots_taken == 0).await;
            assert_eq!(parsed(&session.wait(&id).await)["kind"], "unknown_run");
        });
    }
}

#[test]
fn an_expired_cell_frees_its_slot_and_stops_its_calls_and_time_counts_from_the_last_park() {
    let (engine, runtime) = (engine(), runtime());
    let seen = Seen::default();
    let session = builder(&engine, &runtime)
        .limits(limited("snapshotTtlSeconds", "1"))
        .tool(slow(&seen, Definition::new("slow", "")))
        .build()
        .unwrap();
    let source = "const call = slow(null); for (;;) await yield_control()";
    let id = run_id(&exec(&runtime, &session, source));
    runtime.block_on(async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(600)).await;
            assert_eq!(parsed(&session.wait(&id).await)["status"], "waiting", "each park begins anew");
        }
        wait_for(|| engine.statistics().slots_taken == 0 && seen.gone.load(SeqCst) == 1).await;
        assert_eq!(engine.statistics().parked_bytes, 0);
        assert_eq!(parsed(&session.wait(&id).await)["kind"], "expired_run");
    });
}

#[test]
fn a_closed_session_resumes_nothing_and_ends_its_waits_on_cells_of_others() {
    let (engine, runtime) = (engine(), runtime());
    let (mine, theirs) = (builder(&engine, &runtime).build().unwrap(), builder(&engine, &runtime).build().unwrap());
    let id = run_id(&exec(&runtime, &mine, "await yield_control(); for (;;) await null"));
    runtime.block_on(async {
        let mut wait = Box::pin(theirs.wait(&id));
        poll_once(&mut wait).await;
        theirs.close();
        assert_eq!(parsed(&wait.await)["code"], "aborted");
    });
    let another = builder(&engine, &runtime).build().unwrap();
    runtime.block_on(async {
        // Whose tools the cell has decides, not who waits for it.
        let id = run_id(&parsed(&mine.exec(ExecInput::javascript("await yield_control(); for (;;) await null")).await));
        let owner = builder(&engine, &runtime).build().unwrap();
        let owned =
            run_id(&parsed(&owner.exec(ExecInput::javascript("await yield_control(); for (;;) await null")).await));
        let (mut wait, mut other) = (Box::pin(another.wait(&id)), Box::pin(another.wait(&owned)));
        poll_once(&mut wait).await;
        poll_once(&mut other).await;
        let tool = Arc::new(slow(&Seen::default(), Definition::new("slow", ""))) as Arc<dyn codemode::Tool>;
        assert_eq!(another.set_catalog(Catalog::new([tool.clone()])), CatalogChange::Added);
        assert_eq!(another.set_catalog(Catalog::default()), CatalogChange::Replaced);
        poll_once(&mut wait).await;
        mine.set_catalog(Catalog::new([tool]));
        mine.set_catalog(Catalog::default());
        let ended = parsed(&wait.await);
        assert!(ended["error"].as_str().unwrap().contains("have changed"), "{ended}");
        owner.close();
        let ended = parsed(&other.await);
        assert_eq!(ended["error"], "the session is closed", "{ended}");
    });
    let id = run_id(&exec(&runtime, &mine, PAUSE));
    let refused = parsed(&runtime.block_on(theirs.wait(&id)));
    assert_eq!(refused["kind"], "unknown_run");
    assert!(refused["error"].as_str().unwrap().contains("the session is closed"), "{refused}");
    assert_eq!(parsed(&runtime.block_on(mine.wait(&id)))["value"], 1, "the cell is as it was");
}

#[test]
fn every_identity_of_the_owner_is_asked_for() {
    let (engine, runtime) = (engine(), runtime());
    let owner = || Owner { run: Some("r".into()), session: Some("s".into()), agent: Some("a".into()) };
    let of = |owner| builder(&engine, &runtime).owner(owner).build().unwrap();
    let mine = of(owner());
    let id = run_id(&exec(&runtime, &mine, PAUSE));
    for foreign in [
        Owner { run: Some("x".into()), ..owner() },
        Owner { run: None, ..owner() },
        Owner { session: Some("x".into()), ..owner() },
        Owner { session: None, ..owner() },
        Owner { agent: Some("x".into()), ..owner() },
        Owner { agent: None, ..owner() },
    ] {
        let refused = parsed(&runtime.block_on(of(foreign.clone()).wait(&id)));
        assert_eq!(
            (&refused["kind"], &refused["failurePhase"]),
            (&json!("foreign_run"), &json!("input")),
            "{foreign:?}"
        );
    }
    assert_eq!(parsed(&runtime.block_on(mine.wait(&id)))["value"], 1);
}

#[test]
fn an_overloaded_engine_refuses_and_a_parked_cell_stays_what_it_was() {
    let engine = Engine::new(EngineConfig { workers: 1, slots: slots(), ..EngineConfig::default() }).unwrap();
    let runtime = runtime();
    let session = builder(&engine, &runtime).build().unwrap();
    let id = run_id(&exec(&runtime, &session, PAUSE));
    runtime.block_on(async {
        let mut busy = javascript(&session, "for (;;);");
        poll_once(&mut busy).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut queued: Vec<_> = (0..4_096).map(|_| javascript(&session, "return 1")).collect();
        for execution in &mut queued {
            poll_once(execution).await;
        }
        let refused = parsed(&session.exec(ExecInput::javascript("return 1")).await);
        assert_eq!((&refused["code"], &refused["kind"]), (&json!("runtime_unavailable"), &json!("overloaded")));
        assert_eq!(parsed(&session.wait(&id).await)["kind"], "overloaded");
        busy.cancel_handle().cancel();
        assert_eq!(parsed(&busy.await)["code"], "aborted");
        for execution in queued {
            assert_eq!(parsed(&execution.await)["value"], 1);
        }
        assert_eq!(parsed(&session.wait(&id).await)["value"], 1);
    });
}

#[test]
fn parked_cells_of_an_engine_are_bounded_together() {
    let config = EngineConfig { parked_bytes: 1 << 20, slots: slots(), ..EngineConfig::default() };
    let (engine, runtime) = (Engine::new(config).unwrap(), runtime());
    let session = builder(&engine, &runtime).build().unwrap();
    let source = "const noise = Array.from({ length: 25000 }, Math.random); await yield_control(); return noise.length";
    let id = run_id(&exec(&runtime, &session, source));
    let parked = engine.statistics().parked_bytes;
    assert!(parked > 500_000 && parked <= 1 << 20, "{parked}");
    let refused = exec(&runtime, &session, source);
    assert_eq!((&refused["kind"], &refused["failurePhase"]), (&json!("overloaded"), &json!("host")), "{refused}");
    assert_eq!(parsed(&runtime.block_on(session.wait(&id)))["value"], 25_000);
    assert_eq!((engine.statistics().parked_bytes, engine.statistics().slots_taken), (0, 0));
    run_id(&exec(&runtime, &session, source));
}

#[test]
fn engines_share_a_pool_of_slots() {
    let (pool, runtime) = (SlotPool::new(1).unwrap(), runtime());
    let make = || Engine::new(EngineConfig { slots: pool.clone(), ..EngineConfig::default() }).unwrap();
    let (one, other) = (make(), make());
    let (one, other) = (builder(&one, &runtime).build().unwrap(), builder(&other, &runtime).build().unwrap());
    let id = run_id(&exec(&runtime, &one, PAUSE));
    assert_eq!(exec(&runtime, &other, PAUSE)["kind"], "slots_full");
    assert_eq!(exec(&runtime, &other, "return 1")["value"], 1, "a cell without host work takes none");
    assert_eq!(parsed(&runtime.block_on(one.wait(&id)))["value"], 1);
    run_id(&exec(&runtime, &other, PAUSE));
    assert_eq!(EngineConfig::default().slots.capacity(), 64);
}

#[test]
fn pressure_replays_nothing() {
    let engine = Engine::new(EngineConfig { instances: 1, slots: slots(), ..EngineConfig::default() }).unwrap();
    let runtime = runtime();
    let (seen, parked) = (Seen::default(), Arc::new(AtomicU64::new(0)));
    let session = builder(&engine, &runtime)
        .tool(slow(&seen, Definition::new("slow", "")))
        .observer({
            let parked = parked.clone();
            move |event| {
                parked.fetch_add(u64::from(matches!(event, CellEvent::Parked { .. })), SeqCst);
            }
        })
        .build()
        .unwrap();
    runtime.block_on(async {
        let cell = "let sum = 0; for (let i = 0; i < 5; i++) sum += await slow(5 + i); return sum";
        let cells: Vec<_> = (0..20).map(|_| tokio::spawn(session.exec(ExecInput::javascript(cell)))).collect();
        for cell in cells {
            assert_eq!(parsed(&cell.await.unwrap())["value"], 35);
        }
    });
    assert_eq!(seen.begun.load(SeqCst), 100, "each call once");
    assert!(parked.load(SeqCst) >= 20, "{parked:?}");
}

#[test]
fn a_late_resume_is_left_to_the_next_wait() {
    let engine = Engine::new(EngineConfig { instances: 1, slots: slots(), ..EngineConfig::default() }).unwrap();
    let runtime = runtime();
    let session = builder(&engine, &runtime)
        .limits(limited("timeoutMs", "600"))
        .tool(slow(&Seen::default(), Definition::new("slow", "")))
        .build()
        .unwrap();
    runtime.block_on(async {
        // The first computes for some time after its call; the second takes the instance until that would be too late.
        let compute = "const until = Date.now() + 150; while (Date.now() < until); return 'done'";
        let first = tokio::spawn(session.exec(ExecInput::javascript(format!("await slow(20); {compute}"))));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let second = tokio::spawn(session.exec(ExecInput::javascript(
            "const until = Date.now() + 520; while (Date.now() < until); return 'computed'",
        )));
        assert_eq!(parsed(&second.await.unwrap())["value"], "computed");
        let mut result = parsed(&first.await.unwrap());
        if result["status"] == "waiting" {
            // It holds no instance meanwhile.
            assert_eq!(parsed(&session.exec(ExecInput::javascript("return 'between'")).await)["value"], "between");
            result = parsed(&session.wait(&run_id(&result)).await);
        }
        assert_eq!(result["value"], "done", "{result}");
    });
}

#[test]
fn what_a_parked_cell_gets_counts_against_its_inbox() {
    let (engine, runtime) = (engine(), runtime());
    let mut limits = limited("timeoutMs", "100");
    limits.set("maxSnapshotBytes", "1048576").unwrap();
    let large = from_fn(Definition::new("large", ""), |_, _: Value| async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Ok("x".repeat(600_000))
    });
    let session = builder(&engine, &runtime).limits(limits).tool(large).build().unwrap();
    let source = "const got = await Promise.allSettled([large(), large(), large()]); \
        return got.map((one) => one.status).sort()";
    let waiting = exec(&runtime, &session, source);
    runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let done = parsed(&session.wait(&run_id(&waiting)).await);
        assert_eq!(done["value"], json!(["fulfilled", "rejected", "rejected"]), "{done}");
    });
}

#[test]
fn what_a_parked_cell_cannot_get_is_not_held() {
    let (engine, runtime) = (engine(), runtime());
    let answered = Arc::new(AtomicU64::new(0));
    let large = from_fn(Definition::new("large", ""), {
        let answered = answered.clone();
        move |_, _: Value| {
            let answered = answered.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(150)).await;
                answered.fetch_add(1, SeqCst);
                Ok("x".repeat(9 << 20))
            }
        }
    });
    let session = builder(&engine, &runtime).limits(limited("timeoutMs", "100")).tool(large).build().unwrap();
    let source = "const got = await Promise.allSettled(Array.from({ length: 16 }, () => large())); \
        return got.filter((one) => one.status === 'fulfilled').length";
    let waiting = exec(&runtime, &session, source);
    let before = resident_bytes();
    runtime.block_on(async {
        wait_for(|| answered.load(SeqCst) == 16).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "16 replies of 9 MiB hold {grown} bytes");
        assert_eq!(parsed(&session.wait(&run_id(&waiting)).await)["value"], 1);
    });
}

#[test]
fn queued_calls_begin_with_the_next_wait_and_their_deadline_is_in_the_future() {
    let (engine, runtime) = (engine(), runtime());
    let mut limits = limited("maxPendingToolCalls", "1");
    limits.set("timeoutMs", "100").unwrap();
    let begun = Arc::new(AtomicU64::new(0));
    let tool = from_fn(Definition::new("slow", ""), {
        let begun = begun.clone();
        move |call, ms: u64| {
            begun.fetch_add(1, SeqCst);
            assert!(call.deadline > std::time::Instant::now(), "there is time left");
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(ms)
            }
        }
    });
    let session = builder(&engine, &runtime).limits(limits).tool(tool).build().unwrap();
    let waiting = exec(&runtime, &session, "return await Promise.all([slow(150), slow(1), slow(2)])");
    assert_eq!(waiting["pendingToolCalls"].as_array().map(Vec::len), Some(3), "{waiting}");
    runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(begun.load(SeqCst), 1);
        assert_eq!(parsed(&session.wait(&run_id(&waiting)).await)["value"], json!([150, 1, 2]));
    });
}

#[test]
fn a_call_whose_runtime_ends_is_a_failed_call() {
    let (engine, runtime) = (engine(), runtime());
    let tools = super::runtime();
    let seen = Seen::default();
    let session = engine
        .session()
        .runtime(tools.handle().clone())
        .tool(slow(&seen, Definition::new("slow", "")))
        .build()
        .unwrap();
    let source = "return [await slow(null).catch((e) => e.message), await slow(1).catch((e) => e.message)]";
    let result = runtime.block_on(async {
        let mut execution = javascript(&session, source);
        poll_once(&mut execution).await;
        wait_for(|| seen.begun.load(SeqCst) == 1).await;
        tools.shutdown_background();
        parsed(&execution.await)
    });
    assert_eq!(result["value"][0], "the call ended without an answer");
    // A tool that begins when its runtime has gone may panic as well, because it can't sleep there.
    let later = result["value"][1].as_str().unwrap_or_else(|| panic!("{result}"));
    assert!(["the call ended without an answer", "the tool failed unexpectedly"].contains(&later), "{later}");
}

#[test]
fn the_owner_is_told_that_its_budget_counts_again_however_the_call_ends() {
    let (engine, runtime) = (engine(), runtime());
    for panics in [false, true] {
        let events = Arc::new(Mutex::new(Vec::new()));
        let session = builder(&engine, &runtime)
            .tool(from_fn(Definition::new("ask", ""), |call, _: Value| async move {
                let _waiting = call.approval();
                std::future::pending::<()>().await;
                Ok(())
            }))
            .observer({
                let events = events.clone();
                move |event| {
                    events.lock().unwrap().push(*event);
                    assert!(!panics, "an observer that panics is none of the cell's business");
                }
            })
            .build()
            .unwrap();
        runtime.block_on(async {
            let execution = tokio::spawn(session.exec(ExecInput::javascript("await ask(null)")));
            wait_for(|| events.lock().is_ok_and(|events| !events.is_empty()) || events.is_poisoned()).await;
            execution.abort();
            wait_for(|| engine.statistics().slots_taken == 0).await;
        });
        let seen = events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        assert!(seen.len() == 2 || panics, "{seen:?}");
        assert_eq!(seen[0], CellEvent::BudgetPaused);
        assert_eq!(seen.last(), Some(&CellEvent::BudgetResumed));
    }
}

#[test]
fn the_runtime_of_the_embedder_is_never_blocked() {
    let engine = engine();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let session = builder(&engine, &runtime).build().unwrap();
    let ticks = runtime.block_on(async {
        let computes =
            session.exec(ExecInput::javascript("const until = Date.now() + 400; while (Date.now() < until);"));
        let mut computes = std::pin::pin!(computes);
        let mut ticks = 0;
        loop {
            tokio::select! {
                outcome = &mut computes => {
                    assert_eq!(parsed(&outcome)["status"], "completed");
                    break ticks;
                }
                () = tokio::time::sleep(Duration::from_millis(5)) => ticks += 1,
            }
        }
    });
    assert!(ticks >= 10, "a thread that computes leaves the only thread of the runtime alone: {ticks}");
}

#[test]
fn an_input_is_checked_however_it_comes() {
    let (engine, runtime) = (engine(), runtime());
    let session = builder(&engine, &runtime).build().unwrap();
    for input in [ExecInput::javascript(" \n"), ExecInput { typecheck: true, ..ExecInput::javascript("return 1") }] {
        for refused in [
            session.exec(input.clone()),
            session.exec_json(&input.to_arguments()),
            session.run_script(input.clone(), codemode::ScriptLimits::default()),
        ] {
            assert_eq!(parsed(&runtime.block_on(refused))["kind"], "bad_arguments", "{input:?}");
        }
    }
}
