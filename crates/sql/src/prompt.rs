//! The prompt: lines from a terminal, with a history and completion. This process does not read the recording.

use crate::column::RECORDING;
use crate::engine::{names, value_names};
use crate::functions::TABLES;
use crate::tables;
use anyhow::Result;
use hindsight_cli::sql::{self, Prompt};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};
use std::collections::BTreeSet;

const HELP: &str = "\
A question ends with a semicolon, and may have several lines.
.tables          the tables, and the functions that make tables
.schema NAME     the columns of a table, and what they mean
.functions       the functions that make values
.help            this
.quit            leave; so does Ctrl-D. Ctrl-C ends a question";

/// Words of the language that are completed.
const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "DESC",
    "HAVING",
    "JOIN",
    "LEFT JOIN",
    "ON",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS NULL",
    "IS NOT NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "AS",
    "DISTINCT",
    "COUNT",
    "SUM",
    "MIN",
    "MAX",
    "AVG",
    "WITH",
    "UNION ALL",
    "DESCRIBE",
    "SHOW TABLES",
    "SHOW FUNCTIONS",
    "EXPLAIN",
    "CREATE VIEW",
];

/// Reads questions and has them answered; the exit status.
pub fn run(mut prompt: Prompt) -> Result<i32> {
    let mut editor: Editor<Words, FileHistory> = Editor::new()?;
    editor.set_helper(Some(Words::new()));
    let history = sql::history();
    if let Some(h) = &history {
        // A new one is empty.
        let _ = editor.load_history(h);
    }
    println!("SQL about recordings. .help says more.");
    let mut question = String::new();
    loop {
        let sign = if question.is_empty() {
            "sql> "
        } else {
            "...> "
        };
        match editor.readline(sign) {
            Ok(line) => question += &line,
            // What was typed is thrown away.
            Err(ReadlineError::Interrupted) => {
                question.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(e.into()),
        }
        let said = question.trim();
        if said.is_empty() {
            question.clear();
            continue;
        }
        let sent = match command(said) {
            Some(Command::Quit) => break,
            Some(Command::Say(text)) => {
                println!("{text}");
                None
            }
            Some(Command::Ask(sql)) => Some(sql),
            None if said.ends_with(';') => Some(said.to_owned()),
            None => {
                question.push('\n');
                continue;
            }
        };
        let _ = editor.add_history_entry(said.replace('\n', " "));
        if let Some(h) = &history {
            // Without it, only this session knows what was typed.
            let _ = editor.append_history(h);
        }
        if let Some(sql) = sent
            && !prompt.ask(&sql)
        {
            break;
        }
        question.clear();
    }
    prompt.end()
}

enum Command {
    Quit,
    Say(String),
    Ask(String),
}

/// What a line that begins with a dot means. `None`: it is no such line.
fn command(line: &str) -> Option<Command> {
    let line = line.trim_end_matches(';').trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if !name.starts_with('.') {
        return matches!(name, "quit" | "exit").then_some(Command::Quit);
    }
    Some(match (name, rest.trim()) {
        (".quit" | ".exit", _) => Command::Quit,
        (".help", _) => Command::Say(HELP.into()),
        (".tables", _) => Command::Ask("SHOW TABLES".into()),
        (".functions", _) => Command::Ask("SHOW FUNCTIONS".into()),
        (".schema", "") => Command::Say("expected .schema NAME; .tables lists them".into()),
        (".schema", of) => Command::Ask(format!("DESCRIBE {of}")),
        _ => Command::Say(format!("{name}: no such command; .help lists them")),
    })
}

/// All words that are completed.
struct Words(BTreeSet<String>);

impl Words {
    fn new() -> Words {
        let name = |row: [String; 3]| {
            let end = row[0].find('(').map_or(row[0].len(), |n| n + 1);
            row[0][..end].to_owned()
        };
        let mut all: BTreeSet<String> =
            names().into_iter().chain(value_names()).map(name).collect();
        for t in tables::all() {
            all.extend(t.table.columns().iter().map(|c| c.name.to_owned()));
        }
        for f in TABLES {
            all.extend((f.columns)().iter().map(|c| c.name.to_owned()));
        }
        all.insert(RECORDING.name.to_owned());
        all.extend(WORDS.iter().map(|w| (*w).to_owned()));
        Words(all)
    }
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let begin = line[..at].rfind(|c| !word(c)).map_or(0, |n| n + 1);
        let typed = &line[begin..at];
        if typed.is_empty() {
            return Ok((begin, Vec::new()));
        }
        let matches = |w: &&String| {
            let head = w.get(..typed.len());
            head.is_some_and(|h| h.eq_ignore_ascii_case(typed))
        };
        let pair = |w: &String| Pair {
            display: w.clone(),
            replacement: w.clone(),
        };
        Ok((begin, self.0.iter().filter(matches).map(pair).collect()))
    }
}

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}
impl Hinter for Words {
    type Hint = String;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let words = Words::new();
        let history = FileHistory::new();
        let complete = |line: &str| {
            let (at, found) = words
                .complete(line, line.len(), &Context::new(&history))
                .unwrap();
            (
                at,
                found.into_iter().map(|p| p.replacement).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            complete("select * from sysc"),
            (14, vec!["syscall_name(".into(), "syscalls".into()])
        );
        assert_eq!(complete("sele"), (0, vec!["SELECT".into()]));
        assert_eq!(complete("select "), (7, vec![]));
        assert!(complete("mnem").1.contains(&"mnemonic".to_owned()));
    }

    #[test]
    fn commands_begin_with_a_dot() {
        assert!(command("select 1;").is_none());
        assert!(matches!(command(".quit"), Some(Command::Quit)));
        assert!(
            matches!(command(".schema calls;"), Some(Command::Ask(q)) if q == "DESCRIBE calls")
        );
        assert!(matches!(command(".nothing"), Some(Command::Say(t)) if t.contains("no such")));
    }
}
