//! Which part of a program is recorded: rules, and what they match. The command line checks the rules; the
//! recorder applies them.

/// Bytes of the block that holds the rules.
pub const SELECT_LEN: usize = 4096;

/// Most rules in a block. Each has a bit in [`crate::ring::Header::matched`].
pub const MOST: usize = 64;

/// The module name of memory to which no file is mapped. Code there was made at run time.
pub const ANONYMOUS: &[u8] = b"[anonymous]";

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Only modules that match are recorded.
    Only = b'+' as isize,
    /// Modules that match are not recorded.
    Skip = b'-' as isize,
    /// Recording of a thread begins when it enters this function.
    From = b'<' as isize,
    /// Recording of a thread ends when it enters this function.
    To = b'>' as isize,
    /// Nothing is recorded until the program asks for it.
    Stopped = b'0' as isize,
}

impl What {
    const ALL: [What; 5] = [What::Only, What::Skip, What::From, What::To, What::Stopped];
}

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule<'a> {
    pub what: What,
    /// A pattern for modules, or a function.
    pub text: &'a [u8],
}

/// Appends a rule at offset `at` and returns the offset behind it. `None` if the block is full or the text
/// has a zero byte.
pub fn put(block: &mut [u8; SELECT_LEN], at: usize, rule: Rule) -> Option<usize> {
    let end = at + 1 + rule.text.len();
    if rule.text.contains(&0) || end + 2 > SELECT_LEN || rules(block).count() == MOST {
        return None;
    }
    block[at] = rule.what as u8;
    block[at + 1..end].copy_from_slice(rule.text);
    block[end] = 0;
    Some(end + 1)
}

/// The rules of a block, in order.
pub fn rules(block: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    block
        .split(|b| *b == 0)
        .take_while(|r| !r.is_empty())
        .filter_map(|r| {
            let what = *What::ALL.iter().find(|w| **w as u8 == r[0])?;
            Some(Rule {
                what,
                text: &r[1..],
            })
        })
}

/// A function as the user names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function<'a> {
    /// `name` or `module!name`.
    Symbol {
        module: Option<&'a [u8]>,
        name: &'a [u8],
    },
    /// `module+0x123`: an address as in the module's file.
    Address { module: &'a [u8], address: u64 },
}

impl Function<'_> {
    /// Parses a name. `None` if a part is missing.
    pub fn parse(text: &[u8]) -> Option<Function<'_>> {
        let plus = text.windows(3).rposition(|w| w == b"+0x");
        if let Some(at) = plus
            && let Ok(digits) = core::str::from_utf8(&text[at + 3..])
            && let Ok(address) = u64::from_str_radix(digits, 16)
        {
            let module = &text[..at];
            return (!module.is_empty()).then_some(Function::Address { module, address });
        }
        let (module, name) = match text.iter().position(|b| *b == b'!') {
            Some(at) => (Some(&text[..at]), &text[at + 1..]),
            None => (None, text),
        };
        let whole = !name.is_empty() && module.is_none_or(|m| !m.is_empty());
        whole.then_some(Function::Symbol { module, name })
    }

    /// The pattern of the function's module.
    pub fn module(&self) -> Option<&[u8]> {
        match self {
            Function::Symbol { module, .. } => *module,
            Function::Address { module, .. } => Some(module),
        }
    }
}

/// Whether `pattern` matches the module at `path`. It may match the path, the file name, or the file name up
/// to `.so`. Example: `libc` matches `libc.so.6`.
pub fn module_matches(pattern: &[u8], path: &[u8]) -> bool {
    let path = if path.is_empty() { ANONYMOUS } else { path };
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let so = name
        .windows(3)
        .position(|w| w == b".so")
        .filter(|at| matches!(name.get(at + 3), None | Some(b'.')));
    [Some(path), Some(name), so.map(|at| &name[..at])]
        .into_iter()
        .flatten()
        .any(|text| glob(pattern, text))
}

/// Whether `pattern` matches the program at `path`. A pattern with a slash is compared with the path, others
/// with the file name.
pub fn program_matches(pattern: &[u8], path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let by_path = pattern.contains(&b'/');
    glob(pattern, if by_path { path } else { name })
}

/// Whether `text` matches `pattern`. `*` stands for any text and `?` for one byte.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to try again after a mismatch: behind the last star, with one more byte for the star.
    let mut again = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match again {
                Some((star, at)) => {
                    (p, t) = (star, at + 1);
                    again = Some((star, at + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (p, t) in [
            ("", ""),
            ("*", ""),
            ("a*b*c", "aXbYbZc"),
            ("*.so*", "libm.so.6"),
            ("??", "ab"),
        ] {
            assert!(glob(p.as_bytes(), t.as_bytes()), "{p} {t}");
        }
        for (p, t) in [("", "a"), ("a*b", "aXc"), ("?", ""), ("*.so", "libm.so.6")] {
            assert!(!glob(p.as_bytes(), t.as_bytes()), "{p} {t}");
        }
    }

    #[test]
    fn programs() {
        for (pattern, path, yes) in [
            ("cc1", "/usr/libexec/gcc/cc1", true),
            ("cc?", "/usr/libexec/gcc/cc1", true),
            ("/usr/*", "/usr/bin/as", true),
            ("bin/as", "/usr/bin/as", false),
            ("as", "/usr/as/gcc", false),
        ] {
            let found = program_matches(pattern.as_bytes(), path.as_bytes());
            assert_eq!(found, yes, "{pattern} {path}");
        }
    }

    #[test]
    fn modules() {
        let yes = |p: &str, t: &str| module_matches(p.as_bytes(), t.as_bytes());
        assert!(yes("libc", "/usr/lib/libc.so.6"));
        assert!(yes("libc.so.6", "/usr/lib/libc.so.6"));
        assert!(yes("/usr/lib/*", "/usr/lib/libc.so.6"));
        assert!(yes("_x*", "/a/_x.cpython-311.so"));
        assert!(yes("[anonymous]", ""));
        assert!(yes("[vdso]", "[vdso]"));
        assert!(!yes("libc", "/usr/lib/libcrypt.so.1"));
        assert!(!yes("lib", "/usr/lib/libc.so.6"));
    }

    #[test]
    fn functions() {
        let parse = |t: &'static str| Function::parse(t.as_bytes());
        let symbol = |module: Option<&'static str>, name: &'static str| {
            Some(Function::Symbol {
                module: module.map(str::as_bytes),
                name: name.as_bytes(),
            })
        };
        assert_eq!(parse("main"), symbol(None, "main"));
        assert_eq!(parse("libm*!sin"), symbol(Some("libm*"), "sin"));
        assert_eq!(parse("operator+"), symbol(None, "operator+"));
        let address = Function::Address {
            module: b"a+b",
            address: 0x12f,
        };
        assert_eq!(parse("a+b+0x12f"), Some(address));
        for bad in ["", "!f", "m!", "+0x12"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn blocks() {
        let mut block = [0; SELECT_LEN];
        let mut at = 0;
        let list = [
            (What::Only, &b"lib*"[..]),
            (What::Stopped, b""),
            (What::From, b"f"),
        ];
        for (what, text) in list {
            at = put(&mut block, at, Rule { what, text }).unwrap();
        }
        assert!(
            rules(&block)
                .map(|r| (r.what, r.text))
                .eq(list.iter().copied())
        );
        let text = &[b'x'; SELECT_LEN];
        let what = What::Skip;
        assert_eq!(put(&mut block, at, Rule { what, text }), None);
        assert_eq!(put(&mut block, at, Rule { what, text: b"\0" }), None);
    }
}
