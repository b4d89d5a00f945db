//! What threads are called.

use crate::{Filter, Kind, KindOf, Position, Result, Thread, ThreadId, Timeline};

const PRCTL: u64 = 157;
const PR_SET_NAME: u64 = 15;
/// Bytes of a name, without the zero behind it (prctl(2)).
const LONGEST: usize = 15;

/// The names that threads of a program image gave themselves by `prctl`. What others write to `/proc/…/comm` is not
/// among them.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(ThreadId, Position, String)>);

impl Timeline {
    /// What threads of a program image are called. The memory that they gave is looked at, for which a part of the index may
    /// be made.
    pub fn names(&self, image: u32) -> Result<Names> {
        let calls = self.events(&Filter {
            image: Some(image),
            kinds: vec![KindOf::Syscall],
            syscalls: vec![PRCTL],
            ..Filter::default()
        })?;
        let mut cursor = self.cursor()?;
        let mut all = Vec::new();
        for c in calls {
            let Kind::Syscall { args, .. } = c.kind else {
                continue;
            };
            if args[0] != PR_SET_NAME {
                continue;
            }
            cursor.seek_count(c.thread, c.count)?;
            let text = cursor.peek(args[1], LONGEST)?.prefix();
            let text: Vec<u8> = text.into_iter().take_while(|b| *b != 0).collect();
            if !text.is_empty() {
                let name = String::from_utf8_lossy(&text).into_owned();
                all.push((c.thread, c.position, name));
            }
        }
        Ok(Names(all))
    }
}

impl Names {
    /// What a thread is called at a position: as its program, until it gives itself a name.
    pub fn of<'a>(&'a self, thread: &'a Thread, here: Position) -> &'a str {
        let mut given = self.0.iter().rev();
        match given.find(|(t, p, _)| *t == thread.id && *p < here) {
            Some((_, _, name)) => name,
            None => &thread.name,
        }
    }
}
