//! Writing JSON text: strings with their escapes, and numbers as ECMAScript prints them. No structure lives here.

/// Appends `text` as a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends `text` as it stands inside of a JSON string.
pub fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let clean = clean_bytes(rest);
        let (copied, from) = rest.split_at(clean);
        out.extend_from_slice(copied);
        let Some((byte, after)) = from.split_first() else { break };
        match escape_of(*byte) {
            Some(Escape::Short(letter)) => out.extend_from_slice(&[b'\\', letter]),
            Some(Escape::Code) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 0xF)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(*byte)]);
            }
            None => out.push(*byte),
        }
        rest = after;
    }
}

/// The last place up to `index` that isn't within a letter.
pub fn letter_boundary(text: &[u8], index: usize) -> usize {
    let mut index = index.min(text.len());
    while text.get(index).is_some_and(|byte| byte & 0xC0 == 0x80) {
        index -= 1;
    }
    index
}

/// How many bytes [`push_string`] appends.
pub fn string_bytes(text: &str) -> u64 {
    let escaped = |byte: u8| match escape_of(byte) {
        Some(Escape::Short(_)) => 2,
        Some(Escape::Code) => 6,
        None => 1,
    };
    text.bytes().map(escaped).sum::<u64>() + 2
}

/// How many bytes at the start need no escape. Looks at a word at a time.
fn clean_bytes(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
    let clean = words.iter().take_while(|word| !has_escape(u64::from_le_bytes(**word))).count() * size_of::<u64>();
    let rest = bytes.get(clean..).unwrap_or_default();
    clean + rest.iter().take_while(|byte| escape_of(**byte).is_none()).count()
}

/// Whether any byte of the word is below a blank, a quote or a backslash.
fn has_escape(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let below = |limit: u8, word: u64| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let equal = |byte: u8| below(1, word ^ (ONES * u64::from(byte)));
    (below(b' ', word) | equal(b'"') | equal(b'\\')) != 0
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
pub fn push_number(out: &mut Vec<u8>, number: f64) {
    /// Beyond this an integer may not be exact, and ECMAScript may print it with an exponent.
    const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
    if !number.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "an integer in the exact range")]
        push_integer(out, number as i64);
        return;
    }
    out.extend_from_slice(ryu_js::Buffer::new().format_finite(number).as_bytes());
}

/// Appends an integer.
pub fn push_integer(out: &mut Vec<u8>, integer: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
}
