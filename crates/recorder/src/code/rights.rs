//! Programs that give up rights.
//!
//! What is in the shared cache at the end of a recording is kept for the user's later recordings,
//! and executed there. A program may make itself less than the user, so that it can handle what it
//! does not trust. It must not be able to put anything there that is kept. So before it gives up
//! rights, the collector is told to keep nothing. The collector notes that where the program cannot
//! reach it.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::stream::ring;
use crate::sys;
use hindsight_events::ring::unprivileged::{NOTED, SAID};
use linux_raw_sys::general::*;
use linux_raw_sys::prctl::{
    PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_SECUREBITS,
};

/// Flags of `clone` that make a namespace. The flag of the time namespace is left out: in `clone`
/// its bit belongs to the signal.
const NAMESPACES: u64 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u64;

/// Whether a call sets one of the identities `ids` to something else than `own`. All ones leaves an
/// identity alone.
fn differ(ids: &[u64], own: u32) -> bool {
    let same = |id: &u64| [u32::MAX, own].contains(&(*id as u32));
    !ids.iter().all(same)
}

/// Tells the collector, if this system call may take rights from the process.
pub fn before(nr: u32, a: &[u64; 6]) {
    let gives_up = match nr {
        // Some programs set what they have.
        __NR_setuid | __NR_setfsuid => differ(&a[..1], sys::effective_ids().0),
        __NR_setgid | __NR_setfsgid => differ(&a[..1], sys::effective_ids().1),
        __NR_setreuid => differ(&a[..2], sys::effective_ids().0),
        __NR_setregid => differ(&a[..2], sys::effective_ids().1),
        __NR_setresuid => differ(&a[..3], sys::effective_ids().0),
        __NR_setresgid => differ(&a[..3], sys::effective_ids().1),
        __NR_setgroups
        | __NR_capset
        | __NR_seccomp
        | __NR_landlock_restrict_self
        | __NR_unshare
        | __NR_setns
        | __NR_chroot
        | __NR_pivot_root => true,
        __NR_prctl => [
            PR_SET_SECCOMP,
            PR_SET_NO_NEW_PRIVS,
            PR_CAPBSET_DROP,
            PR_CAP_AMBIENT,
            PR_SET_SECUREBITS,
        ]
        .contains(&(a[0] as u32)),
        __NR_clone => a[0] & NAMESPACES != 0,
        __NR_clone3 => crate::sys::guard::load_u64(a[0]).is_ok_and(|flags| flags & NAMESPACES != 0),
        _ => false,
    };
    if gives_up {
        ring::tell(|h| &h.unprivileged, SAID, NOTED);
    }
}
