//! Vector registers of stopped threads, as XSAVE stores them on this machine.

use crate::thread::{Thread, ptrace};
use std::io;

const NT_X86_XSTATE: usize = 0x202;
/// More than any processor has so far.
const MOST: usize = 1 << 15;

impl Thread {
    /// The area that XSAVE stores, in its standard form.
    ///
    /// # Errors
    /// The thread does not stand still.
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut area = vec![0; MOST];
        let len = self.xstate_request(libc::PTRACE_GETREGSET, &mut area)?;
        area.truncate(len);
        Ok(area)
    }

    /// Sets it. It must be as long as the one that was got.
    ///
    /// # Errors
    /// - The thread does not stand still.
    /// - The processor does not take it.
    pub fn set_xstate(&self, area: &mut [u8]) -> io::Result<()> {
        self.xstate_request(libc::PTRACE_SETREGSET, area).map(drop)
    }

    fn xstate_request(&self, request: libc::c_uint, area: &mut [u8]) -> io::Result<usize> {
        let mut iov = libc::iovec {
            iov_base: area.as_mut_ptr().cast(),
            iov_len: area.len(),
        };
        ptrace(request, self.tid(), NT_X86_XSTATE, &raw mut iov as usize)?;
        Ok(iov.iov_len)
    }
}
