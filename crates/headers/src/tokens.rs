//! Preprocessed C as tokens, each with the file and line that it comes from.

use crate::Fault;
use std::rc::Rc;

/// A file that the preprocessor went through.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// As the preprocessor names it.
    pub path: String,
    /// The header that was asked for and led here.
    pub header: String,
    /// Whether it is this header, not one that it includes.
    pub is_named: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Word(String),
    /// The text between the quotes, as it is written.
    Text(String),
    /// A number or a character. Nothing that matters here depends on its value.
    Number(String),
    Sign(char),
    /// `...`
    Dots,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub source: Rc<Source>,
    pub line: u32,
}

impl Token {
    pub fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::at(&self.source.path, self.line, what)
    }
}

/// Reads what the preprocessor wrote for a file that includes `header`.
pub fn read(text: &str, header: &str) -> Result<Vec<Token>, Fault> {
    let mut reader = Reader {
        rest: text,
        header,
        stack: vec![Rc::new(Source {
            path: header.into(),
            header: header.into(),
            is_named: false,
        })],
        line: 1,
        out: Vec::new(),
    };
    let mut fresh = true;
    while let Some(c) = reader.rest.chars().next() {
        match c {
            '\n' => {
                reader.skip(1);
                reader.line = reader.line.saturating_add(1);
                fresh = true;
            }
            _ if c.is_whitespace() => reader.skip(c.len_utf8()),
            '#' if fresh => reader.directive(),
            _ => {
                fresh = false;
                reader.token(c)?;
            }
        }
    }
    Ok(reader.out)
}

struct Reader<'a> {
    rest: &'a str,
    header: &'a str,
    /// The files that include each other, the innermost one last.
    stack: Vec<Rc<Source>>,
    line: u32,
    out: Vec<Token>,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn fault(&self, what: &str) -> Fault {
        let file = self.stack.last().map_or(self.header, |s| &s.path);
        Fault::at(file, self.line, what)
    }

    /// `# LINE "FILE" FLAGS` says where the next line comes from. Other lines with `#` are pragmas.
    fn directive(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let line = self.rest[1..end].trim();
        self.rest = &self.rest[end..];
        let line = line.strip_prefix("line").unwrap_or(line).trim_start();
        let Some((number, rest)) = line.split_once(' ') else {
            return;
        };
        let (Ok(number), Some(quoted)) = (number.parse::<u32>(), rest.trim().strip_prefix('"'))
        else {
            return;
        };
        let Some((path, flags)) = quoted.rsplit_once('"') else {
            return;
        };
        let path = path.replace("\\\\", "\\").replace("\\\"", "\"");
        // The line that follows has this number.
        self.line = number.saturating_sub(1);
        let flag = |f: &str| flags.split_whitespace().any(|x| x == f);
        if flag("2") && self.stack.len() > 1 {
            self.stack.pop();
        }
        let depth = self.stack.len() + usize::from(flag("1"));
        let source = Rc::new(Source {
            path,
            header: self.header.into(),
            // The first file includes the header, and has nothing else.
            is_named: depth == 2,
        });
        match flag("1") {
            true => self.stack.push(source),
            false => {
                self.stack.pop();
                self.stack.push(source);
            }
        }
    }

    fn token(&mut self, c: char) -> Result<(), Fault> {
        let letter = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let run =
            |text: &str, of: &dyn Fn(char) -> bool| text.find(|c| !of(c)).unwrap_or(text.len());
        let line = self.line;
        let kind = if c.is_ascii_digit() {
            // `1e+5` comes as three tokens, and nobody minds.
            let len = run(self.rest, &|c| letter(c) || c == '.');
            let text = self.rest[..len].to_owned();
            self.skip(len);
            Kind::Number(text)
        } else if letter(c) {
            let len = run(self.rest, &letter);
            let text = self.rest[..len].to_owned();
            self.skip(len);
            Kind::Word(text)
        } else if c == '"' {
            Kind::Text(self.quoted('"')?)
        } else if c == '\'' {
            Kind::Number(self.quoted('\'')?)
        } else if self.rest.starts_with("...") {
            self.skip(3);
            Kind::Dots
        } else if self.rest.starts_with("/*") {
            let end = self.rest.find("*/");
            let end = end.ok_or_else(|| self.fault("a comment does not end"))?;
            let lines = self.rest[..end].matches('\n').count() as u32;
            self.line = self.line.saturating_add(lines);
            self.skip(end + 2);
            return Ok(());
        } else if self.rest.starts_with("//") {
            self.skip(run(self.rest, &|c| c != '\n'));
            return Ok(());
        } else {
            self.skip(c.len_utf8());
            Kind::Sign(c)
        };
        let source = self.stack.last().map(Rc::clone);
        if let Some(source) = source {
            self.out.push(Token { kind, source, line });
        }
        Ok(())
    }

    /// A string or character, which begins here.
    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if c == quote => {
                    let text = self.rest[1..at].to_owned();
                    self.skip(at + 1);
                    return Ok(text);
                }
                _ => {}
            }
        }
        Err(self.fault("a string or character does not end in its line"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_place() {
        let text = "# 0 \"<stdin>\"\n# 1 \"<stdin>\"\n# 1 \"/x/my.h\" 1 3 4\nint\n a; // no\n\
                    # 7 \"/x/deep \\\"er.h\" 1\nchar c = 'x';\n# 3 \"/x/my.h\" 2\n#pragma x\n \"a\\\"b\" ...\n";
        let all = read(text, "my.h").unwrap();
        let place = |n: usize| {
            (
                all[n].source.path.as_str(),
                all[n].line,
                all[n].source.is_named,
            )
        };
        assert_eq!(place(0), ("/x/my.h", 1, true));
        assert_eq!(place(1), ("/x/my.h", 2, true));
        assert_eq!(place(3), ("/x/deep \"er.h", 7, false));
        assert_eq!(all[6].kind, Kind::Number("x".into()));
        assert_eq!(all[8].kind, Kind::Text("a\\\"b".into()));
        assert_eq!(place(8), ("/x/my.h", 4, true));
        assert_eq!(all[9].kind, Kind::Dots);
        assert_eq!(all.len(), 10);
        assert_eq!(all[0].source.header, "my.h");
    }

    #[test]
    fn faults_have_their_place() {
        let wrong = |text: &str| read(text, "my.h").unwrap_err().to_string();
        assert!(wrong("# 5 \"b.h\" 1\nint a;\n\"x\n").starts_with("b.h:6: a string"));
        assert!(wrong("/* x").starts_with("my.h:1: a comment"));
    }
}
