//! `codemode tools`: the catalog of a list of tool definitions, as the model, a program or a compiler reads it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use codemode::{Call, Catalog, Definition, Diagnostic, Source, Tool, ToolError, ToolFuture};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exec::USAGE;

#[derive(Args)]
pub struct Tools {
    /// A JSON list of tool definitions in the shape of MCP's tools/list, or an object with that list as `tools`.
    file: PathBuf,
    /// Prints everything as JSON: each tool in full, and what is wrong with tools.
    #[arg(long, conflicts_with = "declarations")]
    json: bool,
    /// Prints the TypeScript declarations that cells can read.
    #[arg(long)]
    declarations: bool,
    /// Takes the tools for those of this MCP server, instead of native ones.
    #[arg(long, value_name = "SERVER")]
    mcp: Option<String>,
}

impl Tools {
    pub fn run(self) -> ExitCode {
        let (catalog, unusable) = match self.catalog() {
            Ok(made) => made,
            Err(message) => {
                eprintln!("error: {}: {message}", self.file.display());
                return ExitCode::from(USAGE);
            }
        };
        let text = if self.json {
            with_unusable(catalog.to_json(), &unusable)
        } else {
            let diagnostics = catalog.diagnostics();
            for Diagnostic { tool, reason, .. } in unusable.iter().chain(&diagnostics) {
                eprintln!("{tool:?}: {reason}");
            }
            if self.declarations { declarations(&catalog) } else { format!("{}\n", catalog.quick_index()) }
        };
        // Whoever reads may have seen enough.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        ExitCode::SUCCESS
    }

    fn catalog(&self) -> Result<(Catalog, Vec<Diagnostic>), String> {
        let text = std::fs::read_to_string(&self.file).map_err(|error| error.to_string())?;
        let list: Value = serde_json::from_str(&text).map_err(|error| format!("it isn't JSON: {error}"))?;
        let list = list.as_array().or_else(|| list.get("tools")?.as_array());
        let list = list.ok_or("it is neither a list of tools nor an object with one as `tools`")?;
        let mut unusable = Vec::new();
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for (place, tool) in list.iter().enumerate() {
            match Definition::from_json(tool) {
                Ok(definition) => tools.push(Arc::new(Shown(self.of_server(definition)))),
                Err(error) => unusable.push(Diagnostic {
                    tool: format!("number {}", place + 1),
                    reason: error.message,
                    is_left_out: true,
                }),
            }
        }
        Ok((Catalog::new(tools), unusable))
    }

    fn of_server(&self, definition: Definition) -> Definition {
        match &self.mcp {
            None => definition,
            Some(server) => Definition { source: Source::Mcp, server: Some(server.clone()), ..definition },
        }
    }
}

fn with_unusable(mut catalog: Value, unusable: &[Diagnostic]) -> String {
    if let Some(Value::Array(diagnostics)) = catalog.get_mut("diagnostics") {
        let more = unusable.iter().map(Diagnostic::to_json);
        diagnostics.splice(0..0, more);
    }
    format!("{catalog:#}\n")
}

/// All files in one text, each below its path.
fn declarations(catalog: &Catalog) -> String {
    let files = catalog.declarations();
    files.iter().map(|(path, content)| format!("// {path}\n{content}\n")).collect()
}

/// A tool that is shown and never called.
struct Shown(Definition);

impl Tool for Shown {
    fn definition(&self) -> Definition {
        self.0.clone()
    }

    fn call(&self, _: Call, _: Box<RawValue>) -> ToolFuture {
        Box::pin(async { Err(ToolError::new("this tool is only shown")) })
    }
}
