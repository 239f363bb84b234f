//! Which processes have hugetlb memory.
//!
//! `status` says cheaply how much a process maps that is there, of all sizes together; not, which size, and not what is mapped and was
//! never touched, which is what reservations are made of. That stands in `smaps`. It costs the process a walk of its page tables
//! under its lock, so it is read of those alone that have such pages, or a mapping that looks like it: aligned to a pool's pages,
//! and with an inode, which every hugetlb mapping has.

use super::PageSize;
use crate::error::Error;
use crate::procfs::smaps::Region;
use crate::procfs::{self, ProcRoot, maps, smaps, status};
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Bytes;
use std::collections::BTreeMap;
use std::io;

/// One process's pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// Of which size.
    pub size: PageSize,
    /// What it has.
    pub held: Held,
}

/// What a process has of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Address space.
    pub mapped: Bytes,
    /// Present in private mappings.
    pub private: Bytes,
    /// Present in shared mappings; others may map the same pages.
    pub shared: Bytes,
    /// Mapped with a reservation and not touched yet. After a fork the child's is none.
    pub untouched: Bytes,
}

/// What could be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// Those that have hugetlb memory.
    pub list: Vec<Holder>,
    /// Of each size, what is accounted for: private memory, and each shared object once.
    pub accounted: BTreeMap<PageSize, Bytes>,
    /// Processes that have such pages, and whose mappings we may not read.
    pub hidden: Vec<Pid>,
    /// Processes of which we may not even see whether they map some that they never touched.
    pub unseen: u32,
}

/// The largest present part of each shared object, by device and inode.
type Objects = BTreeMap<(PageSize, maps::Device, u64), Bytes>;

/// Looks at all processes; a process that vanishes meanwhile has nothing.
///
/// # Errors
/// If `/proc` cannot be read, or a file in it not understood.
pub fn find(proc: &ProcRoot, sizes: &[PageSize]) -> Result<Holders, Error> {
    let mut found = Holders::default();
    let mut objects = Objects::new();
    let Some(&smallest) = sizes.iter().min() else {
        return Ok(found);
    };
    let mut pids = proc.pids()?;
    pids.sort_unstable();
    for pid in pids {
        match look(proc, pid, smallest) {
            Ok(Some(text)) => take(&mut found, &mut objects, proc, pid, &text)?,
            Ok(None) => {}
            Err(error) if error.is_gone() => {}
            Err(error) if is_denied(&error) => match present(proc, pid)? {
                None => {}
                Some(0) => found.unseen += 1,
                Some(_) => found.hidden.push(pid),
            },
            Err(error) => return Err(error),
        }
    }
    for ((size, ..), bytes) in objects {
        *found.accounted.entry(size).or_default() += bytes;
    }
    Ok(found)
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

/// Its `smaps`, if it seems to have hugetlb memory.
fn look(proc: &ProcRoot, pid: Pid, smallest: PageSize) -> Result<Option<Vec<u8>>, Error> {
    let read = |file| procfs::read(&proc.process(pid, file));
    match present(proc, pid)? {
        None => Ok(None),
        Some(0) if !seems_mapped(proc, pid, smallest)? => Ok(None),
        Some(_) => read("smaps").map(Some),
    }
}

/// Bytes of hugetlb pages that it maps; `None` of a process that is gone, and of a kernel thread, which has no memory.
fn present(proc: &ProcRoot, pid: Pid) -> Result<Option<u64>, Error> {
    let path = proc.process(pid, "status");
    let text = match procfs::read(&path) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error),
    };
    let status = procfs::understood(&path, status::parse(&text))?;
    Ok(status.hugetlb)
}

fn seems_mapped(proc: &ProcRoot, pid: Pid, smallest: PageSize) -> Result<bool, Error> {
    let path = proc.process(pid, "maps");
    let text = procfs::read(&path)?;
    let aligned = |address: u64| address % smallest.bytes().0 == 0;
    let regions = procfs::understood(&path, maps::parse(&text))?;
    let looks = |region: &maps::Entry<'_>| {
        region.inode != 0 && aligned(region.start) && aligned(region.end)
    };
    Ok(regions.iter().any(looks))
}

fn take(
    found: &mut Holders,
    objects: &mut Objects,
    proc: &ProcRoot,
    pid: Pid,
    text: &[u8],
) -> Result<(), Error> {
    let path = proc.process(pid, "smaps");
    let regions = procfs::understood(&path, smaps::parse(text))?;
    let mut held: BTreeMap<PageSize, Held> = BTreeMap::new();
    let mut shared: Objects = Objects::new();
    for region in regions.iter().filter(|region| region.flags.hugetlb) {
        let Some(size) = PageSize::new(region.usage.kernel_page) else {
            continue; // no kernel prints that
        };
        add(held.entry(size).or_default(), region);
        let present = region.usage.shared_hugetlb + region.usage.private_hugetlb;
        if region.entry.permissions.shared {
            let object = (size, region.entry.device, region.entry.inode);
            *shared.entry(object).or_default() += present;
        } else {
            *found.accounted.entry(size).or_default() += present;
        }
    }
    for (object, present) in shared {
        let most = objects.entry(object).or_default();
        *most = present.max(*most);
    }
    let comm = name(proc, pid)?;
    found
        .list
        .extend(held.into_iter().map(|(size, held)| Holder {
            pid,
            comm: comm.clone(),
            size,
            held,
        }));
    Ok(())
}

fn add(held: &mut Held, region: &Region<'_>) {
    let length = Bytes(region.entry.end - region.entry.start);
    let present = region.usage.shared_hugetlb + region.usage.private_hugetlb;
    held.mapped += length;
    if region.entry.permissions.shared {
        held.shared += present;
    } else {
        held.private += present;
    }
    if !region.flags.no_reserve {
        // Pages that came or went while the kernel printed may make it present beyond its length.
        held.untouched += length.growth_since(present);
    }
}

fn name(proc: &ProcRoot, pid: Pid) -> Result<String, Error> {
    match procfs::read(&proc.process(pid, "comm")) {
        Ok(text) => Ok(String::from_utf8_lossy(text.trim_ascii()).into_owned()),
        Err(error) if error.is_gone() => Ok("(gone)".to_owned()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::size;
    use super::*;
    use std::fs;
    use std::path::Path;

    const REGION: &str =
        "7f0000000000-7f0000800000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)\n";
    const SHARED: &str = "7f0000800000-7f0001000000 rw-s 00000000 00:0f 11 /dev/hugepages/x\n";

    fn process(root: &Path, pid: u32, hugetlb_kb: u32, [maps, smaps]: [&str; 2]) {
        let directory = root.join(pid.to_string());
        fs::create_dir(&directory).expect("a directory");
        let status = format!("Name:\tx\nHugetlbPages:\t{hugetlb_kb} kB\n");
        for (name, text) in [
            ("status", status.as_str()),
            ("comm", "db\n"),
            ("maps", maps),
            ("smaps", smaps),
        ] {
            fs::write(directory.join(name), text).expect("a file");
        }
    }

    fn shared_smaps() -> String {
        format!("{SHARED}KernelPageSize: 2048 kB\nShared_Hugetlb: 4096 kB\nVmFlags: rd wr sh ht \n")
    }

    #[test]
    fn pages_are_told_by_process_and_shared_ones_counted_once() {
        let root = tempfile::tempdir().expect("a directory");
        let private = format!(
            "{REGION}KernelPageSize: 2048 kB\nPrivate_Hugetlb: 2048 kB\nVmFlags: rd wr ht \n"
        );
        let both = format!("{private}{}", shared_smaps());
        process(root.path(), 10, 6144, ["", &both]);
        process(root.path(), 11, 4096, ["", &shared_smaps()]);
        process(root.path(), 12, 0, ["", "not looked at"]);
        let two = size(Bytes::mib(2));
        let found = find(&ProcRoot::new(root.path()), &[two]).expect("two holders");
        assert_eq!(found.list.len(), 2);
        let expected = Held {
            mapped: Bytes::mib(16),
            private: Bytes::mib(2),
            shared: Bytes::mib(4),
            untouched: Bytes::mib(10),
        };
        assert_eq!((found.list[0].pid, found.list[0].held), (Pid(10), expected));
        assert_eq!(found.accounted[&two], Bytes::mib(6));
    }

    #[test]
    fn a_mapping_that_was_never_touched_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        let untouched = format!("{REGION}KernelPageSize: 2048 kB\nVmFlags: rd wr ht \n");
        process(root.path(), 10, 0, [REGION, &untouched]);
        let without = format!("{REGION}KernelPageSize: 2048 kB\nVmFlags: rd wr nr ht \n");
        process(root.path(), 11, 0, [REGION, &without]);
        let found = find(&ProcRoot::new(root.path()), &[size(Bytes::mib(2))]).expect("two");
        let untouched: Vec<Bytes> = found.list.iter().map(|one| one.held.untouched).collect();
        assert_eq!(untouched, [Bytes::mib(8), Bytes::ZERO]);
    }

    #[test]
    fn of_a_kernel_thread_nothing_is_read() {
        let root = tempfile::tempdir().expect("a directory");
        process(root.path(), 10, 0, ["no maps", "no smaps"]);
        fs::write(root.path().join("10/status"), "Name:\tkthreadd\n").expect("a file");
        let found = find(&ProcRoot::new(root.path()), &[size(Bytes::mib(2))]);
        assert_eq!(found.expect("nothing"), Holders::default());
    }

    #[test]
    fn a_process_that_vanished_has_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("10")).expect("a directory");
        let found = find(&ProcRoot::new(root.path()), &[size(Bytes::mib(2))]);
        assert_eq!(found.expect("nothing"), Holders::default());
    }
}
