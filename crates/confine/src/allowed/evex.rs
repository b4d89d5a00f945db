//! Opcodes with an EVEX prefix, by its map and its prefix field.

use super::*;

/// Map 1.
pub(crate) static EVEX_0F: [Table; 4] = [
    // no prefix.
    table(&[
        // vmovups, vunpcklps, vunpckhps, vmovaps, vucomiss, vcomiss, vsqrtps, vandps, vandnps, vorps, vxorps,
        // vaddps, vmulps, vcvtps2pd, vsubps, vminps, vdivps, vmaxps, vcmpps, vshufps
        (
            BOTH | W0 | L012,
            &[
                0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51, 0x54, 0x55, 0x56, 0x57, 0x58,
                0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0xc2, 0xc6,
            ],
        ),
        // vmovlps, vmovhlps, vmovhps, vmovlhps
        (BOTH | W0 | L0, &[0x12, 0x16]),
        // vmovlps, vmovhps
        (MEM | W0 | L0, &[0x13, 0x17]),
        // vmovntps
        (MEM | W0 | L012, &[0x2b]),
        // vcvtdq2ps, vcvtqq2ps, vcvttps2udq, vcvttpd2udq, vcvtps2udq, vcvtpd2udq
        (BOTH | WIG | L012, &[0x5b, 0x78, 0x79]),
    ]),
    // 66.
    table(&[
        // vmovupd, vunpcklpd, vunpckhpd, vmovapd, vucomisd, vcomisd, vsqrtpd, vandpd, vandnpd, vorpd, vxorpd,
        // vaddpd, vmulpd, vcvtpd2ps, vsubpd, vminpd, vdivpd, vmaxpd, vpunpcklqdq, vpunpckhqdq, vcmppd, vshufpd,
        // vpsrlq, vpaddq, vcvttpd2dq, vpsllq, vpmuludq, vpsubq
        (
            BOTH | W1 | L012,
            &[
                0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51, 0x54, 0x55, 0x56, 0x57, 0x58,
                0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0x6c, 0x6d, 0xc2, 0xc6, 0xd3, 0xd4, 0xe6, 0xf3,
                0xf4, 0xfb,
            ],
        ),
        // vmovlpd, vmovhpd
        (MEM | W1 | L0, &[0x12, 0x13, 0x16, 0x17]),
        // vmovntpd
        (MEM | W1 | L012, &[0x2b]),
        // vcvtps2dq, vpunpckldq, vpcmpgtd, vpunpckhdq, vpackssdw, vpshufd, vpcmpeqd, vpsrld, vpslld, vpsubd,
        // vpaddd
        (
            BOTH | W0 | L012,
            &[
                0x5b, 0x62, 0x66, 0x6a, 0x6b, 0x70, 0x76, 0xd2, 0xf2, 0xfa, 0xfe,
            ],
        ),
        // vpunpcklbw, vpunpcklwd, vpacksswb, vpcmpgtb, vpcmpgtw, vpackuswb, vpunpckhbw, vpunpckhwd, vmovdqa32,
        // vmovdqa64, vpcmpeqb, vpcmpeqw, vcvttps2uqq, vcvttpd2uqq, vcvtps2uqq, vcvtpd2uqq, vcvttps2qq, vcvttpd2qq,
        // vcvtps2qq, vcvtpd2qq, vpsrlw, vpmullw, vpsubusb, vpsubusw, vpminub, vpandd, vpandq, vpaddusb, vpaddusw,
        // vpmaxub, vpandnd, vpandnq, vpavgb, vpsraw, vpsrad, vpsraq, vpavgw, vpmulhuw, vpmulhw, vpsubsb, vpsubsw,
        // vpminsw, vpord, vporq, vpaddsb, vpaddsw, vpmaxsw, vpxord, vpxorq, vpsllw, vpmaddwd, vpsadbw, vpsubb,
        // vpsubw, vpaddb, vpaddw
        (
            BOTH | WIG | L012,
            &[
                0x60, 0x61, 0x63, 0x64, 0x65, 0x67, 0x68, 0x69, 0x6f, 0x74, 0x75, 0x78, 0x79, 0x7a,
                0x7b, 0x7f, 0xd1, 0xd5, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xe1,
                0xe2, 0xe3, 0xe4, 0xe5, 0xe8, 0xe9, 0xea, 0xeb, 0xec, 0xed, 0xee, 0xef, 0xf1, 0xf5,
                0xf6, 0xf8, 0xf9, 0xfc, 0xfd,
            ],
        ),
        // vmovd, vmovq, vpinsrw
        (BOTH | WIG | L0, &[0x6e, 0xc4]),
        // vpsrlw, vpsraw, vpsllw
        (mem(0x54) | reg(0x54) | WIG | L012, &[0x71]),
        // vprord, vprold, vpsrld, vpsrad, vpslld, vprorq, vprolq, vpsraq
        (mem(0x57) | reg(0x57) | WIG | L012, &[0x72]),
        // vpsrldq, vpslldq, vpsrlq, vpsllq
        (mem(0xcc) | reg(0xcc) | WIG | L012, &[0x73]),
        // vmovd, vmovq
        (BOTH | WIG | L0 | SETS_RM, &[0x7e]),
        // vpextrw
        (REG | WIG | L0 | SETS_REG, &[0xc5]),
        // vmovq
        (BOTH | W1 | L0, &[0xd6]),
        // vmovntdq
        (MEM | W0 | L012, &[0xe7]),
    ]),
    // F3.
    table(&[
        // vmovss, vmovsldup, vmovshdup, vsqrtss, vaddss, vmulss, vcvtss2sd, vcvttps2dq, vsubss, vminss, vdivss,
        // vmaxss, vcmpss
        (
            BOTH | W0 | L012,
            &[
                0x10, 0x11, 0x12, 0x16, 0x51, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0xc2,
            ],
        ),
        // vcvtsi2ss, vmovdqu32, vmovdqu64, vpshufhw, vcvtudq2pd, vcvtuqq2pd, vcvtusi2ss, vcvtdq2pd, vcvtqq2pd
        (
            BOTH | WIG | L012,
            &[0x2a, 0x6f, 0x70, 0x7a, 0x7b, 0x7f, 0xe6],
        ),
        // vcvttss2si, vcvtss2si, vcvttss2usi, vcvtss2usi
        (BOTH | WIG | L012 | SETS_REG, &[0x2c, 0x2d, 0x78, 0x79]),
        // vmovq
        (BOTH | W1 | L0, &[0x7e]),
    ]),
    // F2.
    table(&[
        // vmovsd, vmovddup, vsqrtsd, vaddsd, vmulsd, vcvtsd2ss, vsubsd, vminsd, vdivsd, vmaxsd, vcmpsd, vcvtpd2dq
        (
            BOTH | W1 | L012,
            &[
                0x10, 0x11, 0x12, 0x51, 0x58, 0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0xc2, 0xe6,
            ],
        ),
        // vcvtsi2sd, vmovdqu8, vmovdqu16, vpshuflw, vcvtudq2ps, vcvtuqq2ps, vcvtusi2sd
        (BOTH | WIG | L012, &[0x2a, 0x6f, 0x70, 0x7a, 0x7b, 0x7f]),
        // vcvttsd2si, vcvtsd2si, vcvttsd2usi, vcvtsd2usi
        (BOTH | WIG | L012 | SETS_REG, &[0x2c, 0x2d, 0x78, 0x79]),
    ]),
];
/// Map 2.
pub(crate) static EVEX_38: [Table; 4] = [
    // no prefix.
    table(&[]),
    // 66.
    table(&[
        // vpshufb, vpmaddubsw, vpmulhrsw, vprorvd, vprorvq, vprolvd, vprolvq, vpabsb, vpabsw, vpmovsxbw,
        // vpmovsxbd, vpmovsxbq, vpmovsxwd, vpmovsxwq, vptestmb, vptestmw, vptestmd, vptestmq, vscalefps,
        // vscalefpd, vscalefss, vscalefsd, vpmovzxbw, vpmovzxbd, vpmovzxbq, vpmovzxwd, vpmovzxwq, vpminsb,
        // vpminsd, vpminsq, vpminuw, vpminud, vpminuq, vpmaxsb, vpmaxsd, vpmaxsq, vpmaxuw, vpmaxud, vpmaxuq,
        // vpmulld, vpmullq, vgetexpps, vgetexppd, vgetexpss, vgetexpsd, vplzcntd, vplzcntq, vpsrlvd, vpsrlvq,
        // vpsravd, vpsravq, vpsllvd, vpsllvq, vrcp14ps, vrcp14pd, vrcp14ss, vrcp14sd, vrsqrt14ps, vrsqrt14pd,
        // vrsqrt14ss, vrsqrt14sd, vpopcntb, vpopcntw, vpopcntd, vpopcntq, vbroadcasti32x2, vpbroadcastq,
        // vpexpandb, vpexpandw, vpcompressb, vpcompressw, vpblendmd, vpblendmq, vblendmps, vblendmpd, vpblendmb,
        // vpblendmw, vpshldvd, vpshldvq, vpshrdvd, vpshrdvq, vpermi2b, vpermi2w, vpermi2d, vpermi2q, vpermi2ps,
        // vpermi2pd, vpermt2b, vpermt2w, vpermt2d, vpermt2q, vpermt2ps, vpermt2pd, vexpandps, vexpandpd,
        // vpexpandd, vpexpandq, vcompressps, vcompresspd, vpcompressd, vpcompressq, vpermb, vpermw,
        // vfmaddsub132ps, vfmaddsub132pd, vfmsubadd132ps, vfmsubadd132pd, vfmadd132ps, vfmadd132pd, vfmadd132ss,
        // vfmadd132sd, vfmsub132ps, vfmsub132pd, vfmsub132ss, vfmsub132sd, vfnmadd132ps, vfnmadd132pd,
        // vfnmadd132ss, vfnmadd132sd, vfnmsub132ps, vfnmsub132pd, vfnmsub132ss, vfnmsub132sd, vfmaddsub213ps,
        // vfmaddsub213pd, vfmsubadd213ps, vfmsubadd213pd, vfmadd213ps, vfmadd213pd, vfmadd213ss, vfmadd213sd,
        // vfmsub213ps, vfmsub213pd, vfmsub213ss, vfmsub213sd, vfnmadd213ps, vfnmadd213pd, vfnmadd213ss,
        // vfnmadd213sd, vfnmsub213ps, vfnmsub213pd, vfnmsub213ss, vfnmsub213sd, vfmaddsub231ps, vfmaddsub231pd,
        // vfmsubadd231ps, vfmsubadd231pd, vfmadd231ps, vfmadd231pd, vfmadd231ss, vfmadd231sd, vfmsub231ps,
        // vfmsub231pd, vfmsub231ss, vfmsub231sd, vfnmadd231ps, vfnmadd231pd, vfnmadd231ss, vfnmadd231sd,
        // vfnmsub231ps, vfnmsub231pd, vfnmsub231ss, vfnmsub231sd, vpconflictd, vpconflictq, vrcp28ss, vrcp28sd,
        // vrsqrt28ss, vrsqrt28sd, vaesenc, vaesenclast, vaesdec, vaesdeclast
        (
            BOTH | WIG | L012,
            &[
                0x00, 0x04, 0x0b, 0x14, 0x15, 0x1c, 0x1d, 0x20, 0x21, 0x22, 0x23, 0x24, 0x26, 0x27,
                0x2c, 0x2d, 0x30, 0x31, 0x32, 0x33, 0x34, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e,
                0x3f, 0x40, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x4c, 0x4d, 0x4e, 0x4f, 0x54, 0x55,
                0x59, 0x62, 0x63, 0x64, 0x65, 0x66, 0x71, 0x73, 0x75, 0x76, 0x77, 0x7d, 0x7e, 0x7f,
                0x88, 0x89, 0x8a, 0x8b, 0x8d, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e,
                0x9f, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 0xb6, 0xb7, 0xb8,
                0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf, 0xc4, 0xcb, 0xcd, 0xdc, 0xdd, 0xde, 0xdf,
            ],
        ),
        // vpermilps, vcvtph2ps, vbroadcastss, vpabsd, vpmovsxdq, vpackusdw, vpmovzxdq, vpdpbusd, vpdpbusds,
        // vpdpwssd, vpdpwssds, vpbroadcastd, vpbroadcastb, vpbroadcastw, vpshufbitqmb, vgf2p8mulb
        (
            BOTH | W0 | L012,
            &[
                0x0c, 0x13, 0x18, 0x1e, 0x25, 0x2b, 0x35, 0x50, 0x51, 0x52, 0x53, 0x58, 0x78, 0x79,
                0x8f, 0xcf,
            ],
        ),
        // vpermilpd, vpsrlvw, vpsravw, vpsllvw, vpabsq, vpmuldq, vpcmpeqq, vpcmpgtq, vpshldvw, vpshrdvw,
        // vpmultishiftqb, vpmadd52luq, vpmadd52huq
        (
            BOTH | W1 | L012,
            &[
                0x0d, 0x10, 0x11, 0x12, 0x1f, 0x28, 0x29, 0x37, 0x70, 0x72, 0x83, 0xb4, 0xb5,
            ],
        ),
        // vpermps, vpermpd, vbroadcastf32x2, vbroadcastsd, vpermd, vpermq
        (BOTH | WIG | L12, &[0x16, 0x19, 0x36]),
        // vbroadcastf32x4, vbroadcastf64x2, vbroadcasti32x4, vbroadcasti64x2
        (MEM | WIG | L12, &[0x1a, 0x5a]),
        // vbroadcastf32x8, vbroadcastf64x4, vbroadcasti32x8, vbroadcasti64x4
        (MEM | WIG | L2, &[0x1b, 0x5b]),
        // vmovntdqa
        (MEM | W0 | L012, &[0x2a]),
        // vpbroadcastb, vpbroadcastw
        (REG | W0 | L012, &[0x7a, 0x7b]),
        // vpbroadcastd, vpbroadcastq
        (REG | WIG | L012, &[0x7c]),
        // vpgatherdd, vpgatherdq, vpgatherqd, vpgatherqq, vgatherdps, vgatherdpd, vgatherqps, vgatherqpd,
        // vpscatterdd, vpscatterdq, vpscatterqd, vpscatterqq, vscatterdps, vscatterdpd, vscatterqps, vscatterqpd
        (
            MEM | WIG | L012 | VSIB,
            &[0x90, 0x91, 0x92, 0x93, 0xa0, 0xa1, 0xa2, 0xa3],
        ),
        // vexp2ps, vexp2pd, vrcp28ps, vrcp28pd, vrsqrt28ps, vrsqrt28pd
        (BOTH | WIG | L2, &[0xc8, 0xca, 0xcc]),
    ]),
    // F3.
    table(&[
        // vpmovuswb, vpmovusdb, vpmovusqb, vpmovusdw, vpmovusqw, vpmovusqd, vpmovswb, vpmovsdb, vpmovsqb,
        // vpmovsdw, vpmovsqw, vpmovsqd, vpmovwb, vpmovdb, vpmovqb, vpmovdw, vpmovqw, vpmovqd, vdpbf16ps,
        // vcvtneps2bf16
        (
            BOTH | W0 | L012,
            &[
                0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x30, 0x31,
                0x32, 0x33, 0x34, 0x35, 0x52, 0x72,
            ],
        ),
        // vptestnmb, vptestnmw, vptestnmd, vptestnmq
        (BOTH | WIG | L012, &[0x26, 0x27]),
        // vpmovm2b, vpmovm2w, vpmovb2m, vpmovw2m, vpmovm2d, vpmovm2q, vpmovd2m, vpmovq2m
        (REG | WIG | L012, &[0x28, 0x29, 0x38, 0x39]),
        // vpbroadcastmb2q
        (REG | W1 | L012, &[0x2a]),
        // vpbroadcastmw2d
        (REG | W0 | L012, &[0x3a]),
    ]),
    // F2.
    table(&[
        // vp4dpwssd, vp4dpwssds, v4fmaddps, v4fnmaddps
        (MEM | W0 | L2, &[0x52, 0x53, 0x9a, 0xaa]),
        // vcvtne2ps2bf16
        (BOTH | W0 | L012, &[0x72]),
        // v4fmaddss, v4fnmaddss
        (MEM | W0 | L012, &[0x9b, 0xab]),
    ]),
];
/// Map 3.
pub(crate) static EVEX_3A: [Table; 4] = [
    // no prefix.
    table(&[
        // vrndscaleph, vrndscalesh, vgetmantph, vgetmantsh, vreduceph, vreducesh, vfpclassph, vfpclasssh, vcmpph
        (
            BOTH | W0 | L012,
            &[0x08, 0x0a, 0x26, 0x27, 0x56, 0x57, 0x66, 0x67, 0xc2],
        ),
    ]),
    // 66.
    table(&[
        // vpermq, vpermpd
        (BOTH | W1 | L12, &[0x00, 0x01]),
        // valignd, valignq, vpalignr, vpcmpud, vpcmpuq, vpcmpd, vpcmpq, vpternlogd, vpternlogq, vgetmantps,
        // vgetmantpd, vgetmantss, vgetmantsd, vpcmpub, vpcmpuw, vpcmpb, vpcmpw, vpclmulqdq, vrangeps, vrangepd,
        // vrangess, vrangesd, vfixupimmps, vfixupimmpd, vfixupimmss, vfixupimmsd, vreduceps, vreducepd, vreducess,
        // vreducesd, vfpclassps, vfpclasspd, vfpclassss, vfpclasssd, vpshldd, vpshldq, vpshrdd, vpshrdq
        (
            BOTH | WIG | L012,
            &[
                0x03, 0x0f, 0x1e, 0x1f, 0x25, 0x26, 0x27, 0x3e, 0x3f, 0x44, 0x50, 0x51, 0x54, 0x55,
                0x56, 0x57, 0x66, 0x67, 0x71, 0x73,
            ],
        ),
        // vpermilps, vrndscaleps, vrndscaless, vcvtps2ph, vdbpsadbw
        (BOTH | W0 | L012, &[0x04, 0x08, 0x0a, 0x1d, 0x42]),
        // vpermilpd, vrndscalepd, vrndscalesd, vpshldw, vpshrdw, vgf2p8affineqb, vgf2p8affineinvqb
        (
            BOTH | W1 | L012,
            &[0x05, 0x09, 0x0b, 0x70, 0x72, 0xce, 0xcf],
        ),
        // vpextrb, vpextrw, vpextrd, vpextrq, vextractps
        (BOTH | WIG | L0 | SETS_RM, &[0x14, 0x15, 0x16, 0x17]),
        // vinsertf32x4, vinsertf64x2, vextractf32x4, vextractf64x2, vshuff32x4, vshuff64x2, vinserti32x4,
        // vinserti64x2, vextracti32x4, vextracti64x2, vshufi32x4, vshufi64x2
        (BOTH | WIG | L12, &[0x18, 0x19, 0x23, 0x38, 0x39, 0x43]),
        // vinsertf32x8, vinsertf64x4, vextractf32x8, vextractf64x4, vinserti32x8, vinserti64x4, vextracti32x8,
        // vextracti64x4
        (BOTH | WIG | L2, &[0x1a, 0x1b, 0x3a, 0x3b]),
        // vpinsrb, vpinsrd, vpinsrq
        (BOTH | WIG | L0, &[0x20, 0x22]),
        // vinsertps
        (BOTH | W0 | L0, &[0x21]),
    ]),
    // F3.
    table(&[
        // vcmpsh
        (BOTH | W0 | L012, &[0xc2]),
    ]),
    // F2.
    table(&[]),
];
/// Map 5.
pub(crate) static EVEX_5: [Table; 4] = [
    // no prefix.
    table(&[
        // vcvtss2sh, vucomish, vcomish, vsqrtph, vaddph, vmulph, vcvtph2pd, vsubph, vminph, vdivph, vmaxph,
        // vcvttph2udq, vcvtph2udq, vcvttph2uw, vcvtph2uw
        (
            BOTH | W0 | L012,
            &[
                0x1d, 0x2e, 0x2f, 0x51, 0x58, 0x59, 0x5a, 0x5c, 0x5d, 0x5e, 0x5f, 0x78, 0x79, 0x7c,
                0x7d,
            ],
        ),
        // vcvtdq2ph, vcvtqq2ph
        (BOTH | WIG | L012, &[0x5b]),
    ]),
    // 66.
    table(&[
        // vcvtps2phx, vcvtph2dq, vcvttph2uqq, vcvtph2uqq, vcvttph2qq, vcvtph2qq, vcvttph2w, vcvtph2w
        (
            BOTH | W0 | L012,
            &[0x1d, 0x5b, 0x78, 0x79, 0x7a, 0x7b, 0x7c, 0x7d],
        ),
        // vcvtpd2ph
        (BOTH | W1 | L012, &[0x5a]),
        // vmovw
        (BOTH | WIG | L0, &[0x6e]),
        // vmovw
        (BOTH | WIG | L0 | SETS_RM, &[0x7e]),
    ]),
    // F3.
    table(&[
        // vmovsh, vsqrtsh, vaddsh, vmulsh, vcvtsh2sd, vcvttph2dq, vsubsh, vminsh, vdivsh, vmaxsh, vcvtw2ph
        (
            BOTH | W0 | L012,
            &[
                0x10, 0x11, 0x51, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x7d,
            ],
        ),
        // vcvtsi2sh, vcvtusi2sh
        (BOTH | WIG | L012, &[0x2a, 0x7b]),
        // vcvttsh2si, vcvtsh2si, vcvttsh2usi, vcvtsh2usi
        (BOTH | WIG | L012 | SETS_REG, &[0x2c, 0x2d, 0x78, 0x79]),
    ]),
    // F2.
    table(&[
        // vcvtsd2sh
        (BOTH | W1 | L012, &[0x5a]),
        // vcvtudq2ph, vcvtuqq2ph
        (BOTH | WIG | L012, &[0x7a]),
        // vcvtuw2ph
        (BOTH | W0 | L012, &[0x7d]),
    ]),
];
/// Map 6.
pub(crate) static EVEX_6: [Table; 4] = [
    // no prefix.
    table(&[
        // vcvtsh2ss
        (BOTH | W0 | L012, &[0x13]),
    ]),
    // 66.
    table(&[
        // vcvtph2psx, vscalefph, vscalefsh, vgetexpph, vgetexpsh, vrcpph, vrcpsh, vrsqrtph, vrsqrtsh,
        // vfmaddsub132ph, vfmsubadd132ph, vfmadd132ph, vfmadd132sh, vfmsub132ph, vfmsub132sh, vfnmadd132ph,
        // vfnmadd132sh, vfnmsub132ph, vfnmsub132sh, vfmaddsub213ph, vfmsubadd213ph, vfmadd213ph, vfmadd213sh,
        // vfmsub213ph, vfmsub213sh, vfnmadd213ph, vfnmadd213sh, vfnmsub213ph, vfnmsub213sh, vfmaddsub231ph,
        // vfmsubadd231ph, vfmadd231ph, vfmadd231sh, vfmsub231ph, vfmsub231sh, vfnmadd231ph, vfnmadd231sh,
        // vfnmsub231ph, vfnmsub231sh
        (
            BOTH | W0 | L012,
            &[
                0x13, 0x2c, 0x2d, 0x42, 0x43, 0x4c, 0x4d, 0x4e, 0x4f, 0x96, 0x97, 0x98, 0x99, 0x9a,
                0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae,
                0xaf, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf,
            ],
        ),
    ]),
    // F3.
    table(&[
        // vfmaddcph, vfmaddcsh, vfmulcph, vfmulcsh
        (BOTH | W0 | L012, &[0x56, 0x57, 0xd6, 0xd7]),
    ]),
    // F2.
    table(&[
        // vfcmaddcph, vfcmaddcsh, vfcmulcph, vfcmulcsh
        (BOTH | W0 | L012, &[0x56, 0x57, 0xd6, 0xd7]),
    ]),
];
