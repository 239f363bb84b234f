//! A memory cgroup with a limit, for tests of what happens at it; removed when dropped.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the memory controller may be, and the files it has there.
const LAYOUTS: [Layout; 3] = [
    Layout {
        root: "/sys/fs/cgroup/memory",
        marker: "memory.limit_in_bytes",
        limit: "memory.limit_in_bytes",
        current: "memory.usage_in_bytes",
        peak: "memory.max_usage_in_bytes",
        events: "memory.oom_control",
    },
    Layout::unified("/sys/fs/cgroup"),
    Layout::unified("/sys/fs/cgroup/unified"),
];

#[derive(Debug, Clone, Copy)]
struct Layout {
    root: &'static str,
    /// A file at the root that shows that this is the memory controller's hierarchy.
    marker: &'static str,
    limit: &'static str,
    current: &'static str,
    peak: &'static str,
    events: &'static str,
}

impl Layout {
    const fn unified(root: &'static str) -> Self {
        Self {
            root,
            marker: "cgroup.controllers",
            limit: "memory.max",
            current: "memory.current",
            peak: "memory.peak",
            events: "memory.events",
        }
    }

    fn is_unified(&self) -> bool {
        self.marker == "cgroup.controllers"
    }

    fn has_memory(&self) -> bool {
        let marker = Path::new(self.root).join(self.marker);
        match fs::read_to_string(marker) {
            Ok(text) => !self.is_unified() || text.split_whitespace().any(|name| name == "memory"),
            Err(_absent) => false,
        }
    }
}

/// A cgroup of our own.
#[derive(Debug)]
pub struct LimitedCgroup {
    dir: PathBuf,
    layout: Layout,
}

impl LimitedCgroup {
    /// Makes one of `bytes` (cgroup v1 or v2, whichever has the memory controller).
    ///
    /// # Errors
    /// Where there is no memory controller or we may not.
    pub fn make(name: &str, bytes: u64) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let layout = LAYOUTS
            .into_iter()
            .find(Layout::has_memory)
            .ok_or_else(|| {
                io::Error::other("no memory cgroup controller is mounted below /sys/fs/cgroup")
            })?;
        if layout.is_unified() {
            fs::write(
                Path::new(layout.root).join("cgroup.subtree_control"),
                "+memory",
            )?;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(layout.root)
            .join(format!("hugepilot-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let cgroup = Self { dir, layout };
        fs::write(cgroup.dir.join(layout.limit), bytes.to_string())?;
        Ok(cgroup)
    }

    /// A command that runs `program` within it.
    pub fn command<S: AsRef<OsStr>>(&self, program: &Path, arguments: &[S]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(self.dir.join("cgroup.procs"))
            .arg(program)
            .args(arguments);
        command
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes charged to it now.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn current(&self) -> io::Result<u64> {
        self.number(self.layout.current)
    }

    /// The most bytes charged to it so far.
    ///
    /// # Errors
    /// If its file cannot be read (cgroup v2 has it since 5.19).
    pub fn peak(&self) -> io::Result<u64> {
        self.number(self.layout.peak)
    }

    fn number(&self, file: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir.join(file))?;
        text.trim()
            .parse()
            .map_err(|error| io::Error::other(format!("{file}: {error}")))
    }

    /// Processes that the kernel killed for want of memory in it.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn oom_kills(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.layout.events))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let count =
            count.ok_or_else(|| io::Error::other("the cgroup does not count its OOM kills"))?;
        count
            .trim()
            .parse()
            .map_err(|error| io::Error::other(format!("oom_kill: {error}")))
    }
}

impl Drop for LimitedCgroup {
    fn drop(&mut self) {
        // Its processes are children of the test and end before it; one that is left over must not fail the test twice.
        let _left_over = fs::remove_dir(&self.dir);
    }
}
