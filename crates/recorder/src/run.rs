//! The main loop: what it does when translated code comes back to it.

pub mod ahead;
pub mod chaos;
pub mod dispatch;
pub mod far;
pub mod lines;
pub mod mark;
pub mod nondet;
pub mod precheck;
pub mod shadow;
pub mod slow;
pub mod transcendental;
pub mod trap;
pub mod vsib;
pub mod xstate;
