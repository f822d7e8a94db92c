//! What the model sends to `exec` and `wait`, parsed and checked. A refusal is data: it becomes a failed result.

use serde_json::Value;

use crate::outcome::Kind;

/// The language of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Run as it is.
    #[default]
    JavaScript,
    /// Transpiled on the host first.
    TypeScript,
}

impl Language {
    /// The name that the model uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
        }
    }

    /// What frames and diagnostics call the source.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::JavaScript => "cell.js",
            Self::TypeScript => "cell.ts",
        }
    }
}

/// Why an input was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The fine name.
    pub kind: Kind,
    /// What is wrong, where, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(Kind::BadArguments, message)
}

/// The input of `exec`.
///
/// ```
/// use codemode_core::input::ExecInput;
/// let input = ExecInput::parse(&serde_json::json!({"code": "return 1"})).unwrap();
/// assert_eq!(input.source, "return 1");
/// assert!(ExecInput::parse(&serde_json::json!({"code": " "})).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecInput {
    /// The source, exactly as submitted.
    pub source: String,
    /// Its language.
    pub language: Language,
    /// Whether only requests that can be replayed are allowed.
    pub restart_safe: bool,
    /// Whether the type checker runs first.
    pub typecheck: bool,
}

impl ExecInput {
    /// A JavaScript cell.
    pub fn javascript(source: impl Into<String>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// Reads the arguments of a tool call (contract 2.2, B 1.1).
    ///
    /// # Errors
    ///
    /// A [`Refusal`] of kind `bad_arguments` when the arguments aren't an object, when neither `code` nor `command` has
    /// text, when both have and differ, when `language` is unknown, when a flag isn't a boolean, and when `typecheck` is
    /// asked for without TypeScript.
    pub fn parse(arguments: &Value) -> Result<Self, Refusal> {
        let fields = arguments.as_object().ok_or_else(|| bad("exec takes an object with `code`"))?;
        let text = |key: &str| fields.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let source = match (text("code"), text("command")) {
            (Some(code), Some(command)) if code != command => {
                return Err(bad("`code` and `command` differ; pass the source as `code` only"));
            }
            (Some(source), _) | (None, Some(source)) => source.to_owned(),
            (None, None) => return Err(bad("`code` must be a non-empty string: the body of an async function")),
        };
        let language = match fields.get("language") {
            None => Language::JavaScript,
            Some(Value::String(name)) if name == Language::JavaScript.as_str() => Language::JavaScript,
            Some(Value::String(name)) if name == Language::TypeScript.as_str() => Language::TypeScript,
            Some(other) => {
                return Err(bad(format!("`language` is {other}; it must be \"javascript\" or \"typescript\"")));
            }
        };
        let flag = |key: &str| match fields.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(bad(format!("`{key}` is {other}; it must be true or false"))),
        };
        let (restart_safe, typecheck) = (flag("restartSafe")?, flag("typecheck")?);
        if typecheck && language != Language::TypeScript {
            return Err(bad("`typecheck` needs `language: \"typescript\"`"));
        }
        Ok(Self { source, language, restart_safe, typecheck })
    }
}

/// Reads the arguments of `wait`: the run id, without surrounding blanks.
///
/// # Errors
///
/// A [`Refusal`] of kind `bad_arguments` when there is no run id.
pub fn wait_run_id(arguments: &Value) -> Result<String, Refusal> {
    let id = arguments.get("runId").or_else(|| arguments.get("run_id")).and_then(Value::as_str).map(str::trim);
    id.filter(|id| !id.is_empty()).map(str::to_owned).ok_or_else(|| bad("`runId` must be the id of a waiting result"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(arguments: &Value, expected: Result<&str, &str>) {
        match (ExecInput::parse(arguments), expected) {
            (Ok(input), Ok(source)) => assert_eq!(input.source, source),
            (Err(refusal), Err(part)) => assert!(refusal.message.contains(part), "{}", refusal.message),
            (found, expected) => panic!("{arguments}: {found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn aliases_agree_or_are_refused() {
        check(&json!({"code": " a "}), Ok(" a "));
        check(&json!({"command": "a"}), Ok("a"));
        check(&json!({"code": "", "command": "a"}), Ok("a"));
        check(&json!({"code": 1, "command": "a"}), Ok("a"));
        check(&json!({"code": "a", "command": "a"}), Ok("a"));
        check(&json!({"code": "a", "command": "b"}), Err("differ"));
        check(&json!({"code": "\n"}), Err("non-empty"));
        check(&json!([]), Err("object"));
    }

    #[test]
    fn options_have_their_types() {
        check(&json!({"code": "a", "language": "python"}), Err("python"));
        check(&json!({"code": "a", "language": null}), Err("null"));
        check(&json!({"code": "a", "restartSafe": "yes"}), Err("restartSafe"));
        check(&json!({"code": "a", "typecheck": true}), Err("typescript"));
        check(&json!({"code": "a", "typecheck": true, "language": "typescript"}), Ok("a"));
    }

    #[test]
    fn run_ids_are_trimmed() {
        assert_eq!(wait_run_id(&json!({"runId": " cm_1 "})).as_deref(), Ok("cm_1"));
        assert_eq!(wait_run_id(&json!({"run_id": "cm_1"})).as_deref(), Ok("cm_1"));
        assert_eq!(wait_run_id(&json!({"runId": " "})).unwrap_err().kind, Kind::BadArguments);
    }
}
