//! What is not certain: it follows from what others chose, or from names that may lead elsewhere.

use super::{NONE, call, continues, copies, let_time_pass, record, resume};
use hindsight_lab::{Done, Scene};
use std::fs;
use std::path::PathBuf;

/// The program, which goes on from its call of `getppid`.
fn program(s: &Scene) -> String {
    let program = s.compile("resumed_more.c", &["-O1", "-pthread"]);
    program.to_str().unwrap().to_owned()
}

pub fn recorded(s: &Scene, what: &str) -> (Done, PathBuf, String) {
    let program = program(s);
    let_time_pass();
    let (done, trace) = s.record(&[program, what.into()]);
    let place = call(s, &trace, "getppid", 0);
    (done, trace, place)
}

/// Goes on, or not: the exit status is 2 then, and nothing was run.
pub fn refused(s: &Scene, what: &str, options: &[&str], why: &str) {
    let (_, trace, place) = recorded(s, what);
    let done = resume(s, &trace, &place, options);
    let told = done.messages();
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(told.contains(why) && !told.contains("goes on"), "{told}");
}

/// A program has the mask of the thread that loaded it: not that of who forked, nor that of another thread.
#[test]
fn a_loaded_program_has_the_mask_of_who_loaded_it() {
    let s = Scene::new();
    let (recorded_done, trace, place) = recorded(&s, "unblocks");
    assert_eq!(recorded_done.text(), "blocks 12\nend\n");
    continues(&recorded_done, "", &resume(&s, &trace, &place, &NONE));

    let s = Scene::new();
    let (recorded_done, trace, place) = recorded(&s, "thread-loads");
    assert_eq!(recorded_done.text(), "end\n");
    continues(&recorded_done, "", &resume(&s, &trace, &place, &NONE));
}

/// A shell blocks signals around its fork.
#[test]
fn a_program_that_bash_started_blocks_nothing() {
    let s = Scene::new();
    let script = format!("{} show; exit $?", program(&s));
    let (recorded, trace) = record(&s, &["bash", "-c", &script]);
    assert_eq!(recorded.text(), "end\n");
    // The shell calls it too.
    let place = last_call(&s, &trace, "getppid");
    continues(&recorded, "", &resume(&s, &trace, &place, &NONE));
}

fn last_call(s: &Scene, trace: &std::path::Path, name: &str) -> String {
    let mut command = s.hindsight(&["events", "--json", "--kind", "syscall"]);
    let done = s.run(command.arg(trace));
    let events: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).unwrap();
    let last = events.iter().rfind(|e| e["name"] == name).unwrap();
    last["position"].as_str().unwrap().to_owned()
}

/// What the program was told of its signals is known, although it chose nothing.
#[test]
fn what_it_asked_about_its_signals_is_kept() {
    let s = Scene::new();
    let trace = s.path("trace.hst");
    let mut recording = s.recording(&trace, &[program(&s), "asks".into()]);
    let (ignored, blocked) = (libc::SIGHUP, libc::SIGUSR1);
    // SAFETY: only system calls that a child may make.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut recording, move || {
            let mut set = std::mem::zeroed();
            libc::signal(ignored, libc::SIG_IGN);
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, blocked);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        })
    };
    let recorded = s.run(&mut recording);
    assert_eq!(recorded.text(), "alive\n", "{}", recorded.messages());
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    continues(&recorded, "", &done);
}

/// A signal that arrives at the place is neither behind it nor before it.
#[test]
fn a_signal_at_the_place_is_told() {
    let s = Scene::new();
    let (_, trace) = s.record(&[program(&s), "arrives".into()]);
    let mut command = s.hindsight(&["events", "--json", "--kind", "signal"]);
    let events: Vec<serde_json::Value> =
        serde_json::from_slice(&s.run(command.arg(&trace)).stdout).unwrap();
    let place = events[0]["position"].as_str().unwrap();
    let done = resume(&s, &trace, place, &NONE);
    let told = done.messages();
    assert_eq!(done.text(), "end\n", "{told}");
    assert!(
        told.contains("lost: SIGUSR1, which arrives at this place"),
        "{told}"
    );
}

/// Two openings of a path that led to two files are not one.
#[test]
fn a_path_that_led_to_two_files_is_refused() {
    let why = "may have led to different files";
    for options in [&[][..], &["--files", "recorded"]] {
        let s = Scene::new();
        fs::write(s.path("cfg"), "V1V1").unwrap();
        refused(&s, "replaced", options, why);
        assert!(copies(&s).is_empty());
    }
}

/// What was written by a mapping under another name is not known.
#[test]
fn a_mapping_under_another_name_is_a_writer() {
    let s = Scene::new();
    fs::write(s.path("data"), "OLDOLD").unwrap();
    let why = "other files were written to";
    refused(&s, "alias", &["--files", "recorded"], why);
}

/// Where the file stands that came to append, the recording does not say.
#[test]
fn the_place_of_what_came_to_append_is_lost() {
    let s = Scene::new();
    fs::write(s.path("data"), "0123456789").unwrap();
    let (recorded, trace, place) = recorded(&s, "appends");
    assert_eq!(recorded.text(), "at 14\n");
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    let told = done.messages();
    assert_eq!(done.text(), "at -1\n", "{told}");
    let lost = "lost: descriptor 3: ";
    assert!(told.contains(lost) && told.contains("of which is not known where it stood"));
    assert!(!told.contains("opened for writing"), "{told}");
}

/// A folder whose name may lead elsewhere is lost, and as the working directory it is refused.
#[test]
fn folders_that_were_renamed_are_lost() {
    let s = Scene::new();
    let (_, trace, place) = recorded(&s, "folder");
    let done = resume(&s, &trace, &place, &NONE);
    let told = done.messages();
    assert!(told.contains("which may have been renamed"), "{told}");
    assert!(!s.path("work/x").exists(), "{told}");

    let s = Scene::new();
    refused(&s, "working", &[], "the working directory, or one above it");

    let s = Scene::new();
    let why = "which may have been renamed or deleted, and was the working directory";
    refused(&s, "linked-folder", &[], why);
}

/// A folder about which the program asked is compared.
#[test]
fn another_folder_is_lost() {
    let s = Scene::new();
    fs::create_dir(s.path("work")).unwrap();
    let (recorded, trace, place) = recorded(&s, "kept-folder");
    continues(&recorded, "", &resume(&s, &trace, &place, &NONE));
    fs::rename(s.path("work"), s.path("elsewhere")).unwrap();
    fs::create_dir(s.path("work")).unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    let told = done.messages();
    assert!(told.contains("which is another folder now"), "{told}");
    assert_eq!(fs::read_dir(s.path("work")).unwrap().count(), 0);
}

/// Descriptors that came over a socket are not known. Nor are those that it inherited, which is said.
#[test]
fn descriptors_from_elsewhere_are_not_forgotten() {
    let s = Scene::new();
    fs::write(s.path("data"), "text").unwrap();
    refused(&s, "received", &[], "got descriptors over a socket");

    let s = Scene::new();
    let (recorded, trace, place) = recorded(&s, "message");
    let done = resume(&s, &trace, &place, &NONE);
    continues(&recorded, "", &done);
    let note = "note: descriptors other than 0, 1 and 2 that it began with and had not used";
    assert!(done.messages().contains(note), "{}", done.messages());
}

/// A lock that the process lost when it could not change it does not come back.
#[test]
fn a_lost_lock_stays_lost() {
    let s = Scene::new();
    fs::write(s.path("data"), "text").unwrap();
    let (recorded, trace, place) = recorded(&s, "lock-lost");
    assert_eq!(recorded.text(), "alone 0\n");
    continues(&recorded, "", &resume(&s, &trace, &place, &NONE));
}

/// Copies of shared memory would come apart, and handlers would share their stack.
#[test]
fn memory_and_stacks_that_cannot_be_made_are_refused() {
    refused(
        &Scene::new(),
        "mirrored",
        &[],
        "mapped memory a second time",
    );
    refused(&Scene::new(), "disarms", &[], "SS_AUTODISARM");
}

/// What has another root, or namespaces of its own, would find other files by the same paths.
#[test]
fn another_root_is_refused() {
    refused(&Scene::new(), "apart", &[], "a root of its own");
}

/// Where in a folder a program reads next is not known.
#[test]
fn a_folder_that_is_being_read_is_lost() {
    let s = Scene::new();
    let (_, trace, place) = recorded(&s, "reads-folder");
    let told = resume(&s, &trace, &place, &NONE).messages();
    assert!(
        told.contains("lost: descriptor 3: folder ") && told.contains("which was being read"),
        "{told}"
    );
}

/// `.` is a folder, however it was opened.
#[test]
fn a_dot_is_a_folder() {
    let s = Scene::new();
    let (recorded, trace, place) = recorded(&s, "dot");
    assert_eq!(recorded.text(), "0\n");
    continues(&recorded, "", &resume(&s, &trace, &place, &NONE));
}
