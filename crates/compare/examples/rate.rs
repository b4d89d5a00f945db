use hindsight_compare::*;
use hindsight_timeline::*;
fn main() {
    let f: Vec<String> = std::env::args().skip(1).collect();
    let open = |f: &str| Timeline::open(f, Default::default()).unwrap();
    let now = std::time::Instant::now();
    let o = hindsight_compare::Options {
        exact: f.len() > 2,
        ..Default::default()
    };
    let r = compare([&open(&f[0]), &open(&f[1])], &o, &|_, _| {}).unwrap();
    println!(
        "{:?} {:?} {:?}",
        now.elapsed(),
        r.passed_over,
        r.differences.first().map(|d| &d.kind)
    );
}
