//! One run of a recorded program.

use super::hang::{self, Deadline};
use super::{FAILED, await_others, collect, config, exec, finish, header, report, share};
use crate::dump::{self, Listener};
use crate::face::{Face, Run, Worker};
use crate::keep::KeepOn;
use crate::launch::Watch;
use crate::program::Program;
use crate::sink::{Out, Place, Sink, Target};
use crate::translations::Translations;
use crate::{args, detach, image, os, say, select, store, symbols};
use anyhow::{Context, Result};
use hindsight_collector::{Collector, Control};
use hindsight_events::config::Config;
use hindsight_events::ring::file_len;
use hindsight_events::shared_cache::Count;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Header, Ring, RingSnapshot, Summary};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

/// Runs and records the program once; `number` runs came before.
pub fn once(
    a: &args::Record,
    program: &Program,
    target: &Target,
    watch: &Watch,
    number: u64,
) -> Result<Run> {
    let control = Control::new().with_context(|| {
        format!(
            "cannot make the memory shared with the program (does `ulimit -f` allow {} MiB?)",
            (file_len(2) >> 20) + 1
        )
    })?;
    control
        .set_image(image::IMAGE)
        .context("the recorder's image")?;
    let theirs = control
        .for_program()
        .context("the memory shared with the program")?;
    let config = config(a, program, theirs.as_raw_fd(), number)?;
    let image = image::file(&config)?;
    let mut exec = exec(&image, program, watch)?;
    exec.keep = Some(theirs.as_raw_fd());
    exec.merge_output = *target == Target::StandardOutput;
    let worker = Worker::start(|face| {
        // Only who is recorded has it.
        os::close(theirs.as_raw_fd());
        work(a, program, target, number, &control, &config, face)
    })?;
    let pid = os::spawn(&exec)?;
    drop(theirs);
    worker.started(pid);
    let beat = || {
        worker.look();
        // Where tracing is allowed to parents only, it is to this process.
        detach::serve(&control);
    };
    let ended = watch.wait(pid, beat, |news| worker.tell(news))?;
    worker.finish(&ended, watch, beat)
}

/// In the process that collects: prepares for the program, records it to its end and sees to the recording.
fn work(
    a: &args::Record,
    program: &Program,
    target: &Target,
    number: u64,
    control: &Control,
    config: &Config,
    face: &Face,
) -> Result<Run> {
    control.adopt();
    let started = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let name = program
        .execfn
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let translations = match a.no_cache {
        true => None,
        false => Translations::restore(&program.exe, config, control),
    };
    let header = Header {
        name: name.clone(),
        started_ms: started.as_millis() as u64,
        chaos: a.chaos.map(|seed| seed as u64 + number),
        ..header(a, program)
    };
    let open = || target.open(&name, started.as_secs() as i64);
    let mut place = None;
    let mut listener = None;
    let collector: Collector<Out> = match a.ring {
        Some(limit) => {
            let file = a.ring_on_disk.then(|| target.scratch()).transpose()?;
            listener = Some(Listener::new(face.front())?);
            Collector::circular(control, Ring::new(&header, limit, file)?, say)
        }
        None => {
            let sink = open()?;
            let name = place.insert(sink.place).name.clone();
            let collector = Collector::new(control, sink.out, &header, say)
                .with_context(|| format!("cannot write the recording to {name}"))?;
            share(collector, sink.files)
        }
    };

    let clock = Instant::now();
    let pid = match face.ready() {
        Ok(pid) => pid,
        Err(e) => {
            if let Some(place) = &place {
                place.discard();
            }
            return Err(e);
        }
    };
    let deadline = Deadline::new(a.timeout, face.front());
    let lives = Cell::new(true);
    let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let requests = collector.requests();
    let (ended, collected) = std::thread::scope(|s| {
        let (done, finished) = mpsc::channel::<()>();
        let (over, stop, requests) = (&over, &stop, &requests);
        let collecting = s.spawn(move || {
            // Dropped at the end, however that comes.
            let _done = done;
            collect(collector, control, over, stop)
        });
        let beat = || {
            control.beat();
            deadline.look(pid, lives.get(), control, requests);
            face.insist(control.is_damaged(), control.header());
            if face.is_stopped() {
                detach::serve(control);
            }
            while let Some((peer, number)) = listener.as_ref().and_then(Listener::accept) {
                let so_far = Summary {
                    wall_ms: clock.elapsed().as_millis() as u64,
                    ..Summary::default()
                };
                s.spawn(move || dump::answer(peer, number, control, requests, &so_far));
            }
        };
        let ended = face.wait(beat);
        lives.set(false);
        over.store(true, Release);
        control.wake();
        await_others(
            || face.told_to_end() || deadline.is_in_vain(),
            beat,
            control,
            &finished,
            stop,
            a.quiet,
        );
        (ended, collecting.join())
    });
    let blocks = control
        .shared_cache()
        .map_or(Count::default(), |s| s.count());
    let mut collected = collected.ok().flatten().context("the collector failed")?;

    // That of the program itself is the end of the recording; of others it is worth a message.
    let mut refusal = None;
    for r in &collected.refusals {
        let message = symbols::explain(&r.message, &r.maps);
        if r.pid == pid {
            refusal = Some(message);
        } else {
            say(&format!(
                "process {}: {message}; its recording ends there",
                r.pid
            ));
        }
    }
    let ending = match (&refusal, ended.status) {
        (Some(message), _) => Ending::Unsupported(message.clone()),
        (None, _) if collected.is_detached() => Ending::Detached,
        (None, Ok(status)) => Ending::Exit(status),
        (None, Err(signal)) => Ending::Signal(signal),
    };
    let summary = Summary {
        ending: Some(ending.clone()),
        wall_ms: clock.elapsed().as_millis() as u64,
        program_cpu_us: ended.cpu.as_micros() as u64,
        collector_cpu_us: os::own_cpu().as_micros() as u64,
        peak_memory_kib: ended.peak_kib,
        blocks_found: blocks.served as u64,
        blocks_made: blocks.made as u64,
        ..Summary::default()
    };
    let hung = deadline.is_over();
    let kept = a.keep_on().keeps(&ending, hung);
    let (summary, began) = match collected.held() {
        Some(held) if kept && held.instructions() > 0 => {
            let sink = open()?;
            (write_ring(&held, sink, summary, &mut place), true)
        }
        Some(_) => (summary, false),
        None => {
            let summary = finish(&mut collected, summary);
            // A program that could not be loaded leaves nothing worth keeping; the recorder said why.
            let began = summary.totals.instructions + summary.totals.gap_instructions > 0;
            (summary, began)
        }
    };
    let status = match &refusal {
        Some(_) => Ok(FAILED),
        None if hung => Ok(hang::STATUS),
        None => ended.status,
    };
    if let Some(t) = translations.filter(|_| !collected.unprivileged) {
        t.keep(control);
    }
    // It may be deleted then.
    let unmatched = select::unmatched(
        a,
        control.header(),
        place.as_ref().and_then(|p| p.file.as_deref()),
    );
    conclude(a, &name, kept && began, &summary, place.as_ref());
    if !kept && a.retry.is_none() && !a.quiet {
        let why = if hung {
            "it took too long".into()
        } else {
            ending.to_string()
        };
        say(&format!("the recording is not kept: {why}"));
    }
    unmatched.iter().for_each(|m| say(m));
    let file = place.and_then(|p| p.file).filter(|_| kept && began);
    Ok(Run {
        status,
        ending,
        kept,
        hung,
        file: file.map(|f| f.as_os_str().into()),
    })
}

/// Sees to the file of a recording and tells the user about it.
fn conclude(a: &args::Record, name: &str, kept: bool, summary: &Summary, place: Option<&Place>) {
    let Some(place) = place else { return };
    if !kept && (place.stored.is_some() || a.keep_on() != KeepOn::Always) {
        place.discard();
        if place.stored.is_some() {
            store::sweep_sometimes();
        }
        return;
    }
    if let Some(path) = &place.stored {
        store::prune(name, a.keep, path);
    }
    if let Some(Ending::Unsupported(message)) = &summary.ending {
        say(&format!(
            "{message}; the recording ends there: {}",
            place.name
        ));
    } else if !a.quiet && kept {
        say(&report(summary, &place.name));
    }
}

/// Writes what the ring holds in the end.
fn write_ring(
    held: &RingSnapshot,
    sink: Sink,
    summary: Summary,
    place: &mut Option<Place>,
) -> Summary {
    let place = place.insert(sink.place);
    let out = std::io::BufWriter::new(sink.out);
    match held.write(out, sink.files, summary.clone()) {
        Ok((_, summary)) => summary,
        Err(e) => {
            say(&format!(
                "the recording could not be written to {}: {e}; what was written stays readable",
                place.name
            ));
            summary
        }
    }
}
