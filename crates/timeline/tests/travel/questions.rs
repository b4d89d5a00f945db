//! Random questions about a recording of one thread.

use hindsight_lab::Scene;
use hindsight_oracle::plain::{self as oracle, Log, Why};
use hindsight_timeline::{
    Breakpoint, Cancel, Condition, Cursor, Direction, Ground, Options, Reason, Scope, Stops,
    ThreadId, ThreadInstant, Timeline, Watch, Watchpoint,
};
use std::path::Path;

pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n.max(1)
    }
}

/// A recording with a fine index, and its log.
fn scene(s: &Scene, interval: u64) -> (Timeline, Log) {
    scene_with(s, &[], interval)
}

/// The same, with more options for the compiler.
fn scene_with(s: &Scene, more: &[&str], interval: u64) -> (Timeline, Log) {
    scene_of(s, more, "0", interval)
}

/// The same, with memory restated after every so many instructions.
fn scene_of(s: &Scene, more: &[&str], restated: &str, interval: u64) -> (Timeline, Log) {
    let program = s.compile("travel.c", &[&["-O2", "-static"], more].concat());
    let trace = s.path("t.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--restate-every", restated, "-o"]);
    let run = s.run(record.arg(&trace).arg("--").arg(program).arg("40"));
    assert!(run.status.success(), "{}", run.messages());
    // Several stretches of the index are made at the same time.
    let options = Options {
        interval,
        jobs: 4,
        unsaved: true,
        ..Options::default()
    };
    opened(&trace, options)
}

/// A recording, and its log.
fn opened(trace: &Path, options: Options) -> (Timeline, Log) {
    let interval = options.interval;
    let t = Timeline::open(trace, options).unwrap();
    let threads = t.trace().threads();
    let log = oracle::play(t.trace(), threads[0]);
    assert!(log.instructions() > 10 * interval, "{}", log.instructions());
    (t, log)
}

fn memory(c: &mut Cursor, log: &Log, addr: u64, len: usize) {
    let count = c.count();
    let m = c.memory(addr, len).unwrap();
    assert_eq!(c.count(), count);
    for (i, b) in m.bytes.iter().enumerate() {
        let at = addr + i as u64;
        let want = log.byte(at, count);
        let context = || format!("at {count}, byte {at:#x}: {b:?}, expected {want:?}");
        match (b, want) {
            (Some(k), Some((value, why))) => {
                assert_eq!(k.value, value, "{}", context());
                match (k.ground, why) {
                    (Ground::Written, _) => assert!(log.written(at, count), "{}", context()),
                    (Ground::Read, Why::Read) => {}
                    // A key frame tells it, too.
                    (Ground::Restated, _) => {}
                    // For memory that cannot be written, it does not matter who read it.
                    (Ground::Module, Why::Read) => {}
                    _ => panic!("{}", context()),
                }
            }
            (None, None) => {}
            (Some(k), None) => assert!(
                !matches!(k.ground, Ground::Written | Ground::Read),
                "{}",
                context()
            ),
            (None, Some(_)) => panic!("{}", context()),
        }
    }
}

/// An address that the program accesses.
fn somewhere(log: &Log, r: &mut Rng) -> u64 {
    loop {
        let list = &log.accesses[r.below(log.instructions()) as usize];
        if !list.is_empty() {
            let a = list[r.below(list.len() as u64) as usize];
            return a.address.wrapping_add(r.below(a.len + 12)).wrapping_sub(6);
        }
    }
}

#[test]
fn registers_and_memory_are_those_of_a_plain_replay() {
    let s = Scene::new();
    let (t, log) = scene(&s, 3000);
    ask_for_registers_and_memory(&t, &log);
}

#[test]
fn so_they_are_where_memory_is_restated() {
    let s = Scene::new();
    let (t, log) = scene_of(&s, &[], "2000", 3000);
    let chunks = t.trace().chunks(log.thread);
    let frames = chunks.iter().filter(|c| c.keyframe).count();
    assert!(frames > 5, "{frames}");
    ask_for_registers_and_memory(&t, &log);
    search(&t, &log);
}

#[test]
fn so_they_are_in_two_levels() {
    let s = Scene::new();
    let (t, log) = scene(&s, 3000);
    // All of the fine level stays in memory, or one part of it.
    for (coarse, fine_memory) in [(4000, 0), (7000, 1)] {
        let options = Options {
            interval: 1000,
            coarse,
            fine_memory,
            unsaved: true,
            ..Options::default()
        };
        let (t, log) = opened(t.path(), options);
        ask_for_registers_and_memory(&t, &log);
        search(&t, &log);
    }
    drop(log);
}

/// The return address was pushed in the part before.
#[test]
fn calls_at_key_frames_return() {
    let s = Scene::new();
    let (t, log) = scene_of(&s, &[], "200", 3000);
    let chunks = t.trace().chunks(log.thread);
    let mut called = 0;
    for c in chunks.iter().filter(|c| c.keyframe && c.first_pos > 0) {
        let at = c.first_pos;
        let [before, here] = [at - 1, at].map(|n| log.states[n as usize]);
        let (sp, jumped) = (here.gpr[4], here.rip.wrapping_sub(before.rip) > 15);
        if !jumped || sp != before.gpr[4] - 8 {
            continue;
        }
        let bytes = std::array::from_fn(|i| log.byte(sp + i as u64, at).unwrap().0);
        let to = u64::from_le_bytes(bytes);
        let back = |n: &u64| {
            let state = &log.states[*n as usize];
            (state.rip, state.gpr[4]) == (to, sp + 8)
        };
        let want = (at..log.instructions()).find(back);
        let calls = t
            .calls(here.rip, &Default::default(), &Cancel::new())
            .unwrap();
        let call = calls.iter().find(|c| c.count == at).unwrap();
        assert_eq!(
            call.returned.map(|r| r.count),
            want,
            "{:#x} at {at}",
            here.rip
        );
        called += 1;
    }
    assert!(called > 5, "{called}");
}

fn ask_for_registers_and_memory(t: &Timeline, log: &Log) {
    let mut c = t.cursor().unwrap();
    let mut r = Rng(1);
    for _ in 0..150 {
        let count = r.below(log.instructions() + 1);
        c.seek_count(ThreadId(log.thread), count).unwrap();
        assert_eq!(
            t.locate(c.position().unwrap()).unwrap(),
            ThreadInstant {
                thread: ThreadId(log.thread),
                count
            }
        );
        assert_eq!(
            c.registers().unwrap().comparable(),
            log.states[count as usize].comparable()
        );
        let addr = somewhere(log, &mut r);
        memory(&mut c, log, addr, 1 + r.below(40) as usize);
        // A walk back and forth.
        for _ in 0..r.below(6) {
            let before = c.count();
            let direction = [Direction::Forward, Direction::Backward][r.below(2) as usize];
            let stop = c.step(direction, Scope::All).unwrap();
            let want = match direction {
                Direction::Forward if before < log.instructions() => before + 1,
                Direction::Backward if before > 0 => before - 1,
                _ => before,
            };
            assert_eq!(c.count(), want, "{stop:?}");
            assert_eq!(
                c.registers().unwrap().comparable(),
                log.states[want as usize].comparable()
            );
        }
    }
}

#[test]
fn what_is_played_across_a_key_frame_comes_back() {
    let s = Scene::new();
    let (t, log) = scene_with(&s, &["-DTHREAD", "-pthread"], 700);
    let thread = ThreadId(log.thread);
    let chunks = t.trace().chunks(thread.0);
    let frame = chunks.iter().rfind(|c| c.keyframe).unwrap().first_pos;
    assert!(
        frame > 20_000 && frame + 20_000 < log.instructions(),
        "{frame}"
    );
    let mut r = Rng(5);
    let (mut known, mut asked) = (0, 0);
    // The other thread, and the one that created it, write too.
    let mut check = |c: &mut Cursor, r: &mut Rng| {
        let count = c.count();
        let want = log.states[count as usize].comparable();
        assert_eq!(c.registers().unwrap().comparable(), want);
        let (addr, len) = (somewhere(&log, r), 1 + r.below(40) as usize);
        for (i, b) in c.memory(addr, len).unwrap().bytes.iter().enumerate() {
            let Some((value, _)) = log.byte(addr + i as u64, count) else {
                continue;
            };
            asked += 1;
            if let Some(k) = b {
                known += 1;
                assert_eq!(k.value, value, "{:#x} at {count}", addr + i as u64);
            }
        }
    };
    for _ in 0..8 {
        // At first, neither part has an index. Then that of the first one is made.
        let mut c = t.cursor().unwrap();
        c.seek_count(thread, frame - 1 - r.below(3000)).unwrap();
        for _ in 0..12 {
            let (addr, len) = (somewhere(&log, &mut r), 1 + r.below(24));
            let all = log.touching(addr, len, true, true);
            let want = all.iter().find(|n| **n >= c.count());
            let found = c.find(Direction::Forward, addr, len, Watch::Access);
            let found = found.unwrap();
            let context = format!(
                "{addr:#x}+{len} from {}: {found:?}, frame {frame}",
                c.count()
            );
            // The log has only this thread's instructions.
            if found.is_none_or(|f| !f.kernel && f.thread == thread) {
                assert_eq!(found.map(|f| f.count), want.copied(), "{context}");
            }
            // To the other side, and back.
            for far in [400, 4000] {
                let at = frame + r.below(far);
                c.seek_count(thread, at).unwrap();
                for _ in 0..r.below(5) {
                    check(&mut c, &mut r);
                    c.step(Direction::Backward, Scope::Thread).unwrap();
                }
            }
            c.seek_count(thread, frame - 1 - r.below(3000)).unwrap();
            check(&mut c, &mut r);
        }
    }
    assert!(asked > 1000 && known > asked / 2, "{known} of {asked}");
}

#[test]
fn searches_find_what_a_plain_replay_finds() {
    let s = Scene::new();
    let (t, log) = scene(&s, 2500);
    search(&t, &log);
}

fn search(t: &Timeline, log: &Log) {
    let (mut c, mut d) = (t.cursor().unwrap(), t.cursor().unwrap());
    let mut r = Rng(2);
    for round in 0..150 {
        let count = r.below(log.instructions() + 1);
        c.seek_count(ThreadId(log.thread), count).unwrap();
        let (addr, len) = (somewhere(log, &mut r), 1 + r.below(24));
        let watch = [Watch::Read, Watch::Write, Watch::Access][r.below(3) as usize];
        let (read, write) = (watch != Watch::Write, watch != Watch::Read);
        let all = log.touching(addr, len, read, write);
        let direction = [Direction::Forward, Direction::Backward][r.below(2) as usize];
        let want = match direction {
            Direction::Forward => all.iter().find(|n| **n >= count),
            Direction::Backward => all.iter().rfind(|n| **n < count),
        };
        let found = c.find(direction, addr, len, watch).unwrap();
        let context =
            format!("round {round}: {direction:?} {watch:?} {addr:#x}+{len} from {count}");
        assert_eq!(found.map(|f| f.count), want.copied(), "{context}");
        // The cursor has stayed, with everything that is known there.
        let at = found.map(|f| (f.pc, log.states[f.count as usize].rip));
        assert!(at.is_none_or(|(pc, rip)| pc == rip), "{context}");
        d.seek_count(ThreadId(log.thread), count).unwrap();
        let [held, other] = [&mut c, &mut d].map(|c| {
            let bytes = c.memory(addr, 64).unwrap().bytes;
            let values: Vec<_> = bytes.iter().map(|b| b.map(|k| k.value)).collect();
            (c.registers().unwrap().comparable(), values)
        });
        assert_eq!(held, other, "{context}");
        assert_eq!(c.count(), count);

        // The same together with a breakpoint.
        let pc = log.states[r.below(log.instructions()) as usize].rip;
        let parity = r.below(2);
        let holds = |n: u64| {
            log.states[n as usize].rip == pc && log.states[n as usize].gpr[0] & 1 == parity
        };
        let mut b = Breakpoint::at(7, pc);
        b.condition = Some(Condition::code(move |v| v.registers().gpr[0] & 1 == parity));
        let mut stops = Stops {
            breakpoints: vec![b],
            watchpoints: vec![Watchpoint {
                id: 8,
                address: addr,
                len,
                watch,
                image: None,
            }],
            ..Stops::default()
        };
        let stop = c.run(direction, Scope::Thread, &mut stops).unwrap();
        let at = match direction {
            Direction::Forward => {
                let b = (count + 1..log.instructions()).find(|n| holds(*n));
                let w = want.map(|n| n + 1);
                b.into_iter().chain(w).min().unwrap_or(log.instructions())
            }
            Direction::Backward => {
                let b = (0..count.min(log.instructions())).rev().find(|n| holds(*n));
                b.into_iter().chain(want.copied()).max().unwrap_or(0)
            }
        };
        let around: Vec<_> = (at.saturating_sub(3)..=at)
            .map(|n| format!("{:#x}", log.states[n as usize].rip))
            .collect();
        assert_eq!(
            c.count(),
            at,
            "{context}, breakpoint {pc:#x}: {stop:?} {around:?}"
        );
    }
    // Nobody writes to code.
    let pc = log.states[5].rip;
    c.seek_count(ThreadId(log.thread), log.instructions())
        .unwrap();
    assert!(c.last_write(pc, 1).unwrap().is_none());
    let cancel = Cancel::new();
    cancel.cancel();
    let mut stops = Stops {
        calls: vec![pc],
        ..Stops::default()
    };
    let stop = c.cancellable(&cancel, |c| {
        c.run(Direction::Backward, Scope::All, &mut stops)
    });
    assert_eq!(stop.unwrap().reason, Reason::Cancelled);
    assert_eq!(c.count(), log.instructions());
}
