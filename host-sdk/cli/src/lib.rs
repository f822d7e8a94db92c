//! What the command line and the tests share: running conformance cases against the SDK.

pub mod cases;
