//! Compares memory that a key frame restates with what memory held before. A difference means that something
//! other than the recorded instructions and system calls changed memory. One change goes unnoticed: pages
//! that became all zero: either they are not restated, or nothing says whether they are still in use.

use crate::Error;
use crate::cpu::Cpu;
use crate::window::Window;
use std::collections::HashMap;

const PAGE: usize = 4096;
/// Most bytes that a message shows.
const SHOWN: usize = 8;

/// What a window held before memory is restated.
pub(crate) enum Before {
    /// These pages, and zeros elsewhere. The window is emptied.
    Pages(HashMap<u32, Box<[u8; PAGE]>>),
    /// What it holds still, wherever nothing has been restated yet.
    Still,
}

impl Before {
    /// All that the window holds.
    pub fn of(window: &Window) -> Result<Before, Error> {
        let pages = window.pages()?.into_iter();
        Ok(Before::Pages(
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
            let mut had = [0; PAGE];
            self.read(cpu, addr.wrapping_add(at as u64), &mut had[..n]);
            let same = had[..n] == bytes[at..at + n];
            let byte = |addr: u64| {
                let mut byte = [0];
                self.read(cpu, addr, &mut byte);
                byte[0]
            };
            let differs = |i: &usize| byte(addr.wrapping_add(*i as u64)) != bytes[*i];
            if let Some(i) = (at..at + n).find(|i| !same && differs(i)) {
                let from = addr.wrapping_add(i as u64);
                let rest = &bytes[i..bytes.len().min(i + SHOWN)];
                let had = (0..rest.len() as u64).map(|k| byte(from.wrapping_add(k)));
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

    /// Copies what the cells of addresses in one page held.
    fn read(&self, cpu: &Cpu, addr: u64, buf: &mut [u8]) {
        let cell = addr as u32 as usize;
        match self {
            Before::Pages(pages) => match pages.get(&((cell / PAGE) as u32)) {
                Some(page) => buf.copy_from_slice(&page[cell % PAGE..][..buf.len()]),
                None => buf.fill(0),
            },
            Before::Still => cpu.window.read(addr, buf),
        }
    }
}
