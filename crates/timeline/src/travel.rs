//! The facade: [`crate::Timeline`] is a recording, [`crate::Cursor`] an instant of it. Both delegate.

pub mod cursor;
pub mod places;
pub mod timeline;
pub mod times;
