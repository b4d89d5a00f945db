//! What is refused, rule by rule.

mod fields;

use hindsight_confine::{Checker, Code, Kind, Marks, Rules, Wrong};
use hindsight_isa::ctx::{APART, d};
use hindsight_isa::{Desc, DescKind};

const HOT: u32 = 0x1000;
const COLD: u32 = 0x9000;

fn rules(kind: Kind) -> Rules {
    Rules {
        kind,
        bits: 32,
        marks: Marks::None,
        watch: None,
    }
}

fn checked(rules: &Rules, hot: &[u8], cold: &[u8]) -> Result<(), Wrong> {
    let code = Code {
        hot,
        cold,
        hot_at: HOT,
        cold_at: COLD,
    };
    Checker::new().check(rules, &code).map_err(|r| r.what)
}

/// An exit with its descriptor. It is meant for offset `at` of the cold half.
fn exit(at: usize, desc: Desc) -> Vec<u8> {
    let mut out = vec![0x65, 0xc7, 0x04, 0x25];
    out.extend(d::DESC.to_le_bytes());
    out.extend((COLD + at as u32 + 20).to_le_bytes());
    out.extend([0x65, 0xff, 0x24, 0x25]);
    out.extend(d::EXIT_PTR.to_le_bytes());
    let n = if desc.is_long() {
        Desc::LONG
    } else {
        Desc::SHORT
    };
    out.extend(&desc.encode()[..n]);
    out
}

/// `code`, then a jump to an exit.
fn run(rules: &Rules, code: &[u8]) -> Result<(), Wrong> {
    let mut hot = code.to_vec();
    hot.push(0xe9);
    let patch = HOT + hot.len() as u32;
    hot.extend((COLD.wrapping_sub(patch + 4)).to_le_bytes());
    let mut desc = Desc::new(DescKind::Exit, 0x1234, 0);
    desc.patch = patch;
    checked(rules, &hot, &exit(0, desc))
}

/// An instruction with a displacement of four bytes.
pub fn with(code: &[u8], disp: i32) -> Vec<u8> {
    [code, &disp.to_le_bytes()].concat()
}

pub fn all(kinds: &[Kind], code: &[u8], wanted: Result<(), Wrong>) {
    for kind in kinds {
        assert_eq!(run(&rules(*kind), code), wanted, "{kind:?} {code:02x?}");
    }
}

pub const EACH: [Kind; 3] = [Kind::Replay, Kind::Record, Kind::Plain];
pub const REAL: [Kind; 2] = [Kind::Record, Kind::Plain];

#[test]
fn instructions_that_are_not_on_the_list() {
    let codes: &[&[u8]] = &[
        &[0x0f, 0x05],                   // syscall
        &[0x0f, 0x34],                   // sysenter
        &[0xcd, 0x80],                   // int 80h
        &[0xcc],                         // int3
        &[0xf4],                         // hlt
        &[0xe4, 0x10],                   // in
        &[0x0f, 0xa2],                   // cpuid
        &[0x0f, 0x31],                   // rdtsc
        &[0x0f, 0x01, 0xd0],             // xgetbv
        &[0x0f, 0x01, 0xef],             // wrpkru
        &[0x0f, 0x01, 0xf8],             // swapgs
        &[0x0f, 0x01, 0xd4],             // vmfunc
        &[0x0f, 0x37],                   // getsec
        &[0x0f, 0xa7, 0xc0],             // xstore
        &[0xf3, 0x0f, 0xa7, 0xc8],       // xcryptecb
        &[0xf3, 0x48, 0x0f, 0xae, 0xd8], // wrgsbase rax
        &[0xf3, 0x48, 0x0f, 0xae, 0xd0], // wrfsbase rax
        &[0x8e, 0xe8],                   // mov gs, eax
        &[0x0f, 0xb5, 0x00],             // lgs
        &[0xc3],                         // ret
        &[0xe8, 0, 0, 0, 0],             // call
        &[0xff, 0xd0],                   // call rax
        &[0xff, 0xe0],                   // jmp rax
        &[0x41, 0xff, 0xe2],             // jmp r10
        &[0xff, 0x28],                   // jmp far [rax]
        &[0xcb],                         // retf
        &[0x48, 0xcf],                   // iretq
        &[0xd7],                         // xlat
        &[0xa6],                         // cmpsb
        &[0x0f, 0xae, 0x20],             // xsave [rax]
        &[0x66, 0x0f, 0x38, 0xf8, 0x00], // movdir64b rax, [rax]
        &[0x0f, 0xc7, 0xf0],             // rdrand eax
        &[0xc4, 0xe2, 0x7b, 0x49, 0xc0], // tilezero
        &[0x0f, 0x0b],                   // ud2
        &[0x66, 0x66, 0x90],             // a prefix twice
        &[0x48, 0x48, 0x90],             // a prefix that is not the last one
        &[0x2e, 0x8b, 0x00],             // one that nobody needs
    ];
    for code in codes {
        all(&EACH, code, Err(Wrong::Instruction));
    }
    all(&EACH, &[0x48, 0x01, 0xc8, 0x0f, 0x28, 0xc1, 0x90], Ok(()));
}

/// Encodings that processors execute as other, documented ones. Those around them are none.
#[test]
fn aliases_of_the_x87() {
    let ranges = [
        (0xdc, 0xd0..=0xdf), // fcom, fcomp
        (0xdd, 0xc8..=0xcf), // fxch
        (0xde, 0xd0..=0xd7), // fcomp
        (0xdf, 0xc8..=0xdf), // fxch, fstp
    ];
    for (opcode, modrms) in ranges {
        for modrm in modrms {
            all(&EACH, &[opcode, modrm], Ok(()));
        }
    }
    for code in [
        [0xd9, 0xd8],
        [0xd9, 0xdf],
        [0xdd, 0xf0],
        [0xde, 0xd8],
        [0xde, 0xda],
        [0xdf, 0xe1],
        [0xdf, 0xf8],
    ] {
        all(&EACH, &code, Err(Wrong::Instruction));
    }
}

#[test]
fn operands_in_replay() {
    let good: &[&[u8]] = &[
        &[0x65, 0x67, 0x8b, 0x03],                         // mov eax, gs:[ebx]
        &[0x65, 0x67, 0x48, 0x89, 0x44, 0x8b, 0x10],       // mov gs:[ebx + ecx * 4 + 16], rax
        &[0x65, 0x67, 0x8b, 0x04, 0x25, 0, 0, 0, 0x80],    // mov eax, gs:[80000000h] (32 bits)
        &[0x65, 0x67, 0xc4, 0xe2, 0x75, 0x90, 0x04, 0x93], // vpgatherdd ymm0, gs:[ebx + ymm2 * 4], ymm1
        &[0x48, 0x8d, 0x04, 0x0b],                         // lea rax, [rbx + rcx]
        &[0x0f, 0x1f, 0x00],                               // nop [rax]
    ];
    for code in good {
        all(&[Kind::Replay], code, Ok(()));
    }
    let bad: &[&[u8]] = &[
        &[0x8b, 0x03],                         // no segment
        &[0x67, 0x8b, 0x03],                   // the same, short
        &[0x65, 0x8b, 0x03],                   // 64 bits
        &[0x64, 0x67, 0x8b, 0x03],             // another segment
        &[0x65, 0x67, 0x8b, 0x05, 0, 0, 0, 0], // relative to the instruction pointer
        &[0x8b, 0x05, 0, 0, 0, 0],
        &[0x48, 0x8d, 0x05, 0, 0, 0, 0], // lea of such
        &[0xf0, 0x65, 0x67, 0xff, 0x03], // locked
        &[0x65, 0x67, 0x0f, 0xab, 0x03], // bts gs:[ebx], eax
        &[0x65, 0x67, 0xff, 0x33],       // push gs:[ebx]
        &[0x50],                         // push rax
        &[0x58],                         // pop rax
        &[0x9c],                         // pushf
        &[0x9d],                         // popf
        &[0xc9],                         // leave
        &[0xc8, 0, 0, 0],                // enter
        &[0xaa],                         // stosb
        &[0xf3, 0x48, 0xa5],             // rep movsq
        &[0x65, 0x67, 0xff, 0x23],       // jmp gs:[ebx]
        &[0x65, 0x67, 0x0f, 0xae, 0x2b], // xrstor gs:[ebx]
        &[0x66, 0x0f, 0xf7, 0xc1],       // maskmovdqu
        &[0x65, 0x66, 0x0f, 0xf7, 0xc1], // the same at rdi, whatever that is
        &[0x67, 0x65, 0x66, 0x0f, 0xf7, 0xc1],
        &[0xc4, 0xe2, 0x75, 0x90, 0x04, 0x93], // a gather elsewhere
        &[0x65, 0xc4, 0xe2, 0x75, 0x90, 0x04, 0x93], // with 64 bits
        &[0x64, 0x48, 0x01, 0xc8],             // a segment where there is no operand
        &[0x65, 0x90],
    ];
    for code in bad {
        all(&[Kind::Replay], code, Err(Wrong::Operand));
    }
    // Two segment prefixes are not even decoded.
    all(
        &EACH,
        &[0x64, 0x65, 0x66, 0x0f, 0xf7, 0xc1],
        Err(Wrong::Instruction),
    );
    all(
        &EACH,
        &[0x65, 0x64, 0x66, 0x0f, 0xf7, 0xc1],
        Err(Wrong::Instruction),
    );
}

#[test]
fn what_rests_on_instructions_before_it() {
    let replay = rules(Kind::Replay);
    // movzx eax, al; mov edx, 0; lea rbx, [esi]; xrstor gs:[rbx]
    let clamp: &[u8] = &[0x0f, 0xb6, 0xc0, 0xba, 0, 0, 0, 0];
    let lea: &[u8] = &[0x67, 0x48, 0x8d, 0x1e];
    let restore: &[u8] = &[0x65, 0x0f, 0xae, 0x2b];
    assert_eq!(run(&replay, &[clamp, lea, restore].concat()), Ok(()));
    assert_eq!(run(&replay, &[lea, restore].concat()), Err(Wrong::Operand));
    assert_eq!(
        run(&replay, &[clamp, restore].concat()),
        Err(Wrong::Operand)
    );
    let long: &[u8] = &[0x48, 0x8d, 0x1e];
    assert_eq!(
        run(&replay, &[clamp, long, restore].concat()),
        Err(Wrong::Operand)
    );
    for between in [
        &[0x48, 0xff, 0xc0][..],               // inc rax
        &[0x4c, 0x89, 0xc3],                   // mov rbx, r8
        &[0xb4, 0x01],                         // mov ah, 1
        &[0xf7, 0xe1],                         // mul ecx
        &[0x65, 0x67, 0x0f, 0xb1, 0x0e],       // cmpxchg gs:[esi], ecx
        &[0x65, 0x67, 0x48, 0x0f, 0xc7, 0x0e], // cmpxchg16b gs:[esi]
        &[0xba, 1, 0, 0, 0],                   // mov edx, 1
    ] {
        let code = [clamp, lea, between, restore].concat();
        assert_eq!(run(&replay, &code), Err(Wrong::Operand), "{between:02x?}");
    }
    // A jump into the sequence skips what the end relies on. Jumps before it or after it are fine.
    for (distance, wanted) in [
        (0, Ok(())),
        (3, Err(Wrong::Jump)),
        (8, Err(Wrong::Jump)),
        (12, Err(Wrong::Jump)),
        (16, Ok(())),
    ] {
        let code = [&[0x74, distance], clamp, lea, restore].concat();
        assert_eq!(run(&replay, &code), wanted, "{distance}");
    }
    // lea rdi, [edi - 21]; maskmovdqu gs:[rdi]
    let code = [0x67, 0x48, 0x8d, 0x7f, 0xeb, 0x65, 0x66, 0x0f, 0xf7, 0xc1];
    assert_eq!(run(&replay, &code), Ok(()));
    // movzx r10d, ax; mov gs:[r10 - 21], rbx: in a window of 2^16 cells
    let small = Rules { bits: 16, ..replay };
    let cell: &[u8] = &[0x44, 0x0f, 0xb7, 0xd0];
    let access = |disp: u8| [cell, &[0x65, 0x49, 0x89, 0x5a, disp]].concat();
    assert_eq!(run(&small, &access(0xeb)), Ok(()));
    assert_eq!(run(&small, &access(0xea)), Err(Wrong::Operand));
    assert_eq!(run(&replay, &access(0xeb)), Err(Wrong::Operand));
    assert_eq!(
        run(&Rules { bits: 12, ..replay }, &access(0xeb)),
        Err(Wrong::Operand)
    );
    assert_eq!(run(&small, &[0x65, 0x67, 0x8b, 0x03]), Err(Wrong::Operand));
    // Flags through the runtime's stack: the whole sequence or nothing.
    let host = with(&[0x65, 0x48, 0x8b, 0x24, 0x25], d::HOST_RSP);
    let own = with(&[0x65, 0x48, 0x8b, 0x24, 0x25], d::SPILL + 72);
    let whole = [&host[..], &[0x9c, 0x41, 0x5a], &own].concat();
    assert_eq!(run(&replay, &whole), Ok(()));
    assert_eq!(run(&replay, &host), Err(Wrong::Operand));
    let more = [&host[..], &[0x9c, 0x9c, 0x41, 0x5a], &own].concat();
    assert_eq!(run(&replay, &more), Err(Wrong::Operand));
    let into = [&[0x74, 9], &whole[..]].concat();
    assert_eq!(run(&replay, &into), Err(Wrong::Jump));
}

#[test]
fn marks() {
    let code = |c: &[u8]| {
        [Marks::None, Marks::Beside, Marks::Near].map(|marks| {
            let rules = Rules {
                marks,
                ..rules(Kind::Replay)
            };
            run(&rules, c).is_ok()
        })
    };
    // mov dword fs:[ebx - 44], -1
    assert_eq!(
        code(&[0x64, 0x67, 0xc7, 0x43, 0xd4, 0xff, 0xff, 0xff, 0xff]),
        [false, true, true]
    );
    // Another value, another size of the address, a read.
    assert_eq!(
        code(&[0x64, 0x67, 0xc7, 0x43, 0xd4, 0xff, 0xff, 0xff, 0x7f]),
        [false; 3]
    );
    assert_eq!(
        code(&[0x64, 0xc7, 0x43, 0xd4, 0xff, 0xff, 0xff, 0xff]),
        [false; 3]
    );
    assert_eq!(code(&[0x64, 0x67, 0x8b, 0x43, 0xd4]), [false; 3]);
    // lea r10d, [rbx]; mov byte [r10 + NEAR], -1
    let near = |disp: i32| {
        let store = with(&[0x41, 0xc6, 0x82], disp);
        [&[0x44, 0x8d, 0x13][..], &store, &[0xff]].concat()
    };
    let at = hindsight_isa::observe::NEAR;
    assert_eq!(code(&near(at)), [false, false, true]);
    assert_eq!(code(&near(at + 511)), [false, false, true]);
    assert_eq!(code(&near(at + 512)), [false; 3]);
    assert_eq!(code(&near(at - 1)), [false; 3]);
    // lea r10, [rbx]
    let mut wide = near(at);
    wide[0] = 0x4c;
    assert_eq!(code(&wide), [false; 3]);
}

#[test]
fn logs() {
    let code = |c: &[u8]| {
        [Marks::None, Marks::Beside, Marks::Near, Marks::Runs].map(|marks| {
            let rules = Rules {
                marks,
                ..rules(Kind::Replay)
            };
            run(&rules, c).is_ok()
        })
    };
    let only_logs = [false, false, false, true];
    // mov dword fs:[r11d*8 + disp], constant
    let log = with(&[0x64, 0x67, 0x42, 0xc7, 0x04, 0xdd], -24);
    // Bytes of a constant that are instructions by themselves, should the store end before them.
    let good = [&log[..], &[0x90; 4]].concat();
    assert_eq!(code(&good), only_logs);
    let refused = |bad: &[u8]| {
        let rules = Rules {
            marks: Marks::Runs,
            ..rules(Kind::Replay)
        };
        assert_eq!(run(&rules, bad), Err(Wrong::Operand), "{bad:02x?}");
    };
    // An address of 64 bits.
    refused(&[&good[..1], &good[2..]].concat());
    // Eight bytes, one byte, a register, a read, two bytes.
    for (at, byte) in [(2, 0x4a), (3, 0xc6), (3, 0x89), (3, 0x8b)] {
        let mut bad = good.clone();
        bad[at] = byte;
        refused(&bad);
    }
    refused(&[&[0x66], &good[..]].concat());
    // mov dword gs:[r11d*8 + disp], constant: that is the window, which all may write to.
    let mut window = good.clone();
    window[0] = 0x65;
    assert_eq!(code(&window), [true; 4]);
}

/// Marks of writes that are further away than a displacement reaches: an address, steps, and marks. Whatever is not
/// exactly so is refused, and so are jumps to anything but the beginning.
#[test]
fn marks_of_writes_beside_the_window() {
    let step: &[u8] = &[0x4d, 0x8d, 0x92, 0, 0, 0, 0x80];
    let mut least = hindsight_isa::observe::WRITES - APART as i64;
    let mut steps = Vec::new();
    while least < i32::MIN as i64 {
        least -= i32::MIN as i64;
        steps.extend(step);
    }
    let least = least as i32;
    let rules = Rules {
        marks: Marks::Beside,
        ..rules(Kind::Replay)
    };
    let mark = |code: &[u8], at: i32, ones: usize| {
        let store = with(&[&[0x65], code].concat(), least + at);
        [&store[..], &vec![0xff; ones]].concat()
    };
    let eight = |at| mark(&[0x49, 0xc7, 0x82], at, 4);
    let address: &[u8] = &[0x44, 0x8d, 0x13];
    let all = |parts: &[&[u8]]| run(&rules, &parts.concat());
    // lea r10d, with all kinds of addresses
    for address in [
        address,
        &[0x44, 0x8d, 0x54, 0x24, 8],
        &[0x44, 0x8d, 0x94, 0x24, 8, 7, 6, 5],
        &[0x46, 0x8d, 0x14, 0x0b],
        &[0x47, 0x8d, 0x54, 0x5d, 1],
        &[0x44, 0x8d, 0x14, 0x25, 8, 7, 6, 5],
        &[0x67, 0x44, 0x8d, 0x94, 0x24, 8, 7, 6, 5],
    ] {
        assert_eq!(all(&[address, &steps, &eight(0)]), Ok(()), "{address:02x?}");
    }
    for (code, ones, most) in [
        (&[0x49, 0xc7, 0x82][..], 4, 504),
        (&[0x41, 0xc7, 0x82], 4, 508),
        (&[0x41, 0xc6, 0x82], 1, 511),
        (&[0x66, 0x41, 0xc7, 0x82], 2, 510),
    ] {
        for (at, wanted) in [
            (0, Ok(())),
            (most, Ok(())),
            (-1, Err(Wrong::Operand)),
            (most + 1, Err(Wrong::Operand)),
        ] {
            let mark = mark(code, at, ones);
            assert_eq!(all(&[address, &steps, &mark]), wanted, "{mark:02x?}");
        }
        let mut other = mark(code, 0, ones);
        *other.last_mut().unwrap() = 0xfe;
        assert_eq!(all(&[address, &steps, &other]), Err(Wrong::Operand));
    }
    // One mark after another, each in bounds.
    let several = |at| all(&[address, &steps, &eight(0), &eight(8), &eight(at)]);
    assert_eq!(several(16), Ok(()));
    assert_eq!(several(505), Err(Wrong::Operand));
    // Another address, or other steps.
    for before in [
        &[][..],
        &steps,
        &[&[0x4c, 0x8d, 0x13], &steps[..]].concat(),
        &[&[0x44, 0x8d, 0x1b], &steps[..]].concat(),
        &[address, &steps, step].concat(),
        &[address, &steps, &[0x49, 0xff, 0xc2]].concat(),
        &[address, &[0x49, 0xff, 0xc2], &steps].concat(),
        &[address, &steps[step.len()..]].concat(),
        &[
            address,
            &[0x49, 0x8d, 0x92, 0, 0, 0, 0x80],
            &steps[step.len()..],
        ]
        .concat(),
    ] {
        assert_eq!(
            all(&[before, &eight(0)]),
            Err(Wrong::Operand),
            "{before:02x?}"
        );
    }
    // What holds for the address holds on only one of two ways.
    let parts = [address, &steps, &eight(0), &eight(8), &[0x90]];
    let whole = parts.concat();
    for at in 0..whole.len() {
        let code = [&[0x74, at as u8], &whole[..]].concat();
        let wanted = match at {
            0 => Ok(()),
            at if at == whole.len() - 1 => Ok(()),
            _ => Err(Wrong::Jump),
        };
        assert_eq!(run(&rules, &code), wanted, "{at}");
    }
    // Without these marks nothing may be stored there.
    for marks in [Marks::None, Marks::Near] {
        let code = [address, &steps, &eight(0)].concat();
        assert_eq!(run(&Rules { marks, ..rules }, &code), Err(Wrong::Operand));
    }
}

#[test]
fn jumps_and_descriptors() {
    let replay = rules(Kind::Replay);
    // mov eax, 0c3050f90h; a jump into it, one after it, one out of the block
    let into = [0xeb, 1, 0xb8, 0x90, 0x0f, 0x05, 0xc3];
    assert_eq!(run(&replay, &into), Err(Wrong::Jump));
    assert_eq!(
        run(&replay, &[0xeb, 5, 0xb8, 0x90, 0x0f, 0x05, 0xc3]),
        Ok(())
    );
    assert_eq!(run(&replay, &[0xe9, 0, 0, 0, 0x10]), Err(Wrong::Jump));
    assert_eq!(run(&replay, &[0x74, 0x80]), Err(Wrong::Jump));
    // The same with jrcxz, and one that is cut.
    for (distance, result) in [(1, Err(Wrong::Jump)), (5, Ok(())), (0x80, Err(Wrong::Jump))] {
        let code = [0xe3, distance, 0xb8, 0x90, 0x0f, 0x05, 0xc3];
        assert_eq!(run(&replay, &code), result, "{distance:#x}");
    }
    assert_eq!(checked(&replay, &[0xe3], &[]), Err(Wrong::Jump));
    assert_eq!(
        run(&replay, &[0x66, 0xe9, 0, 0, 0, 0]),
        Err(Wrong::Instruction)
    );
    // Nothing follows the last instruction.
    assert_eq!(checked(&replay, &[0x90], &[]), Err(Wrong::End));
    assert_eq!(
        checked(&replay, &[0xb8, 0, 0], &[]),
        Err(Wrong::Instruction)
    );
    let stub = |desc: Desc| {
        let hot = [0x90, 0xe9, 0, 0, 0, 0];
        let mut hot = hot.to_vec();
        hot[2..].copy_from_slice(&(COLD - HOT - 6).to_le_bytes());
        checked(&replay, &hot, &exit(0, desc))
    };
    let desc = |kind, resume, patch| {
        let mut desc = Desc::new(kind, 0, 0);
        (desc.resume, desc.patch) = (resume, patch);
        stub(desc)
    };
    assert_eq!(desc(DescKind::Exit, 0, HOT + 2), Ok(()));
    assert_eq!(desc(DescKind::Exit, 0, 0), Ok(()));
    for patch in [HOT, HOT + 1, HOT + 3, COLD, 7] {
        assert_eq!(
            desc(DescKind::Exit, 0, patch),
            Err(Wrong::Descriptor),
            "{patch:#x}"
        );
    }
    assert_eq!(desc(DescKind::Slow, HOT + 1, 0), Ok(()));
    assert_eq!(desc(DescKind::Slow, HOT + 2, 0), Err(Wrong::Jump));
    assert_eq!(desc(DescKind::Slow, 7, 0), Err(Wrong::Descriptor));
    assert_eq!(desc(DescKind::Slow, 0, 0), Err(Wrong::Descriptor));
    assert_eq!(desc(DescKind::Budget, HOT, 0), Err(Wrong::Descriptor));
    // These kinds belong to a recording.
    for kind in [
        DescKind::Mispredicted,
        DescKind::MispredictedValue,
        DescKind::Sequence,
    ] {
        assert_eq!(desc(kind, HOT, 0), Err(Wrong::Descriptor));
    }
    // A descriptor that is not where the exit says, or that could be executed.
    let mut cold = exit(0, Desc::new(DescKind::Exit, 0, 0));
    cold[8] += 4;
    let hot = [0xe9, 0xfb, 0x7f, 0, 0];
    assert_eq!(checked(&replay, &hot, &cold), Err(Wrong::Descriptor));
    let cold = exit(0, Desc::new(DescKind::Exit, 0, 0));
    assert_eq!(checked(&replay, &hot, &cold), Ok(()));
    let mut late = hot;
    late[1..].copy_from_slice(&(COLD + 20 - HOT - 5).to_le_bytes());
    assert_eq!(checked(&replay, &late, &cold), Err(Wrong::Jump));
}
