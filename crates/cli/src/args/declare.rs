//! Deriving declarations of functions from headers.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// On what a declaration may rest.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Trust {
    /// Only `pure` and `const`: such a function has no effect that its caller may see.
    Promises,
    /// Also `access`, `malloc`, `alloc_size` and `format`, with pointers to const.
    Attributes,
    /// Also functions about which only the types of their parameters say something. Read what comes out.
    Types,
}

#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  hindsight declare --file libmine.so mine.h -o mine.txt        then: hindsight mem --declared mine.txt ...
  hindsight declare --file libmine.so mine.h -- -Iinclude -DNDEBUG
  hindsight declare --file libc.so string.h unistd.h --included /bits/ -- -D_GNU_SOURCE
  CC=clang hindsight declare --file libgmp.so gmp.h --trust promises

docs/declared-functions.md says what is derived from what.")]
pub struct Declare {
    /// Headers: files, or names as in `#include <NAME>`.
    #[arg(required = true, value_name = "HEADER")]
    pub headers: Vec<String>,
    /// The file that has the functions: what its name begins with, such as `libz.so`.
    #[arg(long, value_name = "NAME")]
    pub file: String,
    /// Where to write the declarations; default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also functions of included files whose path has this in it, such as `/bits/`. May be said several times.
    #[arg(long, value_name = "TEXT")]
    pub included: Vec<String>,
    /// What a declaration may rest on. Those that rest on less are written as comments.
    #[arg(long, value_enum, default_value = "attributes")]
    pub trust: Trust,
    /// Functions that are `pure` take no memory from the heap, not even for a while. The attribute does not say that, and
    /// in some libraries they do.
    #[arg(long)]
    pub pure_takes_no_memory: bool,
    /// Write only declarations, not which functions have none, and why.
    #[arg(long)]
    pub brief: bool,
    /// The compiler, which preprocesses the headers.
    #[arg(
        long,
        value_name = "COMMAND",
        env = "CC",
        hide_env_values = true,
        default_value = "cc"
    )]
    pub compiler: String,
    /// Options of the compiler, such as `-Iinclude`.
    #[arg(last = true, value_name = "OPTION", allow_hyphen_values = true)]
    pub options: Vec<String>,
}
