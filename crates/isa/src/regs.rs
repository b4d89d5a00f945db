//! The general purpose registers: their hardware numbers and names, and where others keep them.
//!
//! A register is known by its hardware number everywhere in the project. What comes from elsewhere
//! (debug information, gdb, the kernel) counts in other orders: the tables here convert.
//!
//! ```
//! use hindsight_isa::regs;
//! assert_eq!(regs::NAMES[regs::RSP], "rsp");
//! // DWARF's register 7 is rsp.
//! assert_eq!(regs::DWARF[7], regs::RSP);
//! ```

/// Hardware number of rax.
pub const RAX: usize = 0;
/// Hardware number of rcx.
pub const RCX: usize = 1;
/// Hardware number of rdx.
pub const RDX: usize = 2;
/// Hardware number of rbx.
pub const RBX: usize = 3;
/// Hardware number of rsp.
pub const RSP: usize = 4;
/// Hardware number of rbp.
pub const RBP: usize = 5;
/// Hardware number of rsi.
pub const RSI: usize = 6;
/// Hardware number of rdi.
pub const RDI: usize = 7;
/// Hardware number of r8.
pub const R8: usize = 8;
/// Hardware number of r9.
pub const R9: usize = 9;
/// Hardware number of r10.
pub const R10: usize = 10;
/// Hardware number of r11.
pub const R11: usize = 11;
/// Hardware number of r12.
pub const R12: usize = 12;
/// Hardware number of r13.
pub const R13: usize = 13;
/// Hardware number of r14.
pub const R14: usize = 14;
/// Hardware number of r15.
pub const R15: usize = 15;

/// What is known of a register.
struct Row {
    name: &'static str,
    /// Its number in debug information.
    dwarf: usize,
    /// Its number in gdb's protocol.
    gdb: usize,
    /// Its index in the kernel's `struct sigcontext`.
    sigcontext: usize,
    /// Its index in the kernel's `struct user_regs_struct`, which `ptrace` shows.
    user: usize,
}

const fn row(name: &'static str, dwarf: usize, gdb: usize, sigcontext: usize, user: usize) -> Row {
    Row {
        name,
        dwarf,
        gdb,
        sigcontext,
        user,
    }
}

/// The registers by hardware number.
const TABLE: [Row; 16] = [
    row("rax", 0, 0, 13, 10),
    row("rcx", 2, 2, 14, 11),
    row("rdx", 1, 3, 12, 12),
    row("rbx", 3, 1, 11, 5),
    row("rsp", 7, 7, 15, 19),
    row("rbp", 6, 6, 10, 4),
    row("rsi", 4, 4, 9, 13),
    row("rdi", 5, 5, 8, 14),
    row("r8", 8, 8, 0, 9),
    row("r9", 9, 9, 1, 8),
    row("r10", 10, 10, 2, 7),
    row("r11", 11, 11, 3, 6),
    row("r12", 12, 12, 4, 3),
    row("r13", 13, 13, 5, 2),
    row("r14", 14, 14, 6, 1),
    row("r15", 15, 15, 7, 0),
];

/// The names, by hardware number.
pub const NAMES: [&str; 16] = {
    let mut out = [""; 16];
    let mut n = 0;
    while n < 16 {
        out[n] = TABLE[n].name;
        n += 1;
    }
    out
};

/// Hardware numbers by DWARF's numbers.
pub const DWARF: [usize; 16] = {
    let mut out = [0; 16];
    let mut n = 0;
    while n < 16 {
        out[TABLE[n].dwarf] = n;
        n += 1;
    }
    out
};

/// Hardware numbers in the order of gdb's protocol.
pub const GDB: [usize; 16] = {
    let mut out = [0; 16];
    let mut n = 0;
    while n < 16 {
        out[TABLE[n].gdb] = n;
        n += 1;
    }
    out
};

/// Indices in the kernel's `struct sigcontext`, by hardware number.
pub const SIGCONTEXT: [usize; 16] = {
    let mut out = [0; 16];
    let mut n = 0;
    while n < 16 {
        out[n] = TABLE[n].sigcontext;
        n += 1;
    }
    out
};

/// Indices in the kernel's `struct user_regs_struct`, by hardware number.
pub const USER: [usize; 16] = {
    let mut out = [0; 16];
    let mut n = 0;
    while n < 16 {
        out[n] = TABLE[n].user;
        n += 1;
    }
    out
};

/// The registers that hold the arguments of a system call.
pub const SYSCALL_ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];

/// The registers that hold the first integer arguments of a function.
pub const CALL_ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, RCX, R8, R9];

/// The hardware number of the register with this name.
pub fn by_name(name: &str) -> Option<usize> {
    NAMES.iter().position(|n| *n == name)
}

/// Numbers of the registers that a recorded change of registers may name besides the general ones,
/// which have their hardware numbers there.
pub mod recorded {
    /// RFLAGS.
    pub const FLAGS: usize = 16;
    /// The FS base.
    pub const FS_BASE: usize = 17;
    /// The GS base.
    pub const GS_BASE: usize = 18;
    /// How many registers there are.
    pub const COUNT: usize = 19;
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::mem::offset_of;
    use libc::user_regs_struct as User;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(NAMES[R15], "r15");
        assert_eq!(by_name("rdi"), Some(RDI));
        assert_eq!(by_name("eax"), None);
        for (n, name) in NAMES.iter().enumerate() {
            assert_eq!(by_name(name), Some(n));
        }
    }

    #[test]
    fn no_order_names_a_register_twice() {
        for order in [DWARF, GDB] {
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, core::array::from_fn(|n| n), "{order:?}");
        }
    }

    #[test]
    fn the_kernels_structures_are_as_the_headers_say() {
        use libc::*;
        let context = [
            REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
            REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
        ];
        assert_eq!(SIGCONTEXT, context.map(|n| n as usize));
        let user = [
            offset_of!(User, rax),
            offset_of!(User, rcx),
            offset_of!(User, rdx),
            offset_of!(User, rbx),
            offset_of!(User, rsp),
            offset_of!(User, rbp),
            offset_of!(User, rsi),
            offset_of!(User, rdi),
            offset_of!(User, r8),
            offset_of!(User, r9),
            offset_of!(User, r10),
            offset_of!(User, r11),
            offset_of!(User, r12),
            offset_of!(User, r13),
            offset_of!(User, r14),
            offset_of!(User, r15),
        ];
        assert_eq!(USER, user.map(|at| at / 8));
    }
}
