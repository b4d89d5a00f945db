//! `vFile`: files on the server's side.

use crate::encoding::{bytes, escape, number, split};
use crate::error::Parsed;
use crate::{Answer, MAX_DATA, Malformed};

/// Flags of `vFile:open` that ask for writing.
pub const WRITE_FLAGS: u64 = 3;

/// An operation on files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum File {
    /// `setfs`: file names are those of another process. [`Answer::file`] with 0 is the answer.
    ChooseNames,
    /// `open`: the answer is the new descriptor, as [`Answer::file`].
    Open { name: Vec<u8>, flags: u64 },
    /// `close`: [`Answer::file`] with 0 is the answer.
    Close { fd: u32 },
    /// `pread`: [`Answer::file_data`] is the answer; no bytes mean the end.
    Read {
        fd: u32,
        /// At most [`MAX_DATA`].
        len: usize,
        offset: u64,
    },
    /// `fstat`: [`Answer::file_status`] is the answer.
    Status { fd: u32 },
    /// `readlink`: where a link points, as [`Answer::file_data`].
    Link { name: Vec<u8> },
}

/// Error numbers of the protocol, which are not those of every system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    NotFound = 2,
    BadDescriptor = 9,
    TooManyOpen = 24,
    ReadOnly = 30,
}

/// What `fstat` says of a regular file that may only be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Number that tells files apart.
    pub inode: u32,
    /// Bytes.
    pub size: u64,
}

impl Status {
    /// Bytes of the protocol's `struct stat`.
    const LEN: usize = 64;

    fn encode(&self) -> Vec<u8> {
        /// A regular file that its owner may read.
        const MODE: u32 = 0o100_400;
        const BLOCK: u64 = 4096;
        let mut out = Vec::with_capacity(Status::LEN);
        // Device, inode, mode, links, user, group, device that it stands for.
        for word in [0, self.inode, MODE, 1, 0, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        for long in [self.size, BLOCK, self.size.div_ceil(512)] {
            out.extend(long.to_be_bytes());
        }
        // Three times.
        out.resize(Status::LEN, 0);
        out
    }
}

impl Answer {
    /// The result of a file operation.
    pub fn file(result: u64) -> Answer {
        Answer::text(format!("F{result:x}"))
    }

    /// The result of a file operation that gives data.
    pub fn file_data(data: &[u8]) -> Answer {
        let mut out = format!("F{:x};", data.len()).into_bytes();
        out.extend(escape(data));
        Answer::raw(out)
    }

    /// The result of `fstat`.
    pub fn file_status(status: &Status) -> Answer {
        Answer::file_data(&status.encode())
    }

    /// A file operation that failed.
    pub fn file_error(why: Errno) -> Answer {
        Answer::text(format!("F-1,{:x}", why as u8))
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<File> {
    let Some((operation, rest)) = packet.strip_prefix(b"vFile:").and_then(|r| split(r, b':'))
    else {
        return Ok(None);
    };
    let parsed = match operation {
        b"setfs" => number(rest).map(|_| File::ChooseNames),
        b"open" => open(rest),
        b"close" => descriptor(rest).map(|fd| File::Close { fd }),
        b"pread" => read(rest),
        b"fstat" => descriptor(rest).map(|fd| File::Status { fd }),
        b"readlink" => bytes(rest).map(|name| File::Link { name }),
        _ => return Ok(None),
    };
    parsed.map(Some).ok_or(Malformed("vFile"))
}

fn descriptor(digits: &[u8]) -> Option<u32> {
    u32::try_from(number(digits)?).ok()
}

/// `NAME,FLAGS,MODE`.
fn open(rest: &[u8]) -> Option<File> {
    let mut parts = rest.split(|b| *b == b',');
    let (name, flags, mode) = (parts.next()?, parts.next()?, parts.next()?);
    number(mode)?;
    Some(File::Open {
        name: bytes(name)?,
        flags: number(flags)?,
    })
}

/// `FD,LENGTH,OFFSET`.
fn read(rest: &[u8]) -> Option<File> {
    let mut parts = rest.split(|b| *b == b',');
    let (fd, len, offset) = (parts.next()?, parts.next()?, parts.next()?);
    Some(File::Read {
        fd: descriptor(fd)?,
        len: usize::try_from(number(len)?)
            .unwrap_or(MAX_DATA)
            .min(MAX_DATA),
        offset: number(offset)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_apart() {
        let name = b"/p".to_vec();
        for (packet, file) in [
            (&b"vFile:setfs:0"[..], File::ChooseNames),
            (
                b"vFile:open:2f70,0,1c0",
                File::Open {
                    name: name.clone(),
                    flags: 0,
                },
            ),
            (b"vFile:close:5", File::Close { fd: 5 }),
            (
                b"vFile:pread:5,ffffffffff,10",
                File::Read {
                    fd: 5,
                    len: MAX_DATA,
                    offset: 16,
                },
            ),
            (b"vFile:fstat:5", File::Status { fd: 5 }),
            (b"vFile:readlink:2f70", File::Link { name }),
        ] {
            assert_eq!(parse(packet), Ok(Some(file)));
        }
        for other in [&b"vFile"[..], b"vFile:unlink:2f70", b"vFile:pwrite:5,0,x"] {
            assert_eq!(parse(other), Ok(None));
        }
        for bad in [
            &b"vFile:close:"[..],
            b"vFile:open:2f7,0,0",
            b"vFile:open:2f70,0",
            b"vFile:pread:5,1",
            b"vFile:close:100000000",
        ] {
            assert_eq!(parse(bad), Err(Malformed("vFile")));
        }
    }

    #[test]
    fn results_have_a_letter() {
        assert_eq!(Answer::file(16), Answer::text("F10"));
        assert_eq!(Answer::file_error(Errno::ReadOnly), Answer::text("F-1,1e"));
        assert_eq!(Answer::file_data(b"a#").content(), b"F2;a}\x03");
        let status = Status {
            inode: 1,
            size: 513,
        };
        let answer = Answer::file_status(&status);
        assert!(
            answer
                .content()
                .starts_with(b"F40;\0\0\0\0\0\0\0\x01\0\0\x81\0")
        );
        assert_eq!(status.encode().len(), Status::LEN);
    }
}
