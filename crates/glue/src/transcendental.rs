//! Has this processor execute transcendental instructions of the x87.

use core::arch::asm;
use hindsight_isa::Transcendental;
use hindsight_isa::transcendental::REGISTER;
use hindsight_isa::xsave::Area;

/// XSAVE's component of the x87.
const X87: u32 = 1;
/// Offset of the registers in an area, and their distance.
const REGISTERS: usize = 32;
const DISTANCE: usize = 16;
/// Bits of control and status word: one for each exception.
const EXCEPTIONS: u16 = 0x3f;
/// Bit of the status word: an exception waits that is not masked.
const SUMMARY: u16 = 0x80;

/// An area in whose part for the x87 a program's state is.
pub struct X87State(Area);

/// An exception that is not masked waits. The instruction raises it instead of doing something. Its bits of the status word are
/// here.
pub struct Waiting(pub u16);

/// The control word of this processor's x87.
pub fn x87_control() -> u16 {
    let mut control: u16 = 0;
    // SAFETY: it stores two bytes, in a variable that has as many. It waits for no exception.
    unsafe { asm!("fnstcw [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

impl X87State {
    /// The state of this processor.
    pub fn here() -> X87State {
        let mut area = Area::default();
        // SAFETY: an aligned area that is large enough and whose header is zero. It stores nothing but the state of the x87.
        unsafe {
            asm!("xsave64 [{}]", in(reg) &raw mut area, in("eax") X87, in("edx") 0, options(nostack));
        }
        X87State(area)
    }

    /// The state in an area that XSAVE or [`hindsight_isa::xsave::Layout`] made.
    pub fn of(area: &Area) -> X87State {
        X87State(area.clone())
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0.0[at], self.0.0[at + 1]])
    }

    /// The status word.
    pub fn status(&self) -> u16 {
        self.word(2)
    }

    /// The abridged tag word.
    pub fn tags(&self) -> u8 {
        self.0.0[4]
    }

    /// The first registers, from st(0) on.
    pub fn registers(&self) -> [[u8; REGISTER]; 2] {
        [0, 1].map(|n| {
            let at = REGISTERS + n * DISTANCE;
            core::array::from_fn(|i| self.0.0[at + i])
        })
    }

    /// Changes the state as the instruction does. The new state is also in this processor.
    ///
    /// # Safety
    /// The caller's own x87 state is no longer needed, or it comes again by other means. Nothing else of the processor changes.
    pub unsafe fn execute(&mut self, what: Transcendental) -> Result<(), Waiting> {
        let status = self.status();
        let waits = status & !self.word(0) & EXCEPTIONS;
        if waits != 0 || status & SUMMARY != 0 {
            return Err(Waiting(waits));
        }
        let area: *mut Area = &mut self.0;
        macro_rules! run {
            ($instruction:literal) => {
                // SAFETY: an area that XSAVE or `Layout` made, whose part for the x87 takes any values. No exception waits,
                // so none is raised. All registers of the x87 are the caller's to lose.
                unsafe {
                    asm!(
                        "xrstor64 [{a}]",
                        $instruction,
                        "xsave64 [{a}]",
                        a = in(reg) area,
                        in("eax") X87,
                        in("edx") 0,
                        options(nostack),
                    )
                }
            };
        }
        match what {
            Transcendental::F2xm1 => run!("f2xm1"),
            Transcendental::Fcos => run!("fcos"),
            Transcendental::Fpatan => run!("fpatan"),
            Transcendental::Fptan => run!("fptan"),
            Transcendental::Fsin => run!("fsin"),
            Transcendental::Fsincos => run!("fsincos"),
            Transcendental::Fyl2x => run!("fyl2x"),
            Transcendental::Fyl2xp1 => run!("fyl2xp1"),
        }
        Ok(())
    }

    /// The same on behalf of an area, for a caller whose own x87 registers are empty, as between two calls of functions.
    pub fn execute_in(area: &mut Area, what: Transcendental) -> Result<(), Waiting> {
        let mut state = X87State::of(area);
        let mut control = 0u16;
        // SAFETY: stores the control word, and loads it again in front of which the registers are emptied. So the caller finds
        // its state as it was.
        let done = unsafe {
            asm!("fnstcw [{}]", in(reg) &raw mut control, options(nostack));
            let done = state.execute(what);
            asm!("fninit", "fldcw [{}]", in(reg) &raw const control, options(nostack));
            done
        };
        if done.is_ok() {
            *area = state.0;
        }
        done
    }
}
