//! The program as it is on another machine.

use hindsight_lab::Scene;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const TARGET: &str = "aarch64-unknown-linux-musl";

/// A machine under an emulator.
pub struct Machine {
    pub emulator: &'static str,
    /// The program, built for it.
    pub program: PathBuf,
}

impl Machine {
    /// An ARM machine of 64 bits. The program is built for it if it is not yet as its sources are.
    pub fn aarch64() -> &'static Machine {
        static BUILT: OnceLock<Machine> = OnceLock::new();
        BUILT.get_or_init(|| Machine {
            emulator: "qemu-aarch64",
            program: build(),
        })
    }

    /// `hindsight` there, with arguments.
    pub fn hindsight(&self, scene: &Scene, args: &[&str]) -> Command {
        let mut command = scene.command(self.emulator);
        command.arg(&self.program).args(args);
        command
    }
}

fn build() -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut build = Command::new("scripts/elsewhere");
    let done = build.current_dir(root).output().expect("scripts/elsewhere");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "cannot build for {TARGET}: {said}");
    let path = String::from_utf8(done.stdout).unwrap();
    PathBuf::from(path.trim())
}
