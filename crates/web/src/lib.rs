//! Looks at recordings where there is no operating system: as a module of WebAssembly, in a browser or in Node. `hindsight.mjs`
//! beside this crate loads it, and says how it is used.
//!
//! [`Session`] answers questions in JSON, on any host. The functions here hand bytes to it and back. One instance of the module has
//! one recording. To forget it is to forget the instance. After a panic an instance is of no use any more: its answer is the panic's
//! message then, of [`hindsight_length`] bytes.
//!
//! A caller asks for room ([`hindsight_input`]), puts bytes there, and calls [`hindsight_open`] or [`hindsight_ask`], which tell how
//! long their answer is. [`hindsight_answer`] tells where it is.

#![deny(missing_docs)]

mod answers;
mod fail;
mod request;
mod session;

pub use session::Session;

use std::cell::RefCell;

thread_local! {
    /// What the caller says.
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What it is told.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Makes room for `len` bytes, and says where it is: 0 if there is no memory. It stays until the next call of any function.
// SAFETY: no other function has this name, here and below.
#[unsafe(no_mangle)]
pub extern "C" fn hindsight_input(len: usize) -> *mut u8 {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return std::ptr::null_mut();
    }
    bytes.resize(len, 0);
    // What the last question was told is not the message of a panic.
    answer(String::new());
    INPUT.with_borrow_mut(|input| {
        *input = bytes;
        input.as_mut_ptr()
    })
}

/// Opens what was put in as a recording. Returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn hindsight_open() -> usize {
    std::panic::set_hook(Box::new(|panic| answer(panic.to_string())));
    let (session, said) = Session::open(INPUT.take());
    SESSION.set(session);
    answer(said);
    hindsight_length()
}

/// Answers what was put in, a request in JSON. Returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn hindsight_ask() -> usize {
    let request = INPUT.take();
    let said = SESSION.with_borrow_mut(|session| match session {
        Some(session) => session.ask(&request),
        None => fail::Fail::request("no recording is open").said(),
    });
    answer(said);
    hindsight_length()
}

/// Where the answer is. It stays until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn hindsight_answer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

/// The length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn hindsight_length() -> usize {
    ANSWER.with_borrow(Vec::len)
}

fn answer(text: String) {
    ANSWER.set(text.into_bytes());
}
