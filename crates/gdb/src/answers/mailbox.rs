//! Addresses by which gdb's script (`hindsight.gdb`) and the server speak.
//!
//! A script cannot take a server's text into a variable, but it can read memory. And gdb says which thread its user has
//! chosen only before it reads memory or registers. So the script reads these addresses, at which no program has memory.

use crate::state::session::Session;
use hindsight_packets::Tid;

/// Read behind a command that moved. Not 0: the client has chosen another thread than the one to which the command led.
/// The next run then does nothing but tell the client of that thread.
const ELSEWHERE: u64 = 0x9e48_494e_4453_4754;
/// Read before each command and each step backwards, so that gdb says which process and thread are chosen.
const HERE: u64 = ELSEWHERE + 8;
/// Not 0: the last question of who wrote something was about a register.
const REGISTER: u64 = ELSEWHERE + 16;

/// The byte at an address of the script's, for the chosen thread. `None`: this is the program's memory.
pub fn read(session: &mut Session, tid: Tid, address: u64) -> Option<u8> {
    match address {
        ELSEWHERE => {
            let stands = session.inferior.cursor.thread();
            session.showing = session.any_thread(tid) != Some(stands);
            Some(session.showing as u8)
        }
        HERE => {
            session.chosen_thread = Some(tid);
            Some(0)
        }
        REGISTER => Some(session.register_asked as u8),
        _ => None,
    }
}
