//! The list of shared libraries, as gdb reads it.

use hindsight_symbols::{DebugPaths, Module};
use hindsight_timeline::{Position, Timeline};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{LazyLock, Mutex};

/// A library's offset between file and memory, and where its dynamic section is: file addresses.
#[derive(Clone, Copy)]
struct Layout {
    dynamic: u64,
}

/// Libraries of a program image at a position, without the program itself.
pub fn list(timeline: &Timeline, image: u32, at: Position) -> String {
    let mut out = String::from(r#"<library-list-svr4 version="1.0">"#);
    let modules = timeline.modules(image).unwrap_or_default();
    let program = modules.first().map(|m| m.path.clone());
    for m in &modules {
        let gone = m.unload.is_some_and(|p| p <= at);
        let coming = m.load.is_some_and(|p| p > at);
        if gone || coming || Some(&m.path) == program.as_ref() || !m.path.starts_with('/') {
            continue;
        }
        let Some(hash) = m.hash else { continue };
        let Ok(bytes) = timeline.module_bytes(hash) else {
            continue;
        };
        let Some(first) = m.parts.first() else {
            continue;
        };
        let bias = bias(&m.path, hash.0, &bytes, first.start, first.offset);
        if let Some((bias, layout)) = bias {
            let _ = write!(
                out,
                r#"<library name="{}" lm="{:#x}" l_addr="{:#x}" l_ld="{:#x}" lmid="0x0"/>"#,
                escape(&m.path),
                m.start,
                bias,
                layout.dynamic.wrapping_add(bias)
            );
        }
    }
    out + "</library-list-svr4>"
}

/// Guest address of the dynamic section of a mapped file, which tells it from all others.
pub fn dynamic_section(timeline: &Timeline, m: &hindsight_timeline::Module) -> Option<u64> {
    let (hash, first) = (m.hash?, m.parts.first()?);
    let bytes = timeline.module_bytes(hash).ok()?;
    let (bias, layout) = bias(&m.path, hash.0, &bytes, first.start, first.offset)?;
    Some(layout.dynamic.wrapping_add(bias))
}

type Known = HashMap<[u8; 16], Option<(u64, u64, Layout)>>;

/// Guest address minus file address, and what else is wanted of the file.
fn bias(
    path: &str,
    hash: [u8; 16],
    bytes: &[u8],
    start: u64,
    offset: u64,
) -> Option<(u64, Layout)> {
    // Parsing symbols takes long; gdb asks for the list at every stop.
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let (file_start, file_offset, layout) = (*known.entry(hash).or_insert_with(|| {
        let layout = Layout {
            dynamic: dynamic(bytes)?,
        };
        let m = Module::parse(path, bytes.to_vec(), &DebugPaths::none()).ok()?;
        // With a bias of zero, a mapping of this offset begins at this file address.
        let at = m.bias(0, offset)?.wrapping_neg();
        Some((at, offset, layout))
    }))?;
    (file_offset == offset).then(|| (start.wrapping_sub(file_start), layout))
}

fn dynamic(bytes: &[u8]) -> Option<u64> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, bytes).ok()?;
    let found = all.iter().find(|p| p.p_type(endian) == elf::PT_DYNAMIC)?;
    Some(found.p_vaddr(endian))
}

/// Where the program itself lies.
pub struct Program {
    /// Guest address of its first instruction.
    pub entry: u64,
    /// Guest address of its program headers.
    pub headers: Option<u64>,
    pub header_count: u64,
    /// Of its interpreter: guest address minus file address.
    pub interpreter_bias: Option<u64>,
}

impl Program {
    /// The first file that a program image mapped, and its interpreter, the second.
    pub fn of(timeline: &Timeline, image: u32) -> Option<Program> {
        let modules = timeline.modules(image).ok()?;
        let open = |i: usize| {
            let m = modules.get(i)?;
            let bytes = timeline.module_bytes(m.hash?).ok()?;
            let parsed = Module::parse(&m.path, bytes, &DebugPaths::none()).ok()?;
            let first = m.parts.first()?;
            let bias = parsed.bias(first.start, first.offset)?;
            Some((parsed, bias))
        };
        let (program, bias) = open(0)?;
        let header = elf::FileHeader64::<Endianness>::parse(program.data()).ok()?;
        let endian = header.endian().ok()?;
        let headers = program.address_of_offset(header.e_phoff(endian));
        let interpreted = dynamic(program.data()).is_some();
        Some(Program {
            entry: program.entry().wrapping_add(bias),
            headers: headers.map(|a| a.wrapping_add(bias)),
            header_count: header.e_phnum(endian) as u64,
            interpreter_bias: open(1).filter(|_| interpreted).map(|(_, bias)| bias),
        })
    }
}

/// Text within an XML attribute.
pub fn escape(s: &str) -> String {
    s.chars()
        .map(|c| match c {
            '&' => "&amp;".into(),
            '<' => "&lt;".into(),
            '>' => "&gt;".into(),
            '"' => "&quot;".into(),
            c if c.is_control() => String::new(),
            c => c.to_string(),
        })
        .collect()
}
