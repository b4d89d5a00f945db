//! What strangers can do: with their recordings, and as peers of a connection.

mod files;
mod peers;
mod sandbox;
mod text;
