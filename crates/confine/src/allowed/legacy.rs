//! Opcodes after 0F, 0F 38 and 0F 3A, by their mandatory prefix.

use super::*;

/// After 0F.
pub(crate) static MAP_0F: [Table; 4] = [
    // no prefix.
    table(&[
        // movups, movlps, movhlps, unpcklps, unpckhps, movhps, movlhps, movaps, cvtpi2ps, cvttps2pi, cvtps2pi,
        // ucomiss, comiss, sqrtps, rsqrtps, rcpps, andps, andnps, orps, xorps, addps, mulps, cvtps2pd, cvtdq2ps,
        // subps, minps, divps, maxps, punpcklbw, punpcklwd, punpckldq, packsswb, pcmpgtb, pcmpgtw, pcmpgtd,
        // packuswb, punpckhbw, punpckhwd, punpckhdq, packssdw, movd, movq, pshufw, pcmpeqb, pcmpeqw, pcmpeqd, bt,
        // cmpps, pinsrw, shufps, psrlw, psrld, psrlq, paddq, pmullw, psubusb, psubusw, pminub, pand, paddusb,
        // paddusw, pmaxub, pandn, pavgb, psraw, psrad, pavgw, pmulhuw, pmulhw, psubsb, psubsw, pminsw, por,
        // paddsb, paddsw, pmaxsw, pxor, psllw, pslld, psllq, pmuludq, pmaddwd, psadbw, psubb, psubw, psubd, psubq,
        // paddb, paddw, paddd
        (
            BOTH,
            &[
                0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x28, 0x29, 0x2a, 0x2c, 0x2d, 0x2e, 0x2f, 0x51,
                0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f,
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6e, 0x6f,
                0x70, 0x74, 0x75, 0x76, 0x7f, 0xa3, 0xc2, 0xc4, 0xc6, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5,
                0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5,
                0xe8, 0xe9, 0xea, 0xeb, 0xec, 0xed, 0xee, 0xef, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6,
                0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe,
            ],
        ),
        // movlps, movhps, movntps, movnti, movntq
        (MEM, &[0x13, 0x17, 0x2b, 0xc3, 0xe7]),
        // nop
        (reg(0x01), &[0x1f]),
        // cmovo, cmovno, cmovb, cmovae, cmove, cmovne, cmovbe, cmova, cmovs, cmovns, cmovp, cmovnp, cmovl, cmovge,
        // cmovle, cmovg, imul, movzx, bsf, bsr, movsx
        (
            BOTH | SETS_REG,
            &[
                0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d,
                0x4e, 0x4f, 0xaf, 0xb6, 0xb7, 0xbc, 0xbd, 0xbe, 0xbf,
            ],
        ),
        // movmskps, pextrw, pmovmskb
        (REG | SETS_REG, &[0x50, 0xc5, 0xd7]),
        // psrlw, psraw, psllw, psrld, psrad, pslld
        (reg(0x54), &[0x71, 0x72]),
        // psrlq, psllq
        (reg(0x44), &[0x73]),
        // movd, movq, seto, setno, setb, setae, sete, setne, setbe, seta, sets, setns, setp, setnp, setl, setge,
        // setle, setg, shld, bts, shrd, btr, btc
        (
            BOTH | SETS_RM,
            &[
                0x7e, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c,
                0x9d, 0x9e, 0x9f, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xb3, 0xbb,
            ],
        ),
        // fxrstor, ldmxcsr, stmxcsr, xrstor, lfence, mfence, sfence, fxrstor64, xrstor64
        (mem(0x2e) | reg(0xe0), &[0xae]),
        // cmpxchg
        (BOTH | SETS_ANY, &[0xb0, 0xb1]),
        // bt, bts, btr, btc
        (mem(0xf0) | reg(0xf0) | SETS_RM, &[0xba]),
        // xadd
        (BOTH | SETS_REG | SETS_RM, &[0xc0, 0xc1]),
        // cmpxchg8b, cmpxchg16b
        (mem(0x02) | SETS_ANY, &[0xc7]),
    ]),
    // 66.
    table(&[
        // movupd, unpcklpd, unpckhpd, movapd, cvtpi2pd, cvttpd2pi, cvtpd2pi, ucomisd, comisd, sqrtpd, andpd,
        // andnpd, orpd, xorpd, addpd, mulpd, cvtpd2ps, cvtps2dq, subpd, minpd, divpd, maxpd, punpcklbw, punpcklwd,
        // punpckldq, packsswb, pcmpgtb, pcmpgtw, pcmpgtd, packuswb, punpckhbw, punpckhwd, punpckhdq, packssdw,
        // punpcklqdq, punpckhqdq, movd, movq, movdqa, pshufd, pcmpeqb, pcmpeqw, pcmpeqd, haddpd, hsubpd, bt,
        // cmppd, pinsrw, shufpd, addsubpd, psrlw, psrld, psrlq, paddq, pmullw, psubusb, psubusw, pminub, pand,
        // paddusb, paddusw, pmaxub, pandn, pavgb, psraw, psrad, pavgw, pmulhuw, pmulhw, cvttpd2dq, psubsb, psubsw,
        // pminsw, por, paddsb, paddsw, pmaxsw, pxor, psllw, pslld, psllq, pmuludq, pmaddwd, psadbw, psubb, psubw,
        // psubd, psubq, paddb, paddw, paddd
        (
            BOTH,
            &[
                0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2a, 0x2c, 0x2d, 0x2e, 0x2f, 0x51, 0x54, 0x55,
                0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63,
                0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x74,
                0x75, 0x76, 0x7c, 0x7d, 0x7f, 0xa3, 0xc2, 0xc4, 0xc6, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4,
                0xd5, 0xd6, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xe1, 0xe2, 0xe3,
                0xe4, 0xe5, 0xe6, 0xe8, 0xe9, 0xea, 0xeb, 0xec, 0xed, 0xee, 0xef, 0xf1, 0xf2, 0xf3,
                0xf4, 0xf5, 0xf6, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe,
            ],
        ),
        // movlpd, movhpd, movntpd, movntdq
        (MEM, &[0x12, 0x13, 0x16, 0x17, 0x2b, 0xe7]),
        // nop, extrq
        (reg(0x01), &[0x1f, 0x78]),
        // cmovo, cmovno, cmovb, cmovae, cmove, cmovne, cmovbe, cmova, cmovs, cmovns, cmovp, cmovnp, cmovl, cmovge,
        // cmovle, cmovg, imul, movzx, bsf, bsr, movsx
        (
            BOTH | SETS_REG,
            &[
                0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d,
                0x4e, 0x4f, 0xaf, 0xb6, 0xb7, 0xbc, 0xbd, 0xbe, 0xbf,
            ],
        ),
        // movmskpd, pextrw, pmovmskb
        (REG | SETS_REG, &[0x50, 0xc5, 0xd7]),
        // psrlw, psraw, psllw, psrld, psrad, pslld
        (reg(0x54), &[0x71, 0x72]),
        // psrlq, psrldq, psllq, pslldq
        (reg(0xcc), &[0x73]),
        // extrq
        (REG, &[0x79]),
        // movd, movq, seto, setno, setb, setae, sete, setne, setbe, seta, sets, setns, setp, setnp, setl, setge,
        // setle, setg, shld, bts, shrd, btr, btc
        (
            BOTH | SETS_RM,
            &[
                0x7e, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c,
                0x9d, 0x9e, 0x9f, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xb3, 0xbb,
            ],
        ),
        // cmpxchg
        (BOTH | SETS_ANY, &[0xb0, 0xb1]),
        // bt, bts, btr, btc
        (mem(0xf0) | reg(0xf0) | SETS_RM, &[0xba]),
        // xadd
        (BOTH | SETS_REG | SETS_RM, &[0xc0, 0xc1]),
        // cmpxchg8b, cmpxchg16b
        (mem(0x02) | SETS_ANY, &[0xc7]),
    ]),
    // F3.
    table(&[
        // movss, movsldup, movshdup, cvtsi2ss, sqrtss, rsqrtss, rcpss, addss, mulss, cvtss2sd, cvttps2dq, subss,
        // minss, divss, maxss, movdqu, pshufhw, movq, bt, cmpss, cvtdq2pd
        (
            BOTH,
            &[
                0x10, 0x11, 0x12, 0x16, 0x2a, 0x51, 0x52, 0x53, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d,
                0x5e, 0x5f, 0x6f, 0x70, 0x7e, 0x7f, 0xa3, 0xc2, 0xe6,
            ],
        ),
        // nop
        (reg(0x01), &[0x1f]),
        // movntss
        (MEM, &[0x2b]),
        // cvttss2si, cvtss2si, cmovo, cmovno, cmovb, cmovae, cmove, cmovne, cmovbe, cmova, cmovs, cmovns, cmovp,
        // cmovnp, cmovl, cmovge, cmovle, cmovg, imul, movzx, popcnt, tzcnt, lzcnt, movsx
        (
            BOTH | SETS_REG,
            &[
                0x2c, 0x2d, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b,
                0x4c, 0x4d, 0x4e, 0x4f, 0xaf, 0xb6, 0xb7, 0xb8, 0xbc, 0xbd, 0xbe, 0xbf,
            ],
        ),
        // seto, setno, setb, setae, sete, setne, setbe, seta, sets, setns, setp, setnp, setl, setge, setle, setg,
        // shld, bts, shrd, btr, btc
        (
            BOTH | SETS_RM,
            &[
                0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d,
                0x9e, 0x9f, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xb3, 0xbb,
            ],
        ),
        // cmpxchg
        (BOTH | SETS_ANY, &[0xb0, 0xb1]),
        // bt, bts, btr, btc
        (mem(0xf0) | reg(0xf0) | SETS_RM, &[0xba]),
        // xadd
        (BOTH | SETS_REG | SETS_RM, &[0xc0, 0xc1]),
        // cmpxchg8b, cmpxchg16b
        (mem(0x02) | SETS_ANY, &[0xc7]),
        // movq2dq
        (REG, &[0xd6]),
    ]),
    // F2.
    table(&[
        // movsd, movddup, cvtsi2sd, sqrtsd, addsd, mulsd, cvtsd2ss, subsd, minsd, divsd, maxsd, pshuflw, haddps,
        // hsubps, bt, cmpsd, addsubps, cvtpd2dq
        (
            BOTH,
            &[
                0x10, 0x11, 0x12, 0x2a, 0x51, 0x58, 0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0x70, 0x7c,
                0x7d, 0xa3, 0xc2, 0xd0, 0xe6,
            ],
        ),
        // nop
        (reg(0x01), &[0x1f]),
        // movntsd, lddqu
        (MEM, &[0x2b, 0xf0]),
        // cvttsd2si, cvtsd2si, cmovo, cmovno, cmovb, cmovae, cmove, cmovne, cmovbe, cmova, cmovs, cmovns, cmovp,
        // cmovnp, cmovl, cmovge, cmovle, cmovg, imul, movzx, bsf, bsr, movsx
        (
            BOTH | SETS_REG,
            &[
                0x2c, 0x2d, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b,
                0x4c, 0x4d, 0x4e, 0x4f, 0xaf, 0xb6, 0xb7, 0xbc, 0xbd, 0xbe, 0xbf,
            ],
        ),
        // insertq, movdq2q
        (REG, &[0x78, 0x79, 0xd6]),
        // seto, setno, setb, setae, sete, setne, setbe, seta, sets, setns, setp, setnp, setl, setge, setle, setg,
        // shld, bts, shrd, btr, btc
        (
            BOTH | SETS_RM,
            &[
                0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d,
                0x9e, 0x9f, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xb3, 0xbb,
            ],
        ),
        // cmpxchg
        (BOTH | SETS_ANY, &[0xb0, 0xb1]),
        // bt, bts, btr, btc
        (mem(0xf0) | reg(0xf0) | SETS_RM, &[0xba]),
        // xadd
        (BOTH | SETS_REG | SETS_RM, &[0xc0, 0xc1]),
        // cmpxchg8b, cmpxchg16b
        (mem(0x02) | SETS_ANY, &[0xc7]),
    ]),
];
/// After 0F 38.
pub(crate) static MAP_38: [Table; 4] = [
    // no prefix.
    table(&[
        // pshufb, phaddw, phaddd, phaddsw, pmaddubsw, phsubw, phsubd, phsubsw, psignb, psignw, psignd, pmulhrsw,
        // pabsb, pabsw, pabsd, sha1nexte, sha1msg1, sha1msg2, sha256rnds2, sha256msg1, sha256msg2
        (
            BOTH,
            &[
                0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x1c, 0x1d,
                0x1e, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd,
            ],
        ),
        // movbe
        (MEM | SETS_REG, &[0xf0]),
        // movbe, movdiri
        (MEM, &[0xf1, 0xf9]),
    ]),
    // 66.
    table(&[
        // pshufb, phaddw, phaddd, phaddsw, pmaddubsw, phsubw, phsubd, phsubsw, psignb, psignw, psignd, pmulhrsw,
        // pblendvb, blendvps, blendvpd, ptest, pabsb, pabsw, pabsd, pmovsxbw, pmovsxbd, pmovsxbq, pmovsxwd,
        // pmovsxwq, pmovsxdq, pmuldq, pcmpeqq, packusdw, pmovzxbw, pmovzxbd, pmovzxbq, pmovzxwd, pmovzxwq,
        // pmovzxdq, pcmpgtq, pminsb, pminsd, pminuw, pminud, pmaxsb, pmaxsd, pmaxuw, pmaxud, pmulld, phminposuw,
        // gf2p8mulb, aesimc, aesenc, aesenclast, aesdec, aesdeclast
        (
            BOTH,
            &[
                0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x14,
                0x15, 0x17, 0x1c, 0x1d, 0x1e, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29, 0x2b,
                0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x37, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e,
                0x3f, 0x40, 0x41, 0xcf, 0xdb, 0xdc, 0xdd, 0xde, 0xdf,
            ],
        ),
        // movntdqa, movbe
        (MEM, &[0x2a, 0xf1]),
        // movbe
        (MEM | SETS_REG, &[0xf0]),
        // adcx
        (BOTH | SETS_REG, &[0xf6]),
    ]),
    // F3.
    table(&[
        // aesencwide128kl, aesdecwide128kl, aesencwide256kl, aesdecwide256kl
        (mem(0x0f), &[0xd8]),
        // aesenc128kl, aesdec128kl, aesenc256kl, aesdec256kl
        (MEM, &[0xdc, 0xdd, 0xde, 0xdf]),
        // adox
        (BOTH | SETS_REG, &[0xf6]),
        // encodekey128, encodekey256
        (REG | SETS_REG, &[0xfa, 0xfb]),
    ]),
    // F2.
    table(&[
        // crc32
        (BOTH | SETS_REG, &[0xf0, 0xf1]),
    ]),
];
/// After 0F 3A.
pub(crate) static MAP_3A: [Table; 4] = [
    // no prefix.
    table(&[
        // palignr, sha1rnds4
        (BOTH, &[0x0f, 0xcc]),
    ]),
    // 66.
    table(&[
        // roundps, roundpd, roundss, roundsd, blendps, blendpd, pblendw, palignr, pinsrb, insertps, pinsrd,
        // pinsrq, dpps, dppd, mpsadbw, pclmulqdq, pcmpestrm, pcmpestrm64, pcmpistrm, gf2p8affineqb,
        // gf2p8affineinvqb, aeskeygenassist
        (
            BOTH,
            &[
                0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x20, 0x21, 0x22, 0x40, 0x41, 0x42,
                0x44, 0x60, 0x62, 0xce, 0xcf, 0xdf,
            ],
        ),
        // pextrb, pextrw, pextrd, pextrq, extractps
        (BOTH | SETS_RM, &[0x14, 0x15, 0x16, 0x17]),
        // pcmpestri, pcmpestri64, pcmpistri
        (BOTH | SETS_ANY, &[0x61, 0x63]),
    ]),
    // F3.
    table(&[]),
    // F2.
    table(&[]),
];
