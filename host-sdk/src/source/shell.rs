//! Finds source that is a shell command instead of a program, so that the model is told what to write rather than where
//! a token is wrong (B 4.3). Text that parses as a program is one, except for the bare name of a command.

use oxc_ast::ast::{ArrowFunctionBody, Expression, Statement};

/// Commands that models send. Words of JavaScript aren't among them.
const COMMANDS: &[&str] = &[
    "alias", "apt", "apt-get", "awk", "base64", "bash", "brew", "bun", "cargo", "cat", "cd", "chmod", "chown", "clear",
    "cmake", "cp", "curl", "cut", "date", "dd", "deno", "df", "diff", "dig", "docker", "du", "echo", "env", "exec",
    "exit", "ffmpeg", "file", "find", "free", "gcc", "git", "go", "grep", "gunzip", "gzip", "head", "history",
    "hostname", "id", "jq", "kill", "kubectl", "less", "ln", "ls", "lsof", "make", "man", "mkdir", "mktemp", "more",
    "mv", "nano", "nc", "node", "nohup", "npm", "npx", "nslookup", "openssl", "pgrep", "ping", "pip", "pip3", "pkill",
    "pnpm", "printenv", "printf", "ps", "psql", "pwd", "python", "python3", "read", "readlink", "realpath", "rg", "rm",
    "rmdir", "rsync", "ruby", "rustc", "scp", "sed", "seq", "sh", "sleep", "sort", "source", "sqlite3", "ssh", "stat",
    "sudo", "tail", "tar", "tee", "time", "timeout", "top", "touch", "tr", "tree", "uname", "uniq", "unzip", "uptime",
    "vi", "vim", "watch", "wc", "wget", "which", "whoami", "xargs", "yarn", "zip", "zsh",
];

/// Whether the body of a cell is nothing but the name of a command.
pub(crate) fn is_bare_command(body: &ArrowFunctionBody<'_>) -> bool {
    let ArrowFunctionBody::FunctionBody(body) = body else { return false };
    let [Statement::ExpressionStatement(statement)] = body.statements.as_slice() else { return false };
    match &statement.expression {
        Expression::Identifier(name) => COMMANDS.contains(&name.name.as_str()),
        _ => false,
    }
}

/// Whether text that isn't a program is a shell command or script.
pub(crate) fn is_shell(source: &str) -> bool {
    let source = source.trim_start();
    if source.starts_with("#!") {
        return true;
    }
    let line = without_assignments(source.lines().next().unwrap_or_default());
    is_control_form(line) || starts_with_path(line) || starts_with_command(line)
}

/// The line after leading `NAME=value` words.
fn without_assignments(mut line: &str) -> &str {
    loop {
        let word = line.split_whitespace().next().unwrap_or_default();
        let Some((name, value)) = word.split_once('=') else { return line };
        let is_name = name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
            && name.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
        if !is_name || value.is_empty() || value.starts_with('=') {
            return line;
        }
        line = line.get(word.len()..).unwrap_or_default().trim_start();
    }
}

/// `if [ …`, `for x in …`, `case x in …`, `while test …`, `function f {`.
fn is_control_form(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    matches!(
        words.as_slice(),
        ["if" | "while" | "until", "[" | "[[" | "test", ..] | ["for", _, "in"] | ["case", _, "in"]
    ) || matches!(words.as_slice(), ["function", name, "{"] if !name.contains('('))
}

/// `./x`, `../x`, `~/x`, `/x y`, `C:\x`.
fn starts_with_path(line: &str) -> bool {
    let is_drive = matches!(line.as_bytes(), [drive, b':', b'\\', ..] if drive.is_ascii_alphabetic());
    let is_absolute = line.starts_with('/')
        && line.chars().nth(1).is_some_and(|second| second.is_ascii_alphabetic())
        && line.split_whitespace().next().is_some_and(|word| {
            let is_path = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
            word.matches('/').count() > 1 && word.chars().all(is_path)
        });
    is_drive || is_absolute || ["./", "../", "~/"].iter().any(|start| line.starts_with(start))
}

/// A known command, alone or followed by what an argument, a pipe or a redirection starts with.
fn starts_with_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    if !COMMANDS.contains(&word) {
        return false;
    }
    let rest = line.get(word.len()..).unwrap_or_default().trim_start();
    rest.chars().next().is_none_or(|next| next.is_alphanumeric() || "\"'-/.~$*|><&_`{[".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_scripts_are_found() {
        for source in [
            "#!/bin/sh\necho hi",
            "git status",
            "echo \"hi\"",
            "cat a.txt | grep b",
            "cd /srv/data && grep -rn \"x\" src | head -20",
            "ls -la",
            "A=1 B=two make all",
            "if [ -f x ]; then echo y; fi",
            "for f in *.txt; do cat \"$f\"; done",
            "while test -f x; do sleep 1; done",
            "function f { echo; }",
            "./run.sh --now",
            "~/bin/tool x",
            "/usr/bin/env node",
            "C:\\tools\\x.exe",
        ] {
            assert!(is_shell(source), "{source}");
        }
    }

    #[test]
    fn broken_programs_stay_programs() {
        for source in [
            "return 1 +;",
            "const ls = ;",
            "cat = ;",
            "date();)",
            "sort(a, b",
            "for (const f in x) { ",
            "if (x) { ",
            "function f() { ",
            "/a+/.test(x",
            "retrun 5",
            "A = 1 +",
        ] {
            assert!(!is_shell(source), "{source}");
        }
    }
}
