#!/usr/bin/env bash
# Installs what building the guest needs: the wasm32-wasip2 target of Rust, clang and libclang from 16 on, the C headers
# of WASI, and wasm-opt; then puts them into the shape of a wasi-sdk in the folder that is given. Idempotent.
# With WASI_SDK set to a real wasi-sdk, only the Rust target and wasm-opt are looked after.
set -euo pipefail
sdk=$1

say() { printf 'setup: %s\n' "$1" >&2; }

if ! rustup target list --installed | grep -qx wasm32-wasip2; then
    say "adding the Rust target wasm32-wasip2"
    rustup target add wasm32-wasip2 >&2
fi
if [ -n "${WASI_SDK:-}" ] && [ "$WASI_SDK" != "$sdk" ]; then
    [ -x "$WASI_SDK/bin/clang" ] || { say "WASI_SDK=$WASI_SDK has no bin/clang"; exit 1; }
    command -v wasm-opt >/dev/null || { say "needs wasm-opt (the package is called binaryen)"; exit 1; }
    exit 0
fi

newest_llvm() {
    local version
    for version in 23 22 21 20 19 18 17 16; do
        if [ -x "/usr/lib/llvm-$version/bin/clang" ] && [ -x "/usr/lib/llvm-$version/bin/llvm-ar" ] \
            && compgen -G "/usr/lib/llvm-$version/lib/libclang*.so*" >/dev/null; then
            printf '%s\n' "$version"
            return
        fi
    done
}

headers=/usr/include/wasm32-wasi
if [ -z "$(newest_llvm)" ] || [ ! -d "$headers" ] || ! command -v wasm-opt >/dev/null; then
    command -v apt-get >/dev/null || {
        say "needs clang, llvm-ar and libclang from 16 on, WASI's C headers, and wasm-opt; or a wasi-sdk in WASI_SDK"
        exit 1
    }
    as_root=""
    if [ "$(id -u)" != 0 ]; then
        as_root="sudo -n"
        $as_root true 2>/dev/null || {
            say "please run: sudo apt-get install clang-19 llvm-19 libclang-19-dev wasi-libc binaryen"
            exit 1
        }
    fi
    say "installing clang, libclang, wasi-libc and binaryen with apt-get"
    $as_root apt-get update -qq >&2
    package=""
    for version in 22 19 18 17 16; do
        if apt-cache show "clang-$version" >/dev/null 2>&1; then package=$version; break; fi
    done
    [ -n "$package" ] || { say "apt offers no clang from 16 on"; exit 1; }
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "clang-$package" "llvm-$package" "libclang-$package-dev" wasi-libc binaryen >&2
fi

llvm=/usr/lib/llvm-$(newest_llvm)
if [ "$(readlink "$sdk/bin/clang" 2>/dev/null || true)" != "$llvm/bin/clang" ]; then
    mkdir -p "$sdk/bin" "$sdk/share/wasi-sysroot/include"
    ln -sfn "$llvm/bin/clang" "$sdk/bin/clang"
    ln -sfn "$llvm/bin/llvm-ar" "$sdk/bin/ar"
    ln -sfn "$headers" "$sdk/share/wasi-sysroot/include/wasm32-wasip2"
    printf '%s\n' "$llvm/lib" >"$sdk/libclang-path"
fi
