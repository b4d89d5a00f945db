//! Signals that kill: when they take effect. The first processes of namespaces ignore them.

use hindsight_lab::{Scene, end, words};

const CALLS: [&str; 7] = [
    "kill", "tgkill", "tkill", "queue", "tgqueue", "group", "pidfd",
];

#[test]
fn nobody_returns_from_sending_a_deadly_signal() {
    let scene = Scene::new();
    let program = scene.compile("signals/deadly.c", &[]);
    for call in CALLS {
        for signo in [libc::SIGTERM, libc::SIGUSR1, libc::SIGRTMIN()] {
            let done = scene.same(&words(&program, &[call, &signo.to_string()]));
            assert_eq!(end(done.status), (None, Some(signo)), "{call}");
            assert_eq!(done.text(), "", "{call} {signo}");
        }
    }
}

#[test]
fn a_deadly_signal_goes_to_a_thread_that_takes_it() {
    let scene = Scene::new();
    let program = scene.compile("signals/deadly.c", &[]);
    for signo in [libc::SIGTERM, libc::SIGSEGV, libc::SIGBUS] {
        let signal = signo.to_string();
        let done = scene.same(&words(&program, &["await", &signal]));
        assert_eq!(done.text(), "taken\n");
        let done = scene.same(&words(&program, &["elsewhere", &signal]));
        assert_eq!(end(done.status), (None, Some(signo)));
    }
}

/// Whether namespaces for process ids can be made here. Prints a message if not.
fn has_namespaces(scene: &Scene, program: &std::path::Path) -> bool {
    let done = scene.native(&words(program, &["sent=15"]));
    let may = !done.text().contains("not permitted");
    if !may {
        eprintln!("skipped: namespaces of process ids need rights that this user does not have");
    }
    may
}

#[test]
fn the_first_process_of_a_namespace_lives_on() {
    let scene = Scene::new();
    let program = scene.compile("signals/first.c", &[]);
    if !has_namespaces(&scene, &program) {
        return;
    }
    let args = [
        "sent=1",
        "sent=6",
        "sent=11",
        "sent=15",
        "sent=34",
        "raised=6",
        "raised=7",
        "raised=31",
        "handled=10",
        "handled=11",
        "again=15",
        "again=5",
    ];
    scene.same(&words(&program, &args));
}

#[test]
fn the_first_process_of_a_namespace_dies_of_faults() {
    let scene = Scene::new();
    let program = scene.compile("signals/first.c", &[]);
    if !has_namespaces(&scene, &program) {
        return;
    }
    let done = scene.same(&words(
        &program,
        &["abort", "segv", "fpe", "ill", "trap", "bus"],
    ));
    assert!(done.text().contains("fpe: signal 8"), "{}", done.text());
}

#[test]
fn namespaces_lie_within_each_other() {
    let scene = Scene::new();
    let program = scene.compile("signals/first.c", &[]);
    if !has_namespaces(&scene, &program) {
        return;
    }
    let started = std::time::Instant::now();
    let done = scene.same(&words(&program, &["nested"]));
    assert_eq!(done.text(), "1 at 3\n1 at 2\n1 at 1\n1 at 0\n4\n");
    // In each process, the end of the process kills a thread. Nobody waits for that thread; once that took seconds.
    assert!(started.elapsed().as_secs() < 60);
    let info = scene.info(&scene.path("trace.hst"));
    let mut processes: Vec<i64> = info["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["pid"].as_i64().unwrap())
        .collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 5, "{info}");
}
