//! The program as it is on another machine.

use hindsight_lab::{Scene, share};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A machine under an emulator.
pub struct Machine {
    target: &'static str,
    /// The emulator, and its options.
    emulator: &'static [&'static str],
    /// The program, built for it.
    built: OnceLock<PathBuf>,
}

static MACHINES: [Machine; 2] = [
    // 64-bit ARM.
    Machine {
        target: "aarch64-unknown-linux-musl",
        emulator: &["qemu-aarch64"],
        built: OnceLock::new(),
    },
    // It has the most significant byte of a number first. All that a recording and an index have is read there.
    Machine {
        target: "s390x-unknown-linux-gnu",
        emulator: &["qemu-s390x", "-L", "/usr/s390x-linux-gnu"],
        built: OnceLock::new(),
    },
];

/// The machines of this run.
pub fn machines() -> Vec<&'static Machine> {
    share(&MACHINES, MACHINES.len())
}

impl Machine {
    /// `hindsight` there, with arguments. It is built for the machine if it is not yet as its sources are.
    pub fn hindsight(&self, scene: &Scene, args: &[&str]) -> Command {
        let mut command = scene.command(self.emulator[0]);
        command.args(&self.emulator[1..]);
        let built = self.built.get_or_init(|| build(&[self.target]));
        command.arg(built).args(args);
        command
    }
}

/// `hindsight-sql` for 64-bit ARM, with arguments. It takes long to build.
pub fn sql(scene: &Scene, args: &[&str]) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let there = &MACHINES[0];
    let built = BUILT.get_or_init(|| {
        build(&["--release", "--sql", there.target]).with_file_name("hindsight-sql")
    });
    let mut command = scene.command(there.emulator[0]);
    command.arg(built).args(args);
    command
}

fn build(args: &[&str]) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut build = Command::new("scripts/elsewhere");
    let done = build.args(args).current_dir(root).output();
    let done = done.expect("scripts/elsewhere");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "cannot build for {args:?}: {said}");
    let path = String::from_utf8(done.stdout).unwrap();
    PathBuf::from(path.trim())
}
