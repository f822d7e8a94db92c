//! Conformance cases: files of JSON that say what a cell does and what must come of it. One runner serves the command
//! line and the tests.

pub mod format;
mod matchers;
mod mock;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use codemode::Engine;

pub use format::Case;
use format::MockTool;
pub use run::{Mode, run};

/// Cases that a later feature fills in: `id: what is missing`.
const PENDING: &str = "pending.txt";
/// Cases that are held to be wrong: `id: the rule that they contradict`.
const DISPUTED: &str = "disputed.txt";
/// Schemas of real tools, for cases that name one.
const SCHEMAS: &str = "real-schemas";

/// Cases and what is known about them.
#[derive(Debug)]
pub struct Suite {
    /// The cases, by id.
    pub cases: BTreeMap<String, Case>,
    /// What each pending case waits for.
    pub pending: BTreeMap<String, String>,
    /// Why each disputed case is wrong.
    pub disputed: BTreeMap<String, String>,
}

/// How a case ended.
#[derive(Debug)]
pub struct Report {
    /// The case.
    pub id: String,
    /// What was wrong, by mode; no entry for a mode that passed.
    pub failures: BTreeMap<&'static str, Vec<String>>,
    /// What the case waits for, when it is pending.
    pub pending: Option<String>,
}

impl Report {
    /// Whether it counts as passed. A pending case counts neither way; one that passes in every mode is no longer
    /// pending, and that is a failure of the list.
    pub fn verdict(&self) -> Verdict {
        match (&self.pending, self.failures.is_empty()) {
            (None, true) => Verdict::Passed,
            (None, false) => Verdict::Failed,
            (Some(_), false) => Verdict::Pending,
            (Some(_), true) => Verdict::NoLongerPending,
        }
    }
}

/// What a report comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed,
    /// Not as expected, and listed as pending.
    Pending,
    /// As expected, and still listed as pending.
    NoLongerPending,
}

impl Suite {
    /// Loads files and folders of cases. The lists stand in the folders.
    ///
    /// # Errors
    ///
    /// When a path can't be read, a file isn't a case, an id is used twice, or a list names an id that doesn't exist.
    pub fn load(paths: &[PathBuf]) -> Result<Self> {
        let mut suite = Self { cases: BTreeMap::new(), pending: BTreeMap::new(), disputed: BTreeMap::new() };
        for path in paths {
            suite.add(path)?;
        }
        ensure!(!suite.cases.is_empty(), "there are no cases in {paths:?}");
        if paths.iter().any(|path| path.is_dir()) {
            for id in suite.pending.keys().chain(suite.disputed.keys()) {
                ensure!(suite.cases.contains_key(id), "a list names the case {id}, which doesn't exist");
            }
        }
        Ok(suite)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        if !path.is_dir() {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            let mut case: Case =
                serde_json::from_str(&text).with_context(|| format!("{} isn't a case", path.display()))?;
            for tool in &mut case.tools {
                fill_in_schemas(tool, path)?;
            }
            if let Some(double) = self.cases.insert(case.id.clone(), case) {
                bail!("two cases have the id {}", double.id);
            }
            return Ok(());
        }
        let entries: Result<Vec<PathBuf>, _> = std::fs::read_dir(path)
            .with_context(|| format!("reading {}", path.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect();
        let mut entries = entries?;
        entries.sort();
        for entry in entries {
            match entry.file_name().and_then(|name| name.to_str()) {
                Some(PENDING) => self.pending.extend(list(&entry)?),
                Some(DISPUTED) => self.disputed.extend(list(&entry)?),
                // Parts of cases, not cases.
                Some(SCHEMAS) => {}
                Some(name) if name.ends_with(".json") || entry.is_dir() => self.add(&entry)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The ids of the cases to run, those that measure time last.
    pub fn ids(&self, filter: &str) -> Vec<&str> {
        let chosen = self.cases.values().filter(|case| case.id.contains(filter) || case.category.contains(filter));
        let (timed, free): (BTreeSet<_>, BTreeSet<_>) = chosen
            .filter(|case| !self.disputed.contains_key(&case.id))
            .map(|case| (case.is_timed(), case.id.as_str()))
            .partition(|(is_timed, _)| *is_timed);
        free.into_iter().chain(timed).map(|(_, id)| id).collect()
    }

    /// Runs one case in these modes.
    ///
    /// # Errors
    ///
    /// When there is no such case.
    pub async fn run(&self, engine: &Engine, id: &str, modes: &[Mode]) -> Result<Report> {
        let case = self.cases.get(id).with_context(|| format!("there is no case {id}"))?;
        let mut failures = BTreeMap::new();
        for mode in modes {
            let is_excluded = case.modes.as_ref().is_some_and(|modes| !modes.iter().any(|name| name == mode.as_str()));
            if is_excluded {
                continue;
            }
            let failure = run(engine, case, *mode).await;
            if !failure.is_empty() {
                failures.insert(mode.as_str(), failure);
            }
        }
        Ok(Report { id: id.to_owned(), failures, pending: self.pending.get(id).cloned() })
    }
}

/// Takes the schemas of a tool from the file that it names, in the folder of schemas beside the case or its folder.
fn fill_in_schemas(tool: &mut MockTool, case: &Path) -> Result<()> {
    let Some(name) = &tool.schema_file else { return Ok(()) };
    let files = case.ancestors().skip(1).take(2).map(|folder| folder.join(SCHEMAS).join(format!("{name}.json")));
    let file = files.clone().find(|file| file.exists());
    let file = file.with_context(|| format!("{}: there is no schema {name}", case.display()))?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let schemas: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} isn't JSON", file.display()))?;
    tool.input_schema = schemas.get("inputSchema").cloned();
    tool.output_schema = schemas.get("outputSchema").cloned();
    Ok(())
}

/// A list of `id: reason` lines; `#` starts a comment.
fn list(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (id, reason) =
                line.split_once(':').with_context(|| format!("{}: {line:?} has no reason", path.display()))?;
            ensure!(!reason.trim().is_empty(), "{}: {id} has no reason", path.display());
            Ok((id.trim().to_owned(), reason.trim().to_owned()))
        })
        .collect()
}
