//! What many cells cost together: cells a second on all cores, memory while slots are filled and emptied again and again,
//! and the memory of ten thousand parked cells. `make bench` prints a table.

#![expect(clippy::panic, clippy::expect_used, reason = "a bench that fails this way says where")]

use std::time::{Duration, Instant};

use codemode::{Definition, Engine, EngineConfig, ExecInput, Session, SlotPool, Status, from_fn};
use codemode_cli::memory::resident_bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::Value;

const PARKED: u64 = 10_000;
const FILLS: usize = 1_000;
const ONE_TOOL: &str = "const row = await echo({ id: 1, name: 'first' }); await yield_control(); return row.id";

fn session(runtime: &tokio::runtime::Runtime, slots: u64) -> (Engine, Session) {
    let engine = Engine::new(EngineConfig { slots: SlotPool::new(slots).expect("slots"), ..EngineConfig::default() })
        .expect("an engine");
    let echo = from_fn(Definition::new("echo", "Echoes its input."), |_, input: Value| async move { Ok(input) });
    let session = engine.session().runtime(runtime.handle().clone()).tool(echo).build().expect("a session");
    (engine, session)
}

/// Cells with one call of a tool, by as many tasks as there are workers, and twice as many.
fn throughput(runtime: &tokio::runtime::Runtime, tasks: usize) -> f64 {
    const SPAN: Duration = Duration::from_secs(2);
    let (_engine, session) = session(runtime, 64);
    let session = std::sync::Arc::new(session);
    let began = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let session = session.clone();
            runtime.spawn(async move {
                let mut cells = 0u32;
                while began.elapsed() < SPAN {
                    let outcome = session.exec(ExecInput::javascript("return (await echo({ id: 1 })).id")).await;
                    assert!(matches!(outcome.status, Status::Completed { .. }), "{}", outcome.to_json());
                    cells += 1;
                }
                cells
            })
        })
        .collect();
    let cells: u32 = running.into_iter().map(|task| runtime.block_on(task).expect("no panic")).sum();
    f64::from(cells) / began.elapsed().as_secs_f64()
}

fn park(runtime: &tokio::runtime::Runtime, session: &Session) {
    let outcome = runtime.block_on(session.exec(ExecInput::javascript(ONE_TOOL)));
    let Status::Waiting { .. } = outcome.status else { panic!("{}", outcome.to_json()) };
}

fn load(_: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let best = [2, 4, 8].map(|tasks| (tasks, throughput(&runtime, tasks)));
    println!();
    for (tasks, rate) in best {
        println!("one-tool cells a second, {tasks} callers {rate:>10.0}");
    }

    let engine = Engine::new(EngineConfig::default()).expect("an engine");
    let mut after_first = 0;
    for fill in 0..FILLS {
        let echo = from_fn(Definition::new("echo", "Echoes its input."), |_, input: Value| async move { Ok(input) });
        let session = engine.session().runtime(runtime.handle().clone()).tool(echo).build().expect("a session");
        (0..64).for_each(|_| park(&runtime, &session));
        session.close();
        // What the allocator keeps shows in the first rounds.
        if fill == FILLS / 10 {
            after_first = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(after_first);
    println!("64 slots filled and closed, 1,000 times: grown by {grown} bytes after the first tenth");
    drop(engine);

    let (engine, session) = session(&runtime, PARKED);
    park(&runtime, &session);
    let before = resident_bytes();
    (1..PARKED).for_each(|_| park(&runtime, &session));
    let each = resident_bytes().saturating_sub(before) / PARKED;
    println!(
        "{PARKED} parked cells: {each} bytes each resident, {} of snapshots",
        engine.statistics().parked_bytes / PARKED
    );
    let packed = || engine.statistics().parked_bytes / PARKED;
    let mut last = packed();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = packed();
        if now == last {
            break;
        }
        last = now;
    }
    println!("the same, packed: {last} bytes of snapshots each");
    println!("slots taken: {}", engine.statistics().slots_taken);
}

criterion_group!(benches, load);
criterion_main!(benches);
