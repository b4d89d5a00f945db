//! Opcodes with a VEX prefix, by its map and its prefix field.

use super::*;

/// Map 1.
pub(crate) static VEX_0F: [Table; 4] = [
    // no prefix.
    table(&[
        // vmovups, vunpcklps, vunpckhps, vmovaps, vucomiss, vcomiss, vsqrtps, vrsqrtps, vrcpps, vandps, vandnps,
        // vorps, vxorps, vaddps, vmulps, vcvtps2pd, vcvtdq2ps, vsubps, vminps, vdivps, vmaxps, vzeroupper,
        // vzeroall, vcmpps, vshufps
        (
            BOTH | WIG | L01,
            &[
                0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56,
                0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x77, 0xc2, 0xc6,
            ],
        ),
        // vmovlps, vmovhlps, vmovhps, vmovlhps, kmovw, kmovq
        (BOTH | WIG | L0, &[0x12, 0x16, 0x90]),
        // vmovlps, vmovhps, kmovw, kmovq
        (MEM | WIG | L0, &[0x13, 0x17, 0x91]),
        // vmovntps
        (MEM | WIG | L01, &[0x2b]),
        // kandw, kandq, kandnw, kandnq, korw, korq, kxnorw, kxnorq, kxorw, kxorq, kaddw, kaddq, kunpckwd, kunpckdq
        (REG | WIG | L1, &[0x41, 0x42, 0x45, 0x46, 0x47, 0x4a, 0x4b]),
        // knotw, knotq, kortestw, kortestq, ktestw, ktestq
        (REG | WIG | L0, &[0x44, 0x98, 0x99]),
        // vmovmskps
        (REG | WIG | L01 | SETS_REG, &[0x50]),
        // kmovw
        (REG | W0 | L0, &[0x92]),
        // kmovw
        (REG | W0 | L0 | SETS_REG, &[0x93]),
        // vldmxcsr, vstmxcsr
        (mem(0x0c) | WIG | L0, &[0xae]),
    ]),
    // 66.
    table(&[
        // vmovupd, vunpcklpd, vunpckhpd, vmovapd, vucomisd, vcomisd, vsqrtpd, vandpd, vandnpd, vorpd, vxorpd,
        // vaddpd, vmulpd, vcvtpd2ps, vcvtps2dq, vsubpd, vminpd, vdivpd, vmaxpd, vpunpcklbw, vpunpcklwd,
        // vpunpckldq, vpacksswb, vpcmpgtb, vpcmpgtw, vpcmpgtd, vpackuswb, vpunpckhbw, vpunpckhwd, vpunpckhdq,
        // vpackssdw, vpunpcklqdq, vpunpckhqdq, vmovdqa, vpshufd, vpcmpeqb, vpcmpeqw, vpcmpeqd, vhaddpd, vhsubpd,
        // vcmppd, vshufpd, vaddsubpd, vpsrlw, vpsrld, vpsrlq, vpaddq, vpmullw, vpsubusb, vpsubusw, vpminub, vpand,
        // vpaddusb, vpaddusw, vpmaxub, vpandn, vpavgb, vpsraw, vpsrad, vpavgw, vpmulhuw, vpmulhw, vcvttpd2dq,
        // vpsubsb, vpsubsw, vpminsw, vpor, vpaddsb, vpaddsw, vpmaxsw, vpxor, vpsllw, vpslld, vpsllq, vpmuludq,
        // vpmaddwd, vpsadbw, vpsubb, vpsubw, vpsubd, vpsubq, vpaddb, vpaddw, vpaddd
        (
            BOTH | WIG | L01,
            &[
                0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51, 0x54, 0x55, 0x56, 0x57, 0x58,
                0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66,
                0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6f, 0x70, 0x74, 0x75, 0x76, 0x7c, 0x7d,
                0x7f, 0xc2, 0xc6, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd8, 0xd9, 0xda, 0xdb, 0xdc,
                0xdd, 0xde, 0xdf, 0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe8, 0xe9, 0xea, 0xeb,
                0xec, 0xed, 0xee, 0xef, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf8, 0xf9, 0xfa, 0xfb,
                0xfc, 0xfd, 0xfe,
            ],
        ),
        // vmovlpd, vmovhpd, kmovb, kmovd
        (MEM | WIG | L0, &[0x12, 0x13, 0x16, 0x17, 0x91]),
        // vmovntpd, vmovntdq
        (MEM | WIG | L01, &[0x2b, 0xe7]),
        // kandb, kandd, kandnb, kandnd, korb, kord, kxnorb, kxnord, kxorb, kxord, kaddb, kaddd
        (REG | WIG | L1, &[0x41, 0x42, 0x45, 0x46, 0x47, 0x4a]),
        // knotb, knotd, kortestb, kortestd, ktestb, ktestd
        (REG | WIG | L0, &[0x44, 0x98, 0x99]),
        // kunpckbw
        (REG | W0 | L1, &[0x4b]),
        // vmovmskpd, vpmovmskb
        (REG | WIG | L01 | SETS_REG, &[0x50, 0xd7]),
        // vmovd, vmovq, kmovb, kmovd, vpinsrw
        (BOTH | WIG | L0, &[0x6e, 0x90, 0xc4, 0xd6]),
        // vpsrlw, vpsraw, vpsllw, vpsrld, vpsrad, vpslld
        (reg(0x54) | WIG | L01, &[0x71, 0x72]),
        // vpsrlq, vpsrldq, vpsllq, vpslldq
        (reg(0xcc) | WIG | L01, &[0x73]),
        // vmovd, vmovq
        (BOTH | WIG | L0 | SETS_RM, &[0x7e]),
        // kmovb
        (REG | W0 | L0, &[0x92]),
        // kmovb
        (REG | W0 | L0 | SETS_REG, &[0x93]),
        // vpextrw
        (REG | WIG | L0 | SETS_REG, &[0xc5]),
    ]),
    // F3.
    table(&[
        // vmovss, vmovsldup, vmovshdup, vcvtsi2ss, vsqrtss, vrsqrtss, vrcpss, vaddss, vmulss, vcvtss2sd,
        // vcvttps2dq, vsubss, vminss, vdivss, vmaxss, vmovdqu, vpshufhw, vcmpss, vcvtdq2pd
        (
            BOTH | WIG | L01,
            &[
                0x10, 0x11, 0x12, 0x16, 0x2a, 0x51, 0x52, 0x53, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d,
                0x5e, 0x5f, 0x6f, 0x70, 0x7f, 0xc2, 0xe6,
            ],
        ),
        // vcvttss2si, vcvtss2si
        (BOTH | WIG | L01 | SETS_REG, &[0x2c, 0x2d]),
        // vmovq
        (BOTH | WIG | L0, &[0x7e]),
    ]),
    // F2.
    table(&[
        // vmovsd, vmovddup, vcvtsi2sd, vsqrtsd, vaddsd, vmulsd, vcvtsd2ss, vsubsd, vminsd, vdivsd, vmaxsd,
        // vpshuflw, vhaddps, vhsubps, vcmpsd, vaddsubps, vcvtpd2dq
        (
            BOTH | WIG | L01,
            &[
                0x10, 0x11, 0x12, 0x2a, 0x51, 0x58, 0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0x70, 0x7c,
                0x7d, 0xc2, 0xd0, 0xe6,
            ],
        ),
        // vcvttsd2si, vcvtsd2si
        (BOTH | WIG | L01 | SETS_REG, &[0x2c, 0x2d]),
        // kmovd, kmovq
        (REG | WIG | L0, &[0x92]),
        // kmovd, kmovq
        (REG | WIG | L0 | SETS_REG, &[0x93]),
        // vlddqu
        (MEM | WIG | L01, &[0xf0]),
    ]),
];
/// Map 2.
pub(crate) static VEX_38: [Table; 4] = [
    // no prefix.
    table(&[
        // vpdpbuud, vpdpbuuds, vpdpwuud, vpdpwuuds
        (BOTH | W0 | L01, &[0x50, 0x51, 0xd2, 0xd3]),
        // vcvtneoph2ps
        (MEM | W0 | L01, &[0xb0]),
        // vsm3msg1
        (BOTH | W0 | L0, &[0xda]),
        // andn, bzhi, bextr
        (BOTH | WIG | L0 | SETS_REG, &[0xf2, 0xf5, 0xf7]),
        // blsr, blsmsk, blsi
        (mem(0x0e) | reg(0x0e) | WIG | L0 | SETS_ANY, &[0xf3]),
    ]),
    // 66.
    table(&[
        // vpshufb, vphaddw, vphaddd, vphaddsw, vpmaddubsw, vphsubw, vphsubd, vphsubsw, vpsignb, vpsignw, vpsignd,
        // vpmulhrsw, vptest, vpabsb, vpabsw, vpabsd, vpmovsxbw, vpmovsxbd, vpmovsxbq, vpmovsxwd, vpmovsxwq,
        // vpmovsxdq, vpmuldq, vpcmpeqq, vpackusdw, vpmovzxbw, vpmovzxbd, vpmovzxbq, vpmovzxwd, vpmovzxwq,
        // vpmovzxdq, vpcmpgtq, vpminsb, vpminsd, vpminuw, vpminud, vpmaxsb, vpmaxsd, vpmaxuw, vpmaxud, vpmulld,
        // vpsrlvd, vpsrlvq, vpsllvd, vpsllvq, vfmaddsub132ps, vfmaddsub132pd, vfmsubadd132ps, vfmsubadd132pd,
        // vfmadd132ps, vfmadd132pd, vfmadd132ss, vfmadd132sd, vfmsub132ps, vfmsub132pd, vfmsub132ss, vfmsub132sd,
        // vfnmadd132ps, vfnmadd132pd, vfnmadd132ss, vfnmadd132sd, vfnmsub132ps, vfnmsub132pd, vfnmsub132ss,
        // vfnmsub132sd, vfmaddsub213ps, vfmaddsub213pd, vfmsubadd213ps, vfmsubadd213pd, vfmadd213ps, vfmadd213pd,
        // vfmadd213ss, vfmadd213sd, vfmsub213ps, vfmsub213pd, vfmsub213ss, vfmsub213sd, vfnmadd213ps,
        // vfnmadd213pd, vfnmadd213ss, vfnmadd213sd, vfnmsub213ps, vfnmsub213pd, vfnmsub213ss, vfnmsub213sd,
        // vfmaddsub231ps, vfmaddsub231pd, vfmsubadd231ps, vfmsubadd231pd, vfmadd231ps, vfmadd231pd, vfmadd231ss,
        // vfmadd231sd, vfmsub231ps, vfmsub231pd, vfmsub231ss, vfmsub231sd, vfnmadd231ps, vfnmadd231pd,
        // vfnmadd231ss, vfnmadd231sd, vfnmsub231ps, vfnmsub231pd, vfnmsub231ss, vfnmsub231sd, vaesenc,
        // vaesenclast, vaesdec, vaesdeclast
        (
            BOTH | WIG | L01,
            &[
                0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x17, 0x1c,
                0x1d, 0x1e, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29, 0x2b, 0x30, 0x31, 0x32,
                0x33, 0x34, 0x35, 0x37, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x45,
                0x47, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa6, 0xa7, 0xa8,
                0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc,
                0xbd, 0xbe, 0xbf, 0xdc, 0xdd, 0xde, 0xdf,
            ],
        ),
        // vpermilps, vpermilpd, vtestps, vtestpd, vcvtph2ps, vbroadcastss, vpsravd, vpdpbusd, vpdpbusds, vpdpwssd,
        // vpdpwssds, vpbroadcastd, vpbroadcastq, vpbroadcastb, vpbroadcastw, vgf2p8mulb, vpdpwusd, vpdpwusds
        (
            BOTH | W0 | L01,
            &[
                0x0c, 0x0d, 0x0e, 0x0f, 0x13, 0x18, 0x46, 0x50, 0x51, 0x52, 0x53, 0x58, 0x59, 0x78,
                0x79, 0xcf, 0xd2, 0xd3,
            ],
        ),
        // vpermps, vbroadcastsd, vpermd
        (BOTH | W0 | L1, &[0x16, 0x19, 0x36]),
        // vbroadcastf128, vbroadcasti128
        (MEM | W0 | L1, &[0x1a, 0x5a]),
        // vmovntdqa, vpmaskmovd, vpmaskmovq
        (MEM | WIG | L01, &[0x2a, 0x8c, 0x8e]),
        // vmaskmovps, vmaskmovpd, vcvtneeph2ps, vbcstnesh2ps
        (MEM | W0 | L01, &[0x2c, 0x2d, 0x2e, 0x2f, 0xb0, 0xb1]),
        // vphminposuw, vaesimc
        (BOTH | WIG | L0, &[0x41, 0xdb]),
        // vpgatherdd, vpgatherdq, vpgatherqd, vpgatherqq, vgatherdps, vgatherdpd, vgatherqps, vgatherqpd
        (MEM | WIG | L01 | VSIB, &[0x90, 0x91, 0x92, 0x93]),
        // vpmadd52luq, vpmadd52huq
        (BOTH | W1 | L01, &[0xb4, 0xb5]),
        // vsm3msg2
        (BOTH | W0 | L0, &[0xda]),
        // shlx
        (BOTH | WIG | L0 | SETS_REG, &[0xf7]),
    ]),
    // F3.
    table(&[
        // vpdpbsud, vpdpbsuds, vcvtneps2bf16, vpdpwsud, vpdpwsuds, vsm4key4
        (BOTH | W0 | L01, &[0x50, 0x51, 0x72, 0xd2, 0xd3, 0xda]),
        // vcvtneebf162ps, vbcstnebf162ps
        (MEM | W0 | L01, &[0xb0, 0xb1]),
        // pext, sarx
        (BOTH | WIG | L0 | SETS_REG, &[0xf5, 0xf7]),
    ]),
    // F2.
    table(&[
        // vpdpbssd, vpdpbssds, vsm4rnds4
        (BOTH | W0 | L01, &[0x50, 0x51, 0xda]),
        // vcvtneobf162ps
        (MEM | W0 | L01, &[0xb0]),
        // vsha512rnds2, vsha512msg1, vsha512msg2
        (REG | W0 | L1, &[0xcb, 0xcc, 0xcd]),
        // pdep, shrx
        (BOTH | WIG | L0 | SETS_REG, &[0xf5, 0xf7]),
        // mulx
        (BOTH | WIG | L0 | SETS_ANY, &[0xf6]),
    ]),
];
/// Map 3.
pub(crate) static VEX_3A: [Table; 4] = [
    // no prefix.
    table(&[]),
    // 66.
    table(&[
        // vpermq, vpermpd
        (BOTH | W1 | L1, &[0x00, 0x01]),
        // vpblendd, vpermilps, vpermilpd, vcvtps2ph, vblendvps, vblendvpd, vpblendvb
        (BOTH | W0 | L01, &[0x02, 0x04, 0x05, 0x1d, 0x4a, 0x4b, 0x4c]),
        // vperm2f128, vinsertf128, vextractf128, vinserti128, vextracti128, vperm2i128
        (BOTH | W0 | L1, &[0x06, 0x18, 0x19, 0x38, 0x39, 0x46]),
        // vroundps, vroundpd, vroundss, vroundsd, vblendps, vblendpd, vpblendw, vpalignr, vdpps, vmpsadbw,
        // vpclmulqdq, vpermil2ps, vpermil2pd, vfmaddsubps, vfmaddsubpd, vfmsubaddps, vfmsubaddpd, vfmaddps,
        // vfmaddpd, vfmaddss, vfmaddsd, vfmsubps, vfmsubpd, vfmsubss, vfmsubsd, vfnmaddps, vfnmaddpd, vfnmaddss,
        // vfnmaddsd, vfnmsubps, vfnmsubpd, vfnmsubss, vfnmsubsd
        (
            BOTH | WIG | L01,
            &[
                0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x40, 0x42, 0x44, 0x48, 0x49, 0x5c,
                0x5d, 0x5e, 0x5f, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x78, 0x79, 0x7a,
                0x7b, 0x7c, 0x7d, 0x7e, 0x7f,
            ],
        ),
        // vpextrb, vpextrw, vpextrd, vpextrq, vextractps
        (BOTH | WIG | L0 | SETS_RM, &[0x14, 0x15, 0x16, 0x17]),
        // vpinsrb, vinsertps, vpinsrd, vpinsrq, vdppd, vpcmpestrm, vpcmpestrm64, vpcmpistrm, vaeskeygenassist
        (BOTH | WIG | L0, &[0x20, 0x21, 0x22, 0x41, 0x60, 0x62, 0xdf]),
        // kshiftrb, kshiftrw, kshiftrd, kshiftrq, kshiftlb, kshiftlw, kshiftld, kshiftlq
        (REG | WIG | L0, &[0x30, 0x31, 0x32, 0x33]),
        // vpcmpestri, vpcmpestri64, vpcmpistri
        (BOTH | WIG | L0 | SETS_ANY, &[0x61, 0x63]),
        // vgf2p8affineqb, vgf2p8affineinvqb
        (BOTH | W1 | L01, &[0xce, 0xcf]),
        // vsm3rnds2
        (BOTH | W0 | L0, &[0xde]),
    ]),
    // F3.
    table(&[]),
    // F2.
    table(&[
        // rorx
        (BOTH | WIG | L0 | SETS_REG, &[0xf0]),
    ]),
];
