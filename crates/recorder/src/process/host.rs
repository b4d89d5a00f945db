//! What this processor and the configuration ask of threads and translated code.

use crate::code::{cache, processor};
use crate::line;
use crate::stream::ring;
use crate::sys::{config, fail};
use crate::thread::{Run, Thread};
use hindsight_isa::Predictor;
use hindsight_isa::xsave::Layout;

/// What this processor and the configuration ask of threads and translated code.
pub struct Host {
    /// Nothing is recorded.
    pub plain: bool,
    predictor: Predictor,
    /// Where the vector state's components lie in an XSAVE area.
    pub layout: Layout,
    wide_checks: bool,
}

impl Host {
    /// Asks the processor. Ends the process if it has no XSAVE of a known form.
    pub fn detect(plain: bool) -> Host {
        let Some(layout) = Layout::detect_with(processor::ask) else {
            fail::die(
                fail::STATUS,
                &line!("this processor has no XSAVE, or saves its state in an unknown layout"),
            );
        };
        Host {
            plain,
            predictor: Predictor {
                bits: config::get().predictor_bits,
            },
            layout,
            wide_checks: !plain && layout.mask & 0xe0 == 0xe0 && has_avx512vl(),
        }
    }

    /// Makes a thread. Ends the process with a message if its window cannot be reserved.
    pub fn thread(&self, emit: ring::Emitter, run: Run) -> &'static mut Thread {
        match Thread::make(self.predictor, emit, self.layout, self.wide_checks, run) {
            Ok(t) => t,
            Err(e) => fail::die(
                fail::STATUS,
                &line!(
                    "cannot reserve address space for the shadow memory (error {e}). Is it limited (ulimit -v)? `--predictor cache:64k` needs little"
                ),
            ),
        }
    }

    /// The policy for translated code.
    pub fn policy(&self) -> hindsight_translate::Policy {
        cache::policy(self.plain, self.predictor, self.wide_checks)
    }
}

/// Whether the processor has the parts of AVX-512 that the wide checks use (F, DQ, BW, VL). These
/// are vectors of all lengths, and instructions on bytes, words and quadwords.
fn has_avx512vl() -> bool {
    let b = processor::ask(7, 0).ebx;
    [16, 17, 30, 31].iter().all(|n| b >> n & 1 != 0)
}
