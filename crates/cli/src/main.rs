//! The one binary: wiring, configuration, exit codes.

mod args;
mod bench;
mod config;
mod config_command;
mod demo;
mod doctor;
mod failure;
mod inspect;
mod kernel;
mod manage;
mod numa;
mod own;
mod pool;
mod replay;
mod restore;
mod run;
mod signals;
mod text;

use args::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::tell_of_panics();
    match args::parse() {
        Ok(cli) => dispatch(&cli.command).unwrap_or_else(|error| failure::report(&error)),
        Err(code) => code,
    }
}

fn dispatch(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Doctor(args) => doctor::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Manage(args) => manage::run(args),
        Command::Run(args) => run::run(args),
        Command::Pool(args) => pool::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Config(args) => config_command::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(args),
    }
}
