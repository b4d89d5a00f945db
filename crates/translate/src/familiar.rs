//! Decodes the instructions that every program executes when it starts, without the decoder.
//!
//! A short program may find all of its code translated. Building the decoder's tables would take
//! longer than all that it needs of the decoder.

use iced_x86::{Code, CodeSize, Instruction, MemoryOperand, Register};

/// Decodes `bytes` at guest address `ip`. `None` unless it is one of these:
///
/// - `cpuid`, `rdtsc`, `xgetbv`;
/// - `xsavec` and `xrstor`, with which the dynamic linker saves registers while it resolves a
///   function.
pub fn familiar(bytes: &[u8], ip: u64) -> Option<Instruction> {
    let on_stack = |code, at: u8| {
        let operand = MemoryOperand::with_base_displ_size(Register::RSP, at as i8 as i64, 1);
        Instruction::with1(code, operand).ok()
    };
    let mut i = match *bytes {
        [0x0f, 0xa2] => Instruction::with(Code::Cpuid),
        [0x0f, 0x31] => Instruction::with(Code::Rdtsc),
        [0x0f, 0x01, 0xd0] => Instruction::with(Code::Xgetbv),
        [0x0f, 0xc7, 0x64, 0x24, at] => on_stack(Code::Xsavec_mem, at)?,
        [0x0f, 0xae, 0x6c, 0x24, at] => on_stack(Code::Xrstor_mem, at)?,
        _ => return None,
    };
    i.set_code_size(CodeSize::Code64);
    i.set_len(bytes.len());
    i.set_ip(ip);
    Some(i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn as_the_decoder_has_it() {
        let known: [&[u8]; 7] = [
            &[0x0f, 0xa2],
            &[0x0f, 0x31],
            &[0x0f, 0x01, 0xd0],
            &[0x0f, 0xc7, 0x64, 0x24, 0x40],
            &[0x0f, 0xc7, 0x64, 0x24, 0xc0],
            &[0x0f, 0xae, 0x6c, 0x24, 0x40],
            &[0x0f, 0xae, 0x6c, 0x24, 0x00],
        ];
        for bytes in known {
            let ip = 0x7fff_1234_5678;
            let i = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
            let ours = familiar(bytes, ip).unwrap();
            assert!(ours.eq_all_bits(&i), "{bytes:x?}: {ours:?} {i:?}");
            assert_eq!((ours.ip(), ours.len()), (i.ip(), i.len()));
            assert_eq!(ours.memory_segment(), i.memory_segment());
        }
    }

    #[test]
    fn nothing_else_is() {
        for bytes in [&[0x0f, 0xae, 0x6c, 0x25, 0][..], &[0x0f], &[0x0f, 0xa2, 0]] {
            assert_eq!(familiar(bytes, 0), None);
        }
    }
}
