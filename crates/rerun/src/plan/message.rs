//! Descriptors in messages: where they stand in what comes besides the bytes (control messages).

use crate::wire::Call;
use libc::{MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET, SYS_recvmsg, SYS_sendmsg};

/// Where in `struct msghdr` the address of the peer stands, its length, and what else comes with the bytes: where, how long.
pub const NAME: u64 = 0;
pub const NAME_LEN: u64 = 8;
pub const CONTROL: u64 = 32;
pub const CONTROL_LEN: u64 = 40;
/// The length of that structure.
pub const HEADER: usize = 56;
/// No more bytes come besides those of a message.
pub const MOST: u64 = 1 << 16;

/// What a call wrote that received a message: the header, the address of the peer, and what came besides the bytes.
pub const HEADER_WRITTEN: usize = 0;
pub const NAME_WRITTEN: usize = 1;
pub const CONTROL_WRITTEN: usize = 2;

/// The length of the head of a control message: its own length, the level, and the kind.
const HEAD: usize = 16;
/// The kind that brings a descriptor of the process which sent it. The library does not name it.
const SCM_PIDFD: i32 = 4;

/// Whether the next program does not get the descriptors that a call with these arguments received.
pub fn closes_on_exec(args: &[u64; 6]) -> bool {
    args[2] as i32 & MSG_CMSG_CLOEXEC != 0
}

/// The descriptors in control messages, and where each of them stands. `None`: nobody knows, since some bytes are not known.
pub fn descriptors(control: &[Option<u8>]) -> Option<Vec<(usize, i32)>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(head) = control.get(at..at + HEAD) {
        let head = head.iter().copied().collect::<Option<Vec<u8>>>()?;
        let number = |at: usize| {
            head[at..]
                .first_chunk()
                .map_or(0, |b| i32::from_le_bytes(*b))
        };
        let len = head.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let len = usize::try_from(len).unwrap_or(0);
        let Some(end) = at
            .checked_add(len)
            .filter(|e| len >= HEAD && *e <= control.len())
        else {
            break;
        };
        if number(8) == SOL_SOCKET && [SCM_RIGHTS, SCM_PIDFD].contains(&number(12)) {
            for place in (at + HEAD..end).step_by(4) {
                let Some(fd) = control.get(place..place + 4).filter(|_| place + 4 <= end) else {
                    break;
                };
                let fd = fd.iter().copied().collect::<Option<Vec<u8>>>()?;
                out.push((
                    place,
                    fd.first_chunk().map_or(0, |b| i32::from_le_bytes(*b)),
                ));
            }
        }
        // The next one is aligned.
        at = end.next_multiple_of(8);
    }
    Some(out)
}

/// The descriptors that a recorded call sent in a message.
pub fn sent(call: &Call) -> impl Iterator<Item = i32> {
    let control: Vec<_> = match call.number as i64 {
        SYS_sendmsg => call.given.iter().map(|b| Some(*b)).collect(),
        _ => Vec::new(),
    };
    let found = descriptors(&control).unwrap_or_default();
    found.into_iter().map(|(_, fd)| fd)
}

/// The descriptors that came to a recorded call in a message, and where they stand in what came besides its bytes.
pub fn received(call: &Call) -> Vec<(usize, i32)> {
    let control = match call.number as i64 {
        SYS_recvmsg => call.written.get(CONTROL_WRITTEN),
        _ => None,
    };
    let found = control.and_then(|c| descriptors(&c.bytes));
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, data: &[u8]) -> Vec<u8> {
        let mut out = (16 + data.len() as u64).to_le_bytes().to_vec();
        out.extend(SOL_SOCKET.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    fn found(bytes: &[u8]) -> Option<Vec<(usize, i32)>> {
        descriptors(&bytes.iter().map(|b| Some(*b)).collect::<Vec<_>>())
    }

    #[test]
    fn descriptors_are_found_among_other_things() {
        let (five, nine) = (5i32.to_le_bytes(), [9i32.to_le_bytes(), 3i32.to_le_bytes()]);
        // The identity of the sender stands between them.
        let all = [
            message(SCM_RIGHTS, &five),
            message(2, &[1; 12]),
            message(SCM_RIGHTS, &nine.concat()),
            message(SCM_PIDFD, &five),
        ]
        .concat();
        assert_eq!(found(&all), Some(vec![(16, 5), (72, 9), (76, 3), (96, 5)]));
        assert_eq!(found(&message(2, &[1; 12])), Some(Vec::new()));
        assert_eq!(found(&[]), Some(Vec::new()));
        // What is cut short, or says that it is longer than it is.
        let mut cut = message(SCM_RIGHTS, &five);
        cut[0] = 18;
        assert_eq!(found(&cut), Some(Vec::new()));
        cut[0] = 99;
        assert_eq!(found(&cut), Some(Vec::new()));
        (cut[0], cut[7]) = (20, 0xff);
        assert_eq!(found(&cut), Some(Vec::new()));
    }

    #[test]
    fn what_is_not_known_is_told() {
        let of = |unknown: usize| {
            let bytes = message(SCM_RIGHTS, &7i32.to_le_bytes());
            let known = |(n, b): (usize, &u8)| Some(*b).filter(|_| n != unknown);
            descriptors(&bytes.iter().enumerate().map(known).collect::<Vec<_>>())
        };
        assert_eq!((of(12), of(17)), (None, None));
        // Nothing stands behind the descriptor.
        assert_eq!(of(21), Some(vec![(16, 7)]));
    }
}
