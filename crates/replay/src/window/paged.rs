//! Cells in pages that are taken when somebody writes to them. It needs nothing of the host but an allocator, so it serves hosts
//! whose address space is too small for [`super::mapped`], as that of WebAssembly. Only the interpreter runs in it.

mod marks;
mod table;

use super::store::{Cells, PAGE, PAGE_LEN};
use crate::Error;
use crate::lines::Lines;
use crate::memory::MemoryFile;
use hindsight_isa::{Ctx, Predictor};
use std::ops::Range;
use table::{NONE, Table};

/// The cells, their marks and the context block.
pub struct Paged {
    predictor: Predictor,
    ctx: Box<Ctx>,
    cells: Table,
    /// The marks of reads and of writes.
    marks: Option<[Table; 2]>,
    waiting: Waiting,
}

/// The parts of `len` bytes from a cell on: page, place in the page, and place among the bytes. Behind the last cell comes the first.
fn parts(predictor: Predictor, addr: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let cell = predictor.cell(addr.wrapping_add(done as u64));
        let at = (cell % PAGE) as usize;
        let n = (len - done).min(PAGE_LEN - at);
        let part = Part {
            page: (cell / PAGE) as u32,
            at: at..at + n,
            of: done..done + n,
        };
        done += n;
        (n > 0).then_some(part)
    })
}

struct Part {
    page: u32,
    at: Range<usize>,
    of: Range<usize>,
}

impl Paged {
    fn begin(predictor: Predictor, marks: Option<[Table; 2]>) -> Paged {
        // SAFETY: the context block consists of numbers, for which zeros are valid.
        let ctx = unsafe { Box::new_zeroed().assume_init() };
        Paged {
            predictor,
            ctx,
            cells: Table::new(),
            marks,
            waiting: Waiting::default(),
        }
    }

    /// What a page holds that is not there.
    #[cold]
    fn absent(&self, page: u32) -> &[u8; PAGE_LEN] {
        self.waiting.page(page).unwrap_or(&NONE)
    }

    #[inline(always)]
    fn at(&self, page: u32) -> &[u8; PAGE_LEN] {
        match self.cells.get(page) {
            Some(there) => there,
            None => self.absent(page),
        }
    }

    #[inline(always)]
    fn at_mut(&mut self, page: u32) -> &mut [u8; PAGE_LEN] {
        let waiting = &self.waiting;
        let content = || Box::new(*waiting.page(page).unwrap_or(&NONE));
        self.cells.entry(page, content)
    }
}

/// Pages that wait to be touched.
#[derive(Default)]
struct Waiting {
    /// What they hold.
    lines: Option<Lines>,
    /// Those that waited at first, ascending and apart. Those that are not among the lines are zero.
    pages: Vec<Range<u32>>,
}

impl Waiting {
    /// What a page holds, if it was not touched. `None`: zeros.
    #[cold]
    fn page(&self, page: u32) -> Option<&[u8; PAGE_LEN]> {
        let lines = self.lines.as_ref()?;
        let i = self.pages.partition_point(|r| r.end <= page);
        let waits = self.pages.get(i).is_some_and(|r| r.contains(&page));
        waits.then(|| lines.later_cells(page)).flatten()
    }

    /// Nothing lies over these pages any more.
    fn take_off(&mut self, pages: &Range<u32>) {
        let rest = self.pages.iter().flat_map(|l| {
            let before = l.start..l.end.min(pages.start);
            let behind = l.start.max(pages.end)..l.end;
            [before, behind].into_iter().filter(|r| !r.is_empty())
        });
        self.pages = rest.collect();
    }
}

impl Cells for Paged {
    fn new(predictor: Predictor) -> Result<Paged, Error> {
        Ok(Paged::begin(predictor, None))
    }

    fn observed() -> Result<Paged, Error> {
        let marks = [Table::new(), Table::new()];
        Ok(Paged::begin(Predictor::WINDOW, Some(marks)))
    }

    fn predictor(&self) -> Predictor {
        self.predictor
    }

    fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn ctx_mut(&mut self) -> &mut Ctx {
        &mut self.ctx
    }

    #[inline(always)]
    fn get<const N: usize>(&self, addr: u64) -> [u8; N] {
        let cell = self.predictor.cell(addr);
        let page = self.at((cell / PAGE) as u32);
        match page[(cell % PAGE) as usize..].first_chunk() {
            Some(bytes) => *bytes,
            None => {
                let mut bytes = [0; N];
                self.read(addr, &mut bytes);
                bytes
            }
        }
    }

    #[inline(always)]
    fn set<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        let cell = self.predictor.cell(addr);
        let page = self.at_mut((cell / PAGE) as u32);
        match page[(cell % PAGE) as usize..].first_chunk_mut() {
            Some(to) => *to = bytes,
            None => self.write(addr, &bytes),
        }
    }

    #[inline(always)]
    fn touch(&mut self, addr: u64, len: usize) {
        if self.waiting.lines.is_none() {
            return;
        }
        for part in parts(self.predictor, addr, len) {
            if self.cells.get(part.page).is_none() && self.waiting.page(part.page).is_some() {
                self.at_mut(part.page);
            }
        }
    }

    fn read(&self, addr: u64, buf: &mut [u8]) {
        for part in parts(self.predictor, addr, buf.len()) {
            buf[part.of].copy_from_slice(&self.at(part.page)[part.at]);
        }
    }

    fn write(&mut self, addr: u64, buf: &[u8]) {
        for part in parts(self.predictor, addr, buf.len()) {
            self.at_mut(part.page)[part.at].copy_from_slice(&buf[part.of]);
        }
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.cells.clear();
        self.waiting = Waiting::default();
        Ok(())
    }

    fn zero_cells(&mut self, start: u64, end: u64) -> Result<(), Error> {
        let pages = start.div_ceil(PAGE) as u32..(end / PAGE) as u32;
        let whole = pages.start as u64 * PAGE..pages.end as u64 * PAGE;
        let some = match pages.is_empty() {
            true => [start..end, 0..0],
            false => [start..whole.start, whole.end..end],
        };
        for some in some.into_iter().filter(|s| !s.is_empty()) {
            for part in parts(self.predictor, some.start, (some.end - some.start) as usize) {
                if *self.at(part.page) != NONE {
                    self.at_mut(part.page)[part.at].fill(0);
                }
            }
        }
        if !pages.is_empty() {
            self.cells.remove(pages.clone());
            self.waiting.take_off(&pages);
        }
        Ok(())
    }

    fn pages(&self) -> Result<Vec<u32>, Error> {
        let all = 0..(self.predictor.size() / PAGE) as u32;
        Ok(self.cells.numbers(all).collect())
    }

    fn own(&self) -> Result<Vec<u32>, Error> {
        self.pages()
    }

    /// There are no files that it could lay.
    fn lay_pages(&mut self, _: u32, _: usize, _: &MemoryFile, _: usize) -> Result<(), Error> {
        Err(Error::System {
            what: "cannot lay a file over memory",
            cause: std::io::ErrorKind::Unsupported.into(),
        })
    }

    fn lay_later(&mut self, runs: Vec<Range<u32>>, lines: &Lines) -> Result<(), Error> {
        self.waiting = Waiting {
            lines: Some(lines.clone()),
            pages: runs,
        };
        Ok(())
    }

    fn laid_pages(&self) -> Vec<Range<u32>> {
        self.waiting.pages.clone()
    }

    fn page(&self, page: u32) -> &[u8; PAGE_LEN] {
        self.at(page)
    }

    fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE_LEN] {
        self.at_mut(page)
    }

    fn is_full(&self) -> bool {
        let marks = self.marks.iter().flatten();
        self.cells.is_full() || marks.into_iter().any(Table::is_full)
    }
}

#[cfg(test)]
mod tests;
