//! The files that a recorded program used.

use crate::Result;
use hindsight_timeline::{Flow, ModuleHash, Paths, Timeline, Unseen, What};
use std::collections::BTreeMap;

/// A file that the program used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset {
    /// Its path. It is relative if the working directory was not known.
    pub path: Vec<u8>,
    /// What it was used for.
    pub uses: Uses,
    /// Its content, if the recording has it.
    pub content: Option<Content>,
}

/// What a file was used for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Uses {
    /// It is the program that was started.
    pub program: bool,
    /// It was mapped, as libraries are.
    pub mapped: bool,
    /// It was opened for reading only.
    pub read: bool,
    /// It was opened for writing. So what it holds now may be the program's own work.
    pub written: bool,
}

impl Uses {
    fn add(&mut self, other: Uses) {
        self.program |= other.program;
        self.mapped |= other.mapped;
        self.read |= other.read;
        self.written |= other.written;
    }
}

/// A content that the recording has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    /// Names it.
    pub hash: ModuleHash,
    /// Its size in bytes.
    pub size: u64,
    /// Its number among the modules of the trace.
    pub module: u32,
}

/// The files that a recording used.
#[derive(Debug)]
pub struct Assets {
    /// The files, by path. A path comes twice if it had two contents.
    pub files: Vec<Asset>,
    /// What is not known of files that were opened.
    pub unseen: Unseen,
    /// Why the files that were opened are not all listed, if they are not.
    pub problem: Option<String>,
}

/// The files that the programs of a recording were, mapped and opened.
///
/// # Errors
/// The recording does not answer. If only the files that were opened cannot be found out, the answer says why.
pub fn assets(timeline: &Timeline) -> Result<Assets> {
    let trace = timeline.trace();
    let mut all: BTreeMap<(Vec<u8>, Option<ModuleHash>), Asset> = BTreeMap::new();
    let mut add = |path: &[u8], uses: Uses, content: Option<Content>| {
        let asset = all.entry((path.to_vec(), content.map(|c| c.hash)));
        let asset = asset.or_insert_with(|| Asset {
            path: path.to_vec(),
            uses: Uses::default(),
            content,
        });
        asset.uses.add(uses);
    };
    let mapped = Uses {
        mapped: true,
        ..Uses::default()
    };
    for (module, m) in (0..).zip(trace.modules()) {
        let content = Content {
            hash: m.hash,
            size: m.size,
            module,
        };
        let program = m.path == trace.header().exe;
        add(m.path.as_bytes(), Uses { program, ..mapped }, Some(content));
    }
    for p in timeline.processes()? {
        for m in timeline.modules(p.image)? {
            if m.hash.is_none() && m.path.starts_with('/') {
                add(m.path.as_bytes(), mapped, None);
            }
        }
    }
    let mut opened: BTreeMap<Vec<u8>, Uses> = BTreeMap::new();
    let done = timeline.flow(Paths::All, None, &mut |_, flow| {
        if let Flow::Opened(file) = flow
            && let What::File {
                path: Some(path),
                writes,
                folder: false,
            } = &file.what
        {
            let uses = opened.entry(path.clone()).or_default();
            uses.read |= !writes;
            uses.written |= writes;
        }
        Ok(())
    });
    for (path, uses) in opened {
        // Whichever content it was that was opened.
        let mut with_path = all.range_mut((path.clone(), None)..).peekable();
        let is_known = with_path.peek().is_some_and(|a| a.0.0 == path);
        match is_known {
            true => with_path
                .take_while(|a| a.0.0 == path)
                .for_each(|a| a.1.uses.add(uses)),
            false => {
                drop(with_path);
                let asset = Asset {
                    path: path.clone(),
                    uses,
                    content: None,
                };
                all.insert((path, None), asset);
            }
        }
    }
    let (unseen, problem) = match done {
        Ok(unseen) => (unseen, None),
        Err(e) => (Unseen::default(), Some(e.to_string())),
    };
    Ok(Assets {
        files: all.into_values().collect(),
        unseen,
        problem,
    })
}
