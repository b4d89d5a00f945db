//! Where a recording begins: in a process that has executed the recorder's image, at its first
//! instruction.

use crate::code::{cache, select};
use crate::line;
use crate::memory::{brk, fresh, maps, regime, shown};
use crate::process::host::Host;
use crate::process::loader;
use crate::process::stack::Stack;
use crate::run::dispatch;
use crate::signals::delivery;
use crate::stream::ring;
use crate::sys::{self, config, fail, log, many, quiet, resources};
use crate::thread::{self, owners, threads};
use core::ffi::CStr;
use core::ops::Range;
use hindsight_events::config::Config;
use hindsight_isa::VecState;
use hindsight_isa::regs::RSP;
use hindsight_isa::xsave::Area;
use linux_raw_sys::auxvec::{AT_EXECFN, AT_HWCAP2, AT_SYSINFO_EHDR};

/// Runs the program, in a process that the kernel has just begun.
///
/// # Safety
///
/// - `sp` is the value that the kernel left in the stack pointer.
/// - `configured` is null, or points to the configuration.
/// - `own` is the stack in use. Nothing uses its lowest page, which becomes the guard page.
pub unsafe fn begin(sp: *mut u64, configured: *mut Config, own: Range<u64>) -> ! {
    config::set(configured);
    log::begin();
    owners::serve_locks();
    // SAFETY: the caller promises that `sp` is the kernel's stack pointer.
    let mut stack = unsafe { Stack::new(sp) };
    sys::allow_fsgsbase(stack.aux(AT_HWCAP2).unwrap_or(0) & 2 != 0);
    let _ = sys::mprotect(own.start, sys::PAGE, sys::PROT_NONE);
    thread::set_first_stack(own);
    let config = config::get();
    select::init();
    if config.ctl_fd >= 0 {
        ring::open(config.ctl_fd, config.parent, config.ring, stack.arguments());
    }
    if config.parent != 0 {
        many::matters();
    }
    let vdso = stack.aux(AT_SYSINFO_EHDR);
    let end = stack.aux(AT_EXECFN).unwrap_or(stack.pointer()) + 1;
    maps::regions().add_initial(stack.pointer()..end, vdso);
    let path = |p: &'static [u8]| CStr::from_bytes_until_nul(p).unwrap_or(c"");
    // The kernel loads the program's interpreter without a descriptor, the recorder needs one. So
    // the limit is raised meanwhile.
    let raised = resources::Raised::new();
    let program = loader::load(
        config.exe_fd,
        path(&config.exe),
        path(&config.execfn),
        &mut stack,
    );
    drop(raised);
    brk::set_brk(program.brk);
    shown::set_auxv(stack.aux_bytes());
    start(&program, stack.pointer())
}

/// Makes the first thread and runs it.
fn start(program: &loader::Program, sp: u64) -> ! {
    let host = Host::detect(config::get().plain != 0);
    let emit = if host.plain {
        Some(ring::Emitter::silent())
    } else {
        ring::Emitter::thread()
    };
    let Some(emit) = emit else {
        fail::die(fail::STATUS, &line!("too many threads"))
    };
    let t = host.thread(emit, dispatch::run);
    sys::set_gs_base(t.window.gs_base());
    t.prepare_lookup();
    cache::init(host.policy());
    t.task.tid = sys::gettid();
    t.slot.arrive(true);
    threads::register(t);
    t.emulated.filters.inherit(&inherited());
    delivery::install(t);
    t.ctx.rip = program.entry;
    t.ctx.gpr[RSP] = sp;
    t.ctx.rflags = 0;
    let initial = {
        let mut area = Area::default();
        host.layout.from_state(&VecState::default(), &mut area);
        area
    };
    t.set_area(&initial);
    log!(
        Info,
        "the program begins at {:#x}, its stack at {sp:#x}",
        program.entry
    );
    if config::get().parent != 0 {
        // Its first order number comes behind all that the replaced image did.
        t.sequence();
    }
    t.begin();
    if quiet::possible() && t.emit.ctl().is_some() {
        regime::begin(t, &program.written);
    }
    fresh::begin(t);
    dispatch::run(t)
}

/// The state that the replaced program leaves to its successor: its filters of system calls.
fn inherited() -> alloc::vec::Vec<u8> {
    let config = config::get();
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

/// Ends the process at once, without a message.
pub fn abort() -> ! {
    sys::exit_group(fail::STATUS)
}
