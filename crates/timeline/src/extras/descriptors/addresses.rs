//! Addresses of sockets, as people write them.

use hindsight_syscalls::abi;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest address that is read.
pub const LONGEST: u64 = 128;

/// An address as `127.0.0.1:80`, `[::1]:80`, `unix:/path`, `unix:@abstract`. `None`: it is not known, or of another family.
pub fn shown(bytes: &[Option<u8>]) -> Option<String> {
    let b: Vec<u8> = bytes.iter().map_while(|b| *b).collect();
    let family = u16::from_le_bytes(*b.first_chunk()?);
    let port = || Some(u16::from_be_bytes(*b.get(2..)?.first_chunk()?));
    match family as i32 {
        abi::AF_INET => {
            let ip: [u8; 4] = *b.get(4..)?.first_chunk()?;
            Some(SocketAddr::from((Ipv4Addr::from(ip), port()?)).to_string())
        }
        abi::AF_INET6 => {
            let ip: [u8; 16] = *b.get(8..)?.first_chunk()?;
            Some(SocketAddr::from((Ipv6Addr::from(ip), port()?)).to_string())
        }
        abi::AF_UNIX if b.len() < bytes.len() => None,
        abi::AF_UNIX => {
            let path = &b[2..];
            let text = match path.split_first() {
                None => "unix:".to_owned(),
                Some((0, name)) => format!("unix:@{}", String::from_utf8_lossy(name)),
                Some(_) => {
                    let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
                    format!("unix:{}", String::from_utf8_lossy(&path[..end]))
                }
            };
            Some(text)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let text = |b: &[u8]| shown(&b.iter().map(|b| Some(*b)).collect::<Vec<_>>());
        let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(text(&v4).as_deref(), Some("127.0.0.1:8080"));
        let mut v6 = [0; 28];
        (v6[0], v6[3], v6[23]) = (10, 80, 1);
        assert_eq!(text(&v6).as_deref(), Some("[::1]:80"));
        assert_eq!(text(b"\x01\0/run/a\0\0").as_deref(), Some("unix:/run/a"));
        assert_eq!(text(b"\x01\0\0name").as_deref(), Some("unix:@name"));
        assert_eq!(text(b"\x01\0").as_deref(), Some("unix:"));
        assert_eq!(text(&v4[..6]), None);
        assert_eq!(text(b"\x10\0\0\0"), None);
        assert_eq!(shown(&[Some(2), Some(0), None]), None);
    }
}
