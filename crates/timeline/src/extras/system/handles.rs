//! Handles of files, which `name_to_handle_at` makes.

use super::text::{address, hexadecimal, known};
use super::{Call, some};
use crate::Result;
use hindsight_syscalls::abi;

/// The most bytes that a handle has.
const MOST: u64 = 128;

impl Call<'_> {
    /// A handle: how many bytes it may have, how many it has, and these. A call that fails for lack of room tells how
    /// many it needs.
    pub(super) fn file_handle(&mut self, at: u64) -> Result<String> {
        let Some(room) = self.word(at, false)? else {
            return Ok(address(at));
        };
        let mut out = format!("{{handle_bytes={room}");
        let lacked = self.result == Some((-i64::from(abi::EOVERFLOW)) as u64);
        if self.failed() && !lacked {
            return Ok(out + "}");
        }
        let len = self.word(at, true)?;
        if len != Some(room) {
            out += &format!(" => {}", known(len, |n| n.to_string()));
        }
        if !lacked {
            let kind = self.word(at.wrapping_add(4), true)?;
            let from = at.wrapping_add(8);
            let len = len.unwrap_or(0).min(MOST) as usize;
            let b = self.seen.read(from, len, true)?;
            out += &format!(
                ", handle_type={}, f_handle={}",
                known(kind, |k| (k as i32).to_string()),
                some(&b).map_or(address(from), |b| hexadecimal(b, false))
            );
        }
        Ok(out + "}")
    }

    /// The number of a mount. The long ones are never used again for another mount.
    pub(super) fn mount_id(&mut self, at: u64, flags: u64) -> Result<String> {
        let is_long = flags & abi::AT_HANDLE_MNT_ID_UNIQUE as u64 != 0;
        let b = self.bytes(at, if is_long { 8 } else { 4 }, true)?;
        let number = match is_long {
            true => b.unsigned(0, 8),
            false => b.signed(0, 4),
        };
        Ok(match number.as_str() {
            "?" => address(at),
            _ => format!("[{number}]"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::*;
    use hindsight_syscalls::number;

    const HANDLE: u64 = 0x1000;
    const MOUNT: u64 = 0x1100;

    /// Memory before and after a call, from `HANDLE` on.
    struct Memory([Vec<u8>; 2]);

    impl Seen for Memory {
        fn read(&mut self, at: u64, len: usize, behind: bool) -> Result<Vec<Option<u8>>> {
            let all = &self.0[behind as usize];
            let byte = |i: usize| all.get((at - HANDLE) as usize + i).copied();
            Ok((0..len).map(byte).collect())
        }
    }

    /// The handle and the mount of a call that had room for `room` bytes, and left `left`.
    fn shown(room: u32, left: &[u8], result: i64, flags: u64) -> String {
        let mut before = vec![0; 0x108];
        before[..4].copy_from_slice(&room.to_le_bytes());
        let mut behind = before.clone();
        behind[..left.len()].copy_from_slice(left);
        behind[0x100..].copy_from_slice(&0x8000_0001_u64.to_le_bytes());
        let mut call = Call {
            seen: &mut Memory([before, behind]),
            name: "name_to_handle_at".into(),
            number: number("name_to_handle_at").unwrap(),
            args: [3, 0, HANDLE, MOUNT, flags, 0],
            result: Some(result as u64),
        };
        call.shown().unwrap().arguments[2..].join(", ")
    }

    #[test]
    fn handles_are_shown_as_strace_does() {
        let left = b"\x04\0\0\0\x81\0\0\0ab\x01\xff";
        let bytes = r#"handle_type=129, f_handle="\x61\x62\x01\xff""#;
        assert_eq!(
            shown(128, left, 0, 0),
            format!("{{handle_bytes=128 => 4, {bytes}}}, [-2147483647], 0")
        );
        // A number of eight bytes.
        assert_eq!(
            shown(4, left, 0, 0x1001),
            format!(
                "{{handle_bytes=4, {bytes}}}, [2147483649], AT_HANDLE_MNT_ID_UNIQUE|AT_EMPTY_PATH"
            )
        );
        let (lacking, invalid) = (-i64::from(abi::EOVERFLOW), -i64::from(abi::EINVAL));
        assert_eq!(
            shown(0, left, lacking, 0x400),
            "{handle_bytes=0 => 4}, 0x1100, AT_SYMLINK_FOLLOW"
        );
        assert_eq!(shown(129, b"", invalid, 0), "{handle_bytes=129}, 0x1100, 0");
    }
}
