//! Ready-made tools over one granted directory, read-only: `read` gives a whole text file, `ls` a plain listing. Nothing
//! outside of the directory can be reached, whatever a path or a symlink says.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};

use crate::tool::{Definition, Tool, ToolError, from_fn};

/// Bytes of the largest file that `read` gives whole.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Entries that `ls` gives.
const ENTRIES_MAX: usize = 10_000;

#[derive(Deserialize)]
struct ReadInput {
    path: String,
}

#[derive(Serialize)]
struct ReadOutput {
    kind: &'static str,
    content: String,
}

#[derive(Deserialize)]
struct ListInput {
    #[serde(default = "here")]
    path: String,
}

fn here() -> String {
    String::from(".")
}

#[derive(Serialize)]
struct ListOutput {
    entries: Vec<ListEntry>,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct ListEntry {
    name: String,
    kind: &'static str,
}

/// The tools over `directory`.
///
/// # Errors
///
/// When the directory can't be opened.
pub fn open(directory: &Path) -> std::io::Result<Vec<Arc<dyn Tool>>> {
    let granted = Arc::new(Dir::open_ambient_dir(directory, ambient_authority())?);
    Ok(vec![Arc::new(read_tool(granted.clone())), Arc::new(ls_tool(granted))])
}

fn read_tool(granted: Arc<Dir>) -> impl Tool {
    let definition = Definition {
        replay_safe: true,
        ..Definition::new("read", "Reads one text file of the granted directory: {path} to {kind, content}.")
    };
    from_fn(definition, move |_, input: ReadInput| blocking(granted.clone(), move |granted| read(granted, &input.path)))
}

fn ls_tool(granted: Arc<Dir>) -> impl Tool {
    let definition = Definition {
        replay_safe: true,
        ..Definition::new("ls", "Lists one folder of the granted directory: {path?} to {entries: [{name, kind}]}.")
    };
    from_fn(definition, move |_, input: ListInput| blocking(granted.clone(), move |granted| list(granted, &input.path)))
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    granted: Arc<Dir>,
    work: impl FnOnce(&Dir) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(move || work(&granted)).await;
    done.unwrap_or_else(|_| Err(ToolError::new("the file system failed unexpectedly")))
}

fn read(granted: &Dir, path: &str) -> Result<ReadOutput, ToolError> {
    let failed = |error: std::io::Error| ToolError::new(format!("{path}: {}", reason(&error)));
    let file = granted.open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ToolError::new(format!("{path}: not a file")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ToolError::new(format!("{path}: larger than {FILE_BYTES_MAX} bytes")));
    }
    let content = String::from_utf8(bytes).map_err(|_| ToolError::new(format!("{path}: not a text file")))?;
    Ok(ReadOutput { kind: "text", content })
}

fn list(granted: &Dir, path: &str) -> Result<ListOutput, ToolError> {
    let failed = |error: std::io::Error| ToolError::new(format!("{path}: {}", reason(&error)));
    let mut entries = Vec::new();
    for entry in granted.read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type().map_err(failed)?;
        let kind = if kind.is_dir() {
            "directory"
        } else if kind.is_symlink() {
            "symlink"
        } else {
            "file"
        };
        entries.push(ListEntry { name, kind });
        if entries.len() > ENTRIES_MAX {
            return Err(ToolError::new(format!("{path}: more than {ENTRIES_MAX} entries")));
        }
    }
    entries.sort();
    Ok(ListOutput { entries })
}

/// What went wrong, without anything of the host in it.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => String::from("no such file or folder"),
        std::io::ErrorKind::PermissionDenied => String::from("not allowed"),
        kind => kind.to_string(),
    }
}
