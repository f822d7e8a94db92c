//! Tool names as JavaScript identifiers: deterministic, distinct, and never in the way of the language or of a fixed
//! global (B 5.2). Text in, text out.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Words of the language that can't be identifiers in a cell.
pub const RESERVED_WORDS: &[&str] = &[
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Globals that a tool never replaces.
const RESERVED_GLOBALS: &[&str] = &[
    "ALL_TOOLS",
    "API",
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "AsyncDisposableStack",
    "Atomics",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DOMException",
    "DataView",
    "Date",
    "DisposableStack",
    "Error",
    "EvalError",
    "FinalizationRegistry",
    "Float16Array",
    "Float32Array",
    "Float64Array",
    "Function",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "InternalError",
    "Intl",
    "JSON",
    "MCP",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "SharedArrayBuffer",
    "String",
    "SuppressedError",
    "Symbol",
    "SyntaxError",
    "TextDecoder",
    "TextEncoder",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakRef",
    "WeakSet",
    "WebAssembly",
    "agents",
    "arguments",
    "atob",
    "btoa",
    "catalog",
    "clearInterval",
    "clearTimeout",
    "console",
    "constructor",
    "crypto",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "escape",
    "eval",
    "globalThis",
    "isFinite",
    "isNaN",
    "json",
    "log",
    "namespaces",
    "nodes",
    "parseFloat",
    "parseInt",
    "phase",
    "results",
    "setInterval",
    "setTimeout",
    "skills",
    "text",
    "tools",
    "undefined",
    "unescape",
    "yield_control",
];

/// The guest's own prefix: no tool name starts with it.
const PRIVATE_PREFIX: &str = "__openclaw";
const REPAIR_PREFIX: &str = "tool_";

/// Whether a name can be used as it is.
pub fn is_reserved(name: &str) -> bool {
    RESERVED_WORDS.contains(&name) || RESERVED_GLOBALS.contains(&name)
}

/// One name for each tool, given as its host id and its own name. Names that are identifiers already keep their
/// spelling; others are repaired; a taken or reserved one gets a suffix from the host id, which it doesn't reveal.
///
/// ```
/// use codemode_core::names::callable_names;
/// let names = callable_names(&[("openclaw:core:a-b", "a-b"), ("openclaw:core:a_b", "a_b")]);
/// assert_eq!(names[1], "a_b");
/// assert!(names[0].starts_with("a_b_") && names[0].len() == 12);
/// ```
pub fn callable_names(tools: &[(&str, &str)]) -> Vec<String> {
    let mut names = vec![String::new(); tools.len()];
    let mut taken = BTreeSet::new();
    let mut rest = Vec::new();
    for (place, (host_id, name)) in tools.iter().enumerate() {
        let base = identifier(name);
        if base == *name && !is_reserved(&base) && taken.insert(base.clone()) {
            if let Some(slot) = names.get_mut(place) {
                *slot = base;
            }
        } else {
            rest.push((base, *host_id, place));
        }
    }
    rest.sort();
    for (base, host_id, place) in rest {
        let name = free_name(&base, host_id, &taken);
        taken.insert(name.clone());
        if let Some(slot) = names.get_mut(place) {
            *slot = name;
        }
    }
    names
}

fn identifier(name: &str) -> String {
    let repaired: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$') { letter } else { '_' })
        .collect();
    let starts_well = repaired.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '$'));
    if starts_well && !repaired.starts_with(PRIVATE_PREFIX) { repaired } else { format!("{REPAIR_PREFIX}{repaired}") }
}

fn free_name(base: &str, host_id: &str, taken: &BTreeSet<String>) -> String {
    const SUFFIX_DIGITS: usize = 8;
    const MORE_DIGITS: usize = 2;
    if !is_reserved(base) && !taken.contains(base) {
        return base.to_owned();
    }
    let digest = Sha256::digest(host_id).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    let named = |digits: usize| format!("{base}_{}", digest.get(..digits).unwrap_or(&digest));
    (SUFFIX_DIGITS..=digest.len())
        .step_by(MORE_DIGITS)
        .map(named)
        .find(|name| !taken.contains(name))
        // Two tools with one host id: number them.
        .unwrap_or_else(|| {
            (2u32..)
                .map(|count| format!("{base}_{digest}_{count}"))
                .find(|name| !taken.contains(name))
                .unwrap_or_default()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tools: &[&str], expected: &[&str]) {
        let ids: Vec<String> = tools.iter().map(|name| format!("openclaw:core:{name}")).collect();
        let pairs: Vec<(&str, &str)> = ids.iter().map(String::as_str).zip(tools.iter().copied()).collect();
        assert_eq!(callable_names(&pairs), expected);
    }

    #[test]
    fn identifiers_stay_and_others_are_repaired() {
        check(&["web_search", "llm-task"], &["web_search", "llm_task"]);
        check(&["9patch", "日本", "a b"], &["tool_9patch", "__", "a_b"]);
        check(&["__openclawHook"], &["tool___openclawHook"]);
        check(&["let", "async", "fetch", "performance", "exec"], &["let", "async", "fetch", "performance", "exec"]);
    }

    #[test]
    fn a_collision_is_settled_by_the_host_id() {
        check(&["llm-task", "llm_task"], &["llm_task_a3685c99", "llm_task"]);
        check(&["a b", "a.b"], &["a_b", "a_b_caa2df52"]);
    }

    #[test]
    fn the_language_and_fixed_globals_are_kept_free() {
        for name in RESERVED_WORDS.iter().chain(RESERVED_GLOBALS) {
            let names = callable_names(&[("id", name)]);
            assert!(names[0].starts_with(&format!("{name}_")), "{name} became {}", names[0]);
        }
    }

    #[test]
    fn equal_tools_stay_distinct() {
        let names = callable_names(&[("id", "a"), ("id", "a"), ("id", "a")]);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 3);
    }
}
