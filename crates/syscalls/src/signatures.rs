//! What system calls take and return. `table.rs` says of each call what it takes.

use crate::arguments::Arg;
use crate::table::TABLE;

/// What a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A number.
    Number,
    /// An address, or bits.
    Address,
    /// The call does not return if it succeeds.
    Nothing,
    /// A mask of permissions: the old one.
    Octal,
}

/// What a call takes and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What each argument is.
    pub args: &'static [Arg],
    /// What the result is.
    pub returns: Returns,
}

/// The signature of the call with this name. `None`: only its number of arguments is known.
pub fn signature(name: &str) -> Option<Signature> {
    let args = TABLE.iter().find(|c| c.name == name)?.args.told?;
    let returns = match name {
        "mmap" | "mremap" | "brk" | "shmat" => Returns::Address,
        "exit" | "exit_group" | "rt_sigreturn" => Returns::Nothing,
        "umask" => Returns::Octal,
        _ => Returns::Number,
    };
    Some(Signature { args, returns })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::arguments::Arg::*;
    use crate::names;
    use std::vec::Vec;

    /// Calls of which only the number of arguments is known. They are rare, for administrators, or of very old kernels.
    const WITHOUT: &str = "
        shmctl semctl msgsnd msgrcv getdents syslog capget capset rt_sigqueueinfo utime uselib ustat
        sysfs modify_ldt pivot_root _sysctl adjtimex swapon reboot setdomainname iopl ioperm create_module
        init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall
        tuxcall security set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area
        lookup_dcookie epoll_ctl_old epoll_wait_old remap_file_pages semtimedop vserver mbind set_mempolicy
        get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load
        add_key request_key keyctl ioprio_set ioprio_get migrate_pages futimesat vmsplice move_pages
        rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark
        open_by_handle_at clock_adjtime sendmmsg process_vm_readv process_vm_writev kcmp finit_module
        sched_setattr sched_getattr kexec_file_load bpf userfaultfd io_pgetevents io_uring_setup
        io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick process_madvise
        mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self
        memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat map_shadow_stack
        futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr
        lsm_list_modules mseal open_tree_attr
    ";

    #[test]
    fn which_calls_have_no_signature_is_known() {
        let without: Vec<&str> = names().filter(|n| signature(n).is_none()).collect();
        let told: Vec<&str> = WITHOUT.split_whitespace().collect();
        assert_eq!(without, told);
    }

    #[test]
    fn arguments_name_others_that_there_are() {
        for c in TABLE {
            let args = c.args.told.unwrap_or_default();
            for a in args {
                let other = match a {
                    ModeIf(n)
                    | Bytes(n)
                    | Ins(_, n)
                    | Buffers(n)
                    | FilledBuffers(n)
                    | Address(n)
                    | FilledAddress(n)
                    | Polled(n)
                    | Value(n)
                    | FilledValue(n)
                    | Processors(n)
                    | MountId(n) => *n,
                    _ => 0,
                };
                assert!((other as usize) < args.len().max(1), "{}: {a:?}", c.name);
            }
        }
    }
}
