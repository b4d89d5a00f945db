//! The recorded program runs with its own recording, to see whether that tells of the order of its threads.

use super::recording::Recording;
use super::{Options, Outcome, Rerun, once};
use crate::report::Control;
use hindsight_guard::regular::{self, Links};
use std::ffi::OsStr;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs the recorded program.
pub fn run(recording: &mut Recording, options: &Options, rules: OwnedFd) -> Control {
    let own = Options {
        program: None,
        args: None,
        outputs: options.outputs,
        here: Vec::new(),
        stop: false,
        until_failure: false,
    };
    match once(recording, own, rules, &mut |_, _| ()) {
        Ok(Outcome::Over(report)) if report.agrees() => Control::Agrees,
        Ok(_) => Control::Differs,
        Err(e) => Control::Fails(e.to_string()),
    }
}

impl Rerun<'_> {
    /// Whether a program is the recorded one, as far as it is here, and gets the recorded arguments and files.
    pub fn is_recorded(&self, program: &Path) -> bool {
        let (o, begin) = (&self.options, &self.begin);
        let args = o.args.as_ref().is_none_or(|args| {
            let args = args.iter().map(|a| a.as_bytes());
            args.eq(begin.args.iter().skip(1).map(Vec::as_slice))
        });
        let folder = Path::new(OsStr::from_bytes(&begin.folder));
        let recorded = folder.join(OsStr::from_bytes(&begin.program));
        let is_it = || program == recorded || same(program, &recorded).unwrap_or(false);
        args && o.here.is_empty() && (o.program.is_none() || is_it())
    }
}

/// Whether two files have the same bytes.
fn same(a: &Path, b: &Path) -> io::Result<bool> {
    let (a, b) = (
        regular::open(a, Links::Follow)?,
        regular::open(b, Links::Follow)?,
    );
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (BufReader::new(a).bytes(), BufReader::new(b).bytes());
    loop {
        match (a.next().transpose()?, b.next().transpose()?) {
            (None, None) => return Ok(true),
            (a, b) if a != b => return Ok(false),
            _ => {}
        }
    }
}
