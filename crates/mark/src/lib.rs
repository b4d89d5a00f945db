//! Lets a recorded program talk to the recorder.
//!
//! Each function is one instruction that does nothing on a bare processor. So the calls can stay in released
//! programs. Under `hindsight record` the instruction reaches the recorder. C and C++ programs use
//! `hindsight.h` next to this crate.
//!
//! ```
//! hindsight_mark::start(); // with `hindsight record --start-stopped`
//! hindsight_mark::mark("request", &17u32.to_le_bytes()); // shown by `hindsight info`
//! hindsight_mark::stop();
//! assert!(!hindsight_mark::is_recording());
//! ```
//!
//! Starting and stopping affect the calling thread only. A new thread begins in the state of the thread that
//! made it.
#![no_std]

const ASK: u64 = 0;
const START: u64 = 1;
const STOP: u64 = 2;
const MARK: u64 = 3;
const STATE: u64 = 4;

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(always)]
fn request(what: u64, name: &[u8], payload: &[u8]) -> bool {
    let mut answer = 0u64;
    // SAFETY: a `nop` whose operand is not accessed. A recorder sets rax and reads the two slices.
    unsafe {
        core::arch::asm!(
            // `nop dword ptr [rax + rax + "HSMK"]`
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0x48, 0x53, 0x4d, 0x4b",
            inout("rax") answer,
            in("rdi") what,
            in("rsi") name.as_ptr(),
            in("rdx") name.len(),
            in("rcx") payload.as_ptr(),
            in("r8") payload.len(),
            options(nostack, preserves_flags),
        );
    }
    answer != 0
}

#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
#[inline(always)]
fn request(_: u64, _: &[u8], _: &[u8]) -> bool {
    false
}

/// Records the calling thread from here on. `false`: there is no recorder.
#[inline(always)]
pub fn start() -> bool {
    request(START, &[], &[])
}

/// Stops recording the calling thread.
#[inline(always)]
pub fn stop() {
    request(STOP, &[], &[]);
}

/// Sets a mark in the recording. The name is cut to 256 bytes and the payload to 4096 bytes. Marks are also
/// recorded while recording is stopped.
#[inline(always)]
pub fn mark(name: &str, payload: &[u8]) {
    request(MARK, name.as_bytes(), payload);
}

/// Sets a mark of this name (at most 256 bytes), and has all memory recorded there, or what has changed of it since the last time.
/// Replay can begin at such a state point without what came before. It is only a mark in a program with several
/// threads, with memory that others can change, or of which a part is recorded.
#[inline(always)]
pub fn state_point(name: &str) {
    request(STATE, name.as_bytes(), &[]);
}

/// Whether the calling thread is recorded.
#[inline(always)]
pub fn is_recording() -> bool {
    request(ASK, &[], &[])
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_happens_without_a_recorder() {
        assert!(!super::start());
        super::mark("name", b"payload");
        super::stop();
        assert!(!super::is_recording());
    }
}
