//! `/proc/PID/smaps` and `smaps_rollup`: what each region's memory is made of. For `inspect` alone: the kernel walks all
//! page tables for it and holds the target's lock meanwhile, so it never belongs in the loop.

use super::maps::{self, Entry};
use super::{ParseError, key_value, kilobytes, lines, words};
use hugepilot_core::units::Bytes;

/// What the memory of one region (or, in a rollup, of one process) is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Size of its pages.
    pub kernel_page: Bytes,
    /// Resident, without hugetlb.
    pub resident: Bytes,
    /// Resident, each page divided by those who share it.
    pub proportional: Bytes,
    /// Resident and anonymous.
    pub anonymous: Bytes,
    /// Mapped by THPs, anonymous.
    pub anonymous_huge: Bytes,
    /// Mapped by THPs of shared memory.
    pub shmem_huge: Bytes,
    /// Mapped by THPs of files.
    pub file_huge: Bytes,
    /// hugetlb pages that others map too.
    pub shared_hugetlb: Bytes,
    /// hugetlb pages of this process alone.
    pub private_hugetlb: Bytes,
    /// Swapped out.
    pub swapped: Bytes,
    /// Locked in memory.
    pub locked: Bytes,
    /// Resident, in pages that others map too.
    pub shared: Bytes,
    /// Resident, in pages of this process alone.
    pub private: Bytes,
}

/// The flags of a region that matter to us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags, as the kernel prints them"
)]
pub struct Flags {
    /// `nh`: advised against THP.
    pub no_huge_page: bool,
    /// `hg`: advised for THP.
    pub huge_page: bool,
    /// `lo`: locked in memory.
    pub locked: bool,
    /// `ht`: hugetlb.
    pub hugetlb: bool,
    /// `nr`: mapped without a reservation.
    pub no_reserve: bool,
    /// `io` or `pf`: device memory.
    pub device: bool,
}

/// One region with what its memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region<'a> {
    /// The region.
    pub entry: Entry<'a>,
    /// Its memory.
    pub usage: Usage,
    /// Its flags.
    pub flags: Flags,
}

/// A whole `smaps` file.
///
/// # Errors
/// With the first line that is neither a region nor one of its properties.
pub fn parse(text: &[u8]) -> Result<Vec<Region<'_>>, ParseError> {
    let mut regions: Vec<Region<'_>> = Vec::new();
    for (number, line) in lines(text) {
        if let Some(entry) = maps::entry(line) {
            regions.push(Region {
                entry,
                usage: Usage::default(),
                flags: Flags::default(),
            });
            continue;
        }
        let wrong = |what| ParseError::new("smaps", number, what);
        let region = regions.last_mut().ok_or(wrong("expected a region first"))?;
        let (key, value) = key_value(line).ok_or(wrong("expected a region or a property"))?;
        if key == b"VmFlags" {
            region.flags = flags(value);
        } else {
            take(&mut region.usage, key, value).ok_or(wrong("expected a size in kB"))?;
        }
    }
    Ok(regions)
}

/// A whole `smaps_rollup` file: one process's sums.
///
/// # Errors
/// With the first line that is not understood.
pub fn parse_rollup(text: &[u8]) -> Result<Usage, ParseError> {
    let mut usage = Usage::default();
    for (number, line) in lines(text) {
        if number == 1 {
            continue; // `first-last ---p … [rollup]`
        }
        key_value(line)
            .and_then(|(key, value)| take(&mut usage, key, value))
            .ok_or(ParseError::new(
                "smaps_rollup",
                number,
                "expected a size in kB",
            ))?;
    }
    Ok(usage)
}

fn take(usage: &mut Usage, key: &[u8], value: &[u8]) -> Option<()> {
    let place = match key {
        b"KernelPageSize" => &mut usage.kernel_page,
        b"Rss" => &mut usage.resident,
        b"Pss" => &mut usage.proportional,
        b"Anonymous" => &mut usage.anonymous,
        b"AnonHugePages" => &mut usage.anonymous_huge,
        b"ShmemPmdMapped" => &mut usage.shmem_huge,
        b"FilePmdMapped" => &mut usage.file_huge,
        b"Shared_Hugetlb" => &mut usage.shared_hugetlb,
        b"Private_Hugetlb" => &mut usage.private_hugetlb,
        b"Swap" => &mut usage.swapped,
        b"Locked" => &mut usage.locked,
        b"Shared_Clean" | b"Shared_Dirty" => &mut usage.shared,
        b"Private_Clean" | b"Private_Dirty" => &mut usage.private,
        _ => return Some(()),
    };
    // The clean and the dirty part add up; every other key comes once a region.
    place.0 = place.0.checked_add(kilobytes(value)?)?;
    Some(())
}

fn flags(value: &[u8]) -> Flags {
    let has = |flag: &[u8]| words(value).any(|word| word == flag);
    Flags {
        no_huge_page: has(b"nh"),
        huge_page: has(b"hg"),
        locked: has(b"lo"),
        hugetlb: has(b"ht"),
        no_reserve: has(b"nr"),
        device: has(b"io") || has(b"pf"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"7f00000000-7f00400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nKernelPageSize: 4 kB\n\
        Rss:  2052 kB\nShared_Clean: 4 kB\nShared_Dirty: 8 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 2040 kB\n\
        AnonHugePages: 2048 kB\nTHPeligible: 1\nProtectionKey: 0\nVmFlags: rd wr mr mw me ac nh lo \n\
        7f00400000-7f00600000 rw-s 00000000 00:0f 9 /dev/hugepages/x\nKernelPageSize: 2048 kB\n\
        Shared_Hugetlb: 2048 kB\nVmFlags: rd wr sh ht \n";

    #[test]
    fn regions_and_their_memory() {
        let regions = parse(TWO).expect("two regions");
        assert_eq!(regions[0].usage.resident, Bytes::kib(2052));
        assert_eq!(regions[0].usage.anonymous_huge, Bytes::mib(2));
        assert_eq!(regions[0].usage.shared, Bytes::kib(12));
        assert!(regions[0].flags.no_huge_page && regions[0].flags.locked);
        assert_eq!(regions[1].usage.kernel_page, Bytes::mib(2));
        assert!(regions[1].flags.hugetlb && !regions[1].flags.locked);
    }

    #[test]
    fn a_property_without_a_region_is_refused() {
        assert_eq!(parse(b"Rss: 4 kB\n").expect_err("no region").line, 1);
    }

    #[test]
    fn a_rollup_is_one_sum() {
        let text = b"5500-7fff ---p 00000000 00:00 0    [rollup]\nRss: 8 kB\nSwap: 4 kB\n";
        let usage = parse_rollup(text).expect("a rollup");
        assert_eq!(
            (usage.resident, usage.swapped),
            (Bytes::kib(8), Bytes::kib(4))
        );
    }
}
