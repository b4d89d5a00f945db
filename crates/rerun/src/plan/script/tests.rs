use super::*;
use libc::*;
use proptest::prelude::*;

fn call(number: i64, args: [u64; 6], result: u64) -> Call {
    Call {
        number: number as u64,
        args,
        result: Some(result),
        ..Call::default()
    }
}

fn text(mut call: Call, text: &str) -> Call {
    call.texts = vec![Some(text.as_bytes().to_vec())];
    call
}

fn stat(path: &str, result: u64) -> Call {
    text(call(SYS_stat, [1, 2, 0, 0, 0, 0], result), path)
}

fn read(fd: u64, bytes: &[u8], asked: u64) -> Call {
    let mut c = call(SYS_read, [fd, 0, asked, 0, 0, 0], bytes.len() as u64);
    c.received = Blob(bytes.to_vec());
    c
}

struct Loaded {
    script: Script,
}

impl Loaded {
    fn new(calls: Vec<Call>) -> Loaded {
        let (mut files, mut outputs) = (Files::default(), Compare::default());
        let mut script = Script::new(Table::new());
        script.load(calls, &mut files, &mut outputs);
        script.load(Vec::new(), &mut files, &mut outputs);
        Loaded { script }
    }

    fn ask(&mut self, c: &Call) -> Found {
        let key = key(c.number, &c.args, &c.texts, &|fd| File::Is(fd as u32));
        let found = self.script.find(&key, class(c.number, &c.args));
        if let Found::Slot(i) = found {
            self.script.take(i);
        }
        found
    }

    /// Reads as a program does, until the end.
    fn read_all(&mut self, file: FileId, sizes: &[usize]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        for want in sizes.iter().cycle() {
            match self.script.read(Input::File(file), at, (*want).max(1)) {
                Bytes::Are(bytes, used) => {
                    assert!(!bytes.is_empty());
                    at += bytes.len() as u64;
                    out.extend(bytes);
                    for i in used {
                        self.script.take(i);
                    }
                }
                Bytes::Returned(i) => {
                    self.script.take(i);
                    return out;
                }
                other => panic!("{other:?}"),
            }
            self.script.forget();
        }
        out
    }
}

#[test]
fn one_call_more_or_fewer_puts_nothing_out_of_step() {
    let recorded: Vec<Call> = (0..9).map(|i| stat(&format!("/{i}"), i)).collect();
    let mut l = Loaded::new(recorded.clone());
    assert_eq!(l.ask(&recorded[0]), Found::Slot(0));
    assert_eq!(l.ask(&stat("/other", 0)), Found::Nothing);
    assert_eq!(l.ask(&recorded[1]), Found::Slot(1));
    // One is left out, which comes later.
    assert_eq!(l.ask(&recorded[3]), Found::Slot(3));
    assert_eq!(l.script.left_out(9).collect::<Vec<_>>(), [2, 4, 5, 6, 7, 8]);
    assert_eq!(l.ask(&recorded[2]), Found::Slot(2));
    // Asked once more, the answer is the same.
    assert_eq!(l.ask(&recorded[2]), Found::Again(2));
    assert_eq!(l.ask(&recorded[4]), Found::Slot(4));
    assert_eq!(l.script.reached(), 5);
    assert_eq!(l.script.expected(0), Some(5));
}

#[test]
fn a_question_that_comes_up_again_much_later_is_another_one() {
    let mut all = vec![stat("/a", 1)];
    all.extend((0..50).map(|i| stat(&format!("/{i}"), i)));
    all.push(stat("/a", 2));
    let mut l = Loaded::new(all.clone());
    assert_eq!(l.ask(&all[0]), Found::Slot(0));
    assert_eq!(l.ask(&all[0]), Found::Again(0));
    for (i, call) in all.iter().enumerate().take(51).skip(1) {
        assert_eq!(l.ask(call), Found::Slot(i));
    }
    assert_eq!(l.ask(&all[51]), Found::Slot(51));
}

#[test]
fn calls_that_nobody_looks_for_are_no_distance() {
    let mut all = vec![stat("/a", 1)];
    all.extend((0..50).map(|n| call(SYS_rt_sigaction, [n, 0, 0, 8, 0, 0], 0)));
    all.push(stat("/a", 2));
    let mut l = Loaded::new(all.clone());
    assert_eq!(l.ask(&all[0]), Found::Slot(0));
    assert_eq!(l.ask(&all[0]), Found::Slot(51));
    assert_eq!(l.ask(&all[0]), Found::Again(51));
}

/// One recorded question for random bytes is not asked, or one more is. The next ones are the same all the same.
#[test]
fn random_bytes_are_those_of_the_calls_around_them() {
    let random = |byte: u8| {
        let mut c = call(SYS_getrandom, [0, 4, 0, 0, 0, 0], 4);
        c.received = Blob(vec![byte; 4]);
        c
    };
    let files = |from: u64| (from..from + 30).map(|i| stat(&format!("/{i}"), i));
    let mut all = vec![random(1)];
    all.extend(files(0));
    all.push(random(2));
    all.extend(files(30));
    let ask = |l: &mut Loaded, at: u64| match l
        .script
        .next_place(Input::Random(0), at)
        .map(|at| (at, l.script.read(Input::Random(0), at, 4)))
    {
        Some((at, Bytes::Are(bytes, used))) => {
            for i in used {
                l.script.take(i);
            }
            (at + 4, bytes[0])
        }
        _ => (at, 0),
    };
    for asks_first in [true, false] {
        let mut l = Loaded::new(all.clone());
        let mut at = 0;
        if asks_first {
            let (next, byte) = ask(&mut l, at);
            assert_eq!(byte, 1);
            // It is too early for the next ones.
            assert_eq!(ask(&mut l, next), (next, 0));
            at = next;
        }
        for c in &all[1..31] {
            l.ask(c);
        }
        assert_eq!(ask(&mut l, at).1, 2, "{asks_first}");
        assert_eq!(l.script.left_out(32).count(), 0);
    }
}

/// Each thread gets its own random bytes, in whatever order they ask.
#[test]
fn random_bytes_are_those_of_the_thread() {
    let random = |lane: u32| {
        let mut c = call(SYS_getrandom, [0, 4, 0, 0, 0, 0], 4);
        (c.lane, c.received) = (lane, Blob(vec![lane as u8; 4]));
        c
    };
    let mut l = Loaded::new(vec![random(1), random(2), random(1)]);
    let mut places = [0; 3];
    // The second one comes first, and reads in two parts. The first one wants more than one call got.
    for (lane, want) in [(2, 2), (2, 2), (1, 6), (1, 2)] {
        let (input, at) = (Input::Random(lane), &mut places[lane as usize]);
        let from = l.script.next_place(input, *at).unwrap();
        match l.script.read(input, from, want) {
            Bytes::Are(bytes, used) => {
                assert_eq!(bytes, vec![lane as u8; want]);
                for i in used {
                    l.script.take(i);
                }
                *at = from + want as u64;
            }
            other => panic!("{other:?}"),
        }
    }
    for (lane, at) in [1, 2].into_iter().zip(&places[1..]) {
        let from = l.script.next_place(Input::Random(lane), *at).unwrap();
        assert_eq!(l.script.read(Input::Random(lane), from, 4), Bytes::Nothing);
    }
}

/// A recorded read failed since its descriptor was closed. That is nothing which a question for random bytes could get.
#[test]
fn a_read_of_a_closed_descriptor_brings_no_bytes() {
    let mut c = call(SYS_getrandom, [0, 4, 0, 0, 0, 0], 4);
    c.received = Blob(vec![7; 4]);
    let (mut files, mut outputs) = (Files::default(), Compare::default());
    let mut script = Script::new(Table::new());
    script.load(vec![read(9, b"", 4), c], &mut files, &mut outputs);
    script.load(Vec::new(), &mut files, &mut outputs);
    let bytes = script.read(Input::Random(0), 0, 4);
    assert_eq!(bytes, Bytes::Are(vec![7; 4], vec![1]));
    // Nobody looks for it.
    assert_eq!(script.left_out(2).count(), 0);
}

#[test]
fn what_is_loaded_later_is_waited_for() {
    let (mut files, mut outputs) = (Files::default(), Compare::default());
    let mut script = Script::new(Table::new());
    script.load(vec![stat("/a", 0)], &mut files, &mut outputs);
    let c = stat("/b", 0);
    let key = key(c.number, &c.args, &c.texts, &|_| File::Closed);
    assert_eq!(script.find(&key, Class::Query), Found::More);
    assert_eq!(script.read(Input::File(0), 0, 1), Bytes::More);
    script.load(vec![c], &mut files, &mut outputs);
    assert_eq!(script.find(&key, Class::Query), Found::Slot(1));
    script.load(Vec::new(), &mut files, &mut outputs);
    assert_eq!(script.read(Input::File(0), 0, 1), Bytes::Nothing);
}

/// A thread that yields all the time is no reason to give up what another one asks for.
#[test]
fn a_call_is_looked_for_behind_many_that_do_not_count() {
    let (mut files, mut outputs) = (Files::default(), Compare::default());
    let mut script = Script::new(Table::new());
    let yields = vec![call(SYS_sched_yield, [0; 6], 0); 2 * AHEAD];
    script.load(yields, &mut files, &mut outputs);
    let c = stat("/a", 0);
    let key = key(c.number, &c.args, &c.texts, &|_| File::Closed);
    assert_eq!(script.find(&key, Class::Query), Found::More);
    let others = (0..AHEAD).map(|i| stat(&format!("/{i}"), 0));
    script.load(others.collect(), &mut files, &mut outputs);
    assert_eq!(script.find(&key, Class::Query), Found::Nothing);
}

/// A thread that waits for others may yield, or ask for the time, very often. That is no distance to what it does next.
#[test]
fn what_is_alike_is_found_behind_many_calls_that_do_not_count() {
    let mut all = vec![call(SYS_sched_yield, [0; 6], 0); 3 * NEAR];
    all.push(stat("/a", 0));
    let l = Loaded::new(all);
    let is_stat = |c: &Call| c.number as i64 == SYS_stat;
    assert_eq!(l.script.like(0, &is_stat), Some(3 * NEAR));
    // Behind others that count it is another one.
    let mut all: Vec<_> = (0..NEAR)
        .map(|i| text(call(SYS_access, [1; 6], 0), &format!("/{i}")))
        .collect();
    all.push(stat("/a", 0));
    assert_eq!(Loaded::new(all).script.like(0, &is_stat), None);
}

#[test]
fn files_are_known_by_their_opening_not_by_their_number() {
    let at = AT_FDCWD as u64;
    let open = |n| text(call(SYS_openat, [at, 1, 0, 0, 0, 0], n), "/f");
    let close = call(SYS_close, [3, 0, 0, 0, 0, 0], 0);
    let l = Loaded::new(vec![
        open(3),
        read(3, b"one", 9),
        close,
        open(3),
        read(3, b"two", 9),
    ]);
    let (first, second) = (l.script.slot(0).made[0], l.script.slot(3).made[0]);
    assert_ne!(first, second);
    let bytes = |file| match l.script.read(Input::File(file), 0, 9) {
        Bytes::Are(b, _) => b,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (bytes(first), bytes(second)),
        (b"one".to_vec(), b"two".to_vec())
    );
}

#[test]
fn a_place_is_read_again_after_a_seek() {
    let mut l = Loaded::new(vec![read(0, b"abcdef", 6), read(0, b"", 6)]);
    assert_eq!(l.read_all(0, &[4]), b"abcdef");
    assert_eq!(
        l.script.read(Input::File(0), 2, 3),
        Bytes::Are(b"cde".to_vec(), vec![])
    );
}

#[test]
fn what_came_in_parts_stays_in_parts() {
    // A pipe gave less than was asked for: there was no more at that time.
    let l = Loaded::new(vec![
        read(0, b"ab", 100),
        read(0, b"cd", 100),
        read(0, b"", 100),
    ]);
    assert_eq!(
        l.script.read(Input::File(0), 0, 500),
        Bytes::Are(b"ab".to_vec(), vec![0])
    );
}

proptest! {
    #[test]
    fn buffers_of_any_size_get_the_same_bytes(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..12),
        sizes in prop::collection::vec(1usize..50, 1..5), full: bool,
    ) {
        let mut calls: Vec<Call> = chunks
            .iter()
            .map(|c| read(0, c, if full { c.len() as u64 } else { 100 }))
            .collect();
        calls.push(read(0, b"", 100));
        let mut l = Loaded::new(calls);
        prop_assert_eq!(l.read_all(0, &sizes), chunks.concat());
        prop_assert_eq!(l.script.left_out(usize::MAX).count(), 0);
    }

    #[test]
    fn any_calls_are_loaded_without_harm(
        numbers in prop::collection::vec((0u64..450, any::<[u64; 6]>(), any::<Option<u64>>()), 0..30),
    ) {
        let calls = numbers
            .into_iter()
            .map(|(number, args, result)| Call { number, args, result, ..Call::default() })
            .collect::<Vec<_>>();
        let mut l = Loaded::new(calls.clone());
        for c in &calls {
            l.ask(c);
        }
        l.script.forget();
    }
}

/// Bytes of calls that nobody reads from are not kept. The recording says how many there are, and may say anything.
#[test]
fn only_bytes_that_can_be_read_are_kept() {
    let with_bytes = |mut c: Call| {
        c.received = Blob(vec![1; 100]);
        c
    };
    let mut l = Loaded::new(vec![
        with_bytes(stat("/a", 1)),
        with_bytes(call(SYS_sched_yield, [0; 6], 0)),
        read(0, b"four", 4),
        read(0, b"", 4),
    ]);
    assert_eq!(l.script.kept(), 4);
    l.ask(&stat("/a", 1));
    l.script.forget_until(0);
    assert_eq!(l.script.kept(), 4);
    assert_eq!(l.read_all(0, &[4]), b"four");
    l.script.forget_until(0);
    assert_eq!(l.script.kept(), 0);
}
