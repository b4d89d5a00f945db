//! What can be wrong with a packet, and with a connection.

/// A packet of a known kind that does not have the form of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the packet `{0}` is malformed")]
pub struct Malformed(
    /// How packets of this kind begin.
    pub &'static str,
);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the client does not keep to the protocol: {0}")]
    Protocol(String),
}

/// A result of work with a connection.
pub type Result<T> = std::result::Result<T, Error>;

/// What a parser of a family makes of a packet: nothing if it belongs to another one.
pub(crate) type Parsed<T> = std::result::Result<Option<T>, Malformed>;
