//! Keeps what a recording holds from other users ([`private`]), and what it names from files that are none of its
//! business ([`within`]).

pub mod private;
pub mod within;
