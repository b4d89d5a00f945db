//! Queues of messages, which `msgctl` asks about and changes.

use super::shapes::Bytes;
use super::text::{address, known, octal};
use super::{Call, some};
use crate::Result;
use hindsight_syscalls::abi;

/// The sizes of `struct msqid_ds` and `struct msginfo`.
const QUEUE: usize = 120;
const INFO: usize = 32;
/// As `MSG_STAT`, for those who may not read the queue, too.
const MSG_STAT_ANY: u32 = 13;

impl Call<'_> {
    /// The last argument of `msgctl`: what its command reads or writes.
    pub(super) fn msgctl(&mut self, at: u64) -> Result<String> {
        let done = !self.failed();
        let (len, behind, show): (_, _, fn(&Bytes) -> String) = match self.args[1] as u32 {
            abi::IPC_SET => (QUEUE, false, changed),
            abi::IPC_STAT | abi::MSG_STAT | MSG_STAT_ANY if done => (QUEUE, true, queue),
            abi::IPC_INFO | abi::MSG_INFO if done => (INFO, true, info),
            _ => return Ok(address(at)),
        };
        let b = self.bytes(at, len, behind)?;
        Ok(some(&b.0).map_or(address(at), |_| show(&b)))
    }
}

/// What `IPC_SET` changes.
fn changed(b: &Bytes) -> String {
    format!(
        "{{msg_perm={{uid={}, gid={}, mode={}}}, msg_qbytes={}}}",
        id(b, 4),
        id(b, 8),
        known(b.at(20, 4), octal),
        b.unsigned(88, 8)
    )
}

/// A queue: who may use it, when it was used, what it holds.
fn queue(b: &Bytes) -> String {
    let mut out = format!(
        "{{msg_perm={{uid={}, gid={}, mode={}, key={}, cuid={}, cgid={}}}",
        id(b, 4),
        id(b, 8),
        known(b.at(20, 4), octal),
        b.unsigned(0, 4),
        id(b, 12),
        id(b, 16)
    );
    for (name, at) in [("stime", 48), ("rtime", 56), ("ctime", 64)] {
        out += &format!(", msg_{name}={}", b.signed(at, 8));
    }
    for (name, at) in [("qnum", 80), ("qbytes", 88)] {
        out += &format!(", msg_{name}={}", b.unsigned(at, 8));
    }
    out + &format!(
        ", msg_lspid={}, msg_lrpid={}}}",
        b.signed(96, 4),
        b.signed(100, 4)
    )
}

/// The limits for all queues, or how much of them is used.
fn info(b: &Bytes) -> String {
    let fields = ["pool", "map", "max", "mnb", "mni", "ssz", "tql"];
    let numbers: String = (fields.iter().enumerate())
        .map(|(i, name)| format!("msg{name}={}, ", b.signed(4 * i, 4)))
        .collect();
    format!("{{{numbers}msgseg={}}}", b.unsigned(28, 2))
}

/// A user or a group. -1 is none.
fn id(b: &Bytes, at: usize) -> String {
    match b.at(at, 4) {
        Some(0xffff_ffff) => "-1".into(),
        _ => b.unsigned(at, 4),
    }
}
