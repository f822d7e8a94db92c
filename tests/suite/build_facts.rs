//! Facts about the built component that snapshots and the sandbox rest on. When one of them changes, parking is broken
//! or the guest reaches more than it should, whatever the other tests say.

use std::collections::BTreeSet;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use wasmparser::{ExternalKind, Operator, Parser, Payload, TypeRef};

fn artifact(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/guest-artifacts").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn component() -> Vec<u8> {
    artifact("codemode.component.wasm")
}

/// The core modules of the component: the guest itself, then the shims that adapt its imports.
fn core_modules() -> Vec<Vec<u8>> {
    let component = component();
    let mut modules = Vec::new();
    for payload in Parser::new(0).parse_all(&component) {
        if let Payload::ModuleSection { unchecked_range, .. } = payload.unwrap() {
            modules.push(component[unchecked_range].to_vec());
        }
    }
    modules
}

fn guest() -> Vec<u8> {
    core_modules().into_iter().max_by_key(Vec::len).unwrap()
}

#[test]
fn the_digest_is_the_components() {
    let digest: String = Sha256::digest(component()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(artifact("codemode.digest"), digest.as_bytes());
}

#[test]
fn the_component_imports_our_interfaces_and_two_clocks() {
    let mut imports = BTreeSet::new();
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(&component()) {
        match payload.unwrap() {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 0 => {
                // WASI's patch version is the standard library's business.
                let name = |import: &str| match import.strip_prefix("wasi:") {
                    Some(_) => import.split('@').next().unwrap().to_owned(),
                    None => import.to_owned(),
                };
                imports.extend(section.into_iter().map(|import| name(import.unwrap().name.name)));
            }
            _ => {}
        }
    }
    let imports: Vec<&str> = imports.iter().map(String::as_str).collect();
    assert_eq!(
        imports,
        [
            "codemode:cell/catalog@0.1.0",
            "codemode:cell/control@0.1.0",
            "codemode:cell/namespaces@0.1.0",
            "codemode:cell/output@0.1.0",
            "codemode:cell/restore-source@0.1.0",
            "codemode:cell/results@0.1.0",
            "codemode:cell/timers@0.1.0",
            "codemode:cell/tools@0.1.0",
            "codemode:cell/types@0.1.0",
            "wasi:clocks/monotonic-clock",
            "wasi:clocks/wall-clock",
        ]
    );
}

#[test]
fn no_module_has_a_start_function() {
    for module in core_modules() {
        for payload in Parser::new(0).parse_all(&module) {
            assert!(!matches!(payload.unwrap(), Payload::StartSection { .. }), "code would run before a restore");
        }
    }
}

#[test]
fn memory_and_one_stack_pointer_are_all_the_state() {
    let (mut memories, mut mutable_globals) = (0, 0);
    for payload in Parser::new(0).parse_all(&guest()) {
        match payload.unwrap() {
            Payload::MemorySection(section) => memories += section.count(),
            Payload::GlobalSection(section) => {
                mutable_globals += section.into_iter().filter(|global| global.as_ref().unwrap().ty.mutable).count();
            }
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader().unwrap() {
                    let is_table_write = matches!(
                        operator.unwrap(),
                        Operator::TableSet { .. }
                            | Operator::TableGrow { .. }
                            | Operator::TableFill { .. }
                            | Operator::TableCopy { .. }
                            | Operator::TableInit { .. }
                            | Operator::ElemDrop { .. }
                    );
                    assert!(!is_table_write, "a table is state that a snapshot doesn't hold");
                }
            }
            _ => {}
        }
    }
    assert_eq!((memories, mutable_globals), (1, 1));
}

/// While `restore` runs, the heap that it would use is being replaced under it: it may call its two imports, and nothing
/// that allocates, drops or panics.
#[test]
fn restore_calls_its_two_imports_and_nothing_else() {
    let module = guest();
    let mut imported = Vec::new();
    let mut restore = None;
    let mut bodies = Vec::new();
    for payload in Parser::new(0).parse_all(&module) {
        match payload.unwrap() {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.unwrap();
                    if matches!(import.ty, TypeRef::Func(_)) {
                        imported.push(format!("{}#{}", import.module, import.name));
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.unwrap();
                    if export.kind == ExternalKind::Func && export.name.ends_with("snapshot@0.1.0#restore") {
                        restore = Some(export.index as usize);
                    }
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body),
            _ => {}
        }
    }
    let body = &bodies[restore.unwrap() - imported.len()];
    let mut called = BTreeSet::new();
    for operator in body.get_operators_reader().unwrap() {
        match operator.unwrap() {
            Operator::Call { function_index } => {
                called.insert(
                    imported.get(function_index as usize).cloned().unwrap_or(format!("function {function_index}")),
                );
            }
            Operator::CallIndirect { .. } => panic!("restore calls through a table"),
            _ => {}
        }
    }
    let called: Vec<&str> = called.iter().map(String::as_str).collect();
    assert_eq!(called, ["codemode:cell/restore-source@0.1.0#next-run", "codemode:cell/restore-source@0.1.0#run-bytes"]);
}
