//! Errors of system calls.

use hindsight_syscalls::abi;

/// Names, and what they mean in the words of glibc, which the programs' users know. Those of this machine may be others.
macro_rules! errors {
    ($($name:ident $text:literal,)*) => {
        &[$((abi::$name as u64, stringify!($name), $text)),*]
    };
}

type Errors = &'static [(u64, &'static str, &'static str)];

const ERRORS: Errors = errors![
    EPERM "Operation not permitted",
    ENOENT "No such file or directory",
    ESRCH "No such process",
    EINTR "Interrupted system call",
    EIO "Input/output error",
    ENXIO "No such device or address",
    E2BIG "Argument list too long",
    ENOEXEC "Exec format error",
    EBADF "Bad file descriptor",
    ECHILD "No child processes",
    EAGAIN "Resource temporarily unavailable",
    ENOMEM "Cannot allocate memory",
    EACCES "Permission denied",
    EFAULT "Bad address",
    ENOTBLK "Block device required",
    EBUSY "Device or resource busy",
    EEXIST "File exists",
    EXDEV "Invalid cross-device link",
    ENODEV "No such device",
    ENOTDIR "Not a directory",
    EISDIR "Is a directory",
    EINVAL "Invalid argument",
    ENFILE "Too many open files in system",
    EMFILE "Too many open files",
    ENOTTY "Inappropriate ioctl for device",
    ETXTBSY "Text file busy",
    EFBIG "File too large",
    ENOSPC "No space left on device",
    ESPIPE "Illegal seek",
    EROFS "Read-only file system",
    EMLINK "Too many links",
    EPIPE "Broken pipe",
    EDOM "Numerical argument out of domain",
    ERANGE "Numerical result out of range",
    EDEADLK "Resource deadlock avoided",
    ENAMETOOLONG "File name too long",
    ENOLCK "No locks available",
    ENOSYS "Function not implemented",
    ENOTEMPTY "Directory not empty",
    ELOOP "Too many levels of symbolic links",
    ENOMSG "No message of desired type",
    EIDRM "Identifier removed",
    ENODATA "No data available",
    ETIME "Timer expired",
    EPROTO "Protocol error",
    EBADMSG "Bad message",
    EOVERFLOW "Value too large for defined data type",
    EILSEQ "Invalid or incomplete multibyte or wide character",
    EUSERS "Too many users",
    ENOTSOCK "Socket operation on non-socket",
    EDESTADDRREQ "Destination address required",
    EMSGSIZE "Message too long",
    EPROTOTYPE "Protocol wrong type for socket",
    ENOPROTOOPT "Protocol not available",
    EPROTONOSUPPORT "Protocol not supported",
    ESOCKTNOSUPPORT "Socket type not supported",
    EOPNOTSUPP "Operation not supported",
    EPFNOSUPPORT "Protocol family not supported",
    EAFNOSUPPORT "Address family not supported by protocol",
    EADDRINUSE "Address already in use",
    EADDRNOTAVAIL "Cannot assign requested address",
    ENETDOWN "Network is down",
    ENETUNREACH "Network is unreachable",
    ENETRESET "Network dropped connection on reset",
    ECONNABORTED "Software caused connection abort",
    ECONNRESET "Connection reset by peer",
    ENOBUFS "No buffer space available",
    EISCONN "Transport endpoint is already connected",
    ENOTCONN "Transport endpoint is not connected",
    ESHUTDOWN "Cannot send after transport endpoint shutdown",
    ETIMEDOUT "Connection timed out",
    ECONNREFUSED "Connection refused",
    EHOSTDOWN "Host is down",
    EHOSTUNREACH "No route to host",
    EALREADY "Operation already in progress",
    EINPROGRESS "Operation now in progress",
    ESTALE "Stale file handle",
    EDQUOT "Disk quota exceeded",
    ECANCELED "Operation canceled",
    EOWNERDEAD "Owner died",
    ENOTRECOVERABLE "State not recoverable",
];

/// Results that programs do not see.
const INTERNAL: Errors = &[
    (512, "ERESTARTSYS", "To be restarted if SA_RESTART is set"),
    (513, "ERESTARTNOINTR", "To be restarted"),
    (514, "ERESTARTNOHAND", "To be restarted if no handler"),
    (516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"),
];

/// The name of an error, and what it means.
pub fn error(number: u64) -> Option<(&'static str, &'static str)> {
    let mut all = INTERNAL.iter().chain(ERRORS);
    let (_, name, text) = all.find(|e| e.0 == number)?;
    Some((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
    fn errors_are_said_as_the_c_library_says_them() {
        for (number, name, text) in ERRORS {
            // The text is English, whatever the language of the user.
            let said = std::io::Error::from_raw_os_error(*number as i32).to_string();
            assert_eq!(said, format!("{text} (os error {number})"), "{name}");
        }
    }
}
