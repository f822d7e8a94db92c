//! What the command line, the tests and the benches share: running conformance cases against the SDK, and measuring memory.

pub mod cases;
pub mod memory;
