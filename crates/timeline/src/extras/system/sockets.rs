//! Addresses of sockets, and what a program waits for at descriptors.

use super::names::{EVENTS, names};
use super::shapes::Bytes;
use super::text::{bits, known, one, quoted};
use hindsight_syscalls::Set;
use hindsight_syscalls::abi;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What is awaited or has come, of `poll` or `epoll`.
pub fn events(kind: &str, v: u64) -> String {
    let text = bits(v, EVENTS);
    match text.as_str() {
        "0" => text,
        _ => text
            .split('|')
            .map(|name| match name.starts_with("0x") {
                true => name.to_owned(),
                false => format!("{kind}{name}"),
            })
            .collect::<Vec<_>>()
            .join("|"),
    }
}

/// One descriptor of `poll`. `come`: shows what has come, and `None` if nothing has.
pub fn polled(b: &Bytes, come: bool) -> Option<String> {
    let fd = b.signed(0, 4);
    match (come, b.at(6, 2)) {
        (true, Some(0)) => None,
        (true, v) => Some(format!(
            "{{fd={fd}, revents={}}}",
            known(v, |v| events("POLL", v))
        )),
        (false, _) => Some(format!(
            "{{fd={fd}, events={}}}",
            known(b.at(4, 2), |v| events("POLL", v))
        )),
    }
}

/// The address of a socket. `None`: nothing of it is known.
pub fn address_of(b: &Bytes) -> Option<String> {
    let family = b.at(0, 2)?;
    let name = one(family, names(Set::Family));
    let port = |b: &Bytes| {
        known(b.at(2, 2), |p| {
            format!("htons({})", (p as u16).swap_bytes())
        })
    };
    let raw =
        |at: usize, n: usize| -> Option<Vec<u8>> { b.0.get(at..at + n)?.iter().copied().collect() };
    let rest = match family as i32 {
        abi::AF_UNIX if b.0.len() <= 2 => String::new(),
        abi::AF_UNIX => match b.at(2, 1) {
            Some(0) => format!(", sun_path=@{}", quoted(&b.0[3.min(b.0.len())..], false)),
            _ => format!(", sun_path={}", b.text(2, b.0.len() - 2)),
        },
        abi::AF_INET => {
            let ip = raw(4, 4).and_then(|r| <[u8; 4]>::try_from(r).ok());
            let ip = ip.map_or("?".into(), |ip| {
                format!("inet_addr(\"{}\")", Ipv4Addr::from(ip))
            });
            format!(", sin_port={}, sin_addr={ip}", port(b))
        }
        abi::AF_INET6 => {
            let ip = raw(8, 16).and_then(|r| <[u8; 16]>::try_from(r).ok());
            let ip = ip.map_or("?".into(), |ip| {
                format!(
                    "inet_pton(AF_INET6, \"{}\", &sin6_addr)",
                    Ipv6Addr::from(ip)
                )
            });
            let flow = known(b.at(4, 4), |v| {
                format!("htonl({})", (v as u32).swap_bytes())
            });
            format!(
                ", sin6_port={}, sin6_flowinfo={flow}, {ip}, sin6_scope_id={}",
                port(b),
                b.unsigned(24, 4)
            )
        }
        abi::AF_NETLINK => format!(
            ", nl_pid={}, nl_groups={}",
            b.signed(4, 4),
            known(b.at(8, 4), |v| format!("{v:08x}"))
        ),
        _ => format!(", sa_data={}", quoted(&b.0[2..], false)),
    };
    Some(format!("{{sa_family={name}{rest}}}"))
}
