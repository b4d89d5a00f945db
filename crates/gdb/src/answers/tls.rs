//! Where a thread has its own copy of a variable: `__thread`, `thread_local`, `errno`.
//! glibc's dynamic linker keeps it as follows. Each thread has a vector (dtv) with the addresses of its copies, by the
//! number of the file. The main program has number 1. The linker's list of loaded files has the numbers of the others.
//! A constant of glibc for debuggers says at which offset.

use crate::Result;
use crate::program::libraries;
use crate::state::session::Session;
use hindsight_packets::ThreadName;
use hindsight_symbols::{DebugPaths, Module};
use hindsight_timeline::Module as Mapped;
use object::{Object, ObjectSymbol};

/// Offset of the thread's vector in what `fs_base` points to.
const VECTOR: u64 = 8;
/// Bytes of an entry of the vector. It begins with the address. The entry before the first has their count.
const ENTRY: u64 = 16;
const NOT_MADE: u64 = u64::MAX;
/// The number of the main program.
const MAIN: u64 = 1;
/// glibc's constant: bits, elements, offset, as 32 bits each.
const NUMBER: &str = "_thread_db_link_map_l_tls_modid";
/// In a dynamic section: the address of the linker's list of files.
const DT_DEBUG: u64 = 21;
const DT_NULL: u64 = 0;
/// In what it points to: the first file; in a file: its dynamic section, and the next.
const FIRST: u64 = 8;
const DYNAMIC: u64 = 16;
const NEXT: u64 = 24;
/// Most entries that are read of a dynamic section, and of the list.
const MOST: u64 = 1 << 12;

/// Where a thread has its copy of the variable at `offset` of a file's part. The file is named as in the list of
/// libraries; 0 is the program. `None`: it is not known, or the thread has none yet.
pub fn address(
    session: &mut Session,
    thread: ThreadName,
    offset: u64,
    file: u64,
) -> Result<Option<u64>> {
    if let Some(pid) = thread.pid()
        && !(session.is_attached(pid) && session.activate(pid)?)
    {
        return Ok(None);
    }
    let number = match file {
        0 => Some(MAIN),
        _ => number(session, file)?,
    };
    let (Some(number), Some(tid)) = (number, thread.tid()) else {
        return Ok(None);
    };
    let base = session.registers(tid)?.cpu.fs_base;
    let Some(vector) = word(session, base.wrapping_add(VECTOR))? else {
        return Ok(None);
    };
    let entries = word(session, vector.wrapping_sub(ENTRY))?;
    if entries.is_none_or(|n| number > n) {
        return Ok(None);
    }
    let copy = word(session, vector.wrapping_add(number.wrapping_mul(ENTRY)))?;
    let made = copy.filter(|a| *a != 0 && *a != NOT_MADE);
    Ok(made.map(|a| a.wrapping_add(offset)))
}

/// The number that the linker has given to a file.
fn number(session: &mut Session, file: u64) -> Result<Option<u64>> {
    let here = session.inferior.cursor.position()?;
    let there = |m: &Mapped| m.load.is_none_or(|p| p <= here) && m.unload.is_none_or(|p| p > here);
    let modules = session.timeline.modules(session.inferior.image)?;
    let wanted = modules.iter().find(|m| m.start == file && there(m));
    let section = |m: Option<&Mapped>| libraries::dynamic_section(&session.timeline, m?);
    let (Some(wanted), Some(main)) = (section(wanted), section(modules.first())) else {
        return Ok(None);
    };
    let Some(offset) = (modules.iter()).find_map(|m| number_offset(session, m)) else {
        return Ok(None);
    };
    let mut at = first_file(session, main)?;
    for _ in 0..MOST {
        let Some(entry) = at.filter(|a| *a != 0) else {
            break;
        };
        if word(session, entry.wrapping_add(DYNAMIC))? == Some(wanted) {
            return word(session, entry.wrapping_add(offset));
        }
        at = word(session, entry.wrapping_add(NEXT))?;
    }
    Ok(None)
}

/// The offset of a file's number in the linker's description of it. Only the C library says it.
fn number_offset(session: &Session, m: &Mapped) -> Option<u64> {
    let name = m.path.rsplit('/').next()?;
    if !["libc.", "libc-", "libpthread"]
        .iter()
        .any(|n| name.starts_with(n))
    {
        return None;
    }
    let data = session.timeline.module_bytes(m.hash?).ok()?;
    let elf = object::File::parse(&*data).ok()?;
    let is = |s: &object::Symbol| s.name().is_ok_and(|n| n == NUMBER);
    let at = elf.dynamic_symbols().find(is)?.address();
    let module = Module::parse(&m.path, data.clone(), &DebugPaths::none()).ok()?;
    let constant = module.bytes(at, 12)?;
    Some(u32::from_le_bytes(constant[8..].try_into().ok()?) as u64)
}

/// The first file in the linker's list, found by the dynamic section of the main program.
fn first_file(session: &mut Session, main: u64) -> Result<Option<u64>> {
    for i in 0..MOST {
        let entry = main.wrapping_add(16 * i);
        match word(session, entry)? {
            Some(DT_DEBUG) => {
                let Some(list) = word(session, entry.wrapping_add(8))? else {
                    return Ok(None);
                };
                return word(session, list.wrapping_add(FIRST));
            }
            Some(DT_NULL) | None => break,
            Some(_) => {}
        }
    }
    Ok(None)
}

fn word(session: &mut Session, address: u64) -> Result<Option<u64>> {
    let bytes = session.read(address, 8)?;
    Ok(bytes.try_into().ok().map(u64::from_le_bytes))
}
