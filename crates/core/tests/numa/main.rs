//! The Carrefour family: the branches of Algorithm 1, the latch, the guard, and where memory never goes.

mod algorithm;
mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod placing;
mod stage;
