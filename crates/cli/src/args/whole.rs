//! `hindsight audit`, `index` and `info`: a recording as a whole.

use super::values::jobs;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub struct Audit {
    /// File, or name in the store; default: the latest recording in the store. Each file that it used is listed: `same`,
    /// `changed` or `missing` on this machine, or `unknown` if the recording does not have its content. Exit status 0: none
    /// has changed or is missing; 1: some have, or are; 2: another error.
    pub file: Option<PathBuf>,
    /// Take out the files whose content the recording has: each is made below DIR, under its path.
    #[arg(long, value_name = "DIR")]
    pub extract: Option<PathBuf>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Index {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Processors to use, where the recording has key frames or threads; default: all.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Instructions between the index's own key frames. 0: about 32 million; in programs with threads 8 million, with
    /// steps of two million. They become rarer if the index would be larger than twice the recording, 256 MiB, a quarter of the
    /// program's memory (at most a GiB), and a byte for each 512 instructions. Parts that are there already stay as they are, also those that were saved for a question.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub interval: u64,
    /// Long recordings have a coarse level, and a fine one whose parts are made when a question needs them. Make these
    /// ahead as well, from the end backwards, as far as there is room.
    #[arg(long, conflicts_with = "range")]
    pub full: bool,
    /// Index only this range: two places, such as `40%..1A2:3F`. Its key frames are as dense as `--interval` says (default
    /// here: 100000; at least 1024, and a 65536th of the range). Parts that are less dense are made again and added to the
    /// file. So a range makes the file larger.
    #[arg(long, value_name = "FROM..TO", value_parser = crate::parse::range)]
    pub range: Option<(hindsight_timeline::Place, hindsight_timeline::Place)>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct States {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Only of this program image (its number in `info`).
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// Also show the descriptors that the program then had open, as far as the recording tells: what each leads to, where in the
    /// file the next bytes are read or written, and with which flags it was opened.
    #[arg(long)]
    pub descriptors: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Info {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}
