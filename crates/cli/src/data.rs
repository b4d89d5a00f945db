//! `hindsight data`: what the recorded program read and wrote.

use crate::choice::{Choice, Through, tell};
use crate::out::{self, JsonList, println};
use crate::placed::{Placed, Target};
use crate::{args, confine, transfers, travel};
use anyhow::{Result, bail};
use hindsight_text::lines;
use hindsight_timeline::{Cursor, Flow, Mapped, Options, Paths, Transfer, Way};
use serde_json::json;

/// Bytes that are shown in a line.
const ROW: usize = 16;

pub fn run(a: &args::Data) -> Result<i32> {
    let way = match (a.reads, a.writes) {
        (true, _) => Some(Way::In),
        (_, true) => Some(Way::Out),
        _ => None,
    };
    if a.raw && way.is_none() {
        bail!("--raw writes what went one way: say --in or --out");
    }
    // What standard output is, is found out before the process gives up its file system.
    let target = || match a.raw {
        true => Target::new().map(Some),
        false => Ok(None),
    };
    let show = |target: Option<Target>| show(a, way, target);
    confine::run_with(a.file.as_deref(), target, show, |_| ())
}

fn show(a: &args::Data, way: Option<Way>, target: Option<Target>) -> Result<i32> {
    let timeline = travel::open(None, Options::default())?;
    let through = Through::new(a.fd.as_deref(), Through::Any);
    let choice = Choice::new(&timeline, through, way, &a.of)?;
    let mut raw = target.map(Placed::new);
    let mut list = a.json.then(JsonList::default);
    // The names of all are shown.
    let unseen = timeline.flow(Paths::All, choice.until, &mut |cursor, flow| {
        match flow {
            Flow::Moved(t) if choice.has(t) => {
                if let Some(raw) = &mut raw {
                    return raw.write(t, cursor);
                }
                if let Some(list) = &mut list {
                    return transfers::print_json(list, t, cursor);
                }
                let begin = lines(&begin(t)).into_owned();
                if a.hex && t.is_in_memory() {
                    println(&begin);
                    return hex(t, cursor);
                }
                out::write(format!("{begin}  ").as_bytes());
                transfers::print_text(t, cursor)?;
                out::write(b"\n");
            }
            Flow::Mapped(m)
                if raw.is_none()
                    && way != Some(Way::Out)
                    && choice.is_there(m.thread, m.position, &m.file) =>
            {
                mapped(m, list.as_mut());
            }
            _ => {}
        }
        Ok(())
    })?;
    if let Some(list) = list {
        list.end();
    }
    tell(unseen);
    raw.map_or(Ok(0), Placed::end)
}

/// What stands before the bytes.
fn begin(t: &Transfer) -> String {
    let way = match t.way {
        Way::In => '<',
        Way::Out => '>',
    };
    let fd = match t.fd {
        -1 => "-".into(),
        fd => fd.to_string(),
    };
    let at = t.offset.map_or(String::new(), |o| format!(" @{o}"));
    format!(
        "{:<16} {:>4} {:>7} {fd:>3} {way} {}{at}",
        t.position.to_string(),
        t.thread.0,
        t.pid,
        t.file.what
    )
}

/// A file that was mapped: only its name.
fn mapped(m: &Mapped, list: Option<&mut JsonList>) {
    let name = m.file.what.to_string();
    let position = m.position.to_string();
    match list {
        Some(list) => list.add(&json!({
            "position": position, "thread": m.thread.0, "pid": m.pid, "call": "mmap", "fd": m.fd,
            "first_fd": m.file.original().first, "open_file": m.file.number, "name": name, "way": "mapped",
        })),
        None => println(&format!(
            "{position:<16} {:>4} {:>7} {:>3} = {name}  mapped: what is read there is not listed",
            m.thread.0, m.pid, m.fd
        )),
    }
}

/// Prints bytes as hexadecimal numbers, in rows. They are counted from where they stand in the file, or else from the first.
fn hex(t: &Transfer, cursor: &mut Cursor) -> hindsight_timeline::Result<()> {
    let mut at = t.offset.unwrap_or(0);
    let mut rest: Vec<Option<u8>> = Vec::new();
    let mut show = |row: &[Option<u8>]| {
        let bytes: Vec<String> = row
            .iter()
            .map(|b| b.map_or("??".into(), |b| format!("{b:02x}")))
            .collect();
        let char = |b: &Option<u8>| match b {
            Some(b @ 0x20..0x7f) => *b as char,
            Some(_) => '.',
            None => '?',
        };
        let text: String = row.iter().map(char).collect();
        println(&format!("  {at:08x}  {:<47}  {text}", bytes.join(" ")));
        at = at.wrapping_add(row.len() as u64);
    };
    t.bytes(cursor, &mut |piece| {
        rest.extend_from_slice(piece);
        let whole = rest.len() / ROW * ROW;
        rest.drain(..whole)
            .as_slice()
            .chunks(ROW)
            .for_each(&mut show);
        Ok(())
    })?;
    rest.chunks(ROW).for_each(&mut show);
    Ok(())
}
