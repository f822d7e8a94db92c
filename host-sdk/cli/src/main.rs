//! The command line: `codemode exec` runs a cell over a directory, `codemode tools` shows what a model would see of a list
//! of tools, `codemode cases` runs conformance cases.

mod exec;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use codemode::{Engine, EngineConfig};
use codemode_cli::cases::{Mode, Suite, Verdict};

#[derive(Parser)]
#[command(name = "codemode", about = "Runs programs that models write, in a sandbox that can be parked")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a cell until it ends; prints its result as one line of JSON.
    ///
    /// Exit status: 0 completed, 1 failed, 2 usage.
    Exec(exec::Exec),
    /// Shows what a model would see of a list of tools: the quick index, or more.
    ///
    /// Exit status: 0 done, 2 usage or a file that can't be read. Tools that are left out are named on standard error.
    Tools(tools::Tools),
    /// Runs conformance cases and prints `N passed, N failed`.
    Cases {
        /// Files of cases, or folders of them.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// How suspensions are handled.
        #[arg(long, value_enum, default_value_t = Modes::Both)]
        mode: Modes,
        /// Only cases whose id or category contains this.
        #[arg(long, default_value = "")]
        filter: String,
        /// Prints the pending cases as well.
        #[arg(long)]
        show_pending: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Modes {
    /// The instance stays while it can.
    Inline,
    /// Every suspension parks.
    Park,
    /// One after the other.
    Both,
}

impl Modes {
    fn list(self) -> &'static [Mode] {
        match self {
            Self::Inline => &[Mode::Inline],
            Self::Park => &[Mode::Park],
            Self::Both => &[Mode::Inline, Mode::Park],
        }
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().context("starting the runtime")?;
    match arguments.command {
        Command::Exec(exec) => runtime.block_on(exec.run()),
        Command::Tools(tools) => Ok(tools.run()),
        Command::Cases { paths, mode, filter, show_pending } => {
            runtime.block_on(cases(&paths, mode, &filter, show_pending))
        }
    }
}

async fn cases(paths: &[PathBuf], mode: Modes, filter: &str, show_pending: bool) -> Result<ExitCode> {
    let suite = Arc::new(Suite::load(paths)?);
    let engine = Engine::new(EngineConfig::default())?;
    let (mut passed, mut failed, mut pending) = (0, 0, 0);
    for id in suite.ids(filter) {
        let report = suite.run(&engine, id, mode.list()).await?;
        match report.verdict() {
            Verdict::Passed => passed += 1,
            Verdict::Failed => {
                failed += 1;
                print_failures(&report.id, &report.failures);
            }
            Verdict::NoLongerPending if matches!(mode, Modes::Both) => {
                failed += 1;
                println!("{id}: passes, but is listed as pending");
            }
            Verdict::NoLongerPending => passed += 1,
            Verdict::Pending => {
                pending += 1;
                if show_pending {
                    print_failures(&report.id, &report.failures);
                }
            }
        }
    }
    if pending > 0 {
        println!("{pending} cases are pending");
    }
    for (id, rule) in &suite.disputed {
        println!("{id} is disputed: {rule}");
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_failures(id: &str, failures: &std::collections::BTreeMap<&'static str, Vec<String>>) {
    for (mode, lines) in failures {
        for line in lines {
            println!("{id} [{mode}] {line}");
        }
    }
}
