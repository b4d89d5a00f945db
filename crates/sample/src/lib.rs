//! A small program, and the events of its recording. Each test uses a part of them.

use hindsight_events::{Encoder, EndKind, Event, MAX_EVENT};
use hindsight_isa::regs;
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_replay::{Choice, Code, Machine};
use std::sync::Arc;

pub const PC: u64 = 0x40_0ff0;
pub const FS: u64 = 0x7f00_1234_5000;
pub const RSP: u64 = 0x7fff_0000_8000;

/// Sums ten words, calls a function, reads the clock, copies a string, writes, and exits.
#[rustfmt::skip]
pub const CODE: &[u8] = &[
    0x31, 0xc0,                                           //  0    xor eax, eax
    0x48, 0x03, 0x44, 0xce, 0xf8,                         //  1 1: add rax, [rsi+rcx*8-8]
    0x48, 0xff, 0xc9,                                     //       dec rcx
    0x75, 0xf6,                                           //       jnz 1b
    0x50,                                                 // 31    push rax
    0xe8, 0x49, 0x00, 0x00, 0x00,                         // 32    call 2f
    0x5b,                                                 // 35    pop rbx
    0x0f, 0x31,                                           // 36    rdtsc
    0x49, 0xc7, 0xc3, 0x05, 0x00, 0x00, 0x00,             // 37    mov r11, 5
    0x4d, 0x01, 0xdb,                                     // 38    add r11, r11
    0x64, 0x4c, 0x8b, 0x14, 0x25, 0x28, 0x00, 0x00, 0x00, // 39    mov r10, fs:0x28
    0x66, 0x48, 0x0f, 0x6e, 0xdb,                         // 40    movq xmm3, rbx
    0xba, 0x07, 0x00, 0x00, 0x00,                         // 41    mov edx, 7
    0xbe, 0xc0, 0x2f, 0x00, 0x00,                         // 42    mov esi, 0x2fc0
    0xbf, 0x00, 0x50, 0x00, 0x00,                         // 43    mov edi, 0x5000
    0xb9, 0x64, 0x00, 0x00, 0x00,                         // 44    mov ecx, 100
    0xf3, 0xa4,                                           // 45    rep movsb
    0xb8, 0x01, 0x00, 0x00, 0x00,                         // 46    mov eax, 1
    0xbf, 0x03, 0x00, 0x00, 0x00,                         // 47    mov edi, 3
    0x0f, 0x05,                                           // 48    syscall
    0x48, 0x8b, 0x6c, 0x24, 0xf8,                         // 49    mov rbp, [rsp-8]
    0xb8, 0x3c, 0x00, 0x00, 0x00,                         // 50    mov eax, 60
    0x0f, 0x05,                                           // 51    syscall
    0x49, 0x89, 0xe4,                                     // 33 2: mov r12, rsp
    0xc3,                                                 // 34    ret
];

/// Address of instruction 36.
pub const RDTSC: u64 = PC + 0x13;

pub fn start() -> CpuState {
    let mut s = CpuState {
        rip: PC,
        fs_base: FS,
        ..CpuState::default()
    };
    s.gpr[regs::RCX] = 10;
    s.gpr[regs::RSP] = RSP;
    s.gpr[regs::RSI] = 0x1000;
    s.gpr[regs::R8] = 8;
    s.gpr[regs::R9] = 9;
    s
}

/// The state after instruction 48.
pub fn after_write() -> CpuState {
    let mut s = start();
    s.rip = PC + 0x4f;
    s.rflags = 0x4;
    s.gpr[regs::RAX] = 7;
    s.gpr[regs::RCX] = s.rip;
    s.gpr[regs::RDX] = 7;
    s.gpr[regs::RBX] = 55;
    s.gpr[regs::RSI] = 0x2fc0 + 100;
    s.gpr[regs::RDI] = 3;
    s.gpr[regs::R10] = 0x1122_3344_5566_7788;
    s.gpr[regs::R11] = s.rflags | 0x202;
    s.gpr[regs::R12] = RSP - 16;
    s
}

/// An event that owns its bytes, with its position.
pub type Owned = (u64, Box<dyn Fn(&mut dyn FnMut(&Event))>);

pub fn event(pos: u64, e: Event<'static>) -> Owned {
    (pos, Box::new(move |f| f(&e)))
}

pub fn key_frame(pos: u64, cpu: CpuState, vec: VecState) -> Owned {
    let (cpu, vec) = (cpu.to_bytes(), vec.to_bytes());
    (
        pos,
        Box::new(move |f| {
            f(&Event::KeyFrame {
                code_epoch: 0,
                cpu: &cpu,
                vec: &vec,
            })
        }),
    )
}

pub fn patch(pos: u64, line: u64, words: [u64; 8]) -> Owned {
    let mask = words
        .iter()
        .enumerate()
        .fold(0, |m, (i, w)| m | ((*w != 0) as u8) << i);
    event(pos, Event::Patch { line, mask, words })
}

pub fn regs(pos: u64, ilen: u8, list: &[(usize, u64)]) -> Owned {
    let mut values = [0; 19];
    let mut mask = 0;
    for (i, v) in list {
        values[*i] = *v;
        mask |= 1 << i;
    }
    event(pos, Event::Regs { mask, ilen, values })
}

/// The recording of [`CODE`].
pub fn recording() -> Vec<Owned> {
    let mut vec = VecState::default();
    vec.zmm[3][0] = 55;
    let write = [3, 0x2fc0 + 100, 7, 0x1122_3344_5566_7788, 8, 9];
    let exit = [3, 0x2fc0 + 100, 7, 0x1122_3344_5566_7788, 8, 9];
    vec![
        key_frame(0, start(), VecState::default()),
        patch(1, 0x1040, [9, 10, 0, 0, 0, 0, 0, 0]),
        patch(7, 0x1000, [1, 2, 3, 4, 5, 6, 7, 8]),
        regs(36, 2, &[(0, 0xdddd_0001), (2, 0x77)]),
        event(
            39,
            Event::PatchBytes {
                addr: FS + 0x28,
                len: 8,
                value: 0x1122_3344_5566_7788,
            },
        ),
        patch(45, 0x2fc0, [0x41; 8]),
        event(45, Event::RepChunk { iterations: 64 }),
        patch(45, 0x3000, [0x42; 8]),
        event(48, Event::Syscall { nr: 1, args: write }),
        event(48, Event::SyscallRet { ret: 7 }),
        event(
            49,
            Event::Digest {
                cpu: after_write().digest(),
                vec: vec.digest(),
            },
        ),
        event(51, Event::Syscall { nr: 60, args: exit }),
        event(
            51,
            Event::End {
                kind: EndKind::Exit,
                code: 3,
                message: b"",
            },
        ),
    ]
}

/// Encodes events as a chunk in wire form.
pub fn encode(events: &[Owned]) -> Vec<u8> {
    let mut e = Encoder::default();
    let mut buf = vec![0; MAX_EVENT];
    let mut out = Vec::new();
    for (pos, with) in events {
        with(&mut |ev| {
            let n = e.encode(*pos, ev, &mut buf);
            out.extend_from_slice(&buf[..n]);
        });
    }
    out
}

/// A machine that executes `code`, which is at [`PC`].
pub fn machine(code: &[u8]) -> Machine<'static> {
    let code = Code::new(&mut [(0, PC, code)]).unwrap();
    Machine::new(Arc::new(code), Predictor::WINDOW).unwrap()
}

/// The same machine, but it sets access marks.
pub fn observing(code: &[u8]) -> Machine<'static> {
    let code = Code::new(&mut [(0, PC, code)]).unwrap();
    Machine::observing(Choice::Native, Arc::new(code)).unwrap()
}
