//! What recordings are turned into for other tools.

use super::values::jobs;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// How the rows of a table are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TableFormat {
    /// Parquet, compressed.
    Parquet,
    /// Arrow's format for files (Feather).
    Arrow,
    /// Text, with a line of names.
    Csv,
}

#[derive(ClapArgs)]
pub struct Tables {
    /// Recordings: files, names in the store, or patterns in quotes such as 'runs/*.hst'; default: the latest recording.
    #[arg(value_name = "FILE")]
    pub files: Vec<String>,
    /// The folder that gets a folder for each table. In that, the rows of each recording are in a folder of their own, as
    /// DuckDB, pandas and others read it: DIR/TABLE/recording=NAME/part-0.parquet.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Tables, as `hindsight sql` has them, with commas between; may be repeated. `small` stands for those that are short, and is the default
    /// without --query. `all` adds those that replay makes: all instructions, branches, reads and writes, the coverage and the profile. What a
    /// function makes is a table too, such as `calls('malloc')`, or NAME=calls('malloc').
    #[arg(long, value_name = "LIST")]
    pub tables: Vec<String>,
    /// The rows of a query of all recordings together, as table NAME; may be repeated.
    #[arg(long, value_name = "NAME=SQL")]
    pub query: Vec<String>,
    /// Only rows of the tables for which this holds, such as `process = 1`. All these tables need the columns that it names.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// How rows are written.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "parquet")]
    pub format: TableFormat,
    /// Replace files that exist, and remove other `part-*` files of these tables. Without it, a file that exists is an error,
    /// and nothing is written.
    #[arg(long)]
    pub force: bool,
    /// Processors to use; default: all.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// For scripts: each file that was written, with its table, recording and number of rows.
    #[arg(long)]
    pub json: bool,
}

/// A format of another tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Exchange {
    /// The coverage of lines and functions, for lcov and genhtml.
    Lcov,
    /// The profile as folded stacks, for flame graphs: a line for each call path, with the instructions in its last function.
    Folded,
    /// The profile, for the Firefox profiler, <https://profiler.firefox.com>.
    Firefox,
    /// Threads, system calls, signals, marks and calls of functions in time, as JSON for Perfetto, <https://ui.perfetto.dev>.
    Perfetto,
}

#[derive(ClapArgs)]
pub struct Convert {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<String>,
    /// The format.
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: Exchange,
    /// The file that gets it, which must not exist; `-`: standard output.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Only source files below this folder; may be repeated. Default: all whose absolute path is known. For `lcov`.
    #[arg(long, value_name = "FOLDER")]
    pub source: Vec<PathBuf>,
    /// Calls of this function (its name, `MODULE!NAME`, or its address) become slices; may be repeated. For `perfetto`.
    #[arg(long, value_name = "FUNCTION")]
    pub calls: Vec<String>,
    /// Processors to use; default: all.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
}
