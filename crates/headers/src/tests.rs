//! Declarations as a header has them, and what is derived of each.

use super::*;

const NO_MEMORY: Rules = Rules {
    included: Vec::new(),
    pure_takes_no_memory: true,
};

/// What is derived of a header with this text.
fn found(text: &str) -> Found {
    let text = format!("# 1 \"<stdin>\"\n# 1 \"/x/my.h\" 1\n{text}\n# 2 \"<stdin>\" 2\n");
    let mut unit = unit(&text, "my.h", &[]).unwrap();
    let faults = std::mem::take(&mut unit.faults);
    Found {
        functions: outcomes(vec![unit], &NO_MEMORY),
        faults,
    }
}

/// The one function of a header: its declaration and its reasons, or why it has none.
fn one(text: &str) -> String {
    let all = found(text);
    assert!(all.faults.is_empty(), "{text}: {:?}", all.faults);
    assert_eq!(all.functions.len(), 1, "{text}");
    let f = &all.functions[0];
    match &f.outcome {
        Outcome::LeftOut(why) => format!("left out: {why}"),
        Outcome::Declared {
            ground, reasons, ..
        } => {
            format!("{ground:?} {} {}", f.text().unwrap(), reasons.join("; "))
        }
    }
}

#[test]
fn promises() {
    let pure = "Promise f() pure";
    for text in [
        "int f(const char *s) __attribute__((pure));",
        "extern int f (const char *__s) __attribute__ ((__nothrow__ , __leaf__)) __attribute__ ((__pure__)) __attribute__ ((__nonnull__ (1)));",
        "__attribute__((pure)) int f(char *s);",
        "[[gnu::pure]] int f(void *);",
        "int f [[gnu::pure]] (void *);",
        "int (f)(void *) __attribute__((pure));",
        "typedef int fn(void *); fn f __attribute__((pure));",
        "int f(void *); int f(void *) __attribute__((pure)); int f(void *);",
        "int g, *h, f(int) __attribute__((pure)), k[3];",
        "int g = 3 * (1, 2), f(int) __attribute__((pure));",
        "extern inline int f(int a) __attribute__((pure)); extern inline int f(int a) { if (a) { return 1; } return 2; }",
    ] {
        assert_eq!(one(text), pure, "{text}");
    }
    assert_eq!(
        one("double f(double) __attribute__((const));"),
        "Promise f() const"
    );
    // The symbol is what is called.
    let labelled = one("int f(int) __asm__(\"\" \"__isoc_\" \"f\") __attribute__((const));");
    assert_eq!(labelled, "Promise __isoc_f() const");
}

#[test]
fn what_is_no_promise_of_the_function() {
    // Of one that returns nothing compilers do not believe it.
    assert_eq!(
        one("void f(int) __attribute__((pure));"),
        "Types f(stdio) `pure` does not count, since it returns nothing"
    );
    for text in [
        // It is the qualifier of what is returned.
        "const int f(int);",
        // It is about the other name.
        "int g __attribute__((pure)), f(int);",
        // It is about the parameter's function.
        "int f(int __attribute__((pure)) a);",
        "struct s { int a; } __attribute__((packed)); int f(int);",
    ] {
        assert!(
            one(text).starts_with("Types f(stdio)"),
            "{text}: {}",
            one(text)
        );
    }
    assert!(
        found("int (*f)(int) __attribute__((pure));")
            .functions
            .is_empty()
    );
    assert!(
        found("static int f(int) __attribute__((pure));")
            .functions
            .is_empty()
    );
    assert!(
        found("typedef int f(int) __attribute__((pure));")
            .functions
            .is_empty()
    );
}

#[test]
fn access() {
    let read =
        "long f(int fd, void *buf, unsigned long n) __attribute__((access(write_only, 2, 3)));";
    assert_eq!(
        one(read),
        "Attributes f(w:1[2] stdio) access(write_only, 2, 3)"
    );
    assert_eq!(
        one(
            "long f(double x, unsigned n, int list[], float y) __attribute__((__access__(__read_write__, 3, 2)));"
        ),
        "Attributes f(w:1[0*8] stdio) access(read_write, 3, 2)"
    );
    // No size: any number of bytes.
    assert_eq!(
        one("char *f(char *s) __attribute__((access(write_only, 1)));"),
        "Attributes f(w:0.. stdio) access(write_only, 1)"
    );
    // What is only written is not followed. What is read may be.
    let pointers = "struct s { int n; struct s *next; };";
    assert_eq!(
        one(&format!(
            "{pointers} int f(struct s *) __attribute__((access(write_only, 1)));"
        )),
        "Attributes f(w:0.. stdio) access(write_only, 1)"
    );
    for mode in ["read_only", "read_write"] {
        let text = format!("{pointers} int f(struct s *) __attribute__((access({mode}, 1)));");
        assert_eq!(
            one(&text),
            "left out: parameter 1 leads to struct s, which has pointers"
        );
    }
    assert_eq!(
        one("int f(void *p, int n) __attribute__((access(none, 1)));"),
        "Attributes f(stdio) access(none, 1)"
    );
    assert_eq!(
        one("int f(const void *p, int n) __attribute__((access(read_only, 1, 2)));"),
        "Attributes f(stdio) access(read_only, 1, 2)"
    );
    // Two declarations say two things: both may happen.
    assert_eq!(
        one(
            "int f(char *p, int n, int m) __attribute__((access(write_only, 1, 2))); int f(char *, int, int) __attribute__((access(read_write, 1, 3)));"
        ),
        "Attributes f(w:0[1] w:0[2] stdio) access(write_only, 1, 2); access(read_write, 1, 3)"
    );
    // A size that is no number in a register says nothing.
    assert_eq!(
        one("int f(char *p, double n) __attribute__((access(write_only, 1, 2)));"),
        "Attributes f(w:0.. stdio) access(write_only, 1, 2)"
    );
    // A parameter without an attribute may still be written.
    assert_eq!(
        one("int f(char *p, int *q) __attribute__((access(write_only, 1)));"),
        "Types f(w:0.. w:1.. stdio) access(write_only, 1); by type: 2 is not const"
    );
}

#[test]
fn types() {
    assert_eq!(
        one("int f(const char *s);"),
        "Types f(stdio) by type: 1 is const"
    );
    assert_eq!(one("int f(void);"), "Types f(stdio) by type: no pointers");
    assert_eq!(
        one("char *f(const char *s) __attribute__((malloc));"),
        "Attributes f(stdio) malloc; by type: 1 is const"
    );
    assert_eq!(
        one("void *f(unsigned long n) __attribute__((alloc_size(1)));"),
        "Attributes f(stdio) malloc"
    );
    let time =
        "struct t { long s; union { int a; char b[4]; }; unsigned x : 3, : 5; enum { A, B } e; };";
    assert_eq!(
        one(&format!("{time} int f(const struct t *restrict);")),
        "Types f(stdio) by type: 1 is const"
    );
    assert_eq!(
        one(&format!("{time} typedef struct t t_t; int f(t_t *);")),
        "Types f(w:0.. stdio) by type: 1 is not const"
    );
}

#[test]
fn what_nothing_bounds_is_left_out() {
    for (text, why) in [
        (
            "int f(const void *p);",
            "parameter 1 leads to memory without a type",
        ),
        ("int f(char **p);", "parameter 1 leads to pointers"),
        ("int f(char *const *p);", "parameter 1 leads to pointers"),
        (
            "struct o; int f(const struct o *p);",
            "parameter 1 leads to struct o, which is not described here",
        ),
        (
            "struct s { void (*g)(void); }; int f(const struct s *p);",
            "parameter 1 leads to struct s, which has pointers",
        ),
        (
            "int f(int (*g)(int));",
            "parameter 1 is a function, which it may call",
        ),
        (
            "int f(int g(int)) __attribute__((pure));",
            "parameter 1 is a function, which it may call",
        ),
        (
            "typedef int (*g)(int); int f(int, g *) __attribute__((pure));",
            "parameter 2 is a function, which it may call",
        ),
        ("int f();", "its parameters are not said"),
        (
            "int f(int, ...);",
            "it takes any number of parameters, and does not say which",
        ),
        (
            "struct s { int a; }; int f(struct s);",
            "parameter 1 is a struct s, not a pointer to one",
        ),
        (
            "struct s { int a[9]; }; struct s f(int) __attribute__((const));",
            "it returns a struct s, which may be in memory",
        ),
        (
            "int f(long double) __attribute__((const));",
            "parameter 1 is long double, which is passed on the stack or in pieces",
        ),
        (
            "int f(__int128) __attribute__((const));",
            "parameter 1 is __int128, which is passed on the stack or in pieces",
        ),
        (
            "typedef int t __attribute__((mode(TI))); int f(t) __attribute__((const));",
            "parameter 1 is a number of the mode TI, which is passed on the stack or in pieces",
        ),
        (
            "typedef float v __attribute__((vector_size(32))); int f(v) __attribute__((const));",
            "parameter 1 is a vector, which is passed on the stack or in pieces",
        ),
        (
            "int f(int, int, int, int, int, int, int) __attribute__((const));",
            "it has parameters on the stack",
        ),
        (
            "int f(wint x) __attribute__((const));",
            "parameter 1 is wint, a type that is not known",
        ),
        ("int f(int) __attribute__((noreturn));", "it is noreturn"),
        (
            "int f(int) __attribute__((__returns_twice__));",
            "it is returns_twice",
        ),
        ("_Noreturn void f(int);", "it is noreturn"),
        (
            "int f(const char *s, __builtin_va_list a);",
            "parameter 2 is a list of arguments",
        ),
    ] {
        assert_eq!(one(text), format!("left out: {why}"), "{text}");
    }
    // A parameter may be called as an attribute is.
    let named = "int f(const char *path, unsigned mode) __attribute__((pure));";
    assert_eq!(one(named), "Promise f() pure");
    assert_eq!(
        one("int f(int (mode), int pure);"),
        "Types f(stdio) by type: no pointers"
    );
}

#[test]
fn streams_and_formats() {
    let stream = "typedef struct _IO_FILE FILE; struct _IO_FILE { char *p; };";
    let format = "__attribute__((format(printf, 2, 3)))";
    assert_eq!(
        one(&format!(
            "{stream} int f(FILE *, const char *, ...) {format};"
        )),
        "Attributes f(f:1 stdio) format(printf, 2, ...); by type: 1 is a stream, 2 is const"
    );
    assert_eq!(
        one(&format!(
            "{stream} char *f(char *s, int n, FILE *) __attribute__((access(write_only, 1, 2)));"
        )),
        "Attributes f(w:0[1] stdio) access(write_only, 1, 2); by type: 3 is a stream"
    );
    assert_eq!(
        one(
            "typedef __builtin_va_list va_list; int f(const char *, va_list) __attribute__((__format__(__printf__, 1, 0)));"
        ),
        "Attributes f(f:0 w:1{24} stdio) format(printf, 1, va_list); by type: 1 is const"
    );
    let scans = one("int f(const char *, ...) __attribute__((format(scanf, 1, 2)));");
    assert!(
        scans.starts_with("left out: it takes any number"),
        "{scans}"
    );
}

#[test]
fn what_is_not_understood_is_left_out_and_told_of() {
    let all = found(
        "int a(int);\nclass x { int y; };\nint b(int) {\n return 1; }\nint f(int;\n);\nint c(int);",
    );
    let names: Vec<&str> = all.functions.iter().map(|f| f.symbol.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let faults: Vec<String> = all.faults.iter().map(Fault::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("/x/my.h:2: ") && faults[1].starts_with("/x/my.h:5: "),
        "{faults:?}"
    );
    // What does not end ends the reading.
    let wrong = |text: &str| match unit(&format!("# 1 \"a.h\" 1\n{text}"), "a.h", &[]) {
        Err(fault) => fault.to_string(),
        Ok(_) => panic!("{text} is understood"),
    };
    assert!(wrong("int a;\nint b(").starts_with("a.h:2: "));
    assert!(wrong("int a;\n\nint b").starts_with("a.h:3: a declaration begins here"));
    assert!(wrong("int a; }").starts_with("a.h:1: a parenthesis or brace"));
    // Depth has an end, also that of the reader's stack.
    for (open, close) in [("(", ")"), ("struct { ", "} x;"), ("int (*a)(", ")")] {
        let deep = format!("int f{}int a{};", open.repeat(5000), close.repeat(5000));
        let _ = unit(&format!("# 1 \"a.h\" 1\n{deep}"), "a.h", &[]);
    }
}

#[test]
fn several_headers() {
    let unit = |name: &str, text: &str| {
        let text = format!("# 1 \"<stdin>\"\n# 1 \"{name}\" 1\n{text}");
        unit(&text, name, &[]).unwrap()
    };
    let a = unit(
        "a.h",
        "int f(char *p, int n); int g(int) __attribute__((const));",
    );
    let b = unit(
        "b.h",
        "int f(char *p, int n) __attribute__((access(write_only, 1, 2))); int g(int);",
    );
    let c = unit("c.h", "int g(long double);");
    let all = outcomes(vec![a, b, c], &NO_MEMORY);
    let text: Vec<Option<String>> = all.iter().map(Derived::text).collect();
    assert_eq!(text, [Some("f(w:0[1] stdio)".into()), None]);
    assert!(all.iter().all(|f| f.header == "a.h"));
}

#[test]
fn the_text_can_be_read() {
    let all = found(
        "int f(const char *s) __attribute__((pure));\nint g(int);\nint h(int (*)(void));\n\
         int k(int) __asm__(\"a b\") __attribute__((const));\nclass x {};\n",
    );
    let choice = |ground, is_brief| Choice {
        library: "libx.so".into(),
        ground,
        is_brief,
    };
    let text = all.text(&choice(Ground::Attributes, false), "Head\n");
    assert_eq!(
        text,
        "# Head\n\n[libx.so]\n# my.h\n# perhaps a b(): const\nf()  # pure\n# perhaps g(stdio): by type: no pointers\n\
         # h: parameter 1 is a function, which it may call\n\n# Not understood:\n\
         # /x/my.h:5: a body that belongs to no function\n"
    );
    let text = all.text(&choice(Ground::Types, true), "Head");
    assert_eq!(
        text,
        "# Head\n\n[libx.so]\n# my.h\nf()  # pure\ng(stdio)  # by type: no pointers\n"
    );
    assert_eq!(
        (all.count(Ground::Promise), all.count(Ground::Types)),
        (1, 2)
    );
    let read = hindsight_inspect::Declarations::read(&text).unwrap();
    assert!(read.of("libx.so.1", "g").unwrap().stdio);
}

#[test]
fn what_attributes_say_is_known_of_those_that_are_left_out_too() {
    let all = found("int f(char *p, int n, void **q) __attribute__((access(write_only, 1, 2)));");
    assert!(matches!(all.functions[0].outcome, Outcome::LeftOut(_)));
    assert_eq!(all.functions[0].stated, [Item::Sized(0, 1)]);
}

#[test]
fn what_is_pure_may_allocate_for_a_while() {
    let text = "# 1 \"<stdin>\"\n# 1 \"a.h\" 1\nint f(int) __attribute__((pure)); int g(int) __attribute__((const));";
    let all = outcomes(vec![unit(text, "a.h", &[]).unwrap()], &Rules::default());
    let text: Vec<String> = all.iter().filter_map(Derived::text).collect();
    assert_eq!(text, ["f(heap)", "g(heap)"]);
}

#[test]
fn included_files_count_if_that_is_asked_for() {
    let text = "# 1 \"<stdin>\"\n# 1 \"/x/a.h\" 1\n# 1 \"/x/bits/b.h\" 1\nint f(int);\n# 2 \"/x/a.h\" 2\nint g(int);";
    let symbols = |included: &[String]| -> Vec<String> {
        let all = outcomes(vec![unit(text, "a.h", included).unwrap()], &NO_MEMORY);
        all.into_iter().map(|f| f.symbol).collect()
    };
    assert_eq!(symbols(&[]), ["g"]);
    assert_eq!(symbols(&["/bits/".into()]), ["f", "g"]);
}

/// Whatever a text says, reading it ends, without a panic.
#[test]
fn spoiled_texts_are_read_to_their_end() {
    let whole = "typedef struct s { int a : 3; struct s *n; char (*f[2])(void); union { long b; }; } s_t;\n\
                 extern int f (const s_t *p, int n, ...) __attribute__ ((__format__ (__printf__, 1, 2)));\n\
                 [[gnu::pure]] enum e { A = 1 << 2, B } (*g(int a[3], void (*h)(int)))(double) __asm__(\"x\" \"y\");\n\
                 static inline int k(int x) { return x ? 'c' : 1.5e3; }\n# 3 \"b.h\" 1\n_Atomic(int) l, m = {1, 2};\n";
    let mut random = hindsight_random::Rng(7);
    for _ in 0..20_000 {
        let mut text = whole.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let from = random.below(text.len() as u64) as usize;
            let to = (from + random.below(12) as usize).min(text.len());
            match random.below(3) {
                0 => _ = text.drain(from..to),
                1 => text
                    .splice(from..from, text[from..to].to_vec())
                    .for_each(drop),
                _ => text[from] = b"(){}[];,*:=\"#_a0"[random.below(16) as usize],
            }
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(unit) = unit(&format!("# 1 \"a.h\" 1\n{text}"), "a.h", &["".into()]) {
            outcomes(vec![unit], &NO_MEMORY);
        }
    }
}

#[test]
fn promises_that_do_not_count() {
    for (text, why) in [
        (
            "int f(int, ...) __attribute__((pure));",
            "left out: it takes any number",
        ),
        ("[[pure]] int f(int);", "Types f(stdio)"),
        (
            "int f(char *p) __attribute__((pure, access(write_only, 1)));",
            "Attributes f(w:0.. stdio) `pure` does not count, since it writes",
        ),
        (
            "int f(const char *a, const char *b, ...) __attribute__((format(printf, 1, 3), format(printf, 2, 3)));",
            "left out: it has several formats",
        ),
        (
            "typedef float v __attribute__((ext_vector_type(8))); v f(int) __attribute__((const));",
            "left out: it returns a vector, which may be in memory",
        ),
        ("long double f(int) __attribute__((const));", "Promise f()"),
        (
            "unsigned __int128 f(int) __attribute__((const));",
            "Promise f()",
        ),
        (
            "typedef float t; int f(t _Complex) __attribute__((const));",
            "left out: parameter 1 is _Complex, a type that is not known",
        ),
        (
            "int * __attribute__((ms_abi)) f(int) __attribute__((const));",
            "left out: it is ms_abi",
        ),
        (
            "typedef int t(int) __attribute__((ms_abi)); t f __attribute__((const));",
            "left out: it is ms_abi",
        ),
        (
            "int f(int __attribute__((mode(TI))) *p, int x) __attribute__((const));",
            "Promise f()",
        ),
        (
            "int f(int) __asm__(\"\") __attribute__((const));",
            "Promise f()",
        ),
    ] {
        assert!(one(text).starts_with(why), "{text}: {}", one(text));
    }
}

#[test]
fn a_tag_with_several_meanings_is_not_known() {
    for text in [
        "struct s { int a; }; int g(struct s { char *p; } *); int f(const struct s *);",
        "struct s; int g(struct s { int a; } *); int f(const struct s *);",
    ] {
        let all = found(text);
        let f = all.functions.iter().find(|f| f.symbol == "f").unwrap();
        assert!(f.text().is_none(), "{text}");
    }
}

#[test]
fn types_have_a_largest_size() {
    let mut text = "struct s0 { int a; }; typedef int t0(int);".to_owned();
    for n in 1..60 {
        let m = n - 1;
        text +=
            &format!("struct s{n} {{ struct s{m} a, b, c; }}; typedef int t{n}(t{m}, t{m}, t{m});");
    }
    text += "int f(const struct s59 *); int g(t59);";
    text += &format!(
        "int {}h(int); int k(int x{});",
        "*".repeat(9000),
        "[1]".repeat(9000)
    );
    text += "\n#line 4294967295\n\n# 4294967295 \"/x/my.h\"\n\n\n";
    let all = found(&text);
    assert!(all.faults.iter().any(|f| f.what == "a type is too deep"));
    assert!(
        all.functions
            .iter()
            .any(|f| f.symbol == "f" && f.text().is_some())
    );
}

#[test]
fn the_compiler_may_end_early_and_is_asked_for_the_usual_calls() {
    let all = derive(
        &Compiler::new("true", &[]),
        &["string.h".into()],
        &NO_MEMORY,
    )
    .unwrap();
    assert!(all.functions.is_empty());
    let wrong = Compiler::new("cc", &["-m32".into()]).version().unwrap_err();
    assert!(wrong.to_string().contains("option -m32 changes"));
}
