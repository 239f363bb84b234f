//! The command line: text that was checked, and nothing that touches the world.

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Manages huge pages of running processes on stock Linux.
///
/// Faults stay on base pages; what has earned a huge page is collapsed in the background, and what has not is split. No
/// kernel patch, no change to the program. Whatever is changed on the system is restored at the end.
#[derive(Debug, Parser)]
#[command(
    name = "hugepilot",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  hugepilot doctor\n  hugepilot inspect 1234\n  hugepilot manage --comm redis-server --for 10m\n  hugepilot run -- ./my-server --port 8080\n\nExit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Probe what this kernel can do, and which policies work on it
    Doctor(crate::doctor::Args),
    /// Show what a process's memory is made of, and what each policy would do with it
    Inspect(crate::inspect::Args),
    /// Manage the huge pages of running processes
    Manage(crate::manage::Args),
    /// Start a command and manage it and its children
    Run(crate::run::Args),
    /// Show, resize and explain the pools of hugetlb pages
    Pool(crate::pool::Args),
    /// Put back what a hugepilot that was killed left changed
    Restore(crate::restore::Args),
    /// Print the parameters with their units and sources, or a JSON schema of them
    Config(crate::config_command::Args),
    /// Plan a recording again, under the same or another policy
    Replay(crate::replay::Args),
    /// Measure fault latency and access speed under each mode
    Bench(crate::bench::Args),
    /// Run Redis under each mode and print one table
    Demo(crate::demo::Args),
}

/// The command line, or the exit code where it asks for help or is wrong.
pub fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let kind = error.kind();
        if kind == ErrorKind::DisplayHelp || kind == ErrorKind::DisplayVersion {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            eprint!("{error}");
        } else {
            eprintln!("hugepilot: {}", one_sentence(&error.to_string()));
        }
        ExitCode::from(crate::failure::USAGE)
    })
}

/// Clap's words on one line: the error with its hints, without the usage.
fn one_sentence(words: &str) -> String {
    let mut parts: Vec<&str> = words
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    if let Some(first) = parts.first_mut() {
        *first = first.trim_start_matches("error: ");
    }
    format!("{}; see --help", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands_mut() {
            let name = command.get_name().to_owned();
            let mut help = command.render_long_help().to_string();
            for below in command.get_subcommands_mut() {
                help += &below.render_long_help().to_string();
            }
            assert!(
                help.contains(&format!("hugepilot {name}")),
                "{name} --help shows no example"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_one_sentence() {
        let wrong = Cli::try_parse_from(["hugepilot", "manage", "--policy", "magic", "--all"]);
        let said = one_sentence(&wrong.expect_err("no such policy").to_string());
        assert!(said.contains("magic") && said.contains("ingens"), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}
