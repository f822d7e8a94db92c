//! Rules about the source tree that no compiler checks.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `folder` with this extension, as paths from the root.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn sources() -> Vec<PathBuf> {
    [
        "guest-runtime/src",
        "guest-runtime/build/src",
        "host-sdk/src",
        "host-sdk/core/src",
        "host-sdk/cli/src",
        "host-sdk/engine-config/src",
    ]
    .iter()
    .flat_map(|folder| files(folder, "rs"))
    .collect()
}

#[test]
fn the_core_knows_no_clock_files_threads_or_wasm() {
    let manifest = read(Path::new("host-sdk/core/Cargo.toml"));
    for banned in ["wasmtime", "tokio", "rand", "uuid", "cap-std"] {
        assert!(!manifest.contains(banned), "codemode-core depends on {banned}");
    }
    for file in files("host-sdk/core/src", "rs") {
        let text = read(&file);
        for banned in ["std::fs", "std::net", "std::thread", "SystemTime", "std::time::Instant", "Instant::now"] {
            assert!(!text.contains(banned), "{} uses {banned}", file.display());
        }
    }
}

#[test]
fn unsafe_code_is_in_the_named_files_only() {
    let allowed = [
        "guest-runtime/src/engine/class.rs",
        "guest-runtime/src/engine/handle.rs",
        "guest-runtime/src/engine/heap.rs",
        "guest-runtime/src/engine/mod.rs",
        "guest-runtime/src/engine/primordials.rs",
        "guest-runtime/src/engine/value.rs",
        // The attribute on what wit-bindgen generates.
        "guest-runtime/src/lib.rs",
        "guest-runtime/src/snapshot.rs",
        "host-sdk/src/engine.rs",
    ];
    for file in sources() {
        let name = file.to_str().unwrap();
        if !allowed.contains(&name) {
            assert!(!read(&file).contains("unsafe"), "{name} has unsafe code");
        }
    }
}

#[test]
fn wasmtime_and_tokio_stay_in_their_files() {
    let wasmtime = ["bindings", "bridge", "engine", "instance", "ticker"];
    let tokio =
        ["call", "dispatch", "drive", "engine", "file_tools", "instance", "reins", "session", "tool", "turnstile"];
    for file in files("host-sdk/src", "rs") {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let text = read(&file);
        assert!(wasmtime.contains(&stem) || !text.contains("use wasmtime"), "{} names wasmtime", file.display());
        assert!(tokio.contains(&stem) || !text.contains("use tokio"), "{} names tokio", file.display());
    }
    for file in files("guest-runtime/src", "rs") {
        let is_engine = file.starts_with("guest-runtime/src/engine");
        assert!(is_engine || !read(&file).contains("javy::"), "{} names javy", file.display());
    }
}

#[test]
fn every_source_file_says_what_it_holds_and_is_on_the_map() {
    let map = read(Path::new("ARCHITECTURE.md"));
    for file in sources() {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(read(&file).starts_with("//!"), "{} has no first sentence", file.display());
        let on_the_map = match name {
            "mod.rs" => file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned(),
            _ => name.trim_end_matches(".rs").to_owned(),
        };
        assert!(map.contains(&format!("`{on_the_map}`")), "ARCHITECTURE.md doesn't mention {}", file.display());
    }
}

#[test]
fn nothing_is_unfinished() {
    for file in sources() {
        let text = read(&file);
        for mark in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("un", "implemented!(")] {
            assert!(!text.contains(mark), "{} has {mark}", file.display());
        }
    }
}

#[test]
fn every_wit_item_says_since_when() {
    for file in files("wit", "wit") {
        let text = read(&file);
        for (number, line) in text.lines().enumerate() {
            let item = line.trim_start();
            let is_item = ["interface ", "record ", "variant ", "enum ", "type ", "world "]
                .iter()
                .any(|word| item.starts_with(word))
                || (item.contains(": func(") && !item.starts_with("export"));
            if is_item {
                let before = text.lines().nth(number - 1).unwrap_or_default().trim();
                assert!(before.starts_with("@since"), "{}:{} lacks @since", file.display(), number + 1);
            }
        }
    }
}
