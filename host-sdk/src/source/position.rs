//! Places in a source as people count them: lines and columns from one, columns in UTF-16 units, lines ending at LF,
//! CRLF, CR, U+2028 and U+2029 (contract 11.5).

use std::fmt;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// The place of a byte offset.
pub(crate) fn of(source: &str, offset: usize) -> Position {
    let before = source.get(..source.floor_char_boundary(offset)).unwrap_or_default();
    let mut position = Position { line: 1, column: 1 };
    let mut letters = before.chars().peekable();
    while let Some(letter) = letters.next() {
        let ends_line = match letter {
            '\r' => letters.peek() != Some(&'\n'),
            '\n' | '\u{2028}' | '\u{2029}' => true,
            _ => false,
        };
        if ends_line {
            position = Position { line: position.line + 1, column: 1 };
        } else {
            position.column += letter.len_utf16();
        }
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_end_counts_once() {
        let check = |source: &str, expected: &str| assert_eq!(of(source, source.len()).to_string(), expected);
        check("", "1:1");
        check("a\nb", "2:2");
        check("a\r\nb", "2:2");
        check("a\rb", "2:2");
        check("a\u{2028}b\u{2029}", "3:1");
        check("😀", "1:3");
    }
}
