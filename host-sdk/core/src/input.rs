//! What the model sends to `exec` and `wait`, parsed and checked. A refusal is data: it becomes a failed result.

use serde_json::{Value, json};

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

    /// The language that the arguments of `exec` ask for; `None` when there is no such language.
    pub fn of_arguments(arguments: &Value) -> Option<Self> {
        match arguments.get("language") {
            None => Some(Self::default()),
            Some(name) => [Self::JavaScript, Self::TypeScript].into_iter().find(|language| name == language.as_str()),
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

    /// The arguments that read as this input.
    ///
    /// ```
    /// use codemode_core::input::ExecInput;
    /// let input = ExecInput::javascript("return 1");
    /// assert_eq!(ExecInput::parse(&input.to_arguments()), Ok(input));
    /// ```
    pub fn to_arguments(&self) -> Value {
        json!({
            "code": self.source,
            "language": self.language.as_str(),
            "restartSafe": self.restart_safe,
            "typecheck": self.typecheck,
        })
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
        let source = match (source_text(arguments, "code"), source_text(arguments, "command")) {
            (Some(code), Some(command)) if code != command => {
                return Err(bad("`code` and `command` differ; pass the source as `code` only"));
            }
            (Some(source), _) | (None, Some(source)) => source.to_owned(),
            (None, None) => String::new(),
        };
        let language = Language::of_arguments(arguments).ok_or_else(|| {
            let given = fields.get("language").unwrap_or(&Value::Null);
            bad(format!("`language` is {given}; it must be \"javascript\" or \"typescript\""))
        })?;
        let flag = |key: &str| match fields.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(bad(format!("`{key}` is {other}; it must be true or false"))),
        };
        let (restart_safe, typecheck) = (flag("restartSafe")?, flag("typecheck")?);
        let input = Self { source, language, restart_safe, typecheck };
        input.check()?;
        Ok(input)
    }

    /// Whether its fields go together, however it was made.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] of kind `bad_arguments` when the source is blank, and when `typecheck` is asked for without TypeScript.
    pub fn check(&self) -> Result<(), Refusal> {
        if is_blank(&self.source) {
            return Err(bad("`code` must be a non-empty string: the body of an async function"));
        }
        if self.typecheck && self.language != Language::TypeScript {
            return Err(bad("`typecheck` needs `language: \"typescript\"`"));
        }
        Ok(())
    }
}

/// The JSON Schema of the arguments of `exec`, for the model. It is flat: some providers refuse unions (contract 2.1).
///
/// ```
/// let schema = codemode_core::input::exec_schema();
/// assert_eq!(schema["properties"]["language"]["enum"][1], "typescript");
/// ```
pub fn exec_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 120, "description": "A few words for people; not used otherwise."},
            "code": {"type": "string", "description": "The program: the body of an async function."},
            "language": {
                "type": "string",
                "enum": [Language::JavaScript.as_str(), Language::TypeScript.as_str()],
                "description": "The language of the program. Default: javascript.",
            },
            "typecheck": {
                "type": "boolean",
                "description": "Check a TypeScript program against the declarations of the tools before it starts.",
            },
            "restartSafe": {
                "type": "boolean",
                "description": "Leave this out, unless you are asked for a program that only reads and may be repeated.",
            },
        },
        "required": ["code"],
    })
}

/// The JSON Schema of the arguments of `wait`, for the model.
///
/// ```
/// assert_eq!(codemode_core::input::wait_schema()["required"][0], "runId");
/// ```
pub fn wait_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"runId": {"type": "string", "description": "The runId of a waiting result."}},
        "required": ["runId"],
    })
}

const ALIASES: [&str; 2] = ["code", "command"];

fn source_text<'a>(arguments: &'a Value, alias: &str) -> Option<&'a str> {
    arguments.get(alias)?.as_str().filter(|text| !is_blank(text))
}

fn is_blank(source: &str) -> bool {
    source.trim().is_empty()
}

/// The arguments of `exec` as a policy hook sees them: when one alias of the source has text, both have it, so that a
/// policy which looks at either one sees it (B 1.1.7).
pub fn with_both_aliases(arguments: &Value) -> Value {
    let mut both = arguments.clone();
    let [code, command] = ALIASES.map(|alias| source_text(arguments, alias));
    if let (Some(source), None) | (None, Some(source)) = (code, command)
        && let Some(fields) = both.as_object_mut()
    {
        for alias in ALIASES {
            fields.insert(alias.to_owned(), Value::from(source));
        }
    }
    both
}

/// The arguments after a hook changed them. Where both aliases had the same text before, one that was changed takes the
/// other along, also when it was made invalid: the execution is refused then. `before` is what the hook saw.
///
/// ```
/// use codemode_core::input::{ExecInput, after_hook};
/// use serde_json::json;
/// let before = json!({"code": "rm()", "command": "rm()"});
/// let after = after_hook(&before, json!({"code": "safe()", "command": "rm()"}));
/// assert_eq!(ExecInput::parse(&after).unwrap().source, "safe()");
/// let blanked = after_hook(&before, json!({"code": "rm()", "command": null}));
/// assert!(ExecInput::parse(&blanked).is_err());
/// ```
pub fn after_hook(before: &Value, mut after: Value) -> Value {
    let [code, command] = ALIASES.map(|alias| source_text(before, alias));
    if code.is_none() || code != command {
        return after;
    }
    let changed = |alias: &str| after.get(alias) != before.get(alias);
    let (from, to) = match ALIASES.map(changed) {
        [true, false] => ("code", "command"),
        [false, true] => ("command", "code"),
        // One of two that were changed may have been made invalid; what is left is whether they agree, which is checked
        // like in any other input.
        [true, true] if source_text(&after, "code").is_none() => ("code", "command"),
        [true, true] if source_text(&after, "command").is_none() => ("command", "code"),
        [true, true] | [false, false] => return after,
    };
    if let Some(fields) = after.as_object_mut() {
        match fields.get(from).cloned() {
            Some(value) => drop(fields.insert(to.to_owned(), value)),
            None => drop(fields.remove(to)),
        }
    }
    after
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
    fn a_hook_sees_both_aliases_and_changes_both() {
        assert_eq!(with_both_aliases(&json!({"command": "a"})), json!({"command": "a", "code": "a"}));
        assert_eq!(with_both_aliases(&json!({"code": "a", "command": "b"})), json!({"code": "a", "command": "b"}));
        assert_eq!(with_both_aliases(&json!({"code": " "})), json!({"code": " "}));
        assert_eq!(with_both_aliases(&json!(5)), json!(5));
        let before = json!({"code": "a", "command": "a"});
        let check_hook = |after: Value, expected| check(&after_hook(&before, after), expected);
        check_hook(json!({"code": "a", "command": "a"}), Ok("a"));
        check_hook(json!({"code": "b", "command": "a"}), Ok("b"));
        check_hook(json!({"code": "a", "command": "b"}), Ok("b"));
        check_hook(json!({"code": "b", "command": "b"}), Ok("b"));
        check_hook(json!({"code": "b", "command": "c"}), Err("differ"));
        check_hook(json!({"code": "", "command": "a"}), Err("non-empty"));
        check_hook(json!({"code": "a", "command": 5}), Err("non-empty"));
        check_hook(json!({"command": "a"}), Err("non-empty"));
        check_hook(json!({"code": "", "command": "b"}), Err("non-empty"));
        check_hook(json!({"code": "b", "command": 5}), Err("non-empty"));
        check_hook(json!({"command": "b"}), Err("non-empty"));
        check_hook(json!({}), Err("non-empty"));
    }

    #[test]
    fn the_schemas_are_flat() {
        for schema in [exec_schema(), wait_schema()] {
            let text = schema.to_string();
            for keyword in ["oneOf", "anyOf", "allOf", "$ref"] {
                assert!(!text.contains(keyword), "{text}");
            }
        }
        let fields = exec_schema();
        assert!(fields["properties"].get("command").is_none(), "the alias isn't advertised");
    }

    #[test]
    fn run_ids_are_trimmed() {
        assert_eq!(wait_run_id(&json!({"runId": " cm_1 "})).as_deref(), Ok("cm_1"));
        assert_eq!(wait_run_id(&json!({"run_id": "cm_1"})).as_deref(), Ok("cm_1"));
        assert_eq!(wait_run_id(&json!({"runId": " "})).unwrap_err().kind, Kind::BadArguments);
    }
}
