//! The way to the collector: rings, the descriptor of the control file, files that are handed over.

pub mod descriptor;
pub mod handing;
pub mod ring;
