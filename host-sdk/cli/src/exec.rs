//! `codemode exec`: one cell over a granted directory, driven until its result is terminal.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use codemode::{CellEvent, Engine, EngineConfig, ExecInput, Limits, Outcome, Status, file_tools};

/// Exit status of a failed cell.
const FAILED: u8 = 1;
/// Exit status of a mistake in the arguments, as clap has it.
pub const USAGE: u8 = 2;

#[derive(Args)]
pub struct Exec {
    /// The cell: a file, or `-` for standard input.
    file: PathBuf,
    /// Grants `read` and `ls` over this directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Sets a limit, for instance `timeoutMs=300`. May be repeated.
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limits: Vec<String>,
}

impl Exec {
    pub async fn run(self) -> Result<ExitCode> {
        let limits = match self.limits() {
            Ok(limits) => limits,
            Err(message) => {
                eprintln!("error: {message}");
                return Ok(ExitCode::from(USAGE));
            }
        };
        let source = match self.source() {
            Ok(source) => source,
            Err(error) => {
                eprintln!("error: {error:#}");
                return Ok(ExitCode::from(USAGE));
            }
        };
        let tools = match &self.dir {
            None => Vec::new(),
            Some(dir) => match file_tools::open(dir) {
                Ok(tools) => tools,
                Err(error) => {
                    eprintln!("error: --dir {}: {error}", dir.display());
                    return Ok(ExitCode::from(USAGE));
                }
            },
        };
        let engine = Engine::new(EngineConfig::default())?;
        let session = engine.session().limits(limits).tools(tools).observer(report).build()?;
        let mut outcome = session.exec(ExecInput::javascript(source)).await;
        while let Status::Waiting { run_id, .. } = &outcome.status {
            print_output(&outcome);
            outcome = session.wait(run_id.as_str()).await;
        }
        println!("{}", outcome.to_json());
        Ok(match outcome.status {
            Status::Completed { .. } => ExitCode::SUCCESS,
            Status::Failed(_) | Status::Waiting { .. } => ExitCode::from(FAILED),
        })
    }

    fn limits(&self) -> Result<Limits, String> {
        let mut limits = Limits::default();
        for limit in &self.limits {
            let (key, value) = limit.split_once('=').ok_or(format!("--limit {limit}: write KEY=VALUE"))?;
            limits.set(key, value).map_err(|error| error.to_string())?;
        }
        Ok(limits)
    }

    fn source(&self) -> Result<String> {
        if self.file.as_os_str() == "-" {
            let mut source = String::new();
            std::io::stdin().read_to_string(&mut source).context("reading standard input")?;
            return Ok(source);
        }
        std::fs::read_to_string(&self.file).with_context(|| format!("reading {}", self.file.display()))
    }
}

/// Output that a waiting result delivered isn't delivered again, so it is shown when it comes.
fn print_output(outcome: &Outcome) {
    if outcome.output.get() != "[]" {
        eprintln!("output: {}", outcome.output);
    }
}

fn report(event: &CellEvent) {
    match event {
        CellEvent::Parked { bytes, took } => eprintln!("parked: {bytes} bytes in {} us", took.as_micros()),
        CellEvent::BudgetPaused => eprintln!("paused: an approval is awaited"),
        CellEvent::BudgetResumed => eprintln!("resumed: no approval is awaited"),
        CellEvent::Resumed { bytes, took } => eprintln!("resumed: {bytes} bytes in {} us", took.as_micros()),
    }
}
