//! From submitted text to source that may run: size, module access, shell commands, and syntax as the body of an async
//! function, checked in that order (contract 11.4). Nothing has run when one of these refuses.

mod modules;
mod position;
mod shell;

use std::sync::{Arc, Mutex, PoisonError};

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
        with_stack_for(&input.source, check_javascript)??;
        Ok(Self { text: input.source.as_bytes().into(), file_name: input.language.file_name() })
    }
}

/// The parser recurses as deeply as the source is nested, and knows no limit. Measured, a byte of source costs at most
/// this much stack: 324 bytes for `a=>a=>a=>…`, the worst construct without brackets, and 460 for brackets that hide from
/// `check_brackets` behind strings.
const STACK_BYTES_PER_SOURCE_BYTE: usize = 512;
/// For the brackets that `check_brackets` lets pass, and all the rest.
const STACK_BYTES: usize = 16 * 1024 * 1024;
/// A source up to this size is checked on the worker's own stack, half of which it can use up at most.
const SMALL_SOURCE_BYTES: usize = 16 * 1024;

/// Runs `check` where its recursion can't overflow the stack, which would end the process.
fn with_stack_for<T: Send>(source: &str, check: fn(&str) -> T) -> Result<T, Refusal> {
    check_brackets(source)?;
    if source.len() <= SMALL_SOURCE_BYTES {
        return Ok(check(source));
    }
    // One at a time: a hostile source can use all of this stack.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stack_bytes = STACK_BYTES + source.len() * STACK_BYTES_PER_SOURCE_BYTE;
    let unavailable = || Refusal::new(Kind::Unavailable, "there is no memory to check a source of this size now");
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("codemode-source".into()).stack_size(stack_bytes);
        let checking = builder.spawn_scoped(scope, || check(source)).map_err(|_| unavailable())?;
        checking.join().map_err(|_| unavailable())
    })
}

/// Refuses a source with too many brackets open at once. Brackets in strings count as well: telling them apart takes the
/// parser.
fn check_brackets(source: &str) -> Result<(), Refusal> {
    let most = limits::fixed(&limits::SOURCE_BRACKETS);
    let mut open = 0u64;
    for (offset, byte) in source.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > most {
            let message = format!("more than {most} brackets are open at once");
            return Err(syntax_error(source, &Complaint { message, offset: HEAD.len() + offset }));
        }
    }
    Ok(())
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

    /// Each of these overflows the parser's stack when nobody looks after it. They may be refused or accepted.
    #[test]
    fn deep_sources_end_in_a_verdict() {
        let deep: [(&str, &str); 14] = [
            ("(", ""),
            ("[", ""),
            ("x={a:", ""),
            ("!", "1"),
            ("a=>", "1"),
            ("a=", "1"),
            ("1?", ""),
            ("1+", "1"),
            ("if(1)", ";"),
            ("`${", ""),
            ("(')',", ""),
            ("(function(){')})';", ""),
            ("new ", "a"),
            ("class A extends ", ""),
        ];
        let most = usize::try_from(limits::fixed(&limits::SOURCE_BYTES)).unwrap();
        let worker = std::thread::Builder::new().stack_size(16 * 1024 * 1024).spawn(move || {
            for bytes in [SMALL_SOURCE_BYTES, 64 * 1024, most] {
                for (text, end) in deep {
                    let source = format!("{}{end}", text.repeat((bytes - end.len()) / text.len()));
                    let verdict = GuestSource::check(&ExecInput::javascript(source));
                    let kind = verdict.err().map(|refusal| refusal.kind);
                    assert!(matches!(kind, None | Some(Kind::SyntaxError)), "{text} in {bytes} bytes: {kind:?}");
                }
            }
        });
        worker.unwrap().join().unwrap();
    }

    #[test]
    fn as_many_brackets_as_allowed_pass() {
        let worker = std::thread::Builder::new().stack_size(16 * 1024 * 1024).spawn(|| {
            let nested = |levels: usize| format!("return {}1{}", "(".repeat(levels), ")".repeat(levels));
            check(&nested(2_000), Ok(()));
            check(&nested(2_001), Err((Kind::SyntaxError, "2000 brackets")));
        });
        worker.unwrap().join().unwrap();
    }

    #[test]
    fn size_is_checked_first() {
        let most = usize::try_from(limits::fixed(&limits::SOURCE_BYTES)).unwrap();
        check(&format!("//{}", "x".repeat(most - 2)), Ok(()));
        check(&format!("//{}", "x".repeat(most - 1)), Err((Kind::SourceTooLarge, "1048577")));
    }
}
