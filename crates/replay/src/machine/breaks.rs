//! Breaks: where a run stops before an instruction, and under which conditions.

use super::Machine;
use crate::expression::Expression;
use std::sync::Arc;

impl Machine<'_> {
    /// Stops before instructions at these addresses from now on ([`Stop::Break`](super::Stop::Break)), once at each position.
    pub fn set_breaks(&mut self, mut addresses: Vec<u64>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.conditions.clear();
        self.processor.set_breaks(&mut self.cpu, addresses);
    }

    /// The same with conditions. A run goes on where the conditions of all breaks at an address fail. A condition sees
    /// what the access marks tell of memory. It cannot be evaluated where it needs more, so the run stops there.
    pub fn set_conditional_breaks(&mut self, breaks: &[(u64, Option<Arc<Expression>>)]) {
        self.set_breaks(breaks.iter().map(|b| b.0).collect());
        let always = |a: u64| breaks.iter().any(|b| b.0 == a && b.1.is_none());
        let conditions = breaks.iter().filter(|b| !always(b.0));
        self.conditions = conditions
            .filter_map(|(a, e)| Some((*a, Arc::clone(e.as_ref()?))))
            .collect();
    }

    /// Whether all conditions of the break at the next instruction fail.
    pub(crate) fn conditions_fail(&self) -> bool {
        let here = self.conditions.iter().filter(|c| c.0 == self.cpu.rip);
        let mut holding = here.map(|c| c.1.holds(&mut &self.cpu)).peekable();
        holding.peek().is_some() && holding.all(|holds| !holds)
    }
}
