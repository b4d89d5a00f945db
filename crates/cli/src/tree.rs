//! The processes of a recording as a tree.

use crate::numbers::{grouped, total};
use hindsight_text::line;
use hindsight_trace::{Image, StreamEnd, StreamSummary, Trace};
use std::collections::BTreeMap;

/// Deepest indentation.
const MOST_DEPTH: usize = 20;

/// A program image: a process from `fork` or `execve` on.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Node {
    pub image: u32,
    pub parent: u32,
    pub pid: i32,
    pub by_exec: bool,
    /// A child that runs in the memory of `image`, which is its parent's.
    pub borrowed: bool,
    pub command: String,
    pub threads: usize,
    pub instructions: u64,
    pub unpredicted_reads: u64,
    /// In a word or two; empty if the recording does not say.
    pub ended: String,
    /// Why the recorder could not go on.
    pub message: String,
    /// How far to the right it stands. What a process executed stands below it.
    pub depth: usize,
}

/// The images of `t`, each followed by those that came from it.
pub fn build(t: &Trace, streams: &[StreamSummary]) -> Vec<Node> {
    let counts: BTreeMap<u32, &StreamSummary> = streams.iter().map(|s| (s.stream, s)).collect();
    let images = t.images();
    let mut below: BTreeMap<u32, Vec<&Image>> = BTreeMap::new();
    let mut todo = Vec::new();
    for image in images.iter().rev() {
        // Whatever a damaged trace says, this goes upwards.
        if image.parent < image.number && t.image(image.parent).is_some() {
            below.entry(image.parent).or_default().push(image);
        } else {
            todo.push((image, 0));
        }
    }
    // Not by recursion: a process may execute itself a million times.
    let mut out = Vec::new();
    while let Some((image, depth)) = todo.pop() {
        for child in below.remove(&image.number).unwrap_or_default() {
            let same = child.by_exec && child.pid == image.pid;
            todo.push((child, if same { depth } else { depth + 1 }));
        }
        out.push(Node {
            depth,
            ..node(t, image, &counts)
        });
        out.extend(unrecorded(t, image, &counts, depth + 1));
    }
    out
}

fn node(t: &Trace, image: &Image, counts: &BTreeMap<u32, &StreamSummary>) -> Node {
    let threads: Vec<&StreamSummary> = image
        .threads
        .iter()
        .filter_map(|s| counts.get(s).copied())
        .filter(|s| borrowed_end(t, image, s).is_none())
        .collect();
    // A child that borrows the memory ends on its own.
    let own = |s: &&&StreamSummary| t.stream_info(s.stream).is_some_and(|i| i.pid == image.pid);
    let ends = threads.iter().filter(own);
    let weight = |e: &StreamEnd| match e.kind.as_str() {
        "unsupported" => 3,
        "exec" => 2,
        "signal" => 1,
        _ => 0,
    };
    let last = ends
        .filter_map(|s| Some((weight(s.end.as_ref()?), s.last_sequence, s.end.as_ref()?)))
        .max_by_key(|(weight, sequence, _)| (*weight, *sequence))
        .map(|(.., end)| end);
    let lost = threads.iter().any(|s| s.lost);
    Node {
        image: image.number,
        parent: image.parent,
        pid: image.pid,
        by_exec: image.by_exec,
        borrowed: false,
        command: t.command(image.number),
        threads: threads.len(),
        instructions: total(threads.iter().map(|s| s.instructions)),
        unpredicted_reads: total(threads.iter().map(|s| s.unpredicted_reads)),
        ended: match last {
            Some(e) => ended(e),
            None if lost => "killed".into(),
            None => String::new(),
        },
        message: last.map_or(String::new(), |e| e.message.clone()),
        depth: 0,
    }
}

/// The process id of such a child, and how its stream ended.
fn borrowed_end<'a>(
    t: &Trace,
    image: &Image,
    s: &'a StreamSummary,
) -> Option<(i32, &'a StreamEnd)> {
    let pid = t.stream_info(s.stream)?.pid;
    let end = s.end.as_ref().filter(|e| e.kind == "exec")?;
    (pid != image.pid && !end.message.is_empty()).then_some((pid, end))
}

/// Children that ran in the memory of `image` until they executed a program that is not recorded.
fn unrecorded<'a>(
    t: &'a Trace,
    image: &'a Image,
    counts: &'a BTreeMap<u32, &StreamSummary>,
    depth: usize,
) -> impl Iterator<Item = Node> + 'a {
    image.threads.iter().filter_map(move |s| {
        let s = counts.get(s)?;
        let (pid, end) = borrowed_end(t, image, s)?;
        Some(Node {
            image: image.number,
            parent: image.number,
            pid,
            borrowed: true,
            threads: 1,
            instructions: s.instructions,
            unpredicted_reads: s.unpredicted_reads,
            ended: ended(end),
            message: end.message.clone(),
            depth,
            ..Node::default()
        })
    })
}

fn ended(e: &StreamEnd) -> String {
    match e.kind.as_str() {
        "exit" => format!("exit status {}", e.code),
        "signal" => format!("signal {}", e.code),
        "exec" => "executed another program".into(),
        _ => "not recorded further".into(),
    }
}

/// A line about an image.
pub fn row(n: &Node) -> String {
    let mut out = format!("{}{}", "  ".repeat(n.depth.min(MOST_DEPTH)), n.pid.abs());
    if n.by_exec {
        out += " (exec)";
    }
    if !n.command.is_empty() {
        out.push(' ');
        out.extend(line(&n.command).chars().take(60));
    }
    let s = if n.threads == 1 { "" } else { "s" };
    out += &format!(
        ": {} thread{s}, {} instructions",
        n.threads,
        grouped(n.instructions)
    );
    for part in [&n.ended, &n.message] {
        if !part.is_empty() {
            out += &format!(", {}", line(part));
        }
    }
    out
}
