//! The table of a benchmark run, as Markdown that is readable in a terminal, too.

use crate::bench::{Measured, Startup, mean};
use crate::servers::Served;
use crate::stats::{median, range};
use crate::workload::Aim;
use std::fmt::Write;

/// A goal and whether it was met.
struct Goal {
    what: String,
    goal: String,
    seen: String,
    met: bool,
}

/// Formats rows as a table, with columns padded to equal width.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter()
            .filter_map(|r| r.get(c))
            .map(|s| s.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (c, w) in widths.iter().enumerate() {
            let cell = row.get(c).map_or("", String::as_str);
            let _ = if c == 0 {
                write!(out, "| {cell:<w$} ")
            } else {
                write!(out, "| {cell:>w$} ")
            };
        }
        out.push_str("|\n");
        if i == 0 {
            for (c, w) in widths.iter().enumerate() {
                let _ = if c == 0 {
                    write!(out, "|:{:-<w$}-", "")
                } else {
                    write!(out, "|-{:-<w$}:", "")
                };
            }
            out.push_str("|\n");
        }
    }
    out
}

/// The whole report: machine, workloads and goals.
pub fn report(
    machine: &str,
    version: &str,
    options: &[String],
    all: &[Measured],
    served: &[Served],
    startup: Option<&Startup>,
) -> String {
    let mut out = format!("Machine: {machine}.\nProgram: {version}");
    if !options.is_empty() {
        let _ = write!(out, ", record options `{}`", options.join(" "));
    }
    let rounds = all.iter().map(|m| m.pairs.len()).min().unwrap_or(0);
    let verified = if all.iter().all(|m| m.miss.is_none()) {
        "and every replay verified"
    } else {
        "but NOT every replay verified (NaN)"
    };
    let _ = writeln!(out, ".");
    let _ = writeln!(
        out,
        "CPU is user plus system of the whole process tree; ratios are medians of {rounds} paired runs,"
    );
    let _ = writeln!(
        out,
        "with their range. Outputs were equal in every run, {verified}.\n"
    );
    let is_cpu = |m: &&Measured| m.aim == Aim::Cpu;
    let cpu: Vec<Measured> = all.iter().filter(is_cpu).cloned().collect();
    let others: Vec<Measured> = all.iter().filter(|m| !is_cpu(m)).cloned().collect();
    if !cpu.is_empty() {
        out.push_str(&workloads(&cpu, true));
        out.push('\n');
    }
    if !others.is_empty() {
        out.push_str(
            "Threads, processes and system calls (two rounds at most of those without a goal):\n\n",
        );
        out.push_str(&workloads(&others, false));
        out.push('\n');
    }
    if !served.is_empty() {
        out.push_str("Servers under load on the same machine, requests per second:\n\n");
        out.push_str(&servers(served));
        out.push('\n');
    }
    let mut goals = goals(&cpu, startup);
    goals.extend(others.iter().filter_map(|m| aimed(m, &others)));
    goals.extend(served.iter().map(|s| Goal {
        what: format!("{}, share of the native throughput", s.name),
        goal: "40% or more".into(),
        seen: format!("{:.0}%", s.share() * 100.0),
        met: s.share() >= 0.4,
    }));
    let mut rows = vec![
        ["figure", "goal", "measured", ""]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(goals.into_iter().map(|g| {
        vec![
            g.what,
            g.goal,
            g.seen,
            if g.met { "met" } else { "NOT MET" }.into(),
        ]
    }));
    out.push_str(&markdown(&rows));
    out
}

/// The goal of a workload that has one of its own. `all` has the workloads with which it may be compared.
fn aimed(m: &Measured, all: &[Measured]) -> Option<Goal> {
    let (what, goal, seen, met) = match m.aim {
        Aim::Ratio(most) => {
            let ratio = m.record_ratio();
            let (goal, seen) = (format!("{most:.1}x or less"), format!("{ratio:.2}x"));
            ("recording, CPU", goal, seen, ratio <= most)
        }
        Aim::Each { units, ms } => {
            let added = m.added_ms(units);
            let (goal, seen) = (format!("{ms:.0} ms or less"), format!("{added:.2} ms"));
            ("CPU added to each", goal, seen, added <= ms)
        }
        Aim::Parallel { alone } => {
            let alone = all.iter().find(|o| o.name == alone)?;
            let (both, one) = (m.wall_ratio(), alone.wall_ratio());
            let more = both / one - 1.0;
            let seen = format!("{:+.0}% ({both:.2}x against {one:.2}x)", more * 100.0);
            let goal = "+15% or less".into();
            (
                "recording, wall, against one thread",
                goal,
                seen,
                more <= 0.15,
            )
        }
        Aim::Cpu | Aim::Alone | Aim::Runs => return None,
    };
    Some(Goal {
        what: format!("{}, {what}", m.name),
        goal,
        seen,
        met,
    })
}

fn servers(all: &[Served]) -> String {
    let head = [
        "server",
        "native/s",
        "recorded/s",
        "share",
        "Ginstr",
        "trace MiB",
        "replay s",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(all.iter().map(|s| {
        vec![
            s.name.clone(),
            format!("{:.0}", median(&s.native)),
            format!("{:.0}", median(&s.recorded)),
            format!("{:.0}%", s.share() * 100.0),
            format!("{:.2}", s.facts.instructions as f64 / 1e9),
            format!("{:.1}", s.facts.trace_bytes as f64 / (1 << 20) as f64),
            format!("{:.2}", s.replay_cpu),
        ]
    }));
    markdown(&rows)
}

fn workloads(all: &[Measured], means: bool) -> String {
    let head = [
        "workload",
        "native s",
        "record s",
        "of it collector",
        "record x",
        "range",
        "checked x",
        "plain x",
        "wall x",
        "replay s",
        "replay x",
        "native MiB",
        "record MiB",
        "Ginstr",
        "unpredicted/1000",
        "trace MiB",
        "bit/instr",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for m in all {
        let (low, high) = m.record_range();
        rows.push(vec![
            m.name.clone(),
            format!("{:.2}", m.mid(|p| p.native_cpu)),
            format!("{:.2}", m.mid(|p| p.record_cpu)),
            format!("{:.2}", m.mid(|p| p.collector_cpu)),
            format!("{:.2}", m.record_ratio()),
            format!("{low:.2}-{high:.2}"),
            ratio(m.checked_ratio()),
            ratio(m.plain_ratio()),
            format!("{:.2}", m.wall_ratio()),
            format!("{:.2}", m.mid(|p| p.replay_cpu)),
            format!("{:.2}", m.replay_ratio()),
            format!("{:.0}", m.mid(|p| p.native_rss_kib as f64) / 1024.0),
            format!("{:.0}", m.mid(|p| p.record_rss_kib as f64) / 1024.0),
            format!("{:.2}", m.mid(|p| p.facts.instructions as f64) / 1e9),
            format!(
                "{:.2}",
                m.mid(
                    |p| p.facts.unpredicted_reads as f64 * 1e3 / p.facts.instructions.max(1) as f64
                )
            ),
            format!(
                "{:.2}",
                m.mid(|p| p.facts.trace_bytes as f64) / (1 << 20) as f64
            ),
            format!("{:.4}", m.bits()),
        ]);
    }
    if means && all.len() > 1 {
        let mut row = vec![String::new(); head.len()];
        row[0] = "geometric mean".into();
        row[4] = format!("{:.2}", mean(all, Measured::record_ratio));
        row[6] = ratio(mean(all, Measured::checked_ratio));
        row[7] = ratio(mean(all, Measured::plain_ratio));
        row[8] = format!("{:.2}", mean(all, Measured::wall_ratio));
        row[10] = format!("{:.2}", mean(all, Measured::replay_ratio));
        rows.push(row);
    }
    markdown(&rows)
}

/// A ratio as text; empty if it was not measured.
fn ratio(r: f64) -> String {
    match r.is_nan() {
        true => String::new(),
        false => format!("{r:.2}"),
    }
}

/// The workload that is worst by a figure: the figure, and its name.
fn worst(all: &[Measured], value: &dyn Fn(&Measured) -> f64) -> (f64, String) {
    let top = all.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
    top.map_or((0.0, String::new()), |m| (value(m), m.name.clone()))
}

/// Goals, and what was measured.
#[derive(Default)]
struct Goals(Vec<Goal>);

impl Goals {
    fn add(&mut self, what: &str, goal: &str, seen: String, met: bool) {
        self.0.push(Goal {
            what: what.into(),
            goal: goal.into(),
            seen,
            met,
        })
    }

    /// What recording costs.
    fn recording(&mut self, all: &[Measured]) {
        let record = mean(all, Measured::record_ratio);
        self.add(
            "recording, CPU, geometric mean",
            "2.0x or less",
            format!("{record:.2}x"),
            record <= 2.0,
        );
        let (ratio, name) = worst(all, &Measured::record_ratio);
        self.add(
            "recording, CPU, worst",
            "4x or less",
            format!("{ratio:.2}x ({name})"),
            ratio <= 4.0,
        );
        for (name, most) in [("cc1", 2.5), ("mm_avx2", 1.15), ("mm_sse2", 1.15)] {
            if let Some(m) = all.iter().find(|m| m.name == name) {
                let ratio = m.record_ratio();
                self.add(
                    &format!("recording, CPU, {name}"),
                    &format!("{most}x or less"),
                    format!("{ratio:.2}x"),
                    ratio <= most,
                );
            }
        }
        let checked = mean(all, Measured::checked_ratio);
        self.add(
            "recording checked, CPU, geometric mean",
            "2.6x or less",
            format!("{checked:.2}x"),
            checked <= 2.6,
        );
        let plain = mean(all, Measured::plain_ratio);
        self.add(
            "translation alone, CPU, geometric mean",
            "1.6x or less",
            format!("{plain:.2}x"),
            plain <= 1.6,
        );
    }

    /// The sizes of traces and memory, and what replaying costs.
    fn others(&mut self, all: &[Measured]) {
        let (bits, name) = worst(all, &Measured::stream_bits);
        self.add(
            "trace size without files, worst",
            "0.02 bit/instruction or less",
            format!("{bits:.3} ({name})"),
            bits <= 0.02,
        );
        let (_, name) = worst(all, &|m| m.added_kib() - m.allowed_kib());
        let (added, allowed) = all.iter().find(|m| m.name == name).map_or((0.0, 0.0), |m| {
            (m.added_kib() / 1024.0, m.allowed_kib() / 1024.0)
        });
        self.add(
            "memory added, nearest its bound",
            "own memory + 64 MiB or less",
            format!("{added:.0} of {allowed:.0} MiB ({name})"),
            added <= allowed,
        );
        let replay = mean(all, Measured::replay_ratio);
        self.add(
            "replay --verify, one core, geometric mean",
            "1.8x or less",
            format!("{replay:.2}x"),
            replay <= 1.8,
        );
    }

    /// How long short programs take to start.
    fn startup(&mut self, s: &Startup) {
        let ms = |v: &[f64]| median(v) * 1e3;
        let first = ms(&s.first_wall) - ms(&s.native_wall);
        self.add(
            "start-up of /bin/true, first recording, wall, added",
            "(none set)",
            format!("{first:.1} ms"),
            true,
        );
        let added = ms(&s.record_wall) - ms(&s.native_wall);
        let least = (range(&s.record_wall).0 - range(&s.native_wall).0) * 1e3;
        self.add(
            "start-up of /bin/true, second recording, wall, added",
            "25 ms or less",
            format!("{added:.1} ms median, {least:.1} ms of the minima"),
            added <= 25.0,
        );
        let checked = ms(&s.checked_wall) - ms(&s.native_wall);
        self.add(
            "start-up of /bin/true, second recording, checked, wall, added",
            "(none set)",
            format!("{checked:.1} ms"),
            true,
        );
        let cpu = ms(&s.record_cpu) - ms(&s.native_cpu);
        self.add(
            "start-up of /bin/true, second recording, CPU, added",
            "(none set)",
            format!("{cpu:.1} ms"),
            true,
        );
    }
}

fn goals(all: &[Measured], startup: Option<&Startup>) -> Vec<Goal> {
    let mut goals = Goals::default();
    if !all.is_empty() {
        goals.recording(all);
        goals.others(all);
    }
    if let Some(s) = startup {
        goals.startup(s);
    }
    goals.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_columns() {
        let rows = [
            vec!["a".to_owned(), "bb".into()],
            vec!["ccc".into(), "d".into()],
        ];
        assert_eq!(
            markdown(&rows),
            "| a   | bb |\n|:----|---:|\n| ccc |  d |\n"
        );
    }
}
