//! A recorded program sees the same of the kernel and of itself. There is a small program for each subject, which
//! prints what it sees.

use hindsight_lab::{Scene, words};

/// Compiles `c/NAME` and compares a native run with a recorded one.
fn same(name: &str, args: &[&str]) {
    let scene = Scene::new();
    let program = scene.compile(name, &[]);
    scene.same(&words(&program, args));
}

macro_rules! programs {
    ($($test:ident: $file:literal $(, $argument:literal)*;)*) => {
        $(#[test]
        fn $test() {
            same($file, &[$($argument),*]);
        })*
    };
}

programs! {
    blocking_calls_are_interrupted: "signals/blocking.c";
    masks_of_waiting_calls: "signals/masks.c";
    contexts_that_handlers_change: "signals/contexts.c";
    what_faults_tell: "signals/faults.c";
    alternate_stacks: "signals/stacks.c";
    stack_overflow_kills: "signals/stacks.c", "o";
    alternate_stack_is_gone: "signals/stacks.c", "u";
    frame_cannot_be_written: "signals/stacks.c", "s";
    blocked_fault_kills: "signals/stacks.c", "b";
    ignored_fault_kills: "signals/stacks.c", "i";
    alternate_stack_is_too_small: "signals/stacks.c", "t";
    signals_of_threads: "signals/threads_signals.c";
    no_signal_is_lost: "signals/counted.c", "500";
    steps_by_the_trap_flag: "signals/stepping.c";
    children_tell: "signals/children.c";
    timers_at_high_rates: "signals/rapid.c";
    own_file: "hiding/exe.c";
    own_file_is_deleted: "hiding/gone.c";
    own_files_in_proc: "hiding/procfiles.c";
    descriptors_are_the_programs: "hiding/descriptors.c";
    state_of_threads: "hiding/threadstate.c";
    unusual_ranges_of_memory: "hiding/addresses.c";
    filters_of_system_calls: "hiding/filters.c";
    system_calls_as_signals: "hiding/dispatch.c";
    as_many_mappings_as_there_can_be: "crowded.c";
    other_doors: "hiding/doors.c";
    families_of_processes: "trees.c";
    locked_carries_and_high_bytes: "carry.c";
    calls_at_fixed_addresses: "hiding/vsyscall.c";
}
