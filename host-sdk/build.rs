//! Finds the guest that `make guest` built, and says what to do when it isn't there.

use std::env;
use std::path::PathBuf;

const FILES: [(&str, &str); 2] =
    [("CODEMODE_GUEST_CWASM", "codemode.cwasm"), ("CODEMODE_GUEST_DIGEST", "codemode.digest")];

fn main() {
    println!("cargo:rerun-if-env-changed=CODEMODE_GUEST_DIR");
    if env::var_os("CARGO_FEATURE_EMBEDDED_GUEST").is_none() {
        return;
    }
    let folder = env::var_os("CODEMODE_GUEST_DIR").map_or_else(
        || PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../target/guest-artifacts"),
        PathBuf::from,
    );
    for (variable, name) in FILES {
        let file = folder.join(name);
        println!("cargo:rerun-if-changed={}", file.display());
        if !file.is_file() {
            println!(
                "cargo::error=the guest isn't built: {} is missing. Run `make guest`, or set CODEMODE_GUEST_DIR to the \
                 folder that holds it, or switch the feature `embedded-guest` off and pass the component yourself.",
                file.display()
            );
            return;
        }
        println!("cargo:rustc-env={variable}={}", file.display());
    }
}
