//! What was recorded, as a program that runs asks for it. Nothing here touches a process.

pub mod class;
pub mod compare;
pub mod failure;
pub mod gate;
pub mod key;
pub mod mapped;
pub mod message;
pub mod names;
pub mod offset;
pub mod script;
pub mod signals;
pub mod table;
