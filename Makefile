# One word per intent; `make help` lists them.
SHELL := /bin/bash
CARGO ?= cargo
# One profile for the builder, the tests and the command line: wasmtime is compiled once.
PROFILE := release
OUT := target/$(PROFILE)
GUEST_OUT := $(CURDIR)/target/guest-artifacts
GUEST_CORE := target/wasm32-wasip2/guest/codemode_guest.wasm

# A wasi-sdk of your own is honoured; else `make setup` puts one together from the system's clang and libraries.
LOCAL_SDK := $(CURDIR)/target/wasi-sdk
export WASI_SDK ?= $(LOCAL_SDK)
export LIBCLANG_PATH ?= $(shell cat $(LOCAL_SDK)/libclang-path 2>/dev/null)
GUEST_ENV = CC_wasm32_wasip2=$(WASI_SDK)/bin/clang AR_wasm32_wasip2=$(WASI_SDK)/bin/ar \
	CFLAGS_wasm32_wasip2="--sysroot=$(WASI_SDK)/share/wasi-sysroot -include $(CURDIR)/guest-runtime/c/engine_config.h -mcpu=lime1 -msimd128"
# The stack comes first in memory (the snapshot starts above it); the builder makes the component itself.
GUEST_RUSTFLAGS := -C link-arg=--skip-wit-component -C link-arg=--stack-first -C link-arg=-zstack-size=1048576

.PHONY: help setup guest build run test cases bench lint fmt soak fuzz bench-peers clean

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

setup: ## Installs what the build needs; does nothing when it is there.
	@guest-runtime/setup.sh "$(LOCAL_SDK)"

GUEST_INPUTS := $(shell find wit guest-runtime -type f -not -path '*/target/*') Cargo.lock

$(GUEST_CORE): $(GUEST_INPUTS) | setup
	@echo "make: building the guest for wasm32-wasip2 (about a minute the first time)" >&2
	$(GUEST_ENV) CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS="$(GUEST_RUSTFLAGS)" \
		$(CARGO) build -p codemode-guest --target wasm32-wasip2 --profile guest

guest: $(GUEST_OUT)/codemode.cwasm ## Builds the guest: component, precompiled form, digest.

$(GUEST_OUT)/codemode.cwasm: $(GUEST_CORE)
	@echo "make: compiling the builder of the guest (wasmtime: some minutes the first time)" >&2
	$(CARGO) run --profile $(PROFILE) -p codemode-guest-build -- $(GUEST_CORE) $(GUEST_OUT)
