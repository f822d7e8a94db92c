# One word per intent; `make help` lists them. On a fresh machine `make run` and `make test` are enough.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo

# One profile for the builder of the guest, the tests and the command line, so that they share what is compiled.
PROFILE := release
OUT := target/$(PROFILE)
GUEST_OUT := $(CURDIR)/target/guest-artifacts
GUEST_CORE := target/wasm32-wasip2/guest/codemode_guest.wasm

# A wasi-sdk of your own is honoured; else `make setup` puts one together from the system's clang and libraries.
LOCAL_SDK := $(CURDIR)/target/wasi-sdk
export WASI_SDK ?= $(LOCAL_SDK)
# Part of the flags, so that the engine is compiled again when its configuration changes.
ENGINE_CONFIG_DIGEST := 0x$(shell sha256sum guest-runtime/c/engine_config.h | cut -c 1-8)
GUEST_CFLAGS := --sysroot=$(WASI_SDK)/share/wasi-sysroot -mcpu=lime1 -msimd128 \
	-include $(CURDIR)/guest-runtime/c/engine_config.h -DCODEMODE_CONFIG=$(ENGINE_CONFIG_DIGEST)
# The stack comes first in memory (the snapshot starts above it); the builder makes the component itself.
GUEST_RUSTFLAGS := -C link-arg=--skip-wit-component -C link-arg=--stack-first -C link-arg=-zstack-size=1048576
# Found when it is used: `setup` may have to install it first.
GUEST_CARGO = LIBCLANG_PATH="$${LIBCLANG_PATH:-$$(cat "$(LOCAL_SDK)/libclang-path" 2>/dev/null || true)}" \
	CC_wasm32_wasip2=$(WASI_SDK)/bin/clang AR_wasm32_wasip2=$(WASI_SDK)/bin/ar CFLAGS_wasm32_wasip2="$(GUEST_CFLAGS)" \
	CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS="$(GUEST_RUSTFLAGS)" $(CARGO)
GUEST_INPUTS := $(shell find wit guest-runtime/src guest-runtime/c -type f) guest-runtime/Cargo.toml Cargo.toml Cargo.lock
# Faster and smaller by some percent. Only features that every current runtime has.
WASM_OPT_FLAGS := -O3 --strip-debug --enable-bulk-memory --enable-mutable-globals --enable-multivalue \
	--enable-nontrapping-float-to-int --enable-reference-types --enable-sign-ext --enable-simd
GUEST_OPTIMIZED := target/wasm32-wasip2/guest/codemode_guest.optimized.wasm
BUILDER_INPUTS := $(shell find guest-runtime/build host-sdk/engine-config -type f)

.PHONY: help setup guest fetch build run test cases bench lint fmt clean

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: ## Installs what the build needs; does nothing when it is there.
	@guest-runtime/setup.sh "$(LOCAL_SDK)"

guest: $(GUEST_OUT)/codemode.cwasm ## Builds the guest: component, precompiled form, digest.

$(GUEST_CORE): $(GUEST_INPUTS) | setup
	@echo "make: building the guest for wasm32-wasip2 (about a minute the first time)" >&2
	$(GUEST_CARGO) build -p codemode-guest --target wasm32-wasip2 --profile guest
	@touch $@

$(GUEST_OPTIMIZED): $(GUEST_CORE)
	wasm-opt $(WASM_OPT_FLAGS) $(GUEST_CORE) -o $@

# The builder is compiled with the features of the whole workspace, so that wasmtime isn't compiled once more for the SDK.
$(GUEST_OUT)/codemode.cwasm: $(GUEST_OPTIMIZED) $(BUILDER_INPUTS)
	@echo "make: building the component (wasmtime takes some minutes the first time)" >&2
	$(CARGO) run --profile $(PROFILE) --bin codemode-guest-build -- $(GUEST_OPTIMIZED) $(GUEST_OUT)

build: guest ## Builds the command line: target/release/codemode.
	$(CARGO) build --profile $(PROFILE) --bin codemode

run: build ## Runs the demo: a cell that counts this project's lines, parking twice.
	$(OUT)/codemode exec host-sdk/cli/demo/lines-by-folder.js --dir . --limit timeoutMs=1000

fetch: ## Fetches what tests compare with: the TypeScript compiler and JSON schemas.
	@tests/fetch.sh "$(CURDIR)/target/test-data"

test: guest fetch ## Runs every test.
	$(CARGO) test --profile $(PROFILE) --workspace --exclude codemode-guest --doc
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --cargo-profile $(PROFILE) --workspace --exclude codemode-guest; \
	else \
		$(CARGO) test --profile $(PROFILE) --workspace --exclude codemode-guest --lib --bins --tests -- --test-threads 1; \
	fi

cases: build ## Runs the conformance cases, inline and parking.
	$(OUT)/codemode cases tests/cases tests/hostile --mode both

bench: guest ## Measures each step of a cell's life, and prints a table.
	$(CARGO) bench --profile $(PROFILE) --bench lifecycle --bench guest --bench catalog --bench load

lint: guest ## Checks formatting, lints, documentation, and with cargo-deny installed the licences.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile $(PROFILE) --workspace --exclude codemode-guest --all-targets -- -D warnings
	$(GUEST_CARGO) clippy -p codemode-guest --target wasm32-wasip2 --profile guest -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check licenses bans sources; fi
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile $(PROFILE) --workspace --exclude codemode-guest --no-deps

fmt: ## Formats the source.
	$(CARGO) fmt --all

clean: ## Removes what was built.
	$(CARGO) clean
