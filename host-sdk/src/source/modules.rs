//! Finds attempts to load modules: `import`, `import()`, `import.meta` and calls of `require`, however they are spelled.
//! The words in strings, comments, regular expressions and property names are fine (B 4.2).

use oxc_allocator::Allocator;
use oxc_ast::ast::{CallExpression, Expression, ImportDeclaration, ImportExpression, ImportMeta, Program};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::SourceType;

/// Whether a parsed program loads modules.
pub(crate) fn are_used(program: &Program<'_>) -> bool {
    let mut finder = Finder { found: false };
    finder.visit_program(program);
    finder.found
}

/// Whether a text that isn't the body of a function loads modules: found on its parse as a module or script, or, when it
/// has none, on its words.
pub(crate) fn are_used_in_text(source: &str) -> bool {
    let allocator = Allocator::default();
    for kind in [SourceType::mjs(), SourceType::script()] {
        let options = oxc_parser::ParseOptions { allow_return_outside_function: true, ..Default::default() };
        let parsed = Parser::new(&allocator, source, kind).with_options(options).parse();
        if parsed.diagnostics.is_empty() && !parsed.panicked {
            return are_used(&parsed.program);
        }
    }
    are_words_used(source)
}

struct Finder {
    found: bool,
}

impl<'a> Visit<'a> for Finder {
    fn visit_import_declaration(&mut self, _: &ImportDeclaration<'a>) {
        self.found = true;
    }

    fn visit_import_expression(&mut self, _: &ImportExpression<'a>) {
        self.found = true;
    }

    fn visit_import_meta(&mut self, _: &ImportMeta) {
        self.found = true;
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        self.found |= is_require(&call.callee);
        walk::walk_call_expression(self, call);
    }
}

/// `require`, also in parentheses or at the end of a comma sequence. The parser has resolved escapes.
fn is_require(callee: &Expression<'_>) -> bool {
    match callee {
        Expression::Identifier(name) => name.name == "require",
        Expression::ParenthesizedExpression(inner) => is_require(&inner.expression),
        Expression::SequenceExpression(sequence) => sequence.expressions.last().is_some_and(is_require),
        _ => false,
    }
}

/// For text that nothing can parse: strings and comments are left out, then the words decide. It may refuse too much,
/// never too little.
fn are_words_used(source: &str) -> bool {
    let masked = masked(source);
    let words: Vec<&str> = masked.split_inclusive(|letter: char| !is_word(letter)).collect();
    words.iter().enumerate().any(|(index, piece)| {
        let word = piece.trim_end_matches(|letter: char| !is_word(letter));
        let follows = masked_rest(&words, index);
        match word {
            "import" => follows.starts_with(['(', '{', '*', '"', '\'', '.']) || follows.starts_with(is_word),
            "require" => follows.starts_with(['(', '?', ')', '`']),
            _ => false,
        }
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$')
}

/// What stands after the word of a piece, blanks left out.
fn masked_rest(words: &[&str], index: usize) -> String {
    /// More blanks than these in a row end the search.
    const PIECES_MAX: usize = 16;
    let first = words.get(index).map(|piece| piece.trim_start_matches(is_word)).unwrap_or_default();
    let rest = words.iter().skip(index + 1).take(PIECES_MAX).copied();
    std::iter::once(first).chain(rest).flat_map(str::chars).filter(|letter| !letter.is_whitespace()).take(2).collect()
}

/// The text with strings emptied and comments gone. A string keeps its quotes.
fn masked(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('/', Some('/')) => {
                letters.by_ref().find(|next| *next == '\n');
                out.push('\n');
            }
            ('/', Some('*')) => {
                letters.next();
                while let Some(next) = letters.next() {
                    if next == '*' && letters.peek() == Some(&'/') {
                        letters.next();
                        break;
                    }
                }
                out.push(' ');
            }
            ('"' | '\'', _) => {
                out.push(letter);
                while let Some(next) = letters.next() {
                    match next {
                        '\\' => drop(letters.next()),
                        '\n' => break,
                        _ if next == letter => break,
                        _ => {}
                    }
                }
                out.push(letter);
            }
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: bool) {
        let wrapped = format!("(async()=>{{\n{source}\n}})");
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &wrapped, SourceType::script()).parse();
        let found = if parsed.diagnostics.is_empty() { are_used(&parsed.program) } else { are_used_in_text(source) };
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn every_spelling_is_found() {
        for source in [
            "import fs from 'fs'",
            "import { a } from 'b'; return a",
            "return await import('fs')",
            "return import.meta.url",
            "require('fs')",
            "(require)('fs')",
            "require?.('fs')",
            "(0, require)('fs')",
            "r\\u0065quire('fs')",
            "const require = 1; require('fs')",
            "const x = require('fs'",
            "import x from 'y'; )",
        ] {
            check(source, true);
        }
    }

    #[test]
    fn words_elsewhere_are_fine() {
        for source in [
            "return 'import fs from fs'",
            "// require('fs')\nreturn 1",
            "return `require(${1})`",
            "return /require('x')/.test('')",
            "return a.import(1) + a.require('x')",
            "return { import: 1, require: 2 }",
            "return typeof require",
            "const s = 'import x from y' )",
        ] {
            check(source, false);
        }
    }
}
