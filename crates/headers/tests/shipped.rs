//! What comes with the product against the headers of this machine.

use hindsight_headers::{Compiler, Derived, Ground, Outcome, Rules};
use hindsight_inspect::declared::{At, Declaration, Declarations, Size};
use std::path::Path;

/// A function whose attribute is not compared, and why.
const EXCEPT: [(&str, &str); 1] = [(
    "regexec",
    "its attribute counts structures of 8 bytes; their size is not derived",
)];

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inspect/src/carried");
    std::fs::read_to_string(path.join(name)).unwrap()
}

/// The names of the functions in a text of declarations, each with its library.
fn names(text: &str) -> Vec<(String, String)> {
    let mut library = String::new();
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap().trim();
        if let Some(name) = line.strip_prefix('[') {
            library = name.trim_end_matches(']').into();
        } else if let Some((name, _)) = line.split_once('(') {
            all.push((library.clone(), name.into()));
        }
    }
    all
}

/// What is derived of headers, one by one. Those that this machine has not, or does not take, are named and left out.
fn derive(headers: &[&str], rules: &Rules) -> Vec<Derived> {
    let compiler = Compiler::new("cc", &["-D_GNU_SOURCE".into()]);
    let mut all = Vec::new();
    for header in headers {
        match hindsight_headers::derive(&compiler, &[(*header).into()], rules) {
            Ok(found) => {
                assert!(found.faults.is_empty(), "{header}: {:?}", found.faults);
                all.extend(found.functions);
            }
            Err(e) => println!("left out: {e}"),
        }
    }
    all
}

fn declaration(derived: &Derived) -> Option<Declaration> {
    let text = format!("[x]\n{}\n", derived.text()?);
    Declarations::read(&text)
        .unwrap()
        .of("x", &derived.symbol)
        .cloned()
}

/// Whether `wide` permits all writes to parameters that `narrow` does.
fn covers(wide: &Declaration, narrow: &Declaration) -> bool {
    narrow.format.is_none_or(|f| wide.format == Some(f))
        && narrow.writes.iter().all(|n| {
            wide.writes
                .iter()
                .any(|w| w.at == n.at && is_within(n.size, w.size))
        })
}

fn is_within(narrow: Size, wide: Size) -> bool {
    match (narrow, wide) {
        (_, Size::Open) => true,
        (Size::Bytes(n), Size::Bytes(w)) => n <= w,
        (Size::Times(n, a), Size::Times(w, b)) => n == w && a <= b,
        (Size::Parameter(n), Size::Times(w, b)) => n == w && b > 0,
        _ => narrow == wide,
    }
}

#[test]
fn sizes_are_compared() {
    let one = |items: &str| {
        let all = Declarations::read(&format!("[x]\nf({items})")).unwrap();
        all.of("x", "f").unwrap().clone()
    };
    for (wide, narrow, expected) in [
        ("w:0..", "w:0[1]", true),
        ("w:0[1]", "w:0..", false),
        ("w:0{8}", "w:0{4}", true),
        ("w:0{4}", "w:0{8}", false),
        ("w:0[1*8]", "w:0[1]", true),
        ("w:0[2]", "w:0[1]", false),
        ("w:1[2]", "w:0[2]", false),
        ("", "f:0", false),
        ("f:0", "", true),
    ] {
        assert_eq!(
            covers(&one(wide), &one(narrow)),
            expected,
            "{wide} {narrow}"
        );
    }
    assert_eq!(one("w:*2..").writes[0].at, At::Behind(2));
}

/// Of what attributes say of a function, what was written by hand permits all.
#[test]
fn what_was_written_by_hand_permits_what_attributes_say() {
    let rules = Rules {
        included: vec!["/bits/".into()],
        pure_takes_no_memory: true,
    };
    let c = [
        "string.h",
        "strings.h",
        "stdlib.h",
        "stdio.h",
        "unistd.h",
        "ctype.h",
        "time.h",
        "fcntl.h",
        "sys/time.h",
        "sys/socket.h",
        "sys/random.h",
        "regex.h",
        "malloc.h",
        "errno.h",
    ];
    let by_hand = text("functions.txt");
    let known = Declarations::read(&by_hand).unwrap();
    let mut compared = 0;
    for (library, headers) in [
        ("libc.so", &c[..]),
        ("libm.so", &["math.h"]),
        ("libz.so", &["zlib.h"]),
    ] {
        let all = derive(headers, &rules);
        let named = names(&by_hand).into_iter().filter(|n| n.0 == library);
        let missing: Vec<String> = named
            .map(|n| n.1)
            .filter(|n| !n.starts_with("__") && !all.iter().any(|f| f.symbol == *n))
            .collect();
        println!("{library}: no header of these declares {missing:?}");
        for f in &all {
            let Some(hand) = known.of(library, &f.symbol) else {
                continue;
            };
            if EXCEPT.iter().any(|e| e.0 == f.symbol) {
                continue;
            }
            let stated: Vec<String> = f.stated.iter().map(ToString::to_string).collect();
            let stated = Declarations::read(&format!("[x]\nf({})", stated.join(" "))).unwrap();
            let stated = stated.of("x", "f").unwrap();
            assert!(
                covers(hand, stated),
                "functions.txt says {}, but the attributes at {}:{} say {}",
                hand.text,
                f.file,
                f.line,
                stated.text
            );
            let Outcome::Declared {
                ground, reasons, ..
            } = &f.outcome
            else {
                compared += usize::from(!f.stated.is_empty());
                continue;
            };
            if *ground == Ground::Types {
                continue;
            }
            let fresh = declaration(f).unwrap();
            let reasons = reasons.join("; ");
            assert!(
                covers(hand, &fresh),
                "functions.txt says {}, but {}:{} says {reasons}, which is {}",
                hand.text,
                f.file,
                f.line,
                fresh.text
            );
            assert!(
                !reasons.contains("malloc") || hand.heap || hand.stdio,
                "functions.txt says {}, but it allocates: {reasons}",
                hand.text
            );
            compared += 1;
        }
    }
    println!("{compared} functions have both");
    // Compilers without these attributes give nothing to compare.
    assert!(compared >= 10 || !has_attributes(), "{compared}");
}

/// Whether the C library's headers show attributes to this compiler.
fn has_attributes() -> bool {
    let all = derive(&["unistd.h"], &Rules::default());
    all.iter()
        .any(|f| f.symbol == "read" && f.text().is_some_and(|t| t.contains("w:1[2]")))
}

/// The version of the C library whose headers these are, as `2.36`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once("glibc ")?;
    let (major, rest) = rest.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Headers that say more of what is written than derived.txt make that unsound. So do headers of a later version that promise
/// less. Earlier ones may: they had fewer attributes.
#[test]
fn what_was_derived_holds_for_the_headers_here() {
    if !has_attributes() {
        println!("not compared: the compiler or the C library here shows no attributes");
        return;
    }
    let shipped = text("derived.txt");
    let known = Declarations::read(&shipped).unwrap();
    let here = std::process::Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output();
    let here = here
        .ok()
        .and_then(|o| version(&String::from_utf8_lossy(&o.stdout)));
    let is_later = here.is_some_and(|h| Some(h) >= version(&shipped));
    let mut compared = 0;
    for command in shipped
        .lines()
        .filter_map(|l| l.strip_prefix("#   hindsight declare --file "))
    {
        let words: Vec<&str> = command.split(' ').collect();
        let headers = words[1..].iter().take_while(|w| !w.starts_with("--"));
        let headers: Vec<&str> = headers.copied().collect();
        let rules = Rules {
            included: vec!["/bits/".into()],
            pure_takes_no_memory: words.contains(&"--pure-takes-no-memory"),
        };
        for f in derive(&headers, &rules) {
            let Some(old) = known.of(words[0], &f.symbol) else {
                continue;
            };
            let fresh = declaration(&f);
            let holds = fresh.as_ref().is_some_and(|fresh| {
                let heap = !(fresh.heap || fresh.stdio) || old.heap || old.stdio;
                covers(old, fresh) && heap && (!fresh.stdio || old.stdio)
            });
            let is_only_less = match &f.outcome {
                Outcome::Declared { ground, .. } => *ground == Ground::Types,
                Outcome::LeftOut(_) => true,
            };
            if !holds && is_only_less && !is_later {
                println!("{} is not described by these headers", f.symbol);
                continue;
            }
            assert!(
                holds,
                "derived.txt is stale: it says {}, but {}:{} says {:?}. scripts/declarations makes it anew",
                old.text, f.file, f.line, f.outcome
            );
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} functions were compared");
}
