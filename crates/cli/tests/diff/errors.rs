//! What cannot be compared.

use super::{compile, diff, record};
use hindsight_lab::Scene;
use std::fs;

#[test]
fn what_cannot_be_compared_is_an_error() {
    let s = Scene::new();
    let program = compile(&s, "seed.c", "seed", &[]);
    let trace = record(&s, "1.hst", &[&program]);
    let none = s.path("none.hst");
    let text = s.path("text.hst");
    fs::write(&text, "no trace").unwrap();
    for (a, b, options, wanted) in [
        (&trace, &none, &[][..], "none.hst"),
        (&none, &trace, &[], "none.hst"),
        (&trace, &text, &[], "text.hst"),
        (&text, &trace, &[], "text.hst"),
        (&trace, &trace, &["--thread", "999"], "no thread 999"),
        (&trace, &trace, &["--image", "7"], "no program image 7"),
        (&trace, &trace, &["--limit", "0"], "0"),
        (&trace, &trace, &["--all", "--limit", "2"], "--limit"),
    ] {
        let done = diff(&s, a, b, options);
        assert_eq!(
            done.status.code(),
            Some(2),
            "{options:?} {}",
            done.messages()
        );
        assert!(done.messages().contains(wanted), "{}", done.messages());
    }
    let one = s.run(s.hindsight(&["diff"]).arg(&trace));
    assert_eq!(one.status.code(), Some(2));
}
