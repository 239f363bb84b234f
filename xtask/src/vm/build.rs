//! The static binaries that tests want in a guest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{command, workspace_root};

/// Packages and the binaries that they make.
const BINARIES: [(&str, &str); 3] = [
    ("hugepilot", "hugepilot"),
    ("hugepilot-workers", "hugepilot-worker"),
    ("hugepilot-workers", "guest-pmu"),
];
/// glibc, not musl: it is the target that Debian's own Rust has. Naming it keeps the flags away
/// from build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Without debug information, which would fill the guest's memory; symbols stay, for backtraces.
const FLAGS: &str = "-C target-feature=+crt-static -C strip=debuginfo";

/// Builds them and returns their paths.
pub fn guest_binaries(release: bool) -> Result<Vec<PathBuf>> {
    let mut build = static_cargo("build")?;
    for (package, _) in BINARIES {
        build.args(["--package", package]);
    }
    if release {
        build.arg("--release");
    }
    command::complete(&mut build)?;
    let made = target_directory()?
        .join(TARGET)
        .join(if release { "release" } else { "debug" });
    Ok(BINARIES
        .iter()
        .map(|(_, binary)| made.join(binary))
        .collect())
}

/// A call of cargo that links statically, apart from the ordinary builds.
pub fn static_cargo(verb: &str) -> Result<Command> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .current_dir(workspace_root()?)
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .args([verb, "--target", TARGET, "--target-dir"])
        .arg(target_directory()?);
    Ok(build)
}

fn target_directory() -> Result<PathBuf> {
    Ok(workspace_root()?.join("target/guest"))
}
