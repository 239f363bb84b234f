// SPDX-License-Identifier: GPL-2.0-or-later

//! The plugin's arguments, `KEY=VALUE` each. README.md lists them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hugepilot_vpmu::RECORDS_MAX;

use crate::cache::{LINE_SHIFT, Shape};

/// Pages of a thread that can be told apart in a window: 1 GiB of base pages, in 12 MiB of memory.
const PAGES_DEFAULT: u32 = 1 << 18;
/// 16 GiB of base pages; beyond it the plugin is what fills the host.
const PAGES_MAX: u32 = 1 << 22;
const LINES_PER_KIB: usize = 1024 >> LINE_SHIFT;

/// The sizes of caches. They are small, as guests' memories are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    pub l1: Shape,
    pub l2: Shape,
    /// Of one node.
    pub l3: Shape,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The file that the guest shares.
    pub shared: PathBuf,
    /// Where the report goes.
    pub out: PathBuf,
    /// Where samples go in addition to the guest.
    pub samples: Option<PathBuf>,
    /// The node of each CPU.
    pub cpu_nodes: Vec<u16>,
    /// The memory of each node.
    pub memory_mib: Vec<u64>,
    /// A window is closed after so many instructions of all CPUs, too; 0: only when the guest asks.
    pub window_instructions: u64,
    /// Records.
    pub ring: u64,
    pub pages: u32,
    /// `None`: every access goes to memory.
    pub caches: Option<Caches>,
    pub tlb_base: Shape,
    pub tlb_huge: Shape,
}

/// Why arguments are not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    NoValue(String),
    Unknown(String),
    Value {
        key: &'static str,
        value: String,
        wanted: &'static str,
    },
    Missing(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(word) => write!(f, "{word}: write KEY=VALUE"),
            Self::Unknown(key) => write!(f, "{key}: no such key (tests/qemu-plugin/README.md)"),
            Self::Value { key, value, wanted } => write!(f, "{key}={value}: {wanted}"),
            Self::Missing(key) => write!(f, "{key}=… is missing"),
        }
    }
}

impl std::error::Error for Wrong {}

impl Settings {
    /// Understands `KEY=VALUE`; a later one wins.
    pub fn parse(words: &[String]) -> Result<Self, Wrong> {
        let mut settings = Self::usual();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| Wrong::NoValue(word.clone()))?;
            settings.set(key, value)?;
        }
        settings.checked()
    }

    fn usual() -> Self {
        let shape = |entries, ways| Shape::new(entries, ways).expect("a power of two of sets");
        Self {
            shared: PathBuf::new(),
            out: PathBuf::new(),
            samples: None,
            cpu_nodes: Vec::new(),
            memory_mib: Vec::new(),
            window_instructions: 0,
            ring: RECORDS_MAX,
            pages: PAGES_DEFAULT,
            caches: Some(Caches {
                l1: shape(32 * LINES_PER_KIB, 8),
                l2: shape(256 * LINES_PER_KIB, 8),
                l3: shape(2048 * LINES_PER_KIB, 16),
            }),
            tlb_base: shape(512, 4),
            tlb_huge: shape(64, 4),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "shared" => self.shared = value.into(),
            "out" => self.out = value.into(),
            "samples" => self.samples = Some(value.into()),
            "cpu_nodes" => self.cpu_nodes = list("cpu_nodes", value)?,
            "memory_mib" => self.memory_mib = list("memory_mib", value)?,
            "window" => self.window_instructions = number("window", value)?,
            "ring" => self.ring = number("ring", value)?,
            "pages" => self.pages = number("pages", value)?,
            "caches" => self.set_caches(value)?,
            "l1" => self.cache("l1", value, |caches| &mut caches.l1)?,
            "l2" => self.cache("l2", value, |caches| &mut caches.l2)?,
            "l3" => self.cache("l3", value, |caches| &mut caches.l3)?,
            "tlb_base" => self.tlb_base = shape("tlb_base", value, 1)?,
            "tlb_huge" => self.tlb_huge = shape("tlb_huge", value, 1)?,
            _ => return Err(Wrong::Unknown(key.to_owned())),
        }
        Ok(())
    }

    fn set_caches(&mut self, value: &str) -> Result<(), Wrong> {
        self.caches = match value {
            "on" => self.caches.or(Self::usual().caches),
            "off" => None,
            _ => return Err(wrong("caches", value, "on or off")),
        };
        Ok(())
    }

    fn cache(
        &mut self,
        key: &'static str,
        value: &str,
        which: fn(&mut Caches) -> &mut Shape,
    ) -> Result<(), Wrong> {
        let Some(caches) = &mut self.caches else {
            return Err(wrong(key, value, "caches=off was said before"));
        };
        *which(caches) = shape(key, value, LINES_PER_KIB)?;
        Ok(())
    }

    fn checked(self) -> Result<Self, Wrong> {
        let missing = [
            ("shared", self.shared.as_os_str().is_empty()),
            ("out", self.out.as_os_str().is_empty()),
            ("cpu_nodes", self.cpu_nodes.is_empty()),
            ("memory_mib", self.memory_mib.is_empty()),
        ];
        if let Some((key, _)) = missing.into_iter().find(|(_, missing)| *missing) {
            return Err(Wrong::Missing(key));
        }
        let beyond = |node: &&u16| usize::from(**node) >= self.memory_mib.len();
        if let Some(node) = self.cpu_nodes.iter().find(beyond) {
            let wanted = "a node of memory_mib (0 MiB for one without memory)";
            return Err(wrong("cpu_nodes", &node.to_string(), wanted));
        }
        if !self.ring.is_power_of_two() || self.ring > RECORDS_MAX {
            let wanted = "a power of two, at most 65536";
            return Err(wrong("ring", &self.ring.to_string(), wanted));
        }
        if !self.pages.is_power_of_two() || self.pages > PAGES_MAX {
            let wanted = "a power of two, at most 4194304";
            return Err(wrong("pages", &self.pages.to_string(), wanted));
        }
        Ok(self)
    }
}

fn wrong(key: &'static str, value: &str, wanted: &'static str) -> Wrong {
    Wrong::Value {
        key,
        value: value.to_owned(),
        wanted,
    }
}

fn number<T: FromStr>(key: &'static str, value: &str) -> Result<T, Wrong> {
    value
        .parse()
        .ok()
        .ok_or_else(|| wrong(key, value, "a number"))
}

fn list<T: FromStr>(key: &'static str, value: &str) -> Result<Vec<T>, Wrong> {
    value.split(':').map(|part| number(key, part)).collect()
}

/// `SIZE:WAYS`
fn shape(key: &'static str, value: &str, entries_per_size: usize) -> Result<Shape, Wrong> {
    let parts: Vec<usize> = list(key, value)?;
    let shape = match parts[..] {
        [size, ways] => size
            .checked_mul(entries_per_size)
            .and_then(|entries| Shape::new(entries, ways)),
        _ => None,
    };
    shape.ok_or_else(|| wrong(key, value, "SIZE:WAYS with a power of two of sets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: &str = "shared=/dev/fd/3 out=/dev/fd/4 cpu_nodes=0:0:1 memory_mib=512:256";

    fn parse(more: &str) -> Result<Settings, Wrong> {
        let words: Vec<String> = format!("{NEEDED} {more}")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Settings::parse(&words)
    }

    #[test]
    fn what_is_needed_is_enough() {
        let settings = parse("").unwrap();
        assert_eq!(settings.cpu_nodes, [0, 0, 1]);
        assert_eq!(settings.memory_mib, [512, 256]);
        assert_eq!(settings.shared, PathBuf::from("/dev/fd/3"));
        assert_eq!(settings.caches.unwrap().l1.entries, 512);
    }

    #[test]
    fn caches_are_sized_in_kibibytes() {
        let caches = parse("l2=512:16 l3=6144:48").unwrap().caches.unwrap();
        assert_eq!((caches.l2.entries, caches.l2.ways), (8192, 16));
        assert_eq!((caches.l3.entries, caches.l3.ways), (98_304, 48));
        assert_eq!(parse("caches=off").unwrap().caches, None);
        assert!(parse("caches=off caches=on").unwrap().caches.is_some());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for nonsense in [
            "l1=33:8",
            "l1=32",
            "l1=32:8:1",
            "window=-1",
            "window=soon",
            "ring=3",
            "ring=131072",
            "pages=1000",
            "cpu_nodes=0:2",
            "cpu_nodes=",
            "caches=maybe",
            "caches=off l1=32:8",
            "mystery=1",
            "alone",
            "shared=",
        ] {
            let told = parse(nonsense).expect_err(nonsense).to_string();
            let last = nonsense.split_whitespace().last().unwrap();
            let key = last.split('=').next().unwrap();
            assert!(told.contains(key), "{nonsense}: {told}");
        }
    }

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../README.md");
        for key in [
            "shared",
            "out",
            "samples",
            "cpu_nodes",
            "memory_mib",
            "window",
            "ring",
            "pages",
            "caches",
            "l1",
            "l2",
            "l3",
            "tlb_base",
            "tlb_huge",
        ] {
            assert!(page.contains(&format!("| `{key}` |")), "{key}");
        }
    }
}
