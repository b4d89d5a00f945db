//! Compares what the program knows of its memory with the answers. No byte may be wrong, whoever else writes.

use hindsight_lab::Scene;
use hindsight_timeline::{Filter, Kind, KindOf, Options, Timeline};

/// `tell(p, n)` says by a system call where memory is, and only then looks at it. Everything is printed at the end.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/aio_abi.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
static struct { volatile unsigned char *p; int n; unsigned char b[64]; } told[256];
static int tolds;
static __attribute__((noinline)) void tell(volatile void *p, int n) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "0"(3L), "D"(-77L), "S"(p), "d"((long) n)
                     : "rcx", "r11", "memory");
    told[tolds].p = p;
    told[tolds].n = n;
    for (int i = 0; i < n; i++) told[tolds].b[i] = ((volatile unsigned char *) p)[i];
    tolds++;
}
/// Waits a little, without the C library.
static void nap(void) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "0"(24L) : "rcx", "r11", "memory");
}
static void done(void) {
    for (int i = 0; i < tolds; i++) {
        for (int k = 0; k < told[i].n; k++) printf("%02x", told[i].b[k]);
        printf("\n");
    }
    fflush(stdout);
    _exit(0);
}
/// Has accessed these bytes.
static void know(volatile void *p, int n, int c) {
    for (int i = 0; i < n; i++) ((volatile char *) p)[i] = c + i;
}
"#;

/// Records a program with options and compares. Returns how many of its bytes are known.
fn compare(source: &str, options: &[&str]) -> usize {
    let s = Scene::new();
    let file = s.path("truth.c");
    std::fs::write(&file, format!("{PRELUDE}{source}")).unwrap();
    let program = s.path("truth");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O0", "-w", "-pthread", "-fno-builtin", "-o"])
        .arg(&program)
        .arg(&file);
    assert!(gcc.status().unwrap().success());
    let trace = s.path("t.hst");
    let mut command = s.hindsight(&["record", "--quiet"]);
    command.args(options).arg("-o");
    let run = s.run(command.arg(&trace).arg("--").arg(&program));
    assert!(run.status.success(), "{}", run.messages());
    let t = Timeline::open(&trace, Options::default()).unwrap();
    let filter = Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: vec![3],
        ..Filter::default()
    };
    let list = t.events(&filter).unwrap().into_iter();
    let said = list.filter_map(|h| match h.kind {
        Kind::Syscall { args, .. } if args[0] as i32 == -77 => Some((h, args)),
        _ => None,
    });
    let said: Vec<_> = said.collect();
    let text = run.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), said.len(), "{text}");
    let mut c = t.cursor().unwrap();
    let mut known = 0;
    for (i, ((h, args), line)) in said.iter().zip(lines).enumerate() {
        let truth: Vec<u8> = (0..args[2] as usize)
            .map(|k| u8::from_str_radix(&line[2 * k..2 * k + 2], 16).unwrap())
            .collect();
        for behind in [0, 1] {
            c.seek_count(h.thread, h.count + behind).unwrap();
            let m = c.memory(args[1], truth.len()).unwrap();
            for (k, (have, want)) in m.bytes.iter().zip(&truth).enumerate() {
                let Some(have) = have else { continue };
                assert_eq!(
                    have.value, *want,
                    "{options:?}, place {i} (+{behind}), byte {k}: said to be {have:?}\n{m}"
                );
                known += 1;
            }
        }
    }
    known
}

fn both(source: &str) -> [usize; 2] {
    ["quiet", "checked"].map(|r| compare(source, &["--regime", r]))
}

#[test]
fn system_calls_write() {
    let known = both(
        r#"
        static char buf[4096], other[64];
        static struct { char c[64]; } s;
        int main() {
            int p[2], q[2], n = 64;
            know(p, 8, 1);
            pipe(p);
            tell(p, 8);
            socketpair(AF_UNIX, SOCK_STREAM, 0, q);
            tell(q, 8);
            know(buf, 64, 5);
            write(p[1], "hello, world", 12);
            read(p[0], buf, 64);
            tell(buf, 64);
            know(buf, 64, 5); know(other, 64, 9);
            struct iovec v[2] = { { buf + 3, 5 }, { other, 64 } };
            write(p[1], "HELLO, WORLD", 12);
            readv(p[0], v, 2);
            tell(buf, 64); tell(other, 64);
            know(buf, 64, 7); know(other, 64, 9);
            struct sockaddr_un from;
            know(&from, 64, 3);
            struct msghdr m = { &from, sizeof from, v, 2, s.c, 64, 0 };
            know(s.c, 64, 1);
            send(q[0], "message here", 12, 0);
            recvmsg(q[1], &m, 0);
            tell(buf, 64); tell(other, 64); tell(&m, sizeof m); tell(s.c, 64);
            know(buf, 64, 7);
            send(q[0], "again", 5, 0);
            know(&n, 4, 64); n = sizeof from;
            recvfrom(q[1], buf, 64, 0, (void *) &from, &n);
            tell(buf, 64); tell(&n, 4); tell(&from, 64);
            know(&from, 64, 3); n = sizeof from;
            getsockname(q[1], (void *) &from, &n);
            tell(&from, 8); tell(&n, 4);
            struct stat st; know(&st, 64, 8);
            fstat(0, &st);
            tell(&st, 64);
            struct timespec ts; know(&ts, 16, 4);
            syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
            tell(&ts, 16);
            clock_gettime(CLOCK_MONOTONIC, &ts);
            tell(&ts, 16);
            struct pollfd f = { p[1], POLLOUT, 0x55 };
            tell(&f, 8);
            poll(&f, 1, 0);
            tell(&f, 8);
            know(&n, 4, 1);
            write(p[1], "abc", 3);
            ioctl(p[0], FIONREAD, &n);
            tell(&n, 4);
            int e = epoll_create1(0);
            struct epoll_event ev = { EPOLLIN, { .u64 = 77 } }, got[2];
            epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev);
            know(got, 24, 3);
            epoll_wait(e, got, 2, 0);
            tell(got, 24);
            struct utsname u; know(&u, 64, 2);
            uname(&u);
            tell(&u, 64);
            sigset_t old; know(&old, 8, 2);
            sigprocmask(SIG_BLOCK, 0, &old);
            tell(&old, 8);
            know(buf, 64, 4); know(other, 64, 2);
            struct iovec l = { "from myself to myself", 21 }, r = { buf, 21 };
            syscall(SYS_process_vm_writev, getpid(), &l, 1, &r, 1, 0);
            tell(buf, 64);
            tell(other, 64);
            know(other, 64, 2);
            tell(other, 64);
            done();
        }"#,
    );
    assert!(known[0] > 600 && known[1] > 150, "{known:?}");
}

#[test]
fn mappings_come_and_go() {
    let known = both(
        r#"
        static char initial[64] = "what the file has", zero[4096];
        static const char fixed[64] = "never changes";
        int main() {
            long anon = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
            tell(initial, 64); tell(zero + 2000, 32); tell(fixed, 64);
            char *a = mmap(0, 65536, rw, anon, -1, 0);
            tell(a + 100, 16);
            know(a, 64, 1); know(a + 8192, 64, 1);
            madvise(a, 4096, MADV_DONTNEED);
            tell(a, 64); tell(a + 8192, 64);
            know(a, 64, 1);
            mmap(a, 4096, rw, anon | MAP_FIXED, -1, 0);
            tell(a, 64);
            know(a, 64, 3);
            char *b = mremap(a, 65536, 1 << 20, MREMAP_MAYMOVE);
            tell(b, 64); tell(b + 8192, 64); tell(b + 65536, 16);
            know(b, 64, 5);
            int fd = open("file", O_RDWR | O_CREAT, 0600);
            write(fd, "contents of the file, which are longer than what is looked at here", 64);
            mmap(b, 4096, rw, MAP_PRIVATE | MAP_FIXED, fd, 0);
            tell(b, 64); tell(b + 64, 64);
            know(b, 16, 5);
            tell(b, 64);
            madvise(b, 4096, MADV_DONTNEED);
            tell(b, 64);
            know(b, 64, 2);
            mmap(b, 4096, rw, MAP_SHARED | MAP_FIXED, fd, 0);
            tell(b, 64);
            know(b, 32, 2);
            tell(b, 64);
            pwrite(fd, "changed behind its back", 23, 4);
            tell(b, 64);
            char *big = mmap(0, 3L << 30, rw, anon | MAP_NORESERVE, -1, 0);
            know(big, 64, 1);
            munmap(big, 3L << 30);
            mmap(big, 3L << 30, rw, anon | MAP_NORESERVE | MAP_FIXED, -1, 0);
            tell(big, 64);
            char *h = sbrk(4096 * 4);
            know(h + 8192, 64, 1);
            sbrk(-4096 * 3); sbrk(4096 * 3);
            tell(h + 8192, 64);
            done();
        }"#,
    );
    assert!(known[0] > 400 && known[1] > 400, "{known:?}");
}

#[test]
fn signals_write_their_frames() {
    let known = both(
        r#"
        static char stack[65536] __attribute__((aligned(64)));
        static volatile int hits;
        static void on(int n, siginfo_t *i, void *c) { hits++; }
        static __attribute__((noinline)) void below(int n, int look) {
            volatile char area[16384];
            if (look) for (int i = 0; i < 16384 - 64; i += 1024) tell(area + i, 64);
            else know(area, 16384, n);
        }
        int main() {
            struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
            sigaction(SIGUSR1, &a, 0);
            below(1, 0);
            raise(SIGUSR1);
            below(1, 1);
            stack_t alt = { stack, 0, sizeof stack };
            sigaltstack(&alt, 0);
            a.sa_flags |= SA_ONSTACK;
            sigaction(SIGUSR2, &a, 0);
            know(stack, sizeof stack, 3);
            raise(SIGUSR2);
            for (int i = sizeof stack - 8192; i < sizeof stack; i += 256) tell(stack + i, 64);
            done();
        }"#,
    );
    assert!(known[0] > 3000 && known[1] > 3000, "{known:?}");
}

#[test]
fn other_threads_write() {
    let known = both(
        r#"
        static char buf[64], seen[64];
        static volatile int stage;
        static int p[2];
        static void *other(void *x) {
            know(seen, 64, 40);
            while (stage != 1) nap();
            read(p[0], buf, 64);
            stage = 2;
            while (stage != 3) nap();
            know(seen, 64, 50);
            return 0;
        }
        static volatile int id, ended;
        static int quick(void *x) { while (!ended) nap(); return 0; }
        static char quick_stack[65536] __attribute__((aligned(16)));
        int main() {
            pthread_t t;
            pipe(p);
            know(buf, 64, 1);
            pthread_create(&t, 0, other, 0);
            tell(buf, 64);
            write(p[1], "by another thread's call", 24);
            stage = 1;
            while (stage != 2) nap();
            tell(buf, 64);
            stage = 3;
            pthread_join(t, 0);
            tell(seen, 64);
            know(seen, 8, 1);
            tell(seen, 64);
            // The kernel clears a word when a thread has ended.
            long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM
                | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
            clone(quick, quick_stack + 65536, flags, 0, &id, 0, &id);
            int before = id;
            tell(&id, 4);
            ended = 1;
            usleep(100000);
            tell(&id, 4);
            done();
        }"#,
    );
    assert!(known[0] > 150 && known[1] > 150, "{known:?}");
}

#[test]
fn other_processes_write() {
    for children in ["follow", "none"] {
        for regime in ["quiet", "checked"] {
            let options = ["--children", children, "--regime", regime];
            let known = compare(
                r#"
                static volatile char plain[64], lent[64];
                static int child(void *x) { know(lent, 32, 60); return 0; }
                int main() {
                    int p[2], q[2];
                    char c;
                    pipe(p); pipe(q);
                    volatile char *both = mmap(0, 4096, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                    know(both, 64, 1); know(plain, 64, 2);
                    if (fork() == 0) {
                        read(p[0], &c, 1);
                        know(both, 32, 99); know(plain, 64, 99);
                        write(q[1], "x", 1);
                        read(p[0], &c, 1);
                        know(both, 32, 1);
                        _exit(0);
                    }
                    write(p[1], "x", 1);
                    read(q[0], &c, 1);
                    tell(both, 64);
                    write(p[1], "x", 1);
                    int status;
                    know(&status, 4, 7);
                    wait(&status);
                    tell(&status, 4); tell(both, 64); tell(plain, 64);
                    know(lent, 64, 10);
                    static char stack[65536];
                    int pid = clone(child, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
                    tell(lent, 64);
                    waitpid(pid, 0, 0);
                    tell(lent, 64);
                    done();
                }"#,
                &options,
            );
            assert!(known >= 128, "{options:?}: {known}");
        }
    }
}

#[test]
fn a_forked_process_has_what_was_copied() {
    let known = both(
        r#"
        static volatile char a[64], b[64], c[64], d[4096] __attribute__((aligned(4096)));
        int main() {
            int p[2];
            pipe(p);
            know(a, 64, 1); know(b, 64, 1); know(c, 64, 1); know(d, 4096, 1);
            int pid = fork();
            if (pid) {
                know(a, 64, 90);
                write(p[1], "to the child", 12);
                wait(0);
                _exit(0);
            }
            tell(a, 64);
            read(p[0], (void *) b, 64);
            tell(b, 64);
            know(c, 4, 70);
            tell(c, 64);
            mmap((void *) d, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            tell(d, 64);
            // The C library's own idea of the thread's id, which the kernel writes.
            for (int i = 0; i < 2048; i += 64) tell((char *) pthread_self() + i, 64);
            done();
        }"#,
    );
    assert!(known[0] > 400 && known[1] > 400, "{known:?}");
}

#[test]
fn what_is_not_recorded_writes() {
    let source = r#"
        static char buf[64], more[64];
        static volatile int go;
        static void *other(void *x) {
            while (!go) nap();
            memset(more, 9, 64);
            go = 2;
            return 0;
        }
        int main() {
            know(buf, 64, 1); know(more, 64, 1);
            memset(buf, 7, 32);
            tell(buf, 64);
            know(buf, 16, 1);
            tell(buf, 64);
            pthread_t t;
            pthread_create(&t, 0, other, 0);
            know(more, 64, 1);
            go = 1;
            while (go != 2) nap();
            tell(more, 64);
            know(more, 64, 1);
            tell(more, 64);
            done();
        }"#;
    for options in [["--skip-module", "libc*"], ["--only-module", "truth"]] {
        let known = compare(source, &options);
        assert!(known >= 64, "{options:?}: {known}");
    }
}

#[test]
fn the_kernel_writes_while_the_program_runs() {
    let known = both(
        r#"
        static char buf[64], more[64];
        int main() {
            int fd = open("file", O_RDWR | O_CREAT, 0600);
            write(fd, "read by the kernel in its own time, while the program does others", 64);
            aio_context_t ctx = 0;
            know(buf, 64, 1); know(more, 64, 1);
            tell(more, 64);
            if (syscall(SYS_io_setup, 4, &ctx)) done();
            struct iocb cb = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd,
                               .aio_buf = (unsigned long) buf, .aio_nbytes = 64 }, *list[1] = { &cb };
            syscall(SYS_io_submit, ctx, 1, list);
            struct io_event e;
            syscall(SYS_io_getevents, ctx, 1, 1, &e, 0);
            tell(buf, 64);
            know(more, 16, 5);
            done();
        }"#,
    );
    assert!(known[0] >= 64 && known[1] >= 64, "{known:?}");
}
