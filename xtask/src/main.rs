//! The chores of this repository: `cargo xtask help` lists them.

mod guests;
mod numa;
mod pmu_proof;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this repository.")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Guests: real kernels in QEMU's software emulation.
    #[command(subcommand)]
    Vm(vm::Command),
    /// Run the tests that need other kernels, in guests.
    TestGuests(guests::Arguments),
    /// What page sizes and placement do on several nodes, by the virtual PMU: one table. Hours; goes on where it was
    /// stopped.
    NumaTable(numa::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Vm(command) => vm::perform(command),
        Chore::TestGuests(arguments) => guests::perform(&arguments),
        Chore::NumaTable(arguments) => numa::perform(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(vm::EXIT_RIG_FAILED)
    })
}
