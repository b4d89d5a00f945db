//! Values of the registers that operands name.

use hindsight_isa::Ctx;
use iced_x86::Register;

/// Value of a register, as address computations and immediate operands see it. Segment registers
/// have the value of their base. `None` if it is no general-purpose register.
pub fn value(ctx: &Ctx, r: Register) -> Option<u64> {
    if r == Register::None {
        return Some(0);
    }
    if matches!(r, Register::FS | Register::GS) {
        return Some(if r == Register::FS {
            ctx.fs_base
        } else {
            ctx.gs_base
        });
    }
    if r.is_segment_register() {
        return Some(0);
    }
    if !r.is_gpr() {
        return None;
    }
    let v = ctx.gpr[r.full_register().number()];
    Some(match r.size() {
        8 => v,
        4 => v as u32 as u64,
        2 => v as u16 as u64,
        _ if matches!(r, Register::AH | Register::BH | Register::CH | Register::DH) => {
            v >> 8 & 0xff
        }
        _ => v & 0xff,
    })
}
