//! Where the own memory is: base pages on each node and bytes in huge pages, by the kernel's own account of the process.
//!
//! Both files are walked under the process's mmap lock, so they are read between intervals only.

use crate::BenchError;
use hugepilot_core::units::{BasePages, Bytes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// The own memory in some addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Present at all.
    pub present_bytes: Bytes,
    /// Of that, mapped by huge pages.
    pub huge_bytes: Bytes,
    /// Base pages by node; none where the kernel knows no nodes.
    pub pages: Option<BTreeMap<u32, BasePages>>,
}

const SMAPS: &str = "/proc/self/smaps";
const NUMA_MAPS: &str = "/proc/self/numa_maps";

/// Reads it.
///
/// # Errors
/// If the kernel does not tell.
pub fn read(addresses: &Range<u64>) -> Result<Placement, BenchError> {
    let file = |path: &str| {
        std::fs::read_to_string(path).map_err(|source| BenchError::Read {
            path: path.to_owned(),
            source,
        })
    };
    let pages = match std::fs::read_to_string(NUMA_MAPS) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => {
            let path = NUMA_MAPS.to_owned();
            return Err(BenchError::Read { path, source });
        }
        Ok(text) => Some(text),
    };
    let smaps = file(SMAPS)?;
    let regions = regions(&smaps, addresses)?;
    Ok(Placement {
        present_bytes: regions.iter().map(|region| region.present).sum(),
        huge_bytes: regions.iter().map(|region| region.huge).sum(),
        pages: pages.map(|text| by_node(&text, &regions)).transpose()?,
    })
}

/// A mapping of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    start: u64,
    present: Bytes,
    huge: Bytes,
}

/// The mappings that hold some of the addresses.
fn regions(smaps: &str, addresses: &Range<u64>) -> Result<Vec<Region>, BenchError> {
    let mut regions: Vec<Region> = Vec::new();
    let mut inside = false;
    for line in smaps.lines() {
        if let Some(region) = head(line) {
            inside = region.start < addresses.end && addresses.start < region.end;
            if inside {
                regions.push(Region {
                    start: region.start,
                    present: Bytes::ZERO,
                    huge: Bytes::ZERO,
                });
            }
            continue;
        }
        let Some(region) = regions.last_mut().filter(|_| inside) else {
            continue;
        };
        // Pages of the system's pool are not resident in the kernel's sense.
        for (field, pooled) in [
            ("Rss:", false),
            ("Private_Hugetlb:", true),
            ("AnonHugePages:", true),
        ] {
            if let Some(rest) = line.strip_prefix(field) {
                let bytes = kib(rest).ok_or(BenchError::Field {
                    path: SMAPS.to_owned(),
                    field,
                })?;
                let counter = if pooled {
                    &mut region.huge
                } else {
                    &mut region.present
                };
                *counter += bytes;
                if field == "Private_Hugetlb:" {
                    region.present += bytes;
                }
            }
        }
    }
    Ok(regions)
}

/// The addresses in the first line of a mapping.
fn head(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    Some(hexadecimal(start)?..hexadecimal(end)?)
}

fn kib(rest: &str) -> Option<Bytes> {
    rest.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()
        .map(Bytes::kib)
}

/// Pages by node of the mappings that start where these do.
fn by_node(numa_maps: &str, regions: &[Region]) -> Result<BTreeMap<u32, BasePages>, BenchError> {
    let mut nodes = BTreeMap::new();
    for line in numa_maps.lines() {
        let mut words = line.split_whitespace();
        let start = words
            .next()
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        if !regions.iter().any(|region| Some(region.start) == start) {
            continue;
        }
        let words: Vec<&str> = words.collect();
        let unit = words
            .iter()
            .find_map(|word| word.strip_prefix("kernelpagesize_kB="));
        let unit: u64 = unit
            .and_then(|kib| kib.parse().ok())
            .unwrap_or(BASE_PAGE_KIB);
        for word in words {
            let Some((node, pages)) = word.strip_prefix('N').and_then(|rest| rest.split_once('='))
            else {
                continue;
            };
            let pages = node.parse::<u32>().ok().zip(pages.parse::<u64>().ok());
            let (node, pages) = pages.ok_or(BenchError::Field {
                path: NUMA_MAPS.to_owned(),
                field: "N",
            })?;
            *nodes.entry(node).or_insert(BasePages(0)) += BasePages(pages * unit / BASE_PAGE_KIB);
        }
    }
    Ok(nodes)
}

/// The unit that the kernel counts in where it names none.
const BASE_PAGE_KIB: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS_TEXT: &str = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss:    4096 kB\nAnonHugePages:   2048 kB\n\
                              7f0000400000-7f0000500000 rw-p 00000000 00:00 0 [heap]\nRss:    8 kB\n\
                              7f0000600000-7f0000700000 rw-p 00000000 00:00 0 \nRss:    64 kB\nAnonHugePages:    0 kB\n";
    const NUMA_TEXT: &str = "7f0000000000 default anon=1024 dirty=1024 N0=512 N3=512 kernelpagesize_kB=4\n\
                             7f0000400000 default heap anon=2 N1=2 kernelpagesize_kB=4\n\
                             7f0000600000 bind:1 anon=16 N1=16 kernelpagesize_kB=4\n";

    #[test]
    fn only_mappings_that_hold_the_addresses_count() {
        let regions = regions(SMAPS_TEXT, &(0x7f00_0010_0000..0x7f00_0040_0000)).expect("read");
        assert_eq!(regions.len(), 1);
        assert_eq!(
            (regions[0].present, regions[0].huge),
            (Bytes::mib(4), Bytes::mib(2))
        );
        let nodes = by_node(NUMA_TEXT, &regions).expect("read");
        assert_eq!(
            nodes,
            BTreeMap::from([(0, BasePages(512)), (3, BasePages(512))])
        );
    }

    #[test]
    fn a_range_may_lie_in_several_mappings() {
        let regions = regions(SMAPS_TEXT, &(0x7f00_003f_f000..0x7f00_0060_1000)).expect("read");
        assert_eq!(regions.len(), 3);
        let nodes = by_node(NUMA_TEXT, &regions).expect("read");
        assert_eq!(nodes[&1], BasePages(18));
    }

    #[test]
    fn gigantic_pages_are_present_and_huge() {
        let text = "7f0000000000-7f0040000000 rw-p 00000000 00:0f 0 \nRss:  0 kB\nPrivate_Hugetlb:  1048576 kB\n";
        let regions = regions(text, &(0x7f00_0000_0000..0x7f00_4000_0000)).expect("read");
        assert_eq!(
            (regions[0].present, regions[0].huge),
            (Bytes::gib(1), Bytes::gib(1))
        );
        let maps = "7f0000000000 default file=/anon_hugepage huge anon=1 dirty=1 N2=1 kernelpagesize_kB=1048576\n";
        assert_eq!(
            by_node(maps, &regions).expect("read")[&2],
            BasePages(1 << 18)
        );
    }

    #[test]
    fn numbers_that_are_none_are_told() {
        let text = "7f0000000000-7f0040000000 rw-p 00000000 00:0f 0 \nRss:  many kB\n";
        regions(text, &(0x7f00_0000_0000..0x7f00_4000_0000)).expect_err("no number");
    }
}
