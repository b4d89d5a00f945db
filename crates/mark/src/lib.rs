//! Speaking to the recorder from within a recorded program.
//!
//! Each function is one instruction that does nothing on a bare processor, so the calls can stay in
//! released programs. Under `hindsight record` it reaches the recorder. For C and C++ there is
//! `hindsight.h` next to this crate.
//!
//! ```
//! hindsight_mark::start(); // with `hindsight record --start-stopped`
//! hindsight_mark::mark("request", &17u32.to_le_bytes()); // shown by `hindsight info`
//! hindsight_mark::stop();
//! assert!(!hindsight_mark::is_recording());
//! ```
//!
//! Starting and stopping concern the calling thread; threads begin as the thread that made them is.
#![no_std]

const ASK: u64 = 0;
const START: u64 = 1;
const STOP: u64 = 2;
const MARK: u64 = 3;

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(always)]
fn request(what: u64, name: &[u8], payload: &[u8]) -> bool {
    let mut answer = 0u64;
    // SAFETY: a `nop` with an operand that is not accessed. A recorder sets rax and reads the two
    // slices.
    unsafe {
        core::arch::asm!(
            // nop dword ptr [rax + rax + "HSMK"]
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

/// Has the calling thread recorded from here on. False: nobody records.
#[inline(always)]
pub fn start() -> bool {
    request(START, &[], &[])
}

/// Has the calling thread go on unrecorded.
#[inline(always)]
pub fn stop() {
    request(STOP, &[], &[]);
}

/// Puts a mark into the recording: a name (at most 256 bytes, the rest is cut) and what belongs to it
/// (at most 4096 bytes). Marks are kept while recording is stopped, too.
#[inline(always)]
pub fn mark(name: &str, payload: &[u8]) {
    request(MARK, name.as_bytes(), payload);
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
