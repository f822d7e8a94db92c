//! Runs one case in one mode: builds its session, performs its steps, and compares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use codemode::{CellEvent, Decision, Engine, EngineConfig, ExecInput, Execution, Limits, Owner, Session, SlotPool};
use serde_json::{Value, json};

use super::format::{Call, Case, Expected, Hook, Step};
use crate::memory::resident_bytes;

use super::matchers::{Found, mismatches};
use super::mock::{self, Calls};

/// How suspensions are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a host would: the instance stays while it can.
    Inline,
    /// Every suspension parks the cell and resumes it in a fresh instance.
    Park,
}

impl Mode {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Park => "park",
        }
    }
}

/// The largest `maxSnapshotBytes`.
const SNAPSHOT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A case that hasn't ended by then hangs.
const CASE_TIMEOUT: Duration = Duration::from_secs(90);

/// What went wrong, a line each; empty when the case passed.
pub async fn run(engine: &Engine, case: &Case, mode: Mode) -> Vec<String> {
    let running = async {
        let mut values: Vec<Value> = Vec::new();
        for _ in 0..case.repeat.iter().flat_map(|repeat| repeat.values()).copied().max().unwrap_or(1) {
            match Run::start(engine, case, mode) {
                Ok(mut run) => {
                    let report = run.all().await;
                    if !report.is_empty() {
                        return report;
                    }
                    values.push(run.last.get("value").cloned().unwrap_or(Value::Null));
                }
                Err(why) => return vec![why],
            }
        }
        same_across_runs(&case.expected, &values)
    };
    tokio::time::timeout(CASE_TIMEOUT, running).await.unwrap_or_else(|_| vec![String::from("hangs")])
}

fn same_across_runs(expected: &Expected, values: &[Value]) -> Vec<String> {
    let Some(wanted) = expected.value_same_across_runs else { return Vec::new() };
    let first = values.first();
    let are_same = values.iter().skip(1).all(|value| Some(value) == first);
    if are_same == wanted { Vec::new() } else { vec![format!("values across runs: same is {are_same}")] }
}

struct Run<'a> {
    case: &'a Case,
    mode: Mode,
    engine: Engine,
    limits: Limits,
    session: Session,
    calls: Calls,
    parked: Arc<AtomicU64>,
    run_id: Option<String>,
    /// The last result of the first cell.
    last: Value,
    last_text: String,
    last_took: Duration,
    has_waited: bool,
    rss_before_bytes: u64,
}

impl<'a> Run<'a> {
    fn start(engine: &Engine, case: &'a Case, mode: Mode) -> Result<Self, String> {
        for (feature, is_needed) in
            [("needs nodes", case.nodes.is_some()), ("needs the file tools of the contract", case.files.is_some())]
        {
            if is_needed {
                return Err(feature.into());
            }
        }
        let engine = match case.limits.slots {
            None => engine.clone(),
            Some(slots) => {
                let slots = SlotPool::new(slots).map_err(|error| error.to_string())?;
                Engine::new(EngineConfig { slots, ..EngineConfig::default() }).map_err(|error| error.to_string())?
            }
        };
        let calls = Calls::default();
        let parked = Arc::new(AtomicU64::new(0));
        let limits = limits(case, mode)?;
        let session = session(&engine, case, mode, &limits, &calls, &parked, owner("run-1", "session-1", "agent-1"))?;
        Ok(Self {
            case,
            mode,
            engine,
            limits,
            session,
            calls,
            parked,
            run_id: None,
            last: Value::Null,
            last_text: String::new(),
            last_took: Duration::ZERO,
            has_waited: false,
            rss_before_bytes: resident_bytes(),
        })
    }

    async fn all(&mut self) -> Vec<String> {
        let mut report = Vec::new();
        match &self.case.steps {
            Some(steps) => {
                for (number, step) in steps.iter().enumerate() {
                    let found = self.step(step).await;
                    report.extend(found.into_iter().map(|line| format!("step {}: {line}", number + 1)));
                }
            }
            None => {
                self.exec(None).await;
                self.wait_until_terminal().await;
            }
        }
        report.extend(self.compare(&self.case.expected, None));
        report.extend(self.afterwards().await);
        report
    }

    async fn step(&mut self, step: &Step) -> Vec<String> {
        let before = self.run_id.clone();
        match step.call {
            Call::Exec => self.exec(step.cancel_after_ms).await,
            Call::Wait => {
                let Some(id) = step.run_id.clone().or_else(|| self.run_id.clone()) else {
                    return vec![String::from("there is no run to wait for")];
                };
                let other = match self.other_caller(step) {
                    Ok(other) => other,
                    Err(why) => return vec![why],
                };
                let has_ended = matches!(self.last.get("status").and_then(Value::as_str), Some("completed" | "failed"));
                let is_first_cell = other.is_none() && step.run_id.is_none() && !has_ended;
                let execution = other.as_ref().unwrap_or(&self.session).wait(&id);
                let (reply, took) = timed(execution, step.cancel_after_ms).await;
                if !is_first_cell {
                    return self.compare_reply(step.expect.as_ref(), &reply, took, before.as_deref());
                }
                self.note(reply, took);
            }
            Call::WaitUntilTerminal => self.wait_until_terminal().await,
            Call::WaitTwice => return self.wait_twice(step).await,
            Call::ExecSecond => {
                let (reply, took) = timed(self.session.exec(self.second_cell(step)), None).await;
                return self.compare_reply(step.expect.as_ref(), &reply, took, None);
            }
            Call::ExecOtherRun => {
                let other = match self.session_of(owner("run-2", "session-1", "agent-1")) {
                    Ok(other) => other,
                    Err(why) => return vec![why],
                };
                let (reply, took) = timed(other.exec(self.second_cell(step)), None).await;
                return self.compare_reply(step.expect.as_ref(), &reply, took, None);
            }
            Call::Sleep => tokio::time::sleep(Duration::from_millis(step.ms.unwrap_or(0))).await,
            Call::CancelRun => self.session.close(),
            Call::SealAndWait => return vec![String::from("needs sealed snapshots")],
        }
        step.expect.as_ref().map(|expected| self.compare(expected, before.as_deref())).unwrap_or_default()
    }

    fn other_caller(&self, step: &Step) -> Result<Option<Session>, String> {
        if step.as_session.is_none() && step.as_agent.is_none() {
            return Ok(None);
        }
        let or = |given: &Option<Option<String>>, usual: &str| given.clone().unwrap_or_else(|| Some(usual.to_owned()));
        let owner = Owner {
            run: Some(String::from("run-1")),
            session: or(&step.as_session, "session-1"),
            agent: or(&step.as_agent, "agent-1"),
        };
        self.session_of(owner).map(Some)
    }

    fn session_of(&self, owner: Owner) -> Result<Session, String> {
        session(&self.engine, self.case, self.mode, &self.limits, &self.calls, &self.parked, owner)
    }

    /// The cell of a step, with `$ID` for the id in the first cell's value.
    fn second_cell(&self, step: &Step) -> ExecInput {
        let value = self.last.get("value");
        let id = value.and_then(|value| value.get("id").or_else(|| value.pointer("/reference/id")));
        let code = step.code.clone().unwrap_or_default();
        ExecInput::javascript(code.replace("$ID", id.and_then(Value::as_str).unwrap_or("$ID")))
    }

    async fn exec(&mut self, cancel_after_ms: Option<u64>) {
        let source = self
            .case
            .code_repeat
            .as_ref()
            .map_or_else(|| self.case.code.clone().unwrap_or_default(), super::format::Repeated::expand);
        let input = self.case.exec_input.clone().unwrap_or_else(|| match self.case.typecheck {
            None => json!({"code": source, "language": self.case.language}),
            Some(typecheck) => json!({"code": source, "language": self.case.language, "typecheck": typecheck}),
        });
        let (reply, took) = timed(self.session.exec_json(&input), cancel_after_ms).await;
        self.note(reply, took);
    }

    async fn wait_until_terminal(&mut self) {
        while self.last.get("status").and_then(Value::as_str) == Some("waiting")
            && let Some(id) = self.run_id.clone()
        {
            let (reply, took) = timed(self.session.wait(&id), None).await;
            self.note(reply, took);
        }
    }

    async fn wait_twice(&mut self, step: &Step) -> Vec<String> {
        let Some(id) = self.run_id.clone() else { return vec![String::from("there is no run to wait for")] };
        let first = self.session.wait(&id);
        let second = self.session.wait(&id);
        let ((first, first_took), (second, second_took)) = tokio::join!(timed(first, None), timed(second, None));
        let (expected, other) = (step.expect.as_ref(), step.expect_other.as_ref());
        let straight = [
            self.compare_reply(expected, &first, first_took, Some(&id)),
            self.compare_reply(other, &second, second_took, Some(&id)),
        ]
        .concat();
        let crossed = [
            self.compare_reply(expected, &second, second_took, Some(&id)),
            self.compare_reply(other, &first, first_took, Some(&id)),
        ]
        .concat();
        let (reply, took) = if crossed.is_empty() { (second, second_took) } else { (first, first_took) };
        self.note(reply, took);
        if crossed.is_empty() { crossed } else { straight }
    }

    fn note(&mut self, reply: Reply, took: Duration) {
        self.last = mock::deep(&reply.json).unwrap_or(Value::Null);
        self.last_text = reply.text;
        self.last_took = took;
        if let Some(id) = self.last.get("runId").and_then(Value::as_str) {
            self.run_id = Some(id.to_owned());
            self.has_waited = true;
        }
    }

    fn compare(&self, expected: &Expected, run_id_before: Option<&str>) -> Vec<String> {
        self.compare_found(expected, &self.last_text, &self.last, self.last_took, run_id_before)
    }

    fn compare_reply(
        &self,
        expected: Option<&Expected>,
        reply: &Reply,
        took: Duration,
        run_id_before: Option<&str>,
    ) -> Vec<String> {
        let Some(expected) = expected else { return Vec::new() };
        let result = mock::deep(&reply.json).unwrap_or(Value::Null);
        self.compare_found(expected, &reply.text, &result, took, run_id_before)
    }

    fn compare_found(
        &self,
        expected: &Expected,
        text: &str,
        result: &Value,
        took: Duration,
        run_id_before: Option<&str>,
    ) -> Vec<String> {
        let rss_growth_bytes = resident_bytes().saturating_sub(self.rss_before_bytes);
        let (calls, exec_description) = (&self.calls, &*self.session.exec_description());
        mismatches(expected, &Found { text, result, took, run_id_before, calls, exec_description, rss_growth_bytes })
    }

    /// What must hold after every case.
    async fn afterwards(&mut self) -> Vec<String> {
        let mut report = Vec::new();
        let calls = self.calls.total();
        let reported =
            self.last.get("telemetry").and_then(|telemetry| telemetry.get("callCount")).and_then(Value::as_u64);
        let is_terminal = self.last.get("status").and_then(Value::as_str) != Some("waiting");
        if is_terminal && self.case.steps.is_none() && reported != Some(calls) {
            report.push(format!("{calls} calls were made, {reported:?} reported"));
        }
        let completed = self.last.get("status").and_then(Value::as_str) == Some("completed");
        let suspended = self.has_waited || (completed && calls > 0);
        if self.mode == Mode::Park && suspended && self.parked.load(Relaxed) == 0 {
            report.push(String::from("it suspended and never parked"));
        }
        let limits = Limits::default();
        let next = self.engine.session().limits(limits).build().map_err(|error| error.to_string());
        let next = match next {
            Ok(next) => timed(next.exec(ExecInput::javascript("return 1")), None).await.0.json,
            Err(why) => why,
        };
        let next = mock::deep(&next).unwrap_or(Value::String(next));
        if next.get("value") != Some(&json!(1)) {
            report.push(format!("the next cell on the same engine: {next}"));
        }
        if is_terminal && self.calls.total() != calls {
            report.push(String::from("a tool was called after the terminal result"));
        }
        report
    }
}

fn owner(run: &str, session: &str, agent: &str) -> Owner {
    Owner { run: Some(run.into()), session: Some(session.into()), agent: Some(agent.into()) }
}

fn session(
    engine: &Engine,
    case: &Case,
    mode: Mode,
    limits: &Limits,
    calls: &Calls,
    parked: &Arc<AtomicU64>,
    owner: Owner,
) -> Result<Session, String> {
    let parked = parked.clone();
    let mut builder = engine.session();
    if let Some(Hook { original, replace }) = &case.hook {
        let (original, replace) = (original.clone(), replace.clone());
        builder = builder.before_exec(move |call| {
            let unseen = original.iter().find(|(key, value)| call.arguments.get(key) != Some(value));
            if let Some((key, value)) = unseen {
                return Decision::Refuse(format!("the hook should see {key}: {value}"));
            }
            let mut arguments = call.arguments.clone();
            if let Some(fields) = arguments.as_object_mut() {
                fields.extend(replace.clone());
            }
            Decision::Rewrite(arguments)
        });
    }
    builder
        .limits(limits.clone())
        .owner(owner)
        .tools(mock::tools(&case.tools, calls)?)
        .park_at_every_suspension(mode == Mode::Park)
        .observer(move |event| {
            if matches!(event, CellEvent::Parked { .. }) {
                parked.fetch_add(1, Relaxed);
            }
        })
        .build()
        .map_err(|error| error.to_string())
}

fn limits(case: &Case, mode: Mode) -> Result<Limits, String> {
    let given = &case.limits;
    let snapshot = given.max_snapshot_bytes.or((mode == Mode::Park).then_some(SNAPSHOT_BYTES_MAX));
    let mut limits = Limits::default();
    for (key, value) in [
        ("timeoutMs", given.timeout_ms),
        ("memoryLimitBytes", given.memory_bytes),
        ("maxOutputBytes", given.max_output_bytes),
        ("maxSnapshotBytes", snapshot),
        ("maxPendingToolCalls", given.max_pending),
        ("snapshotTtlSeconds", given.snapshot_ttl_seconds),
    ] {
        if let Some(value) = value {
            limits.set(key, &value.to_string()).map_err(|error| error.to_string())?;
        }
    }
    Ok(limits)
}

/// A result as programs and as the model read it.
struct Reply {
    json: String,
    text: String,
}

async fn timed(execution: Execution, cancel_after_ms: Option<u64>) -> (Reply, Duration) {
    let began = Instant::now();
    if let Some(ms) = cancel_after_ms {
        let handle = execution.cancel_handle();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            handle.cancel();
        });
    }
    let outcome = execution.await;
    let took = began.elapsed();
    (Reply { json: outcome.to_json(), text: outcome.text() }, took)
}
