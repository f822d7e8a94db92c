//! From submitted text to source that may run: size, module access, shell commands, and syntax as the body of an async
//! function, checked in that order (contract 11.4). Nothing has run when one of these refuses.

mod modules;
mod position;
mod shell;

use std::sync::Arc;

use codemode_core::input::{ExecInput, Language, Refusal};
use codemode_core::limits;
use codemode_core::outcome::Kind;
use oxc_allocator::Allocator;
use oxc_ast::ast::{ArrowFunctionExpression, Expression, Program, Statement};
use oxc_parser::{ParseOptions, Parser, ParserReturn};
use oxc_span::{GetSpan as _, SourceType};

/// Source that passed every check. There is no other way to make one.
#[derive(Debug, Clone)]
pub(crate) struct GuestSource {
    /// The text, exactly as submitted.
    pub text: Arc<[u8]>,
    /// What frames call it.
    pub file_name: &'static str,
}

/// The wrapper that the guest puts around a cell; the parser here sees the same.
const HEAD: &str = "(async()=>{\n";
const TAIL: &str = "\n})";

impl GuestSource {
    /// Checks the source of a call.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]: `source_too_large`, `language_disabled`, `module_access`, `shell_source` or `syntax_error`.
    pub fn check(input: &ExecInput) -> Result<Self, Refusal> {
        let bytes_max = limits::fixed(&limits::SOURCE_BYTES);
        if input.source.len() as u64 > bytes_max {
            let message = format!(
                "the source has {} bytes, and {bytes_max} are allowed; pass data through tools",
                input.source.len()
            );
            return Err(Refusal::new(Kind::SourceTooLarge, message));
        }
        if input.language == Language::TypeScript {
            return Err(Refusal::new(Kind::LanguageDisabled, "TypeScript is not available here; write JavaScript"));
        }
        check_javascript(&input.source)?;
        Ok(Self { text: input.source.as_bytes().into(), file_name: input.language.file_name() })
    }
}

fn check_javascript(source: &str) -> Result<(), Refusal> {
    let wrapped = format!("{HEAD}{source}{TAIL}");
    let allocator = Allocator::default();
    let parsed = parse(&allocator, &wrapped, SourceType::script());
    match complaint(&parsed, &wrapped) {
        None if modules::are_used(&parsed.program) => Err(module_access()),
        None if wrapper(&parsed.program).is_some_and(|cell| shell::is_bare_command(&cell.body)) => Err(shell_source()),
        None => Ok(()),
        Some(_) if modules::are_used_in_text(source) => Err(module_access()),
        Some(_) if shell::is_shell(source) => Err(shell_source()),
        Some(complaint) => Err(syntax_error(source, &complaint)),
    }
}

fn parse<'a>(allocator: &'a Allocator, text: &'a str, kind: SourceType) -> ParserReturn<'a> {
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    Parser::new(allocator, text, kind).with_options(options).parse()
}

fn module_access() -> Refusal {
    Refusal::new(
        Kind::ModuleAccess,
        "modules can't be loaded here: no import, no import(), no import.meta, no require. \
         The tools are async global functions; call them. No tool ran.",
    )
}

fn shell_source() -> Refusal {
    Refusal::new(
        Kind::ShellSource,
        "this looks like a shell command; the source is the body of an async JavaScript function. Call the tools, which \
         are async global functions, and don't send the command again. No tool ran.",
    )
}

/// What is wrong with a source, and where in the wrapped text.
struct Complaint {
    message: String,
    offset: usize,
}

fn complaint(parsed: &ParserReturn<'_>, wrapped: &str) -> Option<Complaint> {
    if let Some(error) = parsed.diagnostics.first() {
        let offset =
            error.labels.first().and_then(|label| usize::try_from(label.offset()).ok()).unwrap_or(wrapped.len());
        return Some(Complaint { message: error.message.to_string(), offset });
    }
    let closed_at = body_end(&parsed.program);
    let expected = wrapped.len() - TAIL.len() + 1;
    (closed_at != expected || parsed.program.body.len() != 1)
        .then(|| Complaint { message: String::from("Unexpected token `}`"), offset: closed_at })
}

/// Where the body of the function that wraps the cell is closed; at the start when the text made something else of it.
fn body_end(program: &Program<'_>) -> usize {
    let end = wrapper(program).and_then(|function| usize::try_from(function.body.span().end).ok());
    end.map_or(0, |end| end.saturating_sub(1))
}

/// The function that wraps the cell.
fn wrapper<'a>(program: &'a Program<'a>) -> Option<&'a ArrowFunctionExpression<'a>> {
    let Some(Statement::ExpressionStatement(statement)) = program.body.first() else { return None };
    let mut expression = &statement.expression;
    // `(f)(x)` and the like: the text closed the wrapper and went on.
    loop {
        match expression {
            Expression::ArrowFunctionExpression(function) => return Some(function),
            Expression::ParenthesizedExpression(inner) => expression = &inner.expression,
            Expression::CallExpression(call) => expression = &call.callee,
            Expression::SequenceExpression(sequence) => expression = sequence.expressions.first()?,
            _ => return None,
        }
    }
}

fn syntax_error(source: &str, complaint: &Complaint) -> Refusal {
    /// UTF-16 units that are shown of a parser's message.
    const MESSAGE_CHARS_MAX: usize = 240;
    let offset = complaint.offset.saturating_sub(HEAD.len()).min(source.len());
    let place = position::of(source, offset);
    let message: String = complaint.message.chars().take(MESSAGE_CHARS_MAX).collect();
    Refusal::new(Kind::SyntaxError, format!("SyntaxError at cell.js:{place}: {message}. No tool ran."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: Result<(), (Kind, &str)>) {
        let found = GuestSource::check(&ExecInput::javascript(source));
        match (found, expected) {
            (Ok(_), Ok(())) => {}
            (Err(refusal), Err((kind, part))) => {
                assert_eq!(refusal.kind, kind, "{source}: {}", refusal.message);
                assert!(refusal.message.contains(part), "{source}: {}", refusal.message);
            }
            (found, expected) => panic!("{source:?}: {found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_cell_is_the_body_of_an_async_function() {
        check("return await 1", Ok(()));
        check("for await (const x of y) {}", Ok(()));
        check("with (a) { b }", Ok(()));
        check("// only a comment", Ok(()));
        check("", Ok(()));
        check("\"use strict\"; return 1", Ok(()));
        check("var await1 = 08; return 010", Ok(()));
    }

    #[test]
    fn syntax_errors_have_the_place_in_the_submitted_text() {
        check("return 1 +;", Err((Kind::SyntaxError, "cell.js:1:11")));
        check("const a = 1;\nreturn (;", Err((Kind::SyntaxError, "cell.js:2:9")));
        check("const s = '😀'; )", Err((Kind::SyntaxError, "cell.js:1:17")));
    }

    #[test]
    fn text_that_closes_the_wrapper_is_a_syntax_error() {
        check("return 1 }); (async()=>{", Err((Kind::SyntaxError, "cell.js:1:10")));
        check("}, ()=>{", Err((Kind::SyntaxError, "cell.js:1:1")));
        check("})(async()=>{", Err((Kind::SyntaxError, "cell.js:1:1")));
        check("}), (async()=>{", Err((Kind::SyntaxError, "cell.js:1:1")));
        check("}) ; { (1", Err((Kind::SyntaxError, "cell.js:")));
        check("}//", Err((Kind::SyntaxError, "cell.js:")));
        check("/*", Err((Kind::SyntaxError, "cell.js:")));
    }

    #[test]
    fn size_is_checked_first() {
        let most = usize::try_from(limits::fixed(&limits::SOURCE_BYTES)).unwrap();
        check(&format!("//{}", "x".repeat(most - 2)), Ok(()));
        check(&format!("//{}", "x".repeat(most - 1)), Err((Kind::SourceTooLarge, "1048577")));
    }
}
