section .text
global start
start:
%assign i 0
%rep 20
    add rax, i
    vaddpd ymm1, ymm2, [rbx + rcx * 8 + i * 32]
%assign i i + 1
%endrep
    ret
