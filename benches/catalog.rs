//! What a catalog costs: building it, searching it, and how much later a cell with many tools starts than one without.
//! `make bench` prints a table of medians. The differences are taken between cells that run in turn, so that a noisy
//! machine disturbs all alike.

#![expect(clippy::expect_used, reason = "a bench that fails this way says where")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codemode::{Catalog, Definition, Engine, EngineConfig, ExecInput, Session, Tool, from_fn};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};

const FEW: usize = 200;
const MANY: usize = 10_000;

const VERBS: &[&str] = &["create", "list", "update", "delete", "search", "get", "send", "archive", "assign", "export"];
const NOUNS: &[&str] = &[
    "invoice",
    "ticket",
    "user",
    "page",
    "repository",
    "branch",
    "message",
    "channel",
    "customer",
    "schedule",
    "file",
    "folder",
    "report",
    "payment",
    "contract",
    "device",
    "event",
    "comment",
    "label",
    "project",
];

/// A tool as a model might meet it: a sentence or two, and four parameters with descriptions.
fn tool(number: usize) -> Arc<dyn Tool> {
    let pick = |words: &[&'static str], by: usize| words.get(number / by % words.len()).copied().unwrap_or_default();
    let (verb, noun, other) = (pick(VERBS, 1), pick(NOUNS, 10), pick(NOUNS, 7));
    let definition = Definition {
        input_schema: Some(json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": format!("The id of the {noun}")},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many at most"},
                "fields": {"type": "array", "items": {"type": "string"}, "description": "Which fields to give back"},
                "state": {"enum": ["open", "closed", "all"], "description": format!("The state of the {other}")},
            },
            "required": ["id"],
            "additionalProperties": false,
        })),
        ..Definition::new(
            format!("{verb}_{noun}_{number}"),
            format!("Can {verb} a {noun} of the workspace together with its {other}, number {number} of its kind."),
        )
    };
    Arc::new(from_fn(definition, |_, input: Value| async move { Ok(input) }))
}

fn session(runtime: &tokio::runtime::Runtime, engine: &Engine, catalog: Catalog) -> Session {
    engine.session().runtime(runtime.handle().clone()).catalog(catalog).build().expect("a session")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn timed(run: impl FnOnce()) -> Duration {
    let began = Instant::now();
    run();
    began.elapsed()
}

fn catalog(_: &mut Criterion) {
    const BUILDS: usize = 9;
    const ROUNDS: usize = 30;
    const BURST: usize = 20;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let engine = Engine::new(EngineConfig::default()).expect("an engine");
    let tools: Vec<Arc<dyn Tool>> = (0..MANY).map(tool).collect();
    let build = || Catalog::new(tools.iter().cloned());
    let build_time = median((0..BUILDS).map(|_| timed(|| drop(build()))).collect());
    let whole_time = median(
        (0..BUILDS)
            .map(|_| {
                timed(|| {
                    let catalog = build();
                    black_box(catalog.quick_index());
                    black_box(catalog.search("warm", 1));
                })
            })
            .collect(),
    );
    let many = build();
    let prompt_chars = many.quick_index().chars().count();
    many.search("warm", 1);
    let queries = [
        "create an invoice",
        "search messages in a channel",
        "weather",
        "assign ticket",
        "update_page_71",
        "export report",
    ];
    let search = median(
        queries.iter().cycle().take(600).map(|query| timed(|| drop(black_box(many.search(query, 8))))).collect(),
    );

    let sessions = [
        session(&runtime, &engine, Catalog::default()),
        session(&runtime, &engine, Catalog::new(tools.iter().take(FEW).cloned())),
        session(&runtime, &engine, many),
    ];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (session, times) in sessions.iter().zip(&mut times) {
            // The first cells of a burst still pay for the memory that the cells before gave back.
            for place in 0..BURST {
                let time = timed(|| drop(runtime.block_on(session.exec(ExecInput::javascript("return 1")))));
                if place >= BURST / 2 {
                    times.push(time);
                }
            }
        }
    }
    let [none, few, many] = times.map(median);
    println!("\n10,000 tools: build            {build_time:>10.1?}");
    println!("the same, index and search too {whole_time:>10.1?}");
    println!("search                         {search:>10.1?}");
    println!("quick index                    {prompt_chars:>10} characters");
    println!("cell without tools             {none:>10.1?}");
    println!("later with 200 tools           {:>10.1?}", few.saturating_sub(none));
    println!("later with 10,000 tools        {:>10.1?}", many.saturating_sub(none));
}

criterion_group!(benches, catalog);
criterion_main!(benches);
