//! Records real programs, compares them with native runs, and verifies their replay. The system's compiler makes the
//! programs in `c/` when the tests run.

mod atomics;
mod attach;
mod cache;
mod code;
mod damage;
mod deadly;
mod endings;
mod family;
mod faults;
mod groups;
mod hangs;
mod hiding;
mod hostile;
mod interpreter;
mod joint;
mod kills;
mod loading;
mod losses;
mod mapped;
mod mappings;
mod modes;
mod naming;
mod outside;
mod own_errors;
mod processes;
mod quiet;
mod rings;
mod safepoints;
mod sharing;
mod signals;
mod sinks;
mod strace;
mod threads;
mod transparency;
mod windows;
