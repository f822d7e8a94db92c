//! The wasmtime settings that Code Mode needs. The builder compiles the guest under them, and an engine that runs the
//! compiled form must have the same ones, or wasmtime refuses it. Allocation and pooling don't belong here.

use wasmtime::{Config, OptLevel};

/// Bytes of stack that wasm may use on a worker's thread: 20 times the limit that the guest's engine keeps itself, so
/// that deep recursion ends in the guest and not in a trap.
pub const WASM_STACK_BYTES: usize = 10 * 1024 * 1024;

/// Puts the settings into `config`.
///
/// ```
/// let mut config = wasmtime::Config::new();
/// codemode_engine_config::apply(&mut config);
/// assert!(wasmtime::Engine::new(&config).is_ok());
/// ```
pub fn apply(config: &mut Config) {
    // wasmtime wants fibers' stacks to be larger than wasm's, also when none is ever made.
    const FIBER_STACK_BYTES: usize = WASM_STACK_BYTES + 2 * 1024 * 1024;
    config
        .wasm_component_model(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        .concurrency_support(false)
        .memory_init_cow(true)
        .cranelift_opt_level(OptLevel::Speed);
}
