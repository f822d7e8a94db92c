//! Replaces the WASI imports that the standard library and javy drag in, and that a cell must never reach, by local
//! functions that trap. What stays imported: our own interfaces and the two clocks.

use anyhow::{Context as _, Result};
use walrus::ir::{MemArg, StoreKind};
use walrus::{FunctionId, ImportKind, InstrSeqBuilder, LocalId, MemoryId, Module, ModuleConfig};

/// Interfaces that the component may import, as prefixes of their versioned names.
const KEPT: &[&str] = &["codemode:cell/", "wasi:clocks/monotonic-clock@", "wasi:clocks/wall-clock@"];
/// Asked by hash tables of the standard library. Their keys are no secret here: the guest's own tables are trees.
const HASH_SEED: &str = "insecure-seed";

/// The module without those imports, and without names and debug information.
pub fn without_wasi_leftovers(module: &[u8]) -> Result<Vec<u8>> {
    let mut config = ModuleConfig::new();
    config.generate_name_section(false).generate_producers_section(false).generate_dwarf(false);
    let mut module = config.parse(module).map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let memory = module.memories.iter().next().context("the module has no memory")?.id();
    let leftovers: Vec<(FunctionId, String)> = module
        .imports
        .iter()
        .filter(|import| !KEPT.iter().any(|kept| import.module.starts_with(kept)))
        .filter_map(|import| match import.kind {
            ImportKind::Function(function) => Some((function, import.name.clone())),
            ImportKind::Table(_) | ImportKind::Memory(_) | ImportKind::Global(_) | ImportKind::Tag(_) => None,
        })
        .collect();
    for (function, name) in leftovers {
        module
            .replace_imported_func(function, |(body, arguments)| {
                if name == HASH_SEED {
                    fixed_hash_seed(body, arguments, memory);
                } else {
                    body.unreachable();
                }
            })
            .map_err(|error| anyhow::anyhow!("{error:#}"))
            .with_context(|| format!("replacing {name}"))?;
    }
    strip_debug_sections(&mut module);
    Ok(module.emit_wasm())
}

/// `insecure-seed` returns two 64-bit numbers through a pointer.
fn fixed_hash_seed(body: &mut InstrSeqBuilder<'_>, arguments: &[LocalId], memory: MemoryId) {
    for (offset, half) in [(0, 0x636f_6465_6d6f_6465_i64), (8, 0x6865_6c6c_6f00_0001)] {
        if let [returned] = arguments {
            let place = MemArg { align: 8, offset };
            body.local_get(*returned).i64_const(half).store(memory, StoreKind::I64 { atomic: false }, place);
        }
    }
}

fn strip_debug_sections(module: &mut Module) {
    let debug: Vec<_> =
        module.customs.iter().filter(|(_, section)| section.name().starts_with(".debug")).map(|(id, _)| id).collect();
    for id in debug {
        module.customs.delete(id);
    }
}
