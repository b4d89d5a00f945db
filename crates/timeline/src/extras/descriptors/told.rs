//! Calls that move no bytes, and yet say or change something about descriptors and files.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::effects::Effect;
use super::pass::{Call, Files, Pass};
use super::table::OpenFile;
use super::{Flow, path};
use crate::extras::system::ERRORS;
use crate::{Cursor, Position, Result, ThreadId};
use hindsight_syscalls::abi::*;
use hindsight_syscalls::{DESCRIPTOR, has};

/// Calls about a descriptor that are no others'.
const READS_FOLDER: [u64; 2] = [__NR_getdents, __NR_getdents64];

/// A call about a descriptor, which has succeeded; `flock` may also have failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Told {
    /// The instant before the call.
    pub position: Position,
    /// The thread that made it.
    pub thread: ThreadId,
    /// The number of instructions that the thread had completed.
    pub count: u64,
    /// The thread's process id.
    pub pid: i32,
    /// The call's number.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it returned. Errors are the last 4095 numbers.
    pub result: u64,
    /// The descriptor: the first argument, or the new one.
    pub fd: i32,
    /// What the descriptor leads to.
    pub file: OpenFile,
}

/// A call that changed what is found under a path, and has succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Named {
    /// The instant before the call.
    pub position: Position,
    /// The call's number.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// The path, absolute as far as that is known. `None`: it is not known.
    pub path: Option<Vec<u8>>,
    /// The new path of what was renamed or linked.
    pub to: Option<Vec<u8>>,
    /// There is a new path.
    pub gives_name: bool,
}

impl Pass {
    /// Tells of a call that has returned.
    pub fn tell(
        &mut self,
        call: Call,
        files: &Files,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<()> {
        let Some(result) = call.result else {
            return Ok(());
        };
        // A change of a lock that fails loses the lock.
        if result >= ERRORS && call.number != __NR_flock {
            return Ok(());
        }
        let position = self.timeline.position(call.thread, call.count)?;
        if let Some(paths) = named(call.number, &call.args) {
            let gives_name = paths[1].is_some();
            let [path, to] = paths.map(|p| p.map(|p| self.named(call, files, p)));
            let named = Named {
                position,
                number: call.number,
                args: call.args,
                path: path.transpose()?.flatten(),
                to: to.transpose()?.flatten(),
                gives_name,
            };
            return visit(&mut self.cursor, Flow::Named(&named));
        }
        let fd = match call.effect() {
            Effect::Made { fd, .. } => fd,
            Effect::Open { .. } | Effect::Close { .. } => return Ok(()),
            _ if has(call.number as u32, DESCRIPTOR) || READS_FOLDER.contains(&call.number) => {
                call.args[0] as i32
            }
            _ => return Ok(()),
        };
        if fd < 0 {
            return Ok(());
        }
        let file = self.file(files, fd).borrow().clone();
        let told = Told {
            position,
            thread: call.thread,
            count: call.count,
            pid: self.pid(call.thread),
            number: call.number,
            args: call.args,
            result,
            fd,
            file,
        };
        visit(&mut self.cursor, Flow::Told(&told))
    }

    fn named(
        &mut self,
        call: Call,
        files: &Files,
        (dir, at): (i32, u64),
    ) -> Result<Option<Vec<u8>>> {
        let path = path(&mut self.cursor, call.at(), at)?;
        Ok(path.and_then(|p| self.absolute(files, dir, p)))
    }
}

/// Where the paths of a call are: the folder's descriptor and the address.
fn named(number: u64, a: &[u64; 6]) -> Option<[Option<(i32, u64)>; 2]> {
    let at = |dir: usize, path: usize| Some((a[dir] as i32, a[path]));
    let here = |path: usize| Some((AT_FDCWD, a[path]));
    Some(match number {
        __NR_unlink | __NR_rmdir | __NR_truncate => [here(0), None],
        __NR_unlinkat => [at(0, 1), None],
        __NR_rename | __NR_link => [here(0), here(1)],
        __NR_renameat | __NR_renameat2 | __NR_linkat => [at(0, 1), at(2, 3)],
        _ => return None,
    })
}
