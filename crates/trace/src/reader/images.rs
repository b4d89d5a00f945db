//! Program images and what they execute.

use super::{Image, StreamId, Trace};
use crate::meta::command_line;
use crate::{StreamInfo, StreamKind};
use hindsight_events::{Decoder, Event};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

/// How many bytes of events of a trace are unpacked to find out what its images execute. Nearly always the
/// command lines say it, and no events are read.
const MOST_LOOKED: u64 = 256 << 20;

impl Trace {
    /// The command line of a program image, or the file that it executes. Empty if neither is known.
    pub fn command(&self, image: u32) -> String {
        let i = self.images.binary_search_by_key(&image, |i| i.number);
        let origin = i.ok().and_then(|i| self.image(*self.origins.get(i)?));
        let Some(i) = origin else {
            return String::new();
        };
        if i.number == 1 {
            return self.header.command();
        }
        match said(i, &self.infos) {
            Some(info) => command_line(&info.command),
            None => self.program(i).unwrap_or_default(),
        }
    }

    /// The first file that the image mapped executable.
    fn program(&self, image: &Image) -> Option<String> {
        let chunk = self.chunks(*image.streams.first()?).first()?;
        if self.looked.fetch_add(chunk.work(), Relaxed) > MOST_LOOKED {
            return None;
        }
        let wire = self.load(chunk).ok()?;
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            match event {
                Event::Map { prot, path, .. } if prot & 4 != 0 && path.starts_with(b"/") => {
                    return Some(String::from_utf8_lossy(path).into_owned());
                }
                _ => at += n,
            }
        }
        None
    }
}

/// The description of an image's stream that has its command line.
fn said<'a>(image: &Image, infos: &'a BTreeMap<StreamId, StreamInfo>) -> Option<&'a StreamInfo> {
    let mut all = image.streams.iter().filter_map(|s| infos.get(s));
    all.find(|i| !i.command.is_empty())
}

/// The program images that the streams belong to. The second list says for each image which image has its
/// command line: a forked process runs its parent's program.
pub(super) fn find(infos: &BTreeMap<StreamId, StreamInfo>) -> (Vec<Image>, Vec<u32>) {
    let mut all: BTreeMap<u32, Image> = BTreeMap::new();
    let mut pids: BTreeSet<(u32, i32)> = BTreeSet::new();
    for (id, info) in infos {
        pids.insert((info.image, info.pid));
        let image = all.entry(info.image).or_insert(Image {
            number: info.image,
            parent: info.parent,
            pid: info.pid,
            streams: Vec::new(),
            threads: Vec::new(),
            by_exec: false,
        });
        match info.kind {
            StreamKind::Thread => image.threads.push(*id),
            // A child that still shares its parent's memory belongs to the parent's image. It is a thread
            // there, with a process id of its own.
            StreamKind::Image => {
                image.pid = info.pid;
                image.by_exec = info.executed;
                image.streams.push(*id);
            }
        }
    }
    let by_exec = |i: Image| Image {
        by_exec: i.by_exec || pids.contains(&(i.parent, i.pid)),
        ..i
    };
    let mut images: Vec<Image> = all.into_values().map(by_exec).collect();
    for image in &mut images {
        // Streams have numbers in the order in which the collector saw them. It may see other threads before the first one.
        let pid = image.pid;
        let is_later = |id: &StreamId| infos.get(id).is_none_or(|i| i.tid != pid);
        image.threads.sort_by_key(|id| (is_later(id), *id));
    }
    let mut origins: Vec<u32> = Vec::with_capacity(images.len());
    for i in &images {
        // Only images before this one are searched. So a damaged trace cannot make a cycle of parents.
        let before = &images[..origins.len()];
        let parent = before.binary_search_by_key(&i.parent, |p| p.number);
        origins.push(match parent {
            Ok(p) if i.number != 1 && !i.by_exec && said(i, infos).is_none() => origins[p],
            _ => i.number,
        });
    }
    (images, origins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_comes_first_whenever_it_was_seen() {
        let info = |stream, kind, tid| StreamInfo {
            stream,
            kind,
            image: 1,
            pid: 10,
            tid,
            ..StreamInfo::default()
        };
        let list = [
            info(1, StreamKind::Image, 10),
            info(2, StreamKind::Thread, 12),
            info(3, StreamKind::Thread, 11),
            info(4, StreamKind::Thread, 10),
        ];
        let infos = list.map(|i| (i.stream, i)).into();
        let (images, _) = find(&infos);
        assert_eq!(images[0].threads, [4, 2, 3]);
    }
}
