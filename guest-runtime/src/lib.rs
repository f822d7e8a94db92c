//! The guest of Code Mode: one cell of hostile JavaScript in QuickJS, behind the world of `wit/`.
//!
//! Reading order: `cell` (what a turn is), `natives` (what the guest can call), `adapter` (values out), `snapshot`
//! (state out and in), `engine` (QuickJS). The host decides everything that matters; what is checked here is checked
//! again there.

mod adapter;
mod catalog;
mod cell;
mod clone;
mod crypto;
mod encoding;
mod engine;
mod inspect;
mod json_text;
mod natives;
mod random;
mod rejections;
mod report;
mod snapshot;

use codemode::cell::types::{Seed, Server, Settlement, StartInput, Turn};

#[expect(unsafe_code, reason = "generated; the documentation is in wit/")]
mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "code-cell",
        skip: ["image", "image-base", "restore"],
    });
    use super::Exports;
    export!(Exports);
}
use bindings::codemode;

struct Exports;

impl bindings::Guest for Exports {
    fn init() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        static IS_BUILT: AtomicBool = AtomicBool::new(false);
        assert!(!IS_BUILT.swap(true, Relaxed), "the base state is built once");
        snapshot::run_constructors();
        engine::build();
        engine::enter();
        engine::Primordials::capture();
        natives::install();
        engine::arm_interrupt();
        engine::collect_garbage();
        engine::heap::leave_room();
        snapshot::zero_stack();
    }
}

impl bindings::exports::codemode::cell::cell::Guest for Exports {
    fn install(tools: Vec<String>, servers: Vec<Server>) -> Result<(), ()> {
        engine::enter();
        cell::install(&tools, &servers).map_err(|engine::Thrown| ())
    }

    fn start(input: StartInput) -> Turn {
        engine::enter();
        cell::start(input)
    }

    fn settle(settlements: Vec<Settlement>, seed: Option<Seed>) -> Turn {
        engine::enter();
        cell::settle(settlements, seed)
    }
}
