//! Writing JSON text: strings with their escapes, and numbers as ECMAScript prints them. No structure lives here.

use crate::engine::{Result, Value};

/// Appends `text` as a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let Some(escape) = escape_of(*byte) else { continue };
        out.extend_from_slice(bytes.get(copied..index).unwrap_or_default());
        match escape {
            Escape::Short(letter) => out.extend_from_slice(&[b'\\', letter]),
            Escape::Code => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 0xF)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(*byte)]);
            }
        }
        copied = index + 1;
    }
    out.extend_from_slice(bytes.get(copied..).unwrap_or_default());
    out.push(b'"');
}

enum Escape {
    Short(u8),
    Code,
}

fn escape_of(byte: u8) -> Option<Escape> {
    match byte {
        b'"' | b'\\' => Some(Escape::Short(byte)),
        0x08 => Some(Escape::Short(b'b')),
        0x0C => Some(Escape::Short(b'f')),
        b'\n' => Some(Escape::Short(b'n')),
        b'\r' => Some(Escape::Short(b'r')),
        b'\t' => Some(Escape::Short(b't')),
        0x00..=0x1F => Some(Escape::Code),
        _ => None,
    }
}

/// Appends a number as JSON: `null` when it isn't finite, `0` for negative zero.
pub fn push_number(out: &mut Vec<u8>, number: f64) -> Result<()> {
    /// Beyond this an integer may not be exact, and ECMAScript may print it with an exponent.
    const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
    if !number.is_finite() {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "an integer in the exact range")]
        push_integer(out, number as i64);
        return Ok(());
    }
    Value::number(number).with_text(|text| out.extend_from_slice(text.as_bytes()))
}

/// Appends an integer.
pub fn push_integer(out: &mut Vec<u8>, integer: i64) {
    use std::io::Write as _;
    // Writing to memory can't fail.
    let _ = write!(out, "{integer}");
}
