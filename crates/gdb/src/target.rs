//! The session as the protocol library wants it.

use crate::program::{files, libraries};
use crate::state::action::Action;
use crate::state::arch::{Number, State, X86_64};
use crate::state::session::Session;
use crate::state::stops::Break;
use crate::{Error, monitor};
use gdbstub::common::{Pid, Signal, Tid};
use gdbstub::target::ext::auxv::{Auxv, AuxvOps};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::*;
use gdbstub::target::ext::base::reverse_exec::*;
use gdbstub::target::ext::base::single_register_access::*;
use gdbstub::target::ext::breakpoints::*;
use gdbstub::target::ext::catch_syscalls::*;
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::extended_mode::*;
use gdbstub::target::ext::host_io::*;
use gdbstub::target::ext::libraries::{LibrariesSvr4, LibrariesSvr4Ops};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use hindsight_text::line;
use hindsight_timeline::{Watch, Watchpoint};

/// EFAULT: memory whose value is not known.
const UNKNOWN: u8 = 14;
/// EPERM: this register cannot be changed, not even in a side branch.
const CONSTANT: u8 = 1;
const ENOENT: u8 = 2;
/// ESRCH
const NO_PROCESS: u8 = 3;

fn whole<T>(r: crate::Result<T>) -> TargetResult<T, Session> {
    // What one question runs into must not end the session.
    r.map_err(|_| TargetError::NonFatal)
}

/// A part of a content that is asked for in pieces.
fn piece(content: &[u8], offset: u64, length: usize, buf: &mut [u8]) -> usize {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = content.get(from..).unwrap_or(&[]);
    let n = rest.len().min(length).min(buf.len());
    buf[..n].copy_from_slice(&rest[..n]);
    n
}

impl Target for Session {
    type Arch = X86_64;
    type Error = Error;

    fn base_ops(&mut self) -> BaseOps<'_, X86_64, Error> {
        BaseOps::MultiThread(self)
    }
    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }
    fn support_catch_syscalls(&mut self) -> Option<CatchSyscallsOps<'_, Self>> {
        Some(self)
    }
    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }
    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }
    fn support_libraries_svr4(&mut self) -> Option<LibrariesSvr4Ops<'_, Self>> {
        Some(self)
    }
    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }
    fn support_extended_mode(&mut self) -> Option<ExtendedModeOps<'_, Self>> {
        Some(self)
    }
    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }
    // Conditions come as programs; commands are not run here.
    fn use_rle(&self) -> bool {
        true
    }
}

/// No program has memory here. The commands of gdb's script read it after a command that moved: not 0 where gdb has
/// chosen another thread than the one to which it led; the next run then does nothing but tell gdb of that one.
const ELSEWHERE: u64 = 0x9e48_494e_4453_4754;
/// Neither here: read before each command and step backwards, so that gdb says which process and thread have been chosen.
const HERE: u64 = ELSEWHERE + 8;
/// Nor here: not 0 where the last question of who wrote something was about a register.
const REGISTER: u64 = ELSEWHERE + 16;

impl MultiThreadBase for Session {
    fn read_registers(&mut self, regs: &mut State, tid: Tid) -> TargetResult<(), Self> {
        *regs = whole(self.registers(tid))?;
        Ok(())
    }

    fn write_registers(&mut self, regs: &State, tid: Tid) -> TargetResult<(), Self> {
        let mut new = whole(self.registers(tid))?;
        // The others are not in the packet.
        (new.cpu.gpr, new.cpu.rip, new.cpu.rflags) = (regs.cpu.gpr, regs.cpu.rip, regs.cpu.rflags);
        whole(self.set_registers(tid, &new))
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        if start == ELSEWHERE && data.len() == 1 {
            self.showing = self.any_thread(tid) != Some(self.inferior.cursor.thread());
            data.fill(self.showing as u8);
            return Ok(data.len());
        }
        if start == HERE && data.len() == 1 {
            self.chosen_thread = Some(tid);
            data.fill(0);
            return Ok(data.len());
        }
        if start == REGISTER && data.len() == 1 {
            data.fill(self.register_asked as u8);
            return Ok(data.len());
        }
        let known = whole(self.read(start, data.len()))?;
        if known.is_empty() && !data.is_empty() {
            return Err(TargetError::Errno(UNKNOWN));
        }
        data[..known.len()].copy_from_slice(&known);
        Ok(known.len())
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        // gdb writes back what it has not changed.
        if whole(self.read(start, data.len()))? == data {
            return Ok(());
        }
        match whole(self.write(tid, start, data))? {
            true => Ok(()),
            false => Err(TargetError::Errno(UNKNOWN)),
        }
    }

    fn list_active_threads(&mut self, register: &mut dyn FnMut(Tid)) -> Result<(), Error> {
        self.live()?.into_iter().for_each(register);
        Ok(())
    }

    fn is_thread_alive(&mut self, tid: Tid) -> Result<bool, Error> {
        let all = self.all_live()?;
        Ok(all.iter().any(|(_, t)| self.tid(*t) == tid))
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl SingleRegisterAccess<Tid> for Session {
    fn read_register(
        &mut self,
        tid: Tid,
        reg: Number,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let state = whole(self.registers(tid))?;
        let bytes = state.register(reg.0).ok_or(TargetError::NonFatal)?;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn write_register(&mut self, tid: Tid, reg: Number, val: &[u8]) -> TargetResult<(), Self> {
        let mut state = whole(self.registers(tid))?;
        if state.register(reg.0).as_deref() == Some(val) {
            return Ok(());
        }
        if !state.set_register(reg.0, val) {
            return Err(TargetError::Errno(CONSTANT));
        }
        whole(self.set_registers(tid, &state))
    }
}

impl MultiThreadResume for Session {
    fn resume(&mut self) -> Result<(), Error> {
        // Done by the server once the library has said that it is running.
        Ok(())
    }
    fn clear_resume_actions(&mut self) -> Result<(), Error> {
        self.action = Action::Continue;
        self.locked = false;
        self.continued = None;
        self.several = false;
        Ok(())
    }
    fn set_resume_action_continue(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), Error> {
        // Signals are as they were; and a step of one thread is done before the others run.
        self.several |= self.continued.is_some();
        self.continued = Some(tid);
        Ok(())
    }
    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }
    fn support_range_step(&mut self) -> Option<MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }
    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }
    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Session {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), Error> {
        self.action = Action::Step(tid);
        Ok(())
    }
}

impl MultiThreadRangeStepping for Session {
    fn set_resume_action_range_step(
        &mut self,
        tid: Tid,
        start: u64,
        end: u64,
    ) -> Result<(), Error> {
        self.action = Action::Range(tid, start, end);
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Session {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Error> {
        // lldb names all threads that run, one by one. A run stops for one thread or for all.
        self.locked = !self.several;
        Ok(())
    }
}

impl ReverseStep<Tid> for Session {
    fn reverse_step(&mut self, tid: Tid) -> Result<(), Error> {
        // gdb names a thread only if the others are not to run.
        let chosen = self.chosen_thread.filter(|_| !self.locked);
        self.action = Action::ReverseStep(chosen.unwrap_or(tid));
        Ok(())
    }
}

impl ReverseCont<Tid> for Session {
    fn reverse_cont(&mut self) -> Result<(), Error> {
        self.action = Action::ReverseContinue;
        Ok(())
    }
}

impl Breakpoints for Session {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }
    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl Session {
    /// Sets a breakpoint, in place of one that is there.
    pub fn set_break(&mut self, new: Break) {
        self.inferior
            .breaks
            .retain(|b| (b.address, b.hardware) != (new.address, new.hardware));
        self.inferior.breaks.push(new);
    }

    fn remove_break(&mut self, address: u64, hardware: bool) -> bool {
        let before = self.inferior.breaks.len();
        self.inferior
            .breaks
            .retain(|b| (b.address, b.hardware) != (address, hardware));
        self.inferior.breaks.len() < before
    }
}

impl SwBreakpoint for Session {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.set_break(Break {
            address,
            hardware: false,
            conditions: Vec::new(),
        });
        Ok(true)
    }
    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove_break(address, false))
    }
}

impl HwBreakpoint for Session {
    fn add_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.set_break(Break {
            address,
            hardware: true,
            conditions: Vec::new(),
        });
        Ok(true)
    }
    fn remove_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove_break(address, true))
    }
}

fn watch(kind: WatchKind) -> Watch {
    match kind {
        WatchKind::Write => Watch::Write,
        WatchKind::Read => Watch::Read,
        WatchKind::ReadWrite => Watch::Access,
    }
}

impl HwWatchpoint for Session {
    fn add_hw_watchpoint(
        &mut self,
        address: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        let id = self
            .inferior
            .watches
            .iter()
            .map(|w| w.id)
            .max()
            .map_or(0, |n| n + 1);
        self.inferior.watches.push(Watchpoint {
            id,
            address,
            len,
            watch: watch(kind),
            image: Some(self.inferior.image),
        });
        Ok(true)
    }
    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        let is = |w: &Watchpoint| (w.address, w.len, w.watch) == (address, len, watch(kind));
        let found = self.inferior.watches.iter().position(is);
        if let Some(i) = found {
            self.inferior.watches.remove(i);
        }
        Ok(found.is_some())
    }
}

impl CatchSyscalls for Session {
    fn enable_catch_syscalls(
        &mut self,
        filter: Option<SyscallNumbers<'_, u64>>,
    ) -> TargetResult<(), Self> {
        self.inferior.catch = Some(filter.map_or(Vec::new(), Iterator::collect));
        Ok(())
    }
    fn disable_catch_syscalls(&mut self) -> TargetResult<(), Self> {
        self.inferior.catch = None;
        Ok(())
    }
}

/// Nothing can be started here, but a client may turn to any process of the recording.
impl ExtendedMode for Session {
    fn run(&mut self, _: Option<&[u8]>, _: Args<'_, '_>) -> TargetResult<Pid, Self> {
        Err(TargetError::NonFatal)
    }
    fn attach(&mut self, pid: Pid) -> TargetResult<(), Self> {
        match whole(self.activate(pid.get() as u64))? {
            true => Ok(()),
            false => Err(TargetError::Errno(NO_PROCESS)),
        }
    }
    fn query_if_attached(&mut self, _: Pid) -> TargetResult<AttachKind, Self> {
        // So that it is let go in the end, and not killed.
        Ok(AttachKind::Attach)
    }
    fn kill(&mut self, _: Option<Pid>) -> TargetResult<ShouldTerminate, Self> {
        Ok(ShouldTerminate::Yes)
    }
    fn restart(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn support_current_active_pid(&mut self) -> Option<CurrentActivePidOps<'_, Self>> {
        Some(self)
    }
}

impl CurrentActivePid for Session {
    fn current_active_pid(&mut self) -> Result<Pid, Error> {
        let pid = Pid::new(self.inferior.pid as usize);
        Ok(pid.unwrap_or(Pid::MIN))
    }
}

impl Auxv for Session {
    fn get_auxv(&self, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(piece(&self.inferior.auxv, offset, length, buf))
    }
}

impl ExecFile for Session {
    fn get_exec_file(
        &self,
        _: Option<Pid>,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let modules = whole(
            self.timeline
                .modules(self.inferior.image)
                .map_err(Error::from),
        )?;
        let program = modules.first().ok_or(TargetError::Errno(ENOENT))?;
        Ok(piece(line(&program.path).as_bytes(), offset, length, buf))
    }
}

impl LibrariesSvr4 for Session {
    fn get_libraries_svr4(
        &self,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let here = whole(self.inferior.cursor.position().map_err(Error::from))?;
        let mut listed = self.listed.borrow_mut();
        let list = libraries::list(&self.timeline, self.inferior.image, here, &mut listed);
        Ok(piece(list.as_bytes(), offset, length, buf))
    }
}

impl ThreadExtraInfo for Session {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, Error> {
        let id = self.any_thread(tid).ok_or(Error::NoThread(tid.get()))?;
        let name = self.inferior.name(&self.timeline, id)?;
        Ok(piece(name.as_bytes(), 0, buf.len(), buf))
    }
}

impl MonitorCmd for Session {
    fn handle_monitor_cmd(&mut self, cmd: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), Error> {
        let text = monitor::run(self, &String::from_utf8_lossy(cmd)).text;
        out.write_raw(text.as_bytes());
        Ok(())
    }
}

impl HostIo for Session {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }
    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }
    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }
    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }
    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
    fn support_readlink(&mut self) -> Option<HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }
}

impl HostIoOpen for Session {
    fn open(
        &mut self,
        filename: &[u8],
        flags: HostIoOpenFlags,
        _: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        if flags.intersects(HostIoOpenFlags::O_WRONLY | HostIoOpenFlags::O_RDWR) {
            return Err(HostIoError::Errno(HostIoErrno::EROFS));
        }
        let here = self
            .inferior
            .cursor
            .position()
            .map_err(|e| HostIoError::Fatal(e.into()))?;
        let opened = self
            .files
            .open(&self.timeline, self.inferior.image, here, filename);
        opened.map_err(HostIoError::Errno)
    }
}

impl HostIoClose for Session {
    fn close(&mut self, fd: u32) -> HostIoResult<(), Self> {
        self.files.close(fd).map_err(HostIoError::Errno)
    }
}

impl HostIoPread for Session {
    fn pread(
        &mut self,
        fd: u32,
        count: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        let n = count.min(buf.len());
        let read = self.files.read(fd, offset, &mut buf[..n]);
        read.map_err(HostIoError::Errno)
    }
}

impl HostIoFstat for Session {
    fn fstat(&mut self, fd: u32) -> HostIoResult<HostIoStat, Self> {
        self.files.stat(fd).map_err(HostIoError::Errno)
    }
}

impl HostIoSetfs for Session {
    fn setfs(&mut self, _: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}

impl HostIoReadlink for Session {
    fn readlink(&mut self, filename: &[u8], buf: &mut [u8]) -> HostIoResult<usize, Self> {
        let target = files::link(&self.timeline, self.inferior.image, filename);
        let target = target.map_err(HostIoError::Errno)?;
        Ok(piece(target.as_bytes(), 0, buf.len(), buf))
    }
}
