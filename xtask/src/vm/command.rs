//! Running the tools of the host, with errors that say what failed and what to install.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Error, Result, anyhow, ensure};

/// The tools we call and the Debian packages that bring them.
const PACKAGES: [(&str, &str); 6] = [
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("apt-config", "apt"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// Runs a command to its end; what it prints goes to our standard error.
pub fn complete(command: &mut Command) -> Result<()> {
    let stderr = std::io::stderr()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot duplicate standard error")?;
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(stderr))
        .status()
        .map_err(|error| cannot_start(command, error))?;
    ensure!(
        status.success(),
        "`{}` failed ({status})",
        describe(command)
    );
    Ok(())
}

/// Runs a command to its end and returns what it printed on its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_start(command, error))?;
    ensure!(
        output.status.success(),
        "`{}` failed ({})",
        describe(command),
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| {
        format!(
            "`{}` printed something that is not UTF-8",
            describe(command)
        )
    })
}

/// The error for a command that did not even start.
pub fn cannot_start(command: &Command, error: std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    let package = PACKAGES
        .iter()
        .find(|(tool, _)| *tool == program)
        .map(|(_, package)| *package);
    match (error.kind(), package) {
        (ErrorKind::NotFound, Some(package)) => {
            anyhow!("{program} is not installed; install it with: apt-get install {package}")
        }
        (_, _) => Error::new(error).context(format!("cannot start {program}")),
    }
}

/// The command's name and first argument: enough to know it by, short enough for a message.
fn describe(command: &Command) -> String {
    let first = command.get_args().next().unwrap_or_default();
    format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        first.to_string_lossy()
    )
    .trim_end()
    .to_owned()
}
