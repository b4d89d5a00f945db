//! The way to the collector: rings, the descriptor of the control file, and files that are handed
//! over.

pub mod descriptor;
pub mod handing;
pub mod ring;
