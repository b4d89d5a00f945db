//! The call stack of a process that stands still.

use super::memory::ProcessMemory;
use hindsight_guard::regular::{self, Links};
use hindsight_remote::Regs;
use hindsight_symbols::{DebugPaths, Module, Registers, Space};
use std::fs;
use std::sync::Arc;

/// Frames that are shown.
const FRAMES: usize = 16;
/// No larger files are read.
const LARGEST: u64 = 1 << 28;

/// The call stack, the innermost function first. Empty if the process has gone.
pub fn stack(pid: i32, r: &Regs, memory: &ProcessMemory) -> Vec<String> {
    let space = space(pid);
    let registers = Registers {
        gpr: [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
        rip: r.rip,
        ..Registers::default()
    };
    let frames = space.backtrace(&registers, &mut |at| memory.word(at), FRAMES);
    let mut out = crate::frames(&frames);
    out.truncate(FRAMES);
    out
}

/// The files that a process has mapped as code.
fn space(pid: i32) -> Space {
    let mut space = Space::new();
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else {
        return space;
    };
    let maps = String::from_utf8_lossy(&maps);
    let all: Vec<_> = maps.lines().filter_map(mapping).collect();
    let mut modules: Vec<Arc<Module>> = Vec::new();
    for (_, _, _, code, path) in &all {
        if !*code || modules.iter().any(|m| m.path() == *path) {
            continue;
        }
        let Ok(data) = regular::read(path, Links::Follow, LARGEST) else {
            continue;
        };
        if let Ok(m) = Module::parse(path, data, &DebugPaths::default()) {
            modules.push(Arc::new(m));
        }
    }
    for (start, end, offset, _, path) in all {
        if let Some(m) = modules.iter().find(|m| m.path() == path) {
            space.map(m, start, end - start, offset);
        }
    }
    space
}

/// Start, end, offset, whether it is code, and path.
fn mapping(line: &str) -> Option<(u64, u64, u64, bool, &str)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2)?.trim_start();
    let number = |s| u64::from_str_radix(s, 16).ok();
    let all = (
        number(start)?,
        number(end)?,
        number(offset)?,
        rights.contains('x'),
        path,
    );
    path.starts_with('/').then_some(all)
}
