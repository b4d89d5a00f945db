//! Finds functions that went on as other ones, by tail calls. Their frames are gone. But the debug information of calls
//! says which they were.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::Module;
use crate::dwarf::Reader;
use gimli::constants::*;
use gimli::{AttributeValue, DebuggingInformationEntry, EntriesTreeNode, UnitOffset, UnitRef};
use std::collections::HashMap;

/// `MOST` is the longest chain of functions that is followed. `LOOKS` is how many functions a search looks at.
const MOST: usize = 8;
const LOOKS: usize = 1000;
/// How deep scopes may nest.
const DEPTH: u32 = 64;

/// What was found so far.
#[derive(Default)]
pub(crate) struct Tails {
    /// Called functions, by return address.
    called: HashMap<u64, Option<Called>>,
    /// Chains by the function that was called and the one that runs. If these are the same, it is a way from the
    /// function back to itself.
    chains: HashMap<(u64, u64), Vec<u64>>,
}

/// The function that a call names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Called {
    /// The one that begins at this file address.
    Here(u64),
    /// One of another file, by its name.
    Elsewhere(String),
}

/// A call in a function.
struct Site {
    /// The file address after it.
    behind: u64,
    to: Option<Called>,
    tail: bool,
}

type SiteFilter<'a> = &'a dyn Fn(&Site) -> bool;

/// A search for chains of tail calls.
struct Search<'a> {
    module: &'a Module,
    wanted: u64,
    looks: usize,
    /// The chain that was found, and whether there is another one.
    found: Option<Vec<u64>>,
    several: bool,
}

impl Module {
    fn found<T>(&self, look: impl FnOnce(&mut Tails) -> T) -> T {
        look(&mut self.tails.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// The function that the call before file address `ra` calls, if the call says.
    pub(crate) fn called(&self, ra: u64) -> Option<Called> {
        if let Some(known) = self.found(|t| t.called.get(&ra).cloned()) {
            return known;
        }
        let sites = self.calls_of(ra, &|s| s.behind == ra);
        let to = sites.into_iter().find_map(|s| s.to);
        self.found(|t| t.called.insert(ra, to.clone()));
        to
    }

    /// The tail calls by which the function that begins at `first` went on as the one at `callee`. The answer is the
    /// addresses after these calls, the last one first. It is empty if the functions are the same, if it is not known,
    /// or if there are several ways.
    pub(crate) fn tail_calls(&self, first: u64, callee: u64) -> Vec<u64> {
        if first == callee {
            return Vec::new();
        }
        let key = (first, callee);
        if let Some(known) = self.found(|t| t.chains.get(&key).cloned()) {
            return known;
        }
        let chain = self.find_tail_calls(first, callee);
        self.found(|t| t.chains.insert(key, chain.clone()));
        chain
    }

    /// Whether the function may go on as itself by tail calls.
    pub(crate) fn repeats(&self, function: u64) -> bool {
        let key = (function, function);
        if let Some(known) = self.found(|t| t.chains.get(&key).cloned()) {
            return !known.is_empty();
        }
        let mut search = Search::new(self, function);
        search.follow(function, &mut Vec::new(), &mut Vec::new());
        let way = search.found.unwrap_or_default();
        self.found(|t| t.chains.insert(key, way.clone()));
        !way.is_empty()
    }

    fn find_tail_calls(&self, first: u64, callee: u64) -> Vec<u64> {
        let mut search = Search::new(self, callee);
        search.follow(first, &mut Vec::new(), &mut vec![first]);
        match (search.found, search.several || search.looks >= LOOKS) {
            (Some(mut chain), false) => {
                chain.reverse();
                chain
            }
            _ => Vec::new(),
        }
    }

    /// Where the function begins to which the code at a file address belongs. Compilers put rarely executed parts
    /// elsewhere, under names of their own. `None`: there is no debug information.
    pub(crate) fn begin_of(&self, addr: u64) -> Option<u64> {
        let dwarf = self.dwarf()?;
        let unit = dwarf.find_dwarf_and_unit(addr).skip_all_loads()?;
        let mut tree = unit.unit.entries_tree(None).ok()?;
        let at = subprogram(unit, tree.root().ok()?, addr, 0).ok()??;
        match self.function_of(unit, at)? {
            Called::Here(begin) => Some(begin),
            Called::Elsewhere(_) => None,
        }
    }

    /// The calls of a function that `wanted` chooses. The function contains the file address, or its last call ends
    /// there. The callee is looked up for these only.
    fn calls_of(&self, addr: u64, wanted: SiteFilter) -> Vec<Site> {
        let mut out = Vec::new();
        let Some(dwarf) = self.dwarf() else {
            return out;
        };
        let inside = addr.wrapping_sub(1);
        let Some(unit) = dwarf.find_dwarf_and_unit(inside).skip_all_loads() else {
            return out;
        };
        let mut walk = || -> Result<(), gimli::Error> {
            let mut tree = unit.unit.entries_tree(None)?;
            let Some(at) = subprogram(unit, tree.root()?, inside, 0)? else {
                return Ok(());
            };
            let mut tree = unit.unit.entries_tree(Some(at))?;
            self.sites(unit, tree.root()?, wanted, &mut out, 0)
        };
        // If the data is damaged, what was found before counts.
        let _ = walk();
        out
    }

    fn sites(
        &self,
        unit: UnitRef<Reader>,
        node: EntriesTreeNode<Reader>,
        wanted: SiteFilter,
        out: &mut Vec<Site>,
        depth: u32,
    ) -> Result<(), gimli::Error> {
        let mut children = node.children();
        while let Some(child) = children.next()? {
            match child.entry().tag() {
                DW_TAG_call_site | DW_TAG_GNU_call_site => {
                    out.extend(self.site(unit, child.entry(), wanted));
                }
                DW_TAG_lexical_block | DW_TAG_inlined_subroutine if depth < DEPTH => {
                    self.sites(unit, child, wanted, out, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn site(
        &self,
        unit: UnitRef<Reader>,
        e: &DebuggingInformationEntry<Reader>,
        wanted: SiteFilter,
    ) -> Option<Site> {
        let behind = e
            .attr_value(DW_AT_call_return_pc)
            .or_else(|| e.attr_value(DW_AT_low_pc))?;
        let behind = unit.attr_address(behind).ok().flatten()?;
        let tail = [DW_AT_call_tail_call, DW_AT_GNU_tail_call]
            .iter()
            .any(|a| matches!(e.attr_value(*a), Some(AttributeValue::Flag(true))));
        let mut site = Site {
            behind,
            to: None,
            tail,
        };
        if !wanted(&site) {
            return None;
        }
        let origin = e
            .attr_value(DW_AT_call_origin)
            .or_else(|| e.attr_value(DW_AT_abstract_origin));
        if let Some(AttributeValue::UnitRef(at)) = origin {
            site.to = self.function_of(unit, at);
        }
        Some(site)
    }

    /// The function that an entry declares or defines.
    fn function_of(&self, unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<Called> {
        let mut cursor = unit.unit.entries_at_offset(at).ok()?;
        cursor.next_entry().ok()?;
        let e = cursor.current()?;
        // Of several parts, the first one is called.
        if let Some(first) = unit.die_ranges(e).ok()?.next().ok()? {
            return Some(Called::Here(first.begin));
        }
        let name = [DW_AT_linkage_name, DW_AT_name].iter().find_map(|n| {
            let v = crate::dwarf::attribute(unit, e, *n, 0)?;
            Some(crate::dwarf::text(unit, v))
        })?;
        match self.named(&name)[..] {
            [] => Some(Called::Elsewhere(name)),
            [one] => Some(Called::Here(one)),
            // Functions of several files may have the same name.
            _ => None,
        }
    }

    /// Where the functions with this name begin.
    pub(crate) fn named(&self, name: &str) -> Vec<u64> {
        // `qsort@@GLIBC_2.2.5`
        let is = |f: &&crate::Function| f.name.split('@').next() == Some(name);
        let mut all: Vec<u64> = self.functions().iter().filter(is).map(|f| f.addr).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The entry of the function that contains a file address.
pub(crate) fn subprogram(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    addr: u64,
    depth: u32,
) -> Result<Option<UnitOffset<usize>>, gimli::Error> {
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let e = child.entry();
        match e.tag() {
            DW_TAG_subprogram => {
                let mut ranges = unit.die_ranges(e)?;
                while let Some(r) = ranges.next()? {
                    if (r.begin..r.end).contains(&addr) {
                        return Ok(Some(e.offset()));
                    }
                }
            }
            DW_TAG_namespace | DW_TAG_structure_type | DW_TAG_class_type if depth < DEPTH => {
                let found = subprogram(unit, child, addr, depth + 1)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

impl<'a> Search<'a> {
    fn new(module: &'a Module, wanted: u64) -> Search<'a> {
        Search {
            module,
            wanted,
            looks: 0,
            found: None,
            several: false,
        }
    }

    /// Follows the tail calls of a function. `passed` has the functions on the way.
    fn follow(&mut self, function: u64, chain: &mut Vec<u64>, passed: &mut Vec<u64>) {
        self.looks += 1;
        if chain.len() >= MOST || self.looks > LOOKS || self.several {
            return;
        }
        for s in self.module.calls_of(function + 1, &|s| s.tail) {
            let to = match s.to {
                Some(Called::Here(to)) if !passed.contains(&to) => to,
                _ => continue,
            };
            chain.push(s.behind);
            if to == self.wanted {
                self.several |= self.found.replace(chain.clone()).is_some();
            } else {
                passed.push(to);
                self.follow(to, chain, passed);
                passed.pop();
            }
            chain.pop();
        }
    }
}
