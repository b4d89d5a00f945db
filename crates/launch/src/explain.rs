//! Names for addresses in a message of the recorder.

use crate::recorder_binary;
use hindsight_collector::MappedFile;
use hindsight_guard::regular::{self, Links};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Most bytes of a file in which a name is looked for.
const LARGEST: u64 = 512 << 20;

/// `message` about a program, with symbol and module of the first address in it that lies in a file. An address in the
/// recorder's own code comes first.
pub fn explain(message: &str, maps: &[MappedFile]) -> String {
    let own = addresses(message).find_map(recorder_binary::function_at);
    if let Some((function, past)) = own {
        return format!("{message} (in the recorder's {function}+{past:#x})");
    }
    let place = addresses(message).find_map(|a| {
        // The last mapping of an address is the current one.
        maps.iter()
            .rev()
            .find(|m| a.wrapping_sub(m.addr) < m.len)
            .map(|m| (a - m.addr + m.offset, m))
    });
    let Some((offset, m)) = place else {
        return message.into();
    };
    let path = String::from_utf8_lossy(&m.path);
    match name(&m.path, offset) {
        Some((symbol, past)) => format!("{message} (in {symbol}+{past:#x}, {path}+{offset:#x})"),
        None => format!("{message} (in {path}+{offset:#x})"),
    }
}

fn addresses(message: &str) -> impl Iterator<Item = u64> {
    message.split("0x").skip(1).filter_map(|s| {
        let end = s.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(s.len());
        u64::from_str_radix(&s[..end], 16).ok()
    })
}

/// The function that holds the byte at `offset` of an ELF file, and the distance from its start.
fn name(path: &[u8], offset: u64) -> Option<(String, u64)> {
    let path = OsStr::from_bytes(path);
    // The path is what the program says: it may be anything.
    let data = regular::read(path, Links::Follow, LARGEST).ok()?;
    hindsight_symbols::function_at_offset(&data, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mapping of this process that has the byte at `addr`.
    fn mapping_of(addr: u64) -> MappedFile {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let all = maps.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-').unwrap();
            MappedFile {
                addr: number(start),
                len: number(end) - number(start),
                offset: number(words[2]),
                path: words.get(5).unwrap_or(&"").as_bytes().to_vec(),
            }
        });
        let mut of_it = all.filter(|m| addr.wrapping_sub(m.addr) < m.len);
        of_it.next().unwrap()
    }

    #[test]
    fn addresses_in_messages_get_names() {
        let here = explain as *const () as u64;
        let maps = [mapping_of(here)];
        let text = explain(&format!("cannot do 0f at {:#x}", here + 2), &maps);
        assert!(
            text.contains("explain") && text.contains("+0x2, "),
            "{text}"
        );
        assert_eq!(explain("at 0x10, no file", &maps), "at 0x10, no file");
        assert_eq!(explain("no address", &maps), "no address");
    }
}
