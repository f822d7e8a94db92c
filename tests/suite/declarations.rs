//! Declarations of every schema that we can find, real and contrived, read by the TypeScript compiler in its strict mode.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use codemode::{Catalog, Definition, Operation, Source, Tool, from_fn};
use serde_json::{Value, json};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What `make fetch` puts there.
fn fetched(name: &str) -> PathBuf {
    let path = root().join("target/test-data").join(name);
    assert!(path.exists(), "{} is missing; run `make fetch`", path.display());
    path
}

fn json_files(folder: &Path) -> Vec<Value> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    assert!(!paths.is_empty(), "{} has no JSON files", folder.display());
    paths.iter().map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// Input and output schemas, with the tool's own name where there is one.
fn schemas() -> Vec<(String, Value, Option<Value>)> {
    let mut schemas = Vec::new();
    for tool in json_files(&root().join("tests/cases/real-schemas")) {
        let input = tool.get("inputSchema").cloned().unwrap_or(Value::Null);
        schemas.push((tool["tool"].as_str().unwrap_or("tool").to_owned(), input, tool.get("outputSchema").cloned()));
    }
    assert_eq!(schemas.len(), 68);
    let before = schemas.len();
    for draft in ["draft7", "draft2020-12"] {
        for file in json_files(&fetched("jsonschema").join("json/tests").join(draft)) {
            for group in file.as_array().unwrap() {
                schemas.push((String::from("suite"), group["schema"].clone(), Some(group["schema"].clone())));
            }
        }
    }
    assert!(schemas.len() - before > 500, "the suite has hundreds of groups");
    schemas
}

fn tool(definition: Definition) -> Arc<dyn Tool> {
    Arc::new(from_fn(definition, |_, input: Value| async move { Ok(input) }))
}

/// Every schema as a native tool and as a tool of a server, and names that need care.
fn catalog() -> Catalog {
    let mut tools = Vec::new();
    for (number, (name, input, output)) in schemas().into_iter().enumerate() {
        let native = Definition {
            input_schema: Some(input.clone()),
            output_schema: output,
            ..Definition::new(format!("{name}-{number}"), "")
        };
        let description = String::from("First */ line\n\n@param evil `${x}` \u{2028} <b>");
        let member = Definition {
            source: Source::Mcp,
            server: Some(format!("server {}", number % 7)),
            input_schema: Some(input),
            ..Definition::new(format!("{name}.{number}"), description)
        };
        tools.extend([tool(native), tool(member)]);
    }
    let awkward = [
        "let",
        "async",
        "of",
        "get",
        "set",
        "static",
        "type",
        "declare",
        "namespace",
        "exec",
        "Iterator",
        "fetch",
        "performance",
        "any",
        "unknown",
        "string",
        "never",
        "日本",
        "",
        "index",
        "module",
        "require",
        "abstract",
    ];
    for name in awkward {
        tools.push(tool(Definition::new(name, "")));
        for server in ["index", "let", "delete", "string"] {
            let server = Some(server.to_owned());
            tools.push(tool(Definition { source: Source::Mcp, server, ..Definition::new(name, "") }));
        }
    }
    for operation in [Operation::ResourcesList, Operation::ResourcesRead, Operation::PromptsList, Operation::PromptsGet]
    {
        let schema = json!({"properties": {"uri": {"type": "string", "description": "which */"}}, "required": ["uri"]});
        let (server, input_schema) = (Some(String::from("index")), Some(schema));
        let of_server =
            Definition { source: Source::Mcp, server, operation, input_schema, ..Definition::new("op", "") };
        tools.push(tool(of_server));
    }
    Catalog::new(tools)
}

#[test]
fn every_declaration_compiles_in_strict_mode() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("declarations");
    let _ = std::fs::remove_dir_all(&folder);
    let declarations = catalog().declarations();
    let unknown_inputs = declarations.iter().filter(|(_, text)| text.contains("(input: unknown)")).count();
    assert!(unknown_inputs < declarations.len() / 2, "most schemas say something: {unknown_inputs}");
    for (path, content) in &declarations {
        let file = folder.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    // A program that uses them, so that declarations which mean nothing would show.
    std::fs::write(
        folder.join("use.ts"),
        "async function use(): Promise<number> {\n  const api = await MCP.$api();\n  \
         const read = await MCP.index.resources.read({ uri: \"x\" });\n  \
         const of = await MCP.index.$api(\"of\", { schema: true });\n  \
         return api.servers.length + read.contents.length + of.tools.length;\n}\nvoid use;\n",
    )
    .unwrap();
    let config = json!({
        "compilerOptions": {"strict": true, "noEmit": true, "lib": ["es2022"], "types": [], "target": "es2022"},
        "include": ["**/*.ts"],
    });
    std::fs::write(folder.join("tsconfig.json"), config.to_string()).unwrap();
    let output = Command::new("node")
        .arg(fetched("typescript").join("lib/tsc.js"))
        .args(["--project", folder.to_str().unwrap()])
        .output()
        .expect("node runs the TypeScript compiler");
    let errors = String::from_utf8_lossy(&output.stdout);
    let first: Vec<&str> = errors.lines().take(20).collect();
    assert!(output.status.success(), "{} errors, first: {first:#?}", errors.lines().count());
}
