//! Turns the guest's core module into what the SDK embeds: `codemode-guest-build CORE.wasm OUT_DIR`.
//!
//! Core module -> WASI leftovers become local traps (`stub`) -> component -> preinitialised under a fixed clock
//! (`preinitialize`) -> precompiled with the SDK's own engine settings. Two runs on one core module give the same bytes,
//! and the build checks that they do: a sealed snapshot must survive a rebuild.

mod preinitialize;
mod stub;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(core), Some(out), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: codemode-guest-build CORE.wasm OUT_DIR");
    };
    let module = std::fs::read(&core).with_context(|| format!("reading {}", core.display()))?;
    build(&module, &out)
}

fn build(module: &[u8], out: &Path) -> Result<()> {
    let module = stub::without_wasi_leftovers(module).context("replacing WASI leftovers")?;
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .context("making a component")?;
    let engine = engine()?;
    let image = preinitialize::run(&engine, &component).context("preinitialising")?;
    ensure!(
        image == preinitialize::run(&engine, &component)?,
        "two preinitialisations of one component differ: something in `init` isn't deterministic"
    );
    let precompiled = engine.precompile_component(&image).map_err(readable).context("compiling")?;

    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let digest = Sha256::digest(&image).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    write(out, "codemode.component.wasm", &image)?;
    write(out, "codemode.cwasm", &precompiled)?;
    write(out, "codemode.digest", digest.as_bytes())?;
    println!("guest: component {} bytes, precompiled {} bytes, sha256 {digest}", image.len(), precompiled.len());
    Ok(())
}

fn engine() -> Result<wasmtime::Engine> {
    let mut config = wasmtime::Config::new();
    codemode_engine_config::apply(&mut config);
    wasmtime::Engine::new(&config).map_err(readable).context("making an engine")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// wasmtime's errors carry their causes in their debug form.
fn readable(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:?}")
}
