//! The half of the recorder that lives in the recorded process.
//!
//! A freestanding image without C library, thread-local storage or threads of its own. The
//! command line has the kernel execute it with exactly the program's arguments and environment;
//! it loads the program into the same address space, onto the same stack, and runs translated
//! copies of the program's code until it exits.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]
extern crate alloc;

mod actions;
mod arena;
mod attach;
mod backing;
mod birth;
mod bpf;
mod cache;
mod channel;
mod chaos;
mod code;
mod confined;
mod context;
mod cores;
mod death;
mod detach;
mod dispatch;
mod doom;
mod exceptions;
mod exec;
mod fail;
mod far;
mod features;
mod filters;
mod gap;
mod guard;
mod handing;
mod heap;
mod inbox;
mod joint;
mod kept;
mod limits;
mod loader;
mod lock;
mod maps;
mod mark;
mod mem;
mod memcalls;
mod nondet;
mod order;
mod pathcalls;
mod pending;
mod place;
mod precheck;
mod process;
mod processor;
mod procfiles;
mod program;
mod regime;
mod ring;
mod script;
mod select;
mod sharers;
mod sigcalls;
mod sigframe;
mod sighandler;
mod signals;
mod slow;
mod stack;
mod stepping;
mod stub;
mod surprise;
mod symtab;
mod sys;
mod syscalls;
mod thread;
mod traced;
mod vsib;
mod vsyscall;
mod xstate;

use core::arch::global_asm;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use hindsight_events::config::Config;
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{Predictor, VecState};
use linux_raw_sys::auxvec::{AT_EXECFN, AT_HWCAP2, AT_SYSINFO_EHDR};
use stack::Stack;
use thread::Thread;

/// Filled in by the command line in the image before it is executed.
#[used]
static mut CONFIG: Config = Config::new();

/// Where the configuration is, if not there: an image that is mapped from the control file has it elsewhere
/// (see [`exec`]).
static CONFIGURED: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// The recorder's stack: the kernel's is the program's.
const STACK: usize = 1 << 20;

// The lowest page of the stack is never touched: it becomes the guard page.
global_asm!(
    ".globl _start, hindsight_configured, hindsight_stack, hindsight_stack_end",
    "_start:",
    "xor esi, esi",
    // From a starter: rsi has the address of the configuration.
    "hindsight_configured:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsp, [rip + hindsight_stack + {size}]",
    "call {main}",
    "ud2",
    ".section .bss.hindsight_stack, \"aw\", @nobits",
    ".balign 4096",
    "hindsight_stack:",
    ".zero {size}",
    "hindsight_stack_end:",
    ".text",
    size = const STACK,
    main = sym recorder_main,
);

unsafe extern "C" {
    static hindsight_stack: u8;
}

/// Whether an address lies on the stack that the first thread has in the recorder.
pub fn on_first_stack(at: u64) -> bool {
    let start = &raw const hindsight_stack as u64;
    (start..start + STACK as u64).contains(&at)
}

/// The configuration.
pub fn config() -> &'static Config {
    let elsewhere = CONFIGURED.load(Relaxed).cast_const();
    let at = if elsewhere.is_null() {
        &raw const CONFIG
    } else {
        elsewhere
    };
    // SAFETY: nothing writes it while the process runs. The pointer is hidden from the compiler,
    // which would otherwise read the value that the source gives.
    unsafe { &*core::hint::black_box(at) }
}

extern "C" fn recorder_main(sp: *mut u64, configured: *mut Config) -> ! {
    CONFIGURED.store(configured, Relaxed);
    // SAFETY: `sp` is what the kernel left in the stack pointer.
    let mut stack = unsafe { Stack::new(sp) };
    sys::allow_fsgsbase(stack.aux(AT_HWCAP2).unwrap_or(0) & 2 != 0);
    let _ = sys::mprotect(&raw const hindsight_stack as u64, sys::PAGE, sys::PROT_NONE);
    let config = config();
    select::init();
    if config.ctl_fd >= 0 {
        ring::open(config.ctl_fd, config.parent, config.ring, stack.arguments());
    }
    if config.parent != 0 {
        order::matters();
    }
    let vdso = stack.aux(AT_SYSINFO_EHDR);
    let end = stack.aux(AT_EXECFN).unwrap_or(stack.pointer()) + 1;
    maps::regions().add_initial(stack.pointer()..end, vdso);
    let path = |p: &'static [u8]| CStr::from_bytes_until_nul(p).unwrap_or(c"");
    // The kernel would need no descriptor for the program's interpreter.
    let raised = limits::Raised::new();
    let program = loader::load(
        config.exe_fd,
        path(&config.exe),
        path(&config.execfn),
        &mut stack,
    );
    drop(raised);
    memcalls::set_brk(program.brk);
    procfiles::set_auxv(stack.aux_bytes());
    start(&program, stack.pointer())
}

/// Makes the first thread and runs it.
fn start(program: &loader::Program, sp: u64) -> ! {
    let host = Host::detect(config().plain != 0);
    let emit = if host.plain {
        Some(ring::Emitter::silent())
    } else {
        ring::Emitter::thread()
    };
    let Some(emit) = emit else {
        fail::die(fail::STATUS, &line!("too many threads"))
    };
    let t = host.thread(emit);
    sys::set_gs_base(t.window + hindsight_isa::ctx::APART as u64);
    t.prepare_lookup();
    cache::init(host.policy());
    t.tid = sys::gettid();
    t.place.arrive(true);
    birth::register(t);
    t.filters.inherit(&inherited());
    signals::install(t);
    t.ctx.rip = program.entry;
    t.ctx.gpr[4] = sp;
    t.ctx.rflags = 0;
    let initial = {
        let mut area = Area::default();
        host.layout.from_state(&VecState::default(), &mut area);
        area
    };
    t.set_area(&initial);
    if config().parent != 0 {
        // Its place is behind all that the image did which it replaces.
        t.sequence();
    }
    t.begin();
    if regime::possible() && t.emit.ctl().is_some() {
        regime::begin(t, &program.written);
    }
    dispatch::run(t)
}

/// What the program that this one replaces has set for its successors.
fn inherited() -> alloc::vec::Vec<u8> {
    let config = config();
    let mut state = alloc::vec![0; config.state_len as usize];
    if config.state_fd >= 0 {
        let read = sys::pread(config.state_fd, &mut state, 0);
        sys::close(config.state_fd);
        if read != Ok(state.len()) {
            fail::die(
                fail::STATUS,
                &line!("cannot read the filters of system calls that the program has set"),
            );
        }
    }
    state
}

/// What this processor and the configuration ask of threads and translated code.
struct Host {
    plain: bool,
    predictor: Predictor,
    layout: Layout,
    wide_checks: bool,
}

impl Host {
    fn detect(plain: bool) -> Host {
        let Some(layout) = Layout::detect_with(processor::ask) else {
            fail::die(
                fail::STATUS,
                &line!("this processor has no XSAVE, or keeps its state in an unknown place"),
            );
        };
        Host {
            plain,
            predictor: Predictor {
                bits: config().predictor_bits,
            },
            layout,
            wide_checks: !plain && layout.mask & 0xe0 == 0xe0 && has_avx512vl(),
        }
    }

    /// Makes a thread.
    fn thread(&self, emit: ring::Emitter) -> &'static mut Thread {
        match Thread::make(self.predictor, emit, self.layout, self.wide_checks) {
            Ok(t) => t,
            Err(e) => fail::die(
                fail::STATUS,
                &line!(
                    "cannot reserve the predictor (error {e}): is the address space limited? try --predictor cache:64k"
                ),
            ),
        }
    }

    fn policy(&self) -> hindsight_translate::Policy {
        cache::policy(self.plain, self.predictor, self.wide_checks)
    }
}

/// AVX-512 with vectors of all lengths and the instructions on bytes, words and quadwords that
/// the wide checks use (F, DQ, BW, VL).
fn has_avx512vl() -> bool {
    let b = processor::ask(7, 0).ebx;
    [16, 17, 30, 31].iter().all(|n| b >> n & 1 != 0)
}
