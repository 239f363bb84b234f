//! `hugepilot config`: the parameters, for people and for programs.

use crate::config::{ConfigArgs, to_toml};
use hugepilot_core::policy::Settings;
use std::io::Write;
use std::process::ExitCode;

/// `hugepilot config`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot config --defaults > hugepilot.toml\n  hugepilot config --config hugepilot.toml --set mega.present_min=0.95\n  hugepilot config --schema\n\nWithout --schema or --defaults it checks what is given and prints the values in force."
)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print a JSON schema of the configuration
    #[arg(long, conflicts_with_all = ["defaults", "config", "set"])]
    schema: bool,
    /// Print the defaults as a TOML file with comments
    #[arg(long, conflicts_with_all = ["config", "set"])]
    defaults: bool,
}

/// Runs it.
///
/// # Errors
/// If a parameter does not fit.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = if args.schema {
        format!("{:#}\n", Settings::schema())
    } else {
        to_toml(&args.config.settings()?)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
