//! What a report says of the machine, and what a run needs of it.

use anyhow::{Context, bail};
use hugepilot_bench::report::MachineFacts;
use hugepilot_core::units::Bytes;

/// The facts of this machine; how THP is set is filled in by who sets it.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn facts() -> anyhow::Result<MachineFacts> {
    let uname = rustix::system::uname();
    let cpuinfo = read("/proc/cpuinfo")?;
    let processor = value_of(&cpuinfo, "model name").unwrap_or("unknown processor");
    Ok(MachineFacts {
        kernel: uname.release().to_string_lossy().into_owned(),
        processor: processor.to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: meminfo("MemTotal")?,
        thp: String::new(),
    })
}

/// Memory that can be had without swapping.
///
/// # Errors
/// If `/proc/meminfo` cannot be read.
pub fn memory_available() -> anyhow::Result<Bytes> {
    meminfo("MemAvailable")
}

/// Goes on only as root.
///
/// # Errors
/// Says what to do.
pub fn require_root(because: &str) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("this {because}: run it as root, or with sudo");
    }
    Ok(())
}

fn meminfo(field: &str) -> anyhow::Result<Bytes> {
    let text = read("/proc/meminfo")?;
    let kib = value_of(&text, field).and_then(|value| value.strip_suffix(" kB"));
    let kib = kib.and_then(|number| number.trim().parse().ok());
    kib.map(Bytes::kib)
        .with_context(|| format!("/proc/meminfo has no line {field}"))
}

fn value_of<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == field).then(|| value.trim())
    })
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}; is /proc mounted?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_blanks_surround_them() {
        let text = "processor\t: 0\nmodel name\t: A Processor: the 2nd\nMemTotal:  12 kB\n";
        assert_eq!(value_of(text, "model name"), Some("A Processor: the 2nd"));
        assert_eq!(value_of(text, "MemTotal"), Some("12 kB"));
        assert_eq!(value_of(text, "Mem"), None);
    }
}
