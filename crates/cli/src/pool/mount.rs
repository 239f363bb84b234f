//! `hugepilot pool mount`: hugetlbfs on a directory, and what makes it last. It stays mounted when hugepilot ends.

use super::{amount, persist, pool_of, pools, print};
use crate::failure::Usage;
use crate::text;
use anyhow::Context;
use hugepilot_core::units::Bytes;
use hugepilot_linux::pool::{PageSize, mounts, read};
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `hugepilot pool mount`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot pool mount --size 1G /mnt/huge\n  hugepilot pool mount --size 2M --max 4G --print /mnt/huge"
)]
pub struct Args {
    /// The size of the pages; the kernel's default size without it
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    size: Option<PageSize>,
    /// How much memory its files may take together
    #[arg(long, value_name = "BYTES", value_parser = text::bytes)]
    max: Option<Bytes>,
    /// Only print the lines that make it last; mount nothing
    #[arg(long)]
    print: bool,
    /// An empty directory that is there
    #[arg(value_name = "DIR")]
    at: PathBuf,
}

/// Runs it.
///
/// # Errors
/// If it cannot be mounted there.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let proc = ProcRoot::default();
    let size = match args.size {
        Some(size) => size,
        None => read::default_size(&proc)?
            .ok_or_else(|| Usage::error("this kernel has no default size: name one with --size"))?,
    };
    pool_of(&pools(&SysRoot::default())?, size)?;
    let max = args.max.map(|max| whole(max, size)).transpose()?;
    let at = place(args)?;
    let options = mounts::options(size, max);
    let mut said = String::new();
    if !args.print {
        check(&proc, &at)?;
        mounts::attach(&at, &options)
            .with_context(|| format!("cannot mount hugetlbfs on {}", at.display()))?;
        said += &format!(
            "hugetlbfs of {size} pages is mounted on {}\n\n",
            at.display()
        );
    }
    said += &persistent(&at, size, &options);
    print(&said)?;
    Ok(ExitCode::SUCCESS)
}

fn whole(max: Bytes, size: PageSize) -> anyhow::Result<Bytes> {
    if max.0 > 0 && max.0 % size.bytes().0 == 0 {
        Ok(max)
    } else {
        Err(Usage::error(format!(
            "--max {max} is no whole number of {size} pages"
        )))
    }
}

/// The directory as an absolute path, as `fstab` and units need it.
fn place(args: &Args) -> anyhow::Result<PathBuf> {
    if args.print {
        let absolute = std::path::absolute(&args.at);
        return absolute.with_context(|| format!("cannot make sense of {}", args.at.display()));
    }
    fs::canonicalize(&args.at)
        .with_context(|| format!("{} must be a directory that is there", args.at.display()))
}

/// Nothing is hidden by the mount, and nothing is mounted twice.
fn check(proc: &ProcRoot, at: &Path) -> anyhow::Result<()> {
    if mounts::all(proc)?.iter().any(|mount| mount.at == at) {
        return Err(Usage::error(format!(
            "hugetlbfs is mounted on {} already",
            at.display()
        )));
    }
    let mut entries =
        fs::read_dir(at).with_context(|| format!("{} must be a directory", at.display()))?;
    if entries.next().is_some() {
        return Err(Usage::error(format!(
            "{} is not empty: a mount would hide what is in it",
            at.display()
        )));
    }
    Ok(())
}

fn persistent(at: &Path, size: PageSize, options: &str) -> String {
    let name = persist::unit_name(at);
    format!(
        "to keep it, either this line in /etc/fstab:\n\n{}\n\nor this as /etc/systemd/system/{name}, and `systemctl enable --now '{name}'`:\n\n{}",
        persist::fstab(at, options),
        persist::unit(at, size, options)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_whole_pages() {
        let size = PageSize::new(Bytes::mib(2)).expect("a power of two");
        assert!(whole(Bytes::mib(4), size).is_ok());
        for wrong in [Bytes::ZERO, Bytes::mib(3)] {
            assert!(whole(wrong, size).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_makes_it_last_names_the_unit_rightly() {
        let size = PageSize::new(Bytes::gib(1)).expect("a power of two");
        let text = persistent(Path::new("/mnt/huge-1G"), size, "pagesize=1G");
        assert!(
            text.contains("/etc/systemd/system/mnt-huge\\x2d1G.mount"),
            "{text}"
        );
        assert!(
            text.contains("hugetlbfs /mnt/huge-1G hugetlbfs pagesize=1G"),
            "{text}"
        );
    }
}
