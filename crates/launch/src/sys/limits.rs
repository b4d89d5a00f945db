//! Limits on memory, of this process and of others.

/// Limits of which the recorder's own memory is to take nothing from the program.
const MEMORY_LIMITS: [libc::__rlimit_resource_t; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];

/// The limits on address space and data, soft and hard, which the recorder keeps for the program.
pub fn memory_limits() -> [[u64; 2]; 2] {
    MEMORY_LIMITS.map(|r| {
        let l = limit(r);
        [l.rlim_cur, l.rlim_max]
    })
}

/// Lifts them as far as that is allowed.
pub fn lift_memory_limits() {
    for r in MEMORY_LIMITS {
        let old = limit(r);
        let free = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        let most = libc::rlimit {
            rlim_cur: old.rlim_max,
            ..old
        };
        // SAFETY: valid pointers.
        unsafe {
            if libc::setrlimit(r, &free) != 0 {
                libc::setrlimit(r, &most);
            }
        }
    }
}

/// As [`memory_limits`], of another process; lifts them as far as that is allowed.
pub fn lift_limits_of(pid: i32) -> [libc::rlimit; 2] {
    MEMORY_LIMITS.map(|r| {
        let Some(old) = limit_of(pid, r, None) else {
            return limit(r);
        };
        let soft = |cur| libc::rlimit {
            rlim_cur: cur,
            ..old
        };
        let free = libc::rlimit {
            rlim_max: libc::RLIM_INFINITY,
            ..soft(libc::RLIM_INFINITY)
        };
        if limit_of(pid, r, Some(&free)).is_none() {
            limit_of(pid, r, Some(&soft(old.rlim_max)));
        }
        old
    })
}

/// Undoes [`lift_limits_of`].
pub fn restore_limits_of(pid: i32, old: &[libc::rlimit; 2]) {
    for (r, old) in MEMORY_LIMITS.into_iter().zip(old) {
        limit_of(pid, r, Some(old));
    }
}

/// Sets (if given) a limit of another process; the one before.
fn limit_of(
    pid: i32,
    resource: libc::__rlimit_resource_t,
    new: Option<&libc::rlimit>,
) -> Option<libc::rlimit> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid pointers, or none.
    let done = unsafe { libc::prlimit(pid, resource, new, &mut old) };
    (done == 0).then_some(old)
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut l = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid pointer.
    unsafe { libc::getrlimit(resource, &mut l) };
    l
}
