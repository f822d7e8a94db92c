//! The spans of calls, as a subscriber of the embedder sees them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use codemode::{Definition, from_fn};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{engine, exec, runtime};

/// Remembers spans of the SDK: name, parent, fields; and the span that each event was in.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    spans: Vec<Recording>,
    entered: Vec<(std::thread::ThreadId, u64)>,
    events_in: Vec<Option<String>>,
}

#[derive(Default)]
struct Recording {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Recording {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Recorded {
    fn span(&mut self, id: u64) -> &mut Recording {
        &mut self.spans[usize::try_from(id).unwrap() - 1]
    }

    fn current(&self) -> Option<u64> {
        let here = std::thread::current().id();
        self.entered.iter().rev().find(|(thread, _)| *thread == here).map(|(_, span)| *span)
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "codemode" || metadata.target().starts_with("suite")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut recorded = self.0.lock().unwrap();
        let contextual = if attributes.is_contextual() { recorded.current() } else { None };
        let parent = attributes.parent().map(Id::into_u64).or(contextual);
        let mut span = Recording { name: attributes.metadata().name(), parent, fields: BTreeMap::new() };
        attributes.record(&mut span);
        recorded.spans.push(span);
        Id::from_u64(recorded.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(self.0.lock().unwrap().span(id.into_u64()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let mut recorded = self.0.lock().unwrap();
        let name = recorded.current().map(|id| recorded.span(id).fields.get("request").cloned().unwrap_or_default());
        recorded.events_in.push(name);
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push((std::thread::current().id(), id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        let mut recorded = self.0.lock().unwrap();
        let here = (std::thread::current().id(), id.into_u64());
        let place = recorded.entered.iter().rposition(|entered| *entered == here).unwrap();
        recorded.entered.remove(place);
    }
}

#[test]
fn calls_have_spans_and_nothing_of_a_program_is_in_them() {
    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(recorder.clone()).unwrap();
    let (engine, runtime) = (engine(), runtime());
    let session = engine
        .session()
        .runtime(runtime.handle().clone())
        .tool(from_fn(Definition::new("look-up", ""), |call, _: Value| async move {
            tracing::info!("before");
            tokio::task::yield_now().await;
            tracing::info!("after");
            assert_eq!(call.span.metadata().map(|span| span.name()), Some("tool_call"));
            Ok(1)
        }))
        .build()
        .unwrap();
    let waiting = exec(
        &runtime,
        &session,
        "await look_up({ secret: 1 }); await yield_control('secret'); throw new Error('secret')",
    );
    let id = waiting["runId"].as_str().unwrap();
    runtime.block_on(session.wait(id));

    let mut recorded = recorder.0.lock().unwrap();
    assert!(recorded.entered.is_empty(), "every span that was entered was left");
    let names: Vec<_> = recorded.spans.iter().map(|span| (span.name, span.parent)).collect();
    assert_eq!(names, [("exec", None), ("tool_call", Some(1)), ("wait", None)]);
    let field =
        |recorded: &mut Recorded, span: u64, key| recorded.span(span).fields.get(key).cloned().unwrap_or_default();
    assert_eq!(field(&mut recorded, 1, "language"), "javascript");
    assert_eq!((field(&mut recorded, 1, "status"), field(&mut recorded, 1, "run")), ("waiting".into(), id.to_owned()));
    assert_eq!(field(&mut recorded, 2, "tool"), "look-up");
    assert_eq!(field(&mut recorded, 2, "request"), "bridge:callValue:1");
    assert_eq!((field(&mut recorded, 3, "status"), field(&mut recorded, 3, "run")), ("failed".into(), id.to_owned()));
    assert_eq!(field(&mut recorded, 3, "kind"), "uncaught_exception");
    assert_eq!(recorded.events_in, [Some("bridge:callValue:1".into()), Some("bridge:callValue:1".into())]);
    let all: Vec<_> = recorded.spans.iter().flat_map(|span| span.fields.values()).collect();
    assert!(!all.iter().any(|value| value.contains("secret")), "{all:?}");
}
