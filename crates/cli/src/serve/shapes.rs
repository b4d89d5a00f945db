//! JSON that only this session has. What commands also show is made by them.

use crate::hex::hex;
use hindsight_isa::regs::NAMES;
use hindsight_timeline::{
    Ending, Module, Process, Reason, Register, Stop, Thread, VecState, signal_name, syscall_name,
};
use serde_json::{Value as Json, json};

pub fn process(p: &Process) -> Json {
    json!({
        "image": p.image, "parent": p.parent, "by_exec": p.by_exec, "is_whole": p.is_whole, "pid": p.pid,
        "command": p.command, "threads": p.threads.iter().map(|t| t.0).collect::<Vec<_>>(),
        "begin": p.begin.to_string(), "end": p.end.to_string(),
    })
}

pub fn thread(t: &Thread, name: &str) -> Json {
    json!({
        "thread": t.id.0, "tid": t.tid, "pid": t.pid, "image": t.image, "name": name,
        "begin": t.first.to_string(), "end": t.last.to_string(), "begin_count": t.from, "end_count": t.to,
        "ending": t.ending.to_string(),
        "status": match t.ending {
            Ending::Exit(n) => Some(n),
            _ => None,
        },
        "signal": match t.ending {
            Ending::Signal(n) => Some(n),
            _ => None,
        },
    })
}

pub fn module(image: u32, m: &Module) -> Json {
    json!({
        "image": image, "path": m.path, "start": hex(m.start), "end": hex(m.end),
        "load": m.load.map(|p| p.to_string()), "unload": m.unload.map(|p| p.to_string()),
        "hash": m.hash.map(|h| h.to_string()),
    })
}

/// Adds vector, mask and x87 registers. Their bytes are in hexadecimal, the lowest first.
pub fn vectors(to: &mut Json, v: &VecState) {
    let bytes = |b: &[u8]| -> String { b.iter().map(|b| format!("{b:02x}")).collect() };
    for (i, z) in v.zmm.iter().enumerate() {
        to[format!("zmm{i}")] = bytes(z).into();
    }
    for (i, k) in v.k.iter().enumerate() {
        to[format!("k{i}")] = hex(*k);
    }
    for (i, st) in v.st.iter().enumerate() {
        to[format!("st{i}")] = bytes(&st[..10]).into();
    }
    to["mxcsr"] = hex(v.mxcsr.into());
    to["fcw"] = hex(v.fcw.into());
    to["fsw"] = hex(v.fsw.into());
    to["ftw"] = hex(v.ftw.into());
}

/// Why a run or a step stopped.
pub fn reason(stop: &Stop) -> Json {
    match &stop.reason {
        Reason::Step => json!({"reason": "step"}),
        Reason::Breakpoint { id, address } => {
            json!({"reason": "breakpoint", "number": id, "address": hex(*address)})
        }
        Reason::Watchpoint {
            id,
            count,
            address,
            len,
            read,
            write,
            kernel,
        } => json!({
            "reason": "watchpoint", "number": id, "access_count": count, "address": hex(*address),
            "length": len, "read": read, "write": write, "kernel": kernel,
        }),
        Reason::Register(r) => json!({"reason": "register", "register": register(*r)}),
        Reason::Signal {
            number,
            code,
            address,
        } => json!({
            "reason": "signal", "signal": number, "name": signal_name(u64::from(*number)), "code": code,
            "address": hex(*address),
        }),
        Reason::Syscall { number } => {
            json!({"reason": "syscall", "syscall": number, "name": syscall_name(*number)})
        }
        Reason::SyscallReturn { number, result } => json!({
            "reason": "syscall-return", "syscall": number, "name": syscall_name(*number),
            "result": result.map(|r| r as i64),
        }),
        Reason::ThreadBegin => json!({"reason": "thread-begin"}),
        Reason::ThreadEnd(how) => json!({"reason": "thread-end", "how": how.to_string()}),
        Reason::ModuleLoad { path } => json!({"reason": "module-load", "path": path}),
        Reason::ModuleUnload { path } => json!({"reason": "module-unload", "path": path}),
        Reason::Call { function } => json!({"reason": "call", "function": hex(*function)}),
        Reason::Return { function, value } => {
            json!({"reason": "return", "function": hex(*function), "rax": hex(*value)})
        }
        Reason::Begin => json!({"reason": "begin"}),
        Reason::End => json!({"reason": "end"}),
        _ => json!({"reason": "other"}),
    }
}

fn register(r: Register) -> String {
    match r {
        Register::General(n) => NAMES[n as usize & 15].into(),
        Register::Flags => "rflags".into(),
        Register::FsBase => "fs_base".into(),
        Register::GsBase => "gs_base".into(),
        Register::Vector(n) => format!("zmm{n}"),
        Register::Mask(n) => format!("k{n}"),
    }
}

/// The register of a name.
pub fn register_named(name: &str) -> Option<Register> {
    let number = |prefix: &str, most: u8| {
        let n: u8 = name.strip_prefix(prefix)?.parse().ok()?;
        (n < most).then_some(n)
    };
    let general = || {
        let n = NAMES.iter().position(|n| *n == name)?;
        Some(Register::General(n as u8))
    };
    match name {
        "rflags" => Some(Register::Flags),
        "fs_base" => Some(Register::FsBase),
        "gs_base" => Some(Register::GsBase),
        _ => general()
            .or_else(|| number("zmm", 32).map(Register::Vector))
            .or_else(|| number("k", 8).map(Register::Mask)),
    }
}
