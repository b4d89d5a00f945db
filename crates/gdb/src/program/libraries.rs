//! The list of shared libraries, as gdb reads it.

use hindsight_inspect::dynamic;
use hindsight_symbols::{DebugPaths, Module};
use hindsight_text::line;
use hindsight_timeline::{Position, Timeline};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::{LazyLock, Mutex};

/// Where the parts of a library are, as file addresses.
#[derive(Clone, Copy)]
struct Layout {
    dynamic: u64,
}

/// Once the client has seen this library, it stays in the list. gdb 13 crashes if the library goes while gdb catches
/// C++ exceptions, as it would on the way back to the beginning.
const STAYING: &str = "/libstdc++.so";
/// Libraries that were listed: program image and address.
pub type Listed = HashSet<(u32, u64)>;

/// Libraries of a program image at a position, without the program itself.
pub fn list(timeline: &Timeline, image: u32, at: Position, listed: &mut Listed) -> String {
    let mut out = String::from(r#"<library-list-svr4 version="1.0">"#);
    let modules = timeline.modules(image).unwrap_or_default();
    let program = modules.first().map(|m| m.path.clone());
    let is_here = |m: &hindsight_timeline::Module| {
        m.unload.is_none_or(|p| p > at) && m.load.is_none_or(|p| p <= at)
    };
    let (here, others): (Vec<_>, Vec<_>) = modules.iter().partition(|m| is_here(m));
    let mut places = HashSet::new();
    for m in here.iter().chain(&others) {
        let stays = m.path.contains(STAYING) && listed.contains(&(image, m.start));
        if !(is_here(m) || stays && !places.contains(&m.start)) {
            continue;
        }
        if Some(&m.path) == program.as_ref() || !m.path.starts_with('/') {
            continue;
        }
        if let Some((bias, layout)) = bias(timeline, m) {
            places.insert(m.start);
            listed.insert((image, m.start));
            let _ = write!(
                out,
                r#"<library name="{}" lm="{:#x}" l_addr="{:#x}" l_ld="{:#x}" lmid="0x0"/>"#,
                escape(&line(&m.path)),
                m.start,
                bias,
                layout.dynamic.wrapping_add(bias)
            );
        }
    }
    out + "</library-list-svr4>"
}

/// Guest address of the dynamic section of a mapped file. No two files share it.
pub fn dynamic_section(timeline: &Timeline, m: &hindsight_timeline::Module) -> Option<u64> {
    let (bias, layout) = bias(timeline, m)?;
    Some(layout.dynamic.wrapping_add(bias))
}

type Known = HashMap<[u8; 16], Option<(u64, u64, Layout)>>;

/// Guest address minus file address, and the layout of the file.
fn bias(timeline: &Timeline, m: &hindsight_timeline::Module) -> Option<(u64, Layout)> {
    let (hash, first) = (m.hash?, m.parts.first()?);
    let (start, offset) = (first.start, first.offset);
    // It takes long to unpack a file and to parse its symbols, and gdb asks for the list at every stop.
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let (file_start, file_offset, layout) = (*known.entry(hash.0).or_insert_with(|| {
        let bytes = timeline.module_bytes(hash).ok()?;
        let layout = Layout {
            dynamic: dynamic(&bytes)?,
        };
        let parsed = Module::parse(&m.path, bytes, &DebugPaths::none()).ok()?;
        // With a bias of zero, a mapping of this offset begins at this file address.
        let at = parsed.bias(0, offset)?.wrapping_neg();
        Some((at, offset, layout))
    }))?;
    (file_offset == offset).then(|| (start.wrapping_sub(file_start), layout))
}

/// Text within an XML attribute. The caller makes sure that it has no control characters.
pub fn escape(s: &str) -> String {
    s.chars()
        .map(|c| match c {
            '&' => "&amp;".into(),
            '<' => "&lt;".into(),
            '>' => "&gt;".into(),
            '"' => "&quot;".into(),
            c => c.to_string(),
        })
        .collect()
}
