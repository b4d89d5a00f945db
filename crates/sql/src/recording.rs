//! The recording that is asked.

use crate::bounds::Bounds;
use crate::clock::Clock;
use crate::rows::Stop;
use anyhow::{Context, Result, anyhow};
use datafusion::logical_expr::Expr;
use hindsight_inspect::Inspector;
use hindsight_inspect::symbols::{CodeLocation, Module, Space};
use hindsight_timeline::{Place, Position, ThreadId, Timeline};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A recording with what several tables need of it.
pub struct Recording {
    /// The recording itself.
    pub timeline: Timeline,
    /// No other one is asked.
    pub is_alone: bool,
    clock: OnceLock<Clock>,
    inspector: Mutex<Inspector>,
    /// The files that each program image had mapped.
    modules: Mutex<HashMap<u32, Arc<Vec<Loaded>>>>,
    /// The program image of each thread.
    images: OnceLock<HashMap<ThreadId, u32>>,
}

/// A file in memory, from one time to another.
struct Loaded {
    addresses: std::ops::Range<u64>,
    times: std::ops::Range<i64>,
    space: Arc<Space>,
}

impl Recording {
    /// A recording that was opened. `is_alone`: no other one is asked.
    pub fn new(timeline: Timeline, is_alone: bool) -> Recording {
        Recording {
            inspector: Mutex::new(Inspector::new(timeline.clone())),
            timeline,
            is_alone,
            clock: OnceLock::new(),
            modules: Mutex::default(),
            images: OnceLock::new(),
        }
    }

    /// Its clock.
    pub fn clock(&self) -> Result<&Clock> {
        if let Some(c) = self.clock.get() {
            return Ok(c);
        }
        let clock = Clock::new(&self.timeline)?;
        Ok(self.clock.get_or_init(|| clock))
    }

    /// The program image of a thread. 0: there is no such thread.
    pub fn image(&self, thread: ThreadId) -> Result<u32> {
        if self.images.get().is_none() {
            let all = self.timeline.threads()?;
            let _ = self
                .images
                .set(all.iter().map(|t| (t.id, t.image)).collect());
        }
        let image = self.images.get().and_then(|i| i.get(&thread));
        Ok(image.copied().unwrap_or(0))
    }

    /// What tells names.
    pub fn inspector(&self) -> MutexGuard<'_, Inspector> {
        self.inspector.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The position of a place.
    ///
    /// # Errors
    /// The text names no place, or the recording does not have it: [`Stop::Absent`].
    pub fn place(&self, text: &str) -> std::result::Result<Position, Stop> {
        let place: Place = text.parse()?;
        self.timeline.find(place, None).map_err(Stop::of_search)
    }

    /// What conditions say of columns. What they say of `position` is said of `time`.
    pub fn bounds(&self, conditions: &[Expr]) -> Bounds {
        let mut bounds = Bounds::of(conditions);
        let positions = bounds.texts("position").map(|all| {
            let parsed = all.iter().filter_map(|p| p.parse::<Position>().ok());
            parsed.collect::<Vec<_>>()
        });
        if let (Some(list), Ok(clock)) = (positions, self.clock()) {
            let times = list.iter().map(|p| i128::from(clock.time(*p)));
            let (lo, hi) = (times.clone().min(), times.max());
            // No position can be equal to a text that is none.
            bounds.limit("time", lo.unwrap_or(1)..=hi.unwrap_or(0));
        }
        bounds
    }

    /// Which file a program image has at an address at some time: a number that [`Recording::location`] and
    /// [`Recording::line`] take. `None`: none is known.
    pub fn file(&self, image: u32, address: u64, time: i64) -> Result<Option<usize>> {
        let here = |l: &Loaded| l.addresses.contains(&address) && l.times.contains(&time);
        Ok(self.loaded(image)?.iter().position(here))
    }

    /// The same where nobody says when: the file, if only one was ever there.
    pub fn only_file(&self, image: u32, address: u64) -> Result<Option<usize>> {
        let loaded = self.loaded(image)?;
        let mut all = (0..)
            .zip(loaded.iter())
            .filter(|(_, l)| l.addresses.contains(&address));
        let first = all.next().map(|(i, _)| i);
        Ok(first.filter(|_| all.next().is_none()))
    }

    /// What code is at an address of a file of a program image.
    pub fn location(&self, image: u32, file: usize, address: u64) -> Result<Option<CodeLocation>> {
        let loaded = self.loaded(image)?;
        Ok(loaded.get(file).and_then(|l| l.space.location(address)))
    }

    /// The function at an address of a program image at some time.
    pub fn function(&self, image: u32, address: u64, time: i64) -> Result<Option<String>> {
        let Some(file) = self.file(image, address, time)? else {
            return Ok(None);
        };
        let location = self.location(image, file, address)?;
        Ok(location.and_then(|l| Some(l.function?.0)))
    }

    /// The source line of an address of a file, as `FILE:LINE`.
    pub fn line(&self, image: u32, file: usize, address: u64) -> Result<Option<String>> {
        let loaded = self.loaded(image)?;
        let frames = loaded.get(file).map(|l| l.space.frames(address));
        let source = frames.unwrap_or_default().into_iter().next();
        let source = source.and_then(|f| f.source);
        Ok(source.map(|s| format!("{}:{}", s.file, s.line)))
    }

    /// How many files a program image had mapped, one after the other or at the same time.
    pub fn files(&self, image: u32) -> Result<usize> {
        Ok(self.loaded(image)?.len())
    }

    /// A file that a program image had mapped, by the number that [`Recording::file`] gives, and what is to be taken from addresses
    /// in memory to get those in the file.
    pub fn module(&self, image: u32, file: usize) -> Result<Option<(Arc<Module>, u64)>> {
        let loaded = self.loaded(image)?;
        let found = loaded.get(file).and_then(|l| {
            let all = l.space.mappings().iter();
            let mut here = all.filter(|m| l.addresses.contains(&m.start));
            here.next().map(|m| (Arc::clone(&m.module), m.bias))
        });
        Ok(found)
    }

    fn loaded(&self, image: u32) -> Result<Arc<Vec<Loaded>>> {
        let known = || self.modules.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(l) = known().get(&image) {
            return Ok(Arc::clone(l));
        }
        let clock = self.clock()?;
        let process = self.process(image)?;
        let mut all = Vec::new();
        for m in self.timeline.modules(image)? {
            // All of its mappings are there shortly before it goes.
            let last = match m.unload {
                Some(p) => clock.position(clock.time(p) - 1).unwrap_or(p),
                None => process.end,
            };
            all.push(Loaded {
                addresses: m.start..m.end,
                times: m.load.map_or(0, |p| clock.time(p))
                    ..m.unload.map_or(i64::MAX, |p| clock.time(p)),
                space: self.inspector().space(image, last)?,
            });
        }
        let all = Arc::new(all);
        known().insert(image, Arc::clone(&all));
        Ok(all)
    }

    /// A program image.
    pub fn process(&self, image: u32) -> Result<hindsight_timeline::Process> {
        let all = self.timeline.processes()?;
        let found = all.into_iter().find(|p| p.image == image);
        found.with_context(|| format!("the recording has no process {image}"))
    }

    /// The first program image.
    pub fn first_image(&self) -> Result<u32> {
        let all = self.timeline.processes()?;
        let first = all.first().map(|p| p.image);
        first.ok_or_else(|| anyhow!("the recording has no process"))
    }
}
