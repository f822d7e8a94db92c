//! Every conformance case as a test of its own, once inline and once parking at every suspension. Cases that measure
//! time or memory are named `timed::…`, so that the test runner can run them alone.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use codemode::{Engine, EngineConfig};
use codemode_cli::cases::{Mode, Suite, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let suite = Arc::new(Suite::load(&[tests.join("cases"), tests.join("hostile")])?);
    let mut trials = Vec::new();
    for id in suite.ids("") {
        let prefix = if suite.cases.get(id).is_some_and(codemode_cli::cases::Case::is_timed) { "timed::" } else { "" };
        if suite.pending.contains_key(id) {
            trials.push(trial(&suite, format!("{prefix}pending::{id}"), id, &[Mode::Inline, Mode::Park]));
            continue;
        }
        for mode in [Mode::Inline, Mode::Park] {
            let modes: &'static [Mode] = if mode == Mode::Inline { &[Mode::Inline] } else { &[Mode::Park] };
            trials.push(trial(&suite, format!("{prefix}{}::{id}", mode.as_str()), id, modes));
        }
    }
    libtest_mimic::run(&arguments, trials).exit()
}

fn trial(suite: &Arc<Suite>, name: String, id: &str, modes: &'static [Mode]) -> Trial {
    let (suite, id) = (suite.clone(), id.to_owned());
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
        let report = runtime.block_on(suite.run(engine()?, &id, modes))?;
        match report.verdict() {
            Verdict::Passed | Verdict::Pending => Ok(()),
            Verdict::NoLongerPending => Err(Failed::from("it passes, but is listed as pending")),
            Verdict::Failed => Err(Failed::from(format!("{:#?}", report.failures))),
        }
    })
}

fn engine() -> anyhow::Result<&'static Engine> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(engine);
    }
    let engine = Engine::new(EngineConfig::default())?;
    Ok(ENGINE.get_or_init(|| engine))
}
