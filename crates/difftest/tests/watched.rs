//! Replay stops before every store to watched memory, by whatever instruction, and whatever is
//! recorded right behind it. Variables of the environment:
//!
//! - `HINDSIGHT_DIFF_SEED`: the seed from which all is made;
//! - `HINDSIGHT_DIFF_CODE`: only encodings whose names begin with this.

use hindsight_difftest::case::Rig;
use hindsight_difftest::setting;
use hindsight_events::{Encoder, EndKind, Event, MAX_EVENT};
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_random::Rng;
use hindsight_replay::access::{Access, Finder, decode};
use hindsight_replay::{Code as Recorded, Machine, Stop};
use hindsight_translate::{WATCH_TABLE, is_atomic, watch_indices};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table of watched memory.
struct Table(*mut u8);

impl Table {
    fn new() -> Table {
        // SAFETY: new memory. Its pages come into being as they are touched.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WATCH_TABLE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(at != libc::MAP_FAILED);
        Table(at.cast())
    }

    fn set(&self, word: u64, watched: bool) {
        for i in watch_indices(word) {
            // SAFETY: an index of the table, which stays mapped and which no machine uses now.
            unsafe { self.0.add(i).write(watched as u8) }
        }
    }
}

/// Instructions that the machine executes before the one that is tested.
const BEFORE: u64 = 2;

/// The recording of a thread that executes two instructions without effect, and then the one that
/// is tested. With `behind`, an event stands right behind that.
fn recording(cpu: &CpuState, vec: &VecState, behind: bool) -> Vec<u8> {
    let (cpu, vec) = (cpu.to_bytes(), vec.to_bytes());
    let begin = Event::KeyFrame {
        code_epoch: 0,
        cpu: &cpu,
        vec: &vec,
    };
    let due = Event::PatchBytes {
        addr: 0x1000,
        len: 1,
        value: 1,
    };
    let end = Event::End {
        kind: EndKind::Exit,
        code: 0,
        message: b"",
    };
    let mut encoder = Encoder::default();
    let (mut out, mut buf) = (Vec::new(), vec![0; MAX_EVENT]);
    let mut push = |pos, event: &Event| {
        let n = encoder.encode(pos, event, &mut buf);
        out.extend_from_slice(&buf[..n]);
    };
    push(0, &begin);
    if behind {
        push(BEFORE + 1, &due);
    }
    push(BEFORE + 1000, &end);
    out
}

/// Whether a machine stops before the instruction in `code` if `word` is watched. Asserts that it
/// then goes past it. `None` if it cannot execute the instruction.
fn stops(
    table: &Table,
    word: u64,
    (code, cpu, vec): (&[u8], &CpuState, &VecState),
    behind: bool,
) -> Option<bool> {
    let pc = cpu.rip - BEFORE;
    let bytes = [&[0x90; BEFORE as usize], code, &[0x90; 32]].concat();
    let recorded = Recorded::new(&mut [(0, pc, &bytes)]).unwrap();
    let mut machine = Machine::new(Arc::new(recorded), Predictor::WINDOW).unwrap();
    table.set(word, true);
    machine.watch(Some(table.0 as u64));
    let start = CpuState { rip: pc, ..*cpu };
    let events = recording(&start, vec, behind);
    machine
        .from_keyframe(Box::new([events].into_iter()))
        .unwrap();
    let stop = machine.run_to(BEFORE + 1);
    let stopped = match stop {
        Ok(Stop::Break) => machine.position() == BEFORE && machine.registers().rip == cpu.rip,
        Ok(_) => false,
        Err(_) => {
            table.set(word, false);
            return None;
        }
    };
    // Only once.
    let again = stopped && matches!(machine.run_to(BEFORE + 1), Ok(Stop::Break));
    table.set(word, false);
    assert!(!again, "{code:02x?} is announced twice");
    Some(stopped)
}

#[test]
fn every_store_to_a_watched_place_is_announced() {
    let only = std::env::var("HINDSIGHT_DIFF_CODE").unwrap_or_default();
    let codes = hindsight_difftest::chosen();
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(1));
    let (mut rig, table) = (Rig::new(), Table::new());
    let (mut finder, mut accesses) = (
        Finder::new(hindsight_isa::xsave::Layout::usual()),
        Vec::<Access>::new(),
    );
    let (mut seen, mut unseen) = (BTreeMap::new(), BTreeMap::new());
    for c in codes {
        for _ in 0..8 {
            let Some((code, cpu, vec)) = rig.example(c, rng.u64()) else {
                continue;
            };
            let i = decode(&code, cpu.rip).unwrap();
            // The instruction has not changed its registers yet. So what a string instruction will
            // do is computed.
            let mut after = cpu;
            if i.is_string_instruction() {
                after.gpr[7] = cpu.gpr[7].wrapping_add(cpu.gpr[1].wrapping_mul(8));
                after.gpr[1] = 0;
            }
            finder.find(&code, (&cpu, &vec), &after, &mut accesses);
            accesses.retain(|a| a.write && a.len > 0);
            if accesses.is_empty() {
                continue;
            }
            let a = rng.pick(&accesses);
            let word = a.address.wrapping_add(rng.below(a.len)) & !7;
            let behind = rng.one_in(2);
            match stops(&table, word, (&code, &cpu, &vec), behind) {
                Some(true) => *seen.entry(c).or_insert(0) += 1,
                Some(false) => {
                    let what = format!(
                        "{code:02x?}, {:#x}+{} at {word:#x}, something due behind it: {behind}, atomic: {}",
                        a.address,
                        a.len,
                        is_atomic(&i)
                    );
                    unseen.entry(c).or_insert(what);
                }
                None => {}
            }
        }
    }
    println!("{} encodings that write", seen.len());
    unseen
        .iter()
        .for_each(|(c, what)| println!("{c:?}: {what}"));
    assert!(unseen.is_empty(), "{} encodings", unseen.len());
    assert!(!only.is_empty() || seen.len() > 300, "{}", seen.len());
}
