//! `hindsight serve`: a program asks by lines of JSON.

mod answers;
mod client;
mod lines;
mod lists;
mod runs;
mod steps;
