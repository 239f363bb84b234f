//! The C library as it is installed: its symbols, C programs against it, what it makes of the environment.

mod common;
mod environment;
mod installed;
mod programs;
mod symbols;
