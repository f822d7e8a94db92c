//! What the guest's own functions cost: output in floods, the console's view of a large object, the value adapter. Each cell
//! measures itself, with its clock of whole milliseconds; the host's part of each call is in it. Printed are medians.

#![expect(clippy::expect_used, reason = "a bench that fails this way says where")]

use codemode::{Engine, EngineConfig, ExecInput, Limits, Status};
use criterion::{Criterion, criterion_group, criterion_main};

/// Name and source; a cell returns the milliseconds that one unit took.
const WORK: &[(&str, &str)] = &[
    (
        "100,000 text() of 10 characters",
        "const began = performance.now(); for (let i = 0; i < 100000; i++) text('0123456789'); \
         return performance.now() - began",
    ),
    (
        "console.log of 1,000 properties",
        // Few enough that the console's budget isn't spent, which would make the rest free.
        "const o = {}; for (let i = 0; i < 1000; i++) o['key' + i] = i; \
         const began = performance.now(); for (let i = 0; i < 20; i++) console.log(o); return (performance.now() - began) / 20",
    ),
    (
        "adapting 1 MB of nested data",
        "const row = (i) => ({ id: i, name: 'row ' + i, tags: ['a', 'b', 'c'], nested: { x: i / 3, y: null, z: true } }); \
         const rows = Array.from({ length: 10500 }, (_, i) => row(i)); \
         const began = performance.now(); for (let i = 0; i < 5; i++) json(rows); return (performance.now() - began) / 5",
    ),
    (
        "the same by JSON.stringify",
        "const row = (i) => ({ id: i, name: 'row ' + i, tags: ['a', 'b', 'c'], nested: { x: i / 3, y: null, z: true } }); \
         const rows = Array.from({ length: 10500 }, (_, i) => row(i)); \
         const began = performance.now(); for (let i = 0; i < 5; i++) JSON.stringify(rows); \
         return (performance.now() - began) / 5",
    ),
];

fn guest(_: &mut Criterion) {
    const CELLS: usize = 21;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let engine = Engine::new(EngineConfig::default()).expect("an engine");
    let mut limits = Limits::default();
    limits.set("maxOutputBytes", "10485760").expect("a limit");
    let session = engine.session().limits(limits).runtime(runtime.handle().clone()).build().expect("a session");
    let run = |source: &str| {
        let outcome = runtime.block_on(session.exec(ExecInput::javascript(source)));
        let Status::Completed { value } = &outcome.status else { return f64::NAN };
        value.get().parse().unwrap_or(f64::NAN)
    };
    println!();
    for (name, source) in WORK {
        let mut took: Vec<f64> = (0..CELLS).map(|_| run(source)).collect();
        took.sort_by(f64::total_cmp);
        println!("{name:<32} {:>8.3} ms", took.get(CELLS / 2).copied().unwrap_or(f64::NAN));
    }
    println!("base image                       {:>10} bytes", engine.statistics().base_image_bytes);
}

criterion_group!(benches, guest);
criterion_main!(benches);
