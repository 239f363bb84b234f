//! Debian's package index and downloads, through apt with a configuration of our own.
//!
//! apt here reads no source, preference, hook or status file of the user's, and writes below our
//! own directory only. Of the user's configuration it takes over how to reach the network (proxies,
//! certificates, credentials), and which mirror serves Debian. Packages are verified against the
//! Debian archive's keyring.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::command;
use super::kernel::is_kernel_name;

/// Names the mirror to use, such as `MIRROR/debian`, instead of the one that the user's apt uses.
const MIRROR_VARIABLE: &str = "HUGEPILOT_DEBIAN_MIRROR";
/// Where the kernels come from.
const SUITES: [&str; 3] = ["bookworm", "trixie", "trixie-backports"];
/// A source of the user's that offers one of these is a mirror of Debian.
const SUITES_OF_DEBIAN: [&str; 6] = [
    "bookworm",
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "forky",
    "sid",
];
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
/// What we do not take over: which indexes to fetch.
const NOT_ABOUT_THE_NETWORK: [&str; 2] = ["Acquire::IndexTargets", "Acquire::Languages"];

/// apt with its own configuration below one directory.
pub struct Apt {
    configuration: PathBuf,
}

impl Apt {
    /// Writes the configuration. The caller holds the lock of the cache.
    pub fn prepare(directory: &Path) -> Result<Self> {
        for name in [
            "etc/empty",
            "state",
            "lists/partial",
            "cache",
            "archives/partial",
        ] {
            let path = directory.join(name);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        write_private(&directory.join("state/status"), "")?;
        let configuration = directory.join("etc/apt.conf");
        let network = network_settings(&command::output(
            Command::new("apt-config").args(["dump", "Acquire"]),
        )?);
        write_private(&configuration, &configuration_text(directory, &network))?;
        Ok(Self { configuration })
    }

    /// Fetches the package index and returns the paragraphs of all kernels.
    pub fn kernel_paragraphs(&self) -> Result<String> {
        let sources = sources_text(&mirror()?, keyring()?);
        write_private(&self.configuration.with_file_name("sources.list"), &sources)?;
        command::complete(self.command("apt-get").arg("update")).with_context(|| {
            format!(
                "cannot read the package index; another mirror can be named by {MIRROR_VARIABLE}"
            )
        })?;
        let names = command::output(self.command("apt-cache").args(["pkgnames", "linux-"]))?;
        let kernels: Vec<&str> = names.lines().filter(|name| is_kernel_name(name)).collect();
        ensure!(
            !kernels.is_empty(),
            "the package index has no kernel; another mirror can be named by {MIRROR_VARIABLE}"
        );
        command::output(self.command("apt-cache").arg("show").args(kernels))
    }

    /// Downloads a package into a directory. apt has verified it when this returns.
    pub fn download(&self, package: &str, version: &str, directory: &Path) -> Result<()> {
        let name = format!("{package}={version}");
        command::complete(
            self.command("apt-get")
                .args(["download", &name])
                .current_dir(directory),
        )
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        command
            .env("APT_CONFIG", &self.configuration)
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

fn configuration_text(directory: &Path, network: &str) -> String {
    let root = directory.display();
    // The user of the sandbox could not write here when we are root.
    format!(
        r#"Dir::Etc::main "/dev/null";
Dir::Etc::parts "{root}/etc/empty";
Dir::Etc::sourcelist "{root}/etc/sources.list";
Dir::Etc::sourceparts "{root}/etc/empty";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "{root}/etc/empty";
Dir::State "{root}/state";
Dir::State::lists "{root}/lists";
Dir::State::status "{root}/state/status";
Dir::Cache "{root}/cache";
Dir::Cache::archives "{root}/archives";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
{network}Acquire::Languages "none";
Acquire::Retries "3";
"#
    )
}

/// The lines of `apt-config dump Acquire` that say how to reach the network.
fn network_settings(dump: &str) -> String {
    let wanted = |line: &&str| {
        !NOT_ABOUT_THE_NETWORK
            .iter()
            .any(|prefix| line.starts_with(prefix))
    };
    dump.lines()
        .filter(wanted)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn sources_text(mirror: &str, keyring: &str) -> String {
    let line = |suite| {
        format!("deb [arch=amd64 target=Packages signed-by={keyring}] {mirror} {suite} main\n")
    };
    SUITES.iter().map(line).collect()
}

fn keyring() -> Result<&'static str> {
    let found = KEYRINGS.into_iter().find(|path| Path::new(path).exists());
    found.context(
        "Debian's archive keys are missing; \
         install them with: apt-get install debian-archive-keyring",
    )
}

fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var(MIRROR_VARIABLE) {
        return Ok(mirror);
    }
    let uris = command::output(Command::new("apt-get").args(["update", "--print-uris"]))?;
    mirror_among(&uris).with_context(|| {
        format!(
            "apt knows no mirror of Debian; name one (a URL up to /debian) by {MIRROR_VARIABLE}"
        )
    })
}

/// The first mirror of Debian in what `apt-get update --print-uris` prints: lines of `'URI' file
/// size`.
fn mirror_among(uris: &str) -> Option<String> {
    let quoted = uris
        .lines()
        .filter_map(|line| line.strip_prefix('\'')?.split('\'').next());
    let mut mirrors = quoted.filter_map(|uri| {
        let (mirror, suite) = uri.strip_suffix("/InRelease")?.split_once("/dists/")?;
        SUITES_OF_DEBIAN.contains(&suite).then(|| mirror.to_owned())
    });
    mirrors.next()
}

/// Writes a file that only we can read: proxies and mirrors may hold passwords.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_that_serves_debian() {
        let uris = "'https://tools.example/apt/dists/bookworm-tools/InRelease' a 0 \n\
                    'http://mirror.example/security/dists/bookworm-security/InRelease' b 0 \n\
                    'http://mirror.example/debian/dists/bookworm/main/Packages.xz' c 0 \n\
                    'http://mirror.example/debian/dists/bookworm/InRelease' d 0 \n\
                    'http://other.example/debian/dists/trixie/InRelease' e 0 \n";
        assert_eq!(
            mirror_among(uris),
            Some("http://mirror.example/debian".into())
        );
        assert_eq!(mirror_among(""), None);
    }

    #[test]
    fn proxies_are_taken_over_and_indexes_are_not() {
        let dump = "Acquire \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
                    Acquire::IndexTargets::deb::DEP-11 \"\";\nAcquire::Languages:: \"fr\";\n";
        assert_eq!(
            network_settings(dump),
            "Acquire \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n"
        );
    }

    #[test]
    fn every_suite_is_a_signed_source() {
        let text = sources_text("http://mirror.example/debian", "/keys.gpg");
        assert_eq!(text.lines().count(), SUITES.len());
        assert_eq!(
            text.lines().next(),
            Some(
                "deb [arch=amd64 target=Packages signed-by=/keys.gpg] \
                 http://mirror.example/debian bookworm main"
            )
        );
    }
}
