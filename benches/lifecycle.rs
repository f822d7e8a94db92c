//! What each step of a cell's life costs: engine start, cold cell, tool round trip, park, resume, and guest compute.
//! `make bench` prints a table of medians at the end. Compare figures of one run with each other, not across machines.

#![expect(clippy::panic, clippy::expect_used, reason = "a bench that fails this way says where")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use codemode::{CellEvent, Definition, Engine, EngineConfig, ExecInput, Session, Status, from_fn};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::Value;

const ROUND_TRIPS: u32 = 1_000;

type Events = Arc<Mutex<Vec<CellEvent>>>;

struct Bench {
    runtime: tokio::runtime::Runtime,
    engine: Engine,
    session: Session,
    events: Events,
}

impl Bench {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        let engine = Engine::new(EngineConfig::default()).expect("an engine");
        let events = Events::default();
        let seen = events.clone();
        let echo = |name: &str| {
            from_fn(Definition::new(name, "Echoes its input."), |_, input: Value| async move { Ok(input) })
        };
        let session = engine
            .session()
            .runtime(runtime.handle().clone())
            .tool(echo("echo"))
            .tool(echo("lookup"))
            .tool(echo("search"))
            .tool(from_fn(Definition::new("task", "Echoes its input, later."), |_, input: Value| async move {
                tokio::task::yield_now().await;
                Ok(input)
            }))
            .observer(move |event| seen.lock().expect("no panic").push(*event))
            .build()
            .expect("a session");
        Self { runtime, engine, session, events }
    }

    fn exec(&self, source: &str) -> codemode::Outcome {
        self.runtime.block_on(self.session.exec(ExecInput::javascript(source)))
    }

    /// Runs a cell that yields once, to its end; what happened on the way.
    fn park_once(&self, source: &str) -> Vec<CellEvent> {
        self.events.lock().expect("no panic").clear();
        let outcome = self.exec(source);
        let Status::Waiting { run_id, .. } = outcome.status else { panic!("{}", outcome.to_json()) };
        let done = self.runtime.block_on(self.session.wait(run_id.as_str()));
        assert!(matches!(done.status, Status::Completed { .. }), "{}", done.to_json());
        std::mem::take(&mut *self.events.lock().expect("no panic"))
    }
}

const ONE_TOOL: &str = "const row = await echo({ id: 1, name: 'first' }); await yield_control(); return row.id";

fn parked(events: &[CellEvent]) -> Option<(u64, Duration)> {
    events.iter().find_map(|event| match event {
        CellEvent::Parked { bytes, took } => Some((*bytes, *took)),
        CellEvent::Resumed { .. } | CellEvent::BudgetPaused | CellEvent::BudgetResumed => None,
    })
}

fn resumed(events: &[CellEvent]) -> Option<Duration> {
    events.iter().find_map(|event| match event {
        CellEvent::Resumed { took, .. } => Some(*took),
        CellEvent::Parked { .. } | CellEvent::BudgetPaused | CellEvent::BudgetResumed => None,
    })
}

fn lifecycle(criterion: &mut Criterion) {
    let bench = Bench::new();
    criterion.bench_function("engine start", |bencher| {
        bencher.iter(|| Engine::new(EngineConfig::default()).expect("an engine"));
    });
    criterion.bench_function("cold cell", |bencher| bencher.iter(|| bench.exec("return 1+2")));
    let source = format!("let n = 0; for (let i = 0; i < {ROUND_TRIPS}; i++) n += (await echo({{ i }})).i; return n");
    criterion.bench_function("tool round trip", |bencher| {
        bencher.iter_custom(|times| {
            let began = Instant::now();
            for _ in 0..times {
                bench.exec(&source);
            }
            began.elapsed() / ROUND_TRIPS
        });
    });
    let as_task = source.replace("echo(", "task(");
    criterion.bench_function("tool round trip, as a task", |bencher| {
        bencher.iter_custom(|times| {
            let began = Instant::now();
            for _ in 0..times {
                bench.exec(&as_task);
            }
            began.elapsed() / ROUND_TRIPS
        });
    });
    criterion.bench_function("park", |bencher| {
        bencher.iter_custom(|times| {
            (0..times).filter_map(|_| parked(&bench.park_once(ONE_TOOL))).map(|(_, took)| took).sum()
        });
    });
    criterion.bench_function("resume", |bencher| {
        bencher.iter_custom(|times| (0..times).filter_map(|_| resumed(&bench.park_once(ONE_TOOL))).sum());
    });
    let fib = "const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2); return fib(27)";
    criterion.bench_function("fib(27)", |bencher| bencher.iter(|| bench.exec(fib)));
    table(&bench, &source, &as_task, fib);
}

/// The figures in one place, each the median of a run of its own.
fn table(bench: &Bench, round_trips: &str, as_tasks: &str, fib: &str) {
    const TIMES: usize = 200;
    let median = |mut samples: Vec<Duration>| {
        samples.sort_unstable();
        samples.get(samples.len() / 2).copied().unwrap_or_default()
    };
    let timed = |times: usize, run: &dyn Fn()| {
        median(
            (0..times)
                .map(|_| {
                    let began = Instant::now();
                    run();
                    began.elapsed()
                })
                .collect(),
        )
    };
    let runs: Vec<Vec<CellEvent>> = (0..TIMES).map(|_| bench.park_once(ONE_TOOL)).collect();
    let bytes = runs.iter().find_map(|events| parked(events)).map_or(0, |(bytes, _)| bytes);
    let start = timed(20, &|| drop(Engine::new(EngineConfig::default())));
    let cold = timed(TIMES, &|| drop(bench.exec("return 1+2")));
    let trip = timed(20, &|| drop(bench.exec(round_trips))) / ROUND_TRIPS;
    let task_trip = timed(20, &|| drop(bench.exec(as_tasks))) / ROUND_TRIPS;
    let compute = timed(10, &|| drop(bench.exec(fib)));
    let park = median(runs.iter().filter_map(|events| parked(events)).map(|(_, took)| took).collect());
    let resume = median(runs.iter().filter_map(|events| resumed(events)).collect());
    let statistics = bench.engine.statistics();
    println!("\nstep                         median");
    println!("engine start                 {start:>10.1?}");
    println!("cold cell                    {cold:>10.1?}");
    println!("tool round trip              {trip:>10.1?}");
    println!("tool round trip, as a task   {task_trip:>10.1?}");
    println!("park                         {park:>10.1?}");
    println!("resume                       {resume:>10.1?}");
    println!("fib(27)                      {compute:>10.1?}");
    println!(
        "parked one-tool cell         {bytes:>10} bytes, {} pages of {}",
        bytes / 4_096,
        statistics.base_image_bytes / 4_096
    );
    println!("pool                         {:?}", statistics.pool);
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20).without_plots();
    targets = lifecycle
}
criterion_main!(benches);
