//! Checks on JSON text that a hostile guest passes: syntax without recursion, and how deeply it is nested.

use serde::Deserialize as _;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits;

/// Why a text isn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not JSON.
    #[error("it isn't JSON")]
    Malformed,
    /// Nested deeper than [`limits::JSON_DEPTH`]: whoever parses it recursively would run out of stack.
    #[error("it is nested too deeply")]
    TooDeep,
}

/// The text as JSON, borrowed, when it is valid and not nested too deeply.
///
/// # Errors
///
/// A [`Rejected`] for each of these.
pub fn check(text: &[u8]) -> Result<&RawValue, Rejected> {
    // `RawValue` is parsed without recursion, whatever the nesting.
    let value: &RawValue = serde_json::from_slice(text).map_err(|_| Rejected::Malformed)?;
    if depth(value.get()) > limits::fixed(&limits::JSON_DEPTH) {
        return Err(Rejected::TooDeep);
    }
    Ok(value)
}

/// The value of a JSON text.
///
/// # Errors
///
/// [`Rejected::TooDeep`]; parsing it would use too much stack.
///
/// ```
/// let text = serde_json::value::RawValue::from_string("[1]".into()).unwrap();
/// assert_eq!(codemode_core::json::parse(&text), Ok(serde_json::json!([1])));
/// ```
pub fn parse(text: &RawValue) -> Result<Value, Rejected> {
    if depth(text.get()) > limits::fixed(&limits::JSON_DEPTH) {
        return Err(Rejected::TooDeep);
    }
    let mut parser = serde_json::Deserializer::from_str(text.get());
    parser.disable_recursion_limit();
    Value::deserialize(&mut parser).map_err(|_| Rejected::Malformed)
}

/// How many containers are open at once in valid JSON.
fn depth(json: &str) -> u64 {
    let (mut open, mut deepest) = (0u64, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_depth(json: &str, expected: u64) {
        assert_eq!(depth(json), expected, "{json}");
    }

    #[test]
    fn only_containers_count() {
        check_depth("1", 0);
        check_depth(r#"[{"a":[]},[]]"#, 3);
        check_depth(r#"["[[[", "\\", "\"[[", {}]"#, 2);
    }

    #[test]
    fn the_deepest_text_allowed_passes_and_one_more_level_is_rejected() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check(nested(1_000).as_bytes()).is_ok());
        assert_eq!(check(nested(1_001).as_bytes()).unwrap_err(), Rejected::TooDeep);
        assert_eq!(check(nested(500_000).as_bytes()).unwrap_err(), Rejected::TooDeep);
        assert_eq!(check(b"[").unwrap_err(), Rejected::Malformed);
        assert_eq!(check(b"\xff").unwrap_err(), Rejected::Malformed);
    }
}
