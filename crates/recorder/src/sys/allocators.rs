//! Functions by which programs get memory: how much it is, and where their caller finds it.

/// What a call of such a function says of memory that nobody has written yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocator {
    /// The block is the result. The argument of this number is its size.
    Sized(usize),
    /// The same. The address of the block is stored where the first argument says, and the third is its size.
    Stored,
    /// The block holds what another one held, whose address is the first argument. The second is its size.
    Resized,
    /// The same. The second and third argument multiplied are its size.
    ResizedArray,
    /// The block holds zeros.
    Zeroed,
}

/// In a file that has a function of this name, what stands before a block is as glibc has it.
pub const GLIBC: &[u8] = b"gnu_get_libc_version";

/// The names of these functions.
pub const NAMES: [(&[u8], Allocator); 17] = [
    (b"malloc", Allocator::Sized(0)),
    (b"calloc", Allocator::Zeroed),
    (b"realloc", Allocator::Resized),
    (b"reallocarray", Allocator::ResizedArray),
    (b"aligned_alloc", Allocator::Sized(1)),
    (b"memalign", Allocator::Sized(1)),
    (b"posix_memalign", Allocator::Stored),
    (b"valloc", Allocator::Sized(0)),
    (b"pvalloc", Allocator::Sized(0)),
    // `operator new`, for objects and arrays: also with an alignment, and those that return 0 instead of throwing.
    (b"_Znwm", Allocator::Sized(0)),
    (b"_Znam", Allocator::Sized(0)),
    (b"_ZnwmRKSt9nothrow_t", Allocator::Sized(0)),
    (b"_ZnamRKSt9nothrow_t", Allocator::Sized(0)),
    (b"_ZnwmSt11align_val_t", Allocator::Sized(0)),
    (b"_ZnamSt11align_val_t", Allocator::Sized(0)),
    (b"_ZnwmSt11align_val_tRKSt9nothrow_t", Allocator::Sized(0)),
    (b"_ZnamSt11align_val_tRKSt9nothrow_t", Allocator::Sized(0)),
];
