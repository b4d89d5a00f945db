//! Recordings under gdb, and the server behind it.

mod arguments;
mod breakpath;
mod carried;
mod common;
mod cores;
mod ends;
mod everybody;
mod frames;
mod guided;
mod kernel;
mod living;
mod moved;
mod packets;
mod processes;
mod stacks;
mod threads;
mod travel;
mod words;
