//! `crypto`: random values and UUIDs from the cell's own stream, which the host seeds.

use std::fmt::Write as _;

use crate::engine::{self, Call, Class, ElementType, Result, Value};
use crate::random;

/// Bytes that one call may ask for, as WebCrypto has it.
const BYTES_MAX: usize = 65_536;

/// `crypto.getRandomValues(array)`
pub fn get_random_values(call: &Call<'_>, _: i32) -> Result<Value> {
    let array = call.argument(0);
    let is_integers = array.is_object()
        && array.class() == Class::TypedArray
        && !matches!(array.element_type(), ElementType::Float16 | ElementType::Float32 | ElementType::Float64);
    let Some(view) = is_integers.then(|| array.typed_array_bytes()).flatten() else {
        return Err(engine::throw_dom_exception("getRandomValues fills arrays of integers", "TypeMismatchError"));
    };
    if view.length > BYTES_MAX {
        let message = format!("getRandomValues gives {BYTES_MAX} bytes at a time, not {}", view.length);
        return Err(engine::throw_dom_exception(&message, "QuotaExceededError"));
    }
    array.with_bytes_mut(view, random::fill)?;
    Ok(array)
}

/// `crypto.randomUUID()`: version 4.
pub fn random_uuid(_: &Call<'_>, _: i32) -> Result<Value> {
    let mut bytes = [0u8; 16];
    random::fill(&mut bytes);
    let mut text = String::new();
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let byte = match place {
            6 => byte & 0x0F | 0x40,
            8 => byte & 0x3F | 0x80,
            _ => *byte,
        };
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    Value::string(&text)
}
