//! Calls about queues of messages.

use super::*;

#[test]
fn calls_about_queues_of_messages() {
    const SET: u64 = libc::IPC_SET as u64;
    const STAT: u64 = libc::IPC_STAT as u64;
    const INFO: u64 = libc::IPC_INFO as u64;
    const INDEX_STAT: u64 = libc::MSG_STAT as u64;
    const USED: u64 = libc::MSG_INFO as u64;
    const INDEX_STAT_ANY: u64 = 13;
    let nr = number("msgctl").unwrap();
    // SAFETY: no pointers.
    let id = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    assert!(id >= 0);
    let queue = id as u64;
    let control = |id: u64, command: u64| known("msgctl", &|m| [id, command, m.at(1), 0, 0, 0]);
    assert_eq!(control(queue, STAT), 0);
    // The kernel takes the lower half of a register only.
    assert_eq!(control(queue, STAT | 1 << 32), 0);
    for command in [INFO, USED] {
        assert!(control(0, command) >= 0);
    }
    // These take an index, and return the id. Other queues may be there, too.
    let highest = control(0, USED) as u64;
    for command in [INDEX_STAT, INDEX_STAT_ANY] {
        let mut all = (0..=highest).map(|i| control(i, command));
        assert!(all.any(|r| r == id as i64), "{command}");
    }
    let set = known("msgctl", &|m| {
        // All stays as it is, but for how many bytes fit.
        call(nr, &[queue, STAT, m.at(1), 0, 0, 0]);
        m.put(1, 88, &1000u64.to_le_bytes());
        [queue, SET, m.at(1), 0, 0, 0]
    });
    assert_eq!(set, 0);
    // It is not known how much was written before the fault.
    check("msgctl", Class::Unknown, &|_| [queue, STAT, 8, 0, 0, 0]);
    // A command that the kernel does not know, and one of other processors.
    for command in [77, STAT | 0x100] {
        check("msgctl", Class::Unknown, &|m| {
            [queue, command, m.at(1), 0, 0, 0]
        });
    }
    // The second time, the queue is gone.
    let refused = -libc::EINVAL as i64;
    assert_eq!(control(queue, libc::IPC_RMID as u64), refused);
    for command in [STAT, libc::IPC_RMID as u64] {
        assert_eq!(control(queue, command), refused);
        assert_eq!(control(u64::MAX, command), refused);
    }
}
