//! Compares memory that a key frame restates with what memory held before. A difference means that something
//! other than the recorded instructions and system calls changed memory. One change goes unnoticed: pages
//! that became all zero, which are not restated.

use crate::Error;
use crate::cpu::Cpu;
use crate::window::Window;
use std::collections::HashMap;

const PAGE: usize = 4096;
/// Most bytes that a message shows.
const SHOWN: usize = 8;

/// The pages of a window that held something.
pub(crate) struct Before(HashMap<u32, Box<[u8; PAGE]>>);

impl Before {
    pub fn of(window: &Window) -> Result<Before, Error> {
        let pages = window.pages()?.into_iter();
        Ok(Before(
            pages.map(|p| (p, Box::new(*window.page(p)))).collect(),
        ))
    }

    /// Compares the window's content at `addr` with the restated `bytes`.
    pub fn compare(&self, cpu: &Cpu, addr: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut at = 0;
        while at < bytes.len() {
            // Most pages are equal, and are compared as a whole.
            let cell = addr.wrapping_add(at as u64) as u32 as usize;
            let n = (bytes.len() - at).min(PAGE - cell % PAGE);
            let had = self.0.get(&((cell / PAGE) as u32));
            let had = had.map_or(&[0; PAGE], |p| &**p);
            let same = had[cell % PAGE..][..n] == bytes[at..at + n];
            let differs = |i: &usize| self.byte(addr.wrapping_add(*i as u64)) != bytes[*i];
            if let Some(i) = (at..at + n).find(|i| !same && differs(i)) {
                let from = addr.wrapping_add(i as u64);
                let rest = &bytes[i..bytes.len().min(i + SHOWN)];
                let had = (0..rest.len() as u64).map(|k| self.byte(from.wrapping_add(k)));
                let had: Vec<u8> = had.collect();
                return Err(cpu.unread(
                    format!("memory at {from:#x} to hold {rest:02x?}"),
                    format!("{had:02x?}"),
                ));
            }
            at += n;
        }
        Ok(())
    }

    fn byte(&self, addr: u64) -> u8 {
        let cell = addr as u32 as usize;
        let page = self.0.get(&((cell / PAGE) as u32));
        page.map_or(0, |p| p[cell % PAGE])
    }
}
