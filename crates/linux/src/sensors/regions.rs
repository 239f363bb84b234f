//! Regions of a process, told apart by what they map.
//!
//! The kernel's `maps` names files, not kinds of memory. Shared anonymous memory, memfd and System V segments all live
//! on one internal device, tmpfs and hugetlbfs mounts show their own; so the device decides, and the name only where the
//! device is nobody's. Everything private is part of its process's own address space, whatever file it started from.

use crate::error::Error;
use crate::procfs::maps::{Device, Entry};
use crate::procfs::mountinfo::{self, Mount};
use crate::procfs::{ProcRoot, read, understood};
use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
use hugepilot_core::observation::{Mapping, MemoryKind};
use hugepilot_core::units::Bytes;
use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};
use std::collections::BTreeMap;

/// What the devices that regions show are.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    known: BTreeMap<Device, MemoryKind>,
}

impl Devices {
    /// The kernel's internal device of shared memory, and the mounts that we see.
    ///
    /// # Errors
    /// If our own mounts cannot be read.
    pub fn detect(root: &ProcRoot) -> Result<Self, Error> {
        let mut devices = Self::default();
        devices
            .known
            .extend(internal_shmem().map(|device| (device, MemoryKind::Shmem)));
        devices.learn(root, Pid(std::process::id()))?;
        Ok(devices)
    }

    /// Takes in the mounts that `pid` sees.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn learn(&mut self, root: &ProcRoot, pid: Pid) -> Result<(), Error> {
        let path = root.process(pid, "mountinfo");
        let mounts = understood(&path, mountinfo::parse(&read(&path)?))?;
        self.take_mounts(&mounts);
        Ok(())
    }

    fn take_mounts(&mut self, mounts: &[Mount]) {
        for mount in mounts {
            let kind = match mount.kind.as_str() {
                "tmpfs" | "devtmpfs" => MemoryKind::Shmem,
                "hugetlbfs" => MemoryKind::Hugetlb,
                _ => MemoryKind::File,
            };
            self.known.entry(mount.device).or_insert(kind);
        }
    }

    /// Is the device one of a file system that no mount of ours shows, so that somebody else's mounts should be read?
    #[must_use]
    pub fn is_foreign(&self, entry: &Entry<'_>) -> bool {
        entry.inode != 0
            && entry.device.major == 0
            && by_name(entry.name).is_none()
            && !self.known.contains_key(&entry.device)
    }

    /// Nobody's mounts show this device: files of it count as files.
    pub fn give_up(&mut self, device: Device) {
        self.known.entry(device).or_insert(MemoryKind::File);
    }

    fn kind(&self, entry: &Entry<'_>) -> MemoryKind {
        let known = self.known.get(&entry.device).copied();
        match (known, by_name(entry.name)) {
            (Some(MemoryKind::Shmem), _) if is_device_node(entry.name) => MemoryKind::Special,
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) => MemoryKind::File,
        }
    }
}

/// The device of memfd, System V segments and shared anonymous memory; `None` where the kernel has no memfd.
fn internal_shmem() -> Option<Device> {
    let file = memfd_create("hugepilot-device", MemfdFlags::CLOEXEC).ok()?;
    let device = fstat(&file).ok()?.st_dev;
    Some(Device {
        major: major(device),
        minor: minor(device),
    })
}

/// What a name says where the device says nothing.
fn by_name(name: &[u8]) -> Option<MemoryKind> {
    let starts = |prefix: &[u8]| name.starts_with(prefix);
    if starts(b"/anon_hugepage") || starts(b"/memfd:") || starts(b"/SYSV") {
        // On another device than shared memory: hugetlb.
        return Some(MemoryKind::Hugetlb);
    }
    let special = starts(b"anon_inode:") || starts(b"/[aio]") || starts(b"socket:");
    special.then_some(MemoryKind::Special)
}

/// A file of devtmpfs that is a device, not memory. (`/dev/shm` is a mount of its own.)
fn is_device_node(name: &[u8]) -> bool {
    name.starts_with(b"/dev/") && !name.starts_with(b"/dev/zero") && !name.starts_with(b"/dev/shm/")
}

/// A region as part of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The object.
    pub object: ObjectId,
    /// How it is mapped.
    pub mapping: Mapping,
    /// Can there be anything to see? Reserved address space that nobody may touch is not worth a look.
    pub worth_a_look: bool,
}

impl Placed {
    /// Does it map this virtual address?
    #[must_use]
    pub const fn holds(&self, address: u64) -> bool {
        let mapping = &self.mapping;
        mapping.address <= address && address - mapping.address < mapping.length.0
    }
}

/// What `entry` of `process` maps.
#[must_use]
pub fn place(process: ProcessId, entry: &Entry<'_>, devices: &Devices) -> Placed {
    let (shared, kind) = nature(entry, devices);
    let (object, offset) = if shared {
        let object = ObjectId::Shared {
            device: entry.device.number(),
            inode: entry.inode,
        };
        (object, entry.offset)
    } else {
        (ObjectId::Private(process), entry.start)
    };
    let managed = matches!(kind, MemoryKind::Anonymous | MemoryKind::Shmem);
    Placed {
        object,
        mapping: Mapping {
            process,
            address: entry.start,
            length: Bytes(entry.end - entry.start),
            offset,
            kind,
            writable: entry.permissions.write,
            excluded: false,
            placement_fixed: false,
        },
        worth_a_look: managed && !entry.permissions.none(),
    }
}

/// Is it part of a shared object, and what kind of memory is it?
fn nature(entry: &Entry<'_>, devices: &Devices) -> (bool, MemoryKind) {
    if entry.inode == 0 {
        return (false, kind_without_file(entry.name));
    }
    let shared = entry.permissions.shared;
    match devices.kind(entry) {
        MemoryKind::Special => (false, MemoryKind::Special),
        MemoryKind::Hugetlb => (shared, MemoryKind::Hugetlb),
        MemoryKind::Shmem if shared => (true, MemoryKind::Shmem),
        // A private mapping of /dev/zero is anonymous memory from the start.
        MemoryKind::Shmem if entry.name == b"/dev/zero" => (false, MemoryKind::Anonymous),
        MemoryKind::Shmem | MemoryKind::File | MemoryKind::Anonymous => (shared, MemoryKind::File),
    }
}

fn kind_without_file(name: &[u8]) -> MemoryKind {
    let kernel = [
        &b"[vdso]"[..],
        b"[vvar]",
        b"[vvar_vclock]",
        b"[vsyscall]",
        b"[vectors]",
        b"[sigpage]",
        b"[uprobes]",
        b"[shadow stack]",
    ];
    if kernel.contains(&name) || name.starts_with(b"/dev/") || name.starts_with(b"anon_inode:") {
        MemoryKind::Special
    } else {
        MemoryKind::Anonymous
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::maps::parse;

    fn devices() -> Devices {
        let mut devices = Devices::default();
        let device = |minor| Device { major: 0, minor };
        devices.known.insert(device(1), MemoryKind::Shmem);
        devices.known.insert(device(5), MemoryKind::Shmem); // devtmpfs
        devices.known.insert(device(0x20), MemoryKind::Hugetlb);
        devices
            .known
            .insert(Device { major: 8, minor: 1 }, MemoryKind::File);
        devices
    }

    fn check(line: &str, shared: bool, kind: MemoryKind) {
        let entries = parse(line.as_bytes()).expect(line);
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        };
        let placed = place(process, &entries[0], &devices());
        assert_eq!(placed.mapping.kind, kind, "{line}");
        let is_shared = matches!(placed.object, ObjectId::Shared { .. });
        assert_eq!(is_shared, shared, "{line}");
    }

    #[test]
    fn private_memory() {
        use MemoryKind::{Anonymous, File, Hugetlb, Special};
        check("1000-2000 rw-p 00000000 00:00 0 [heap]", false, Anonymous);
        check("1000-2000 rw-p 00000000 00:00 0 [stack]", false, Anonymous);
        check(
            "1000-2000 rw-p 00000000 00:00 0 [anon:jemalloc]",
            false,
            Anonymous,
        );
        check(
            "1000-2000 rw-p 00000000 00:05 4 /dev/zero",
            false,
            Anonymous,
        );
        check("1000-2000 r-xp 00000000 08:01 7 /usr/bin/x", false, File);
        check(
            "1000-2000 rw-p 00000000 00:01 7 /memfd:code (deleted)",
            false,
            File,
        );
        check(
            "1000-2000 rw-p 00000000 00:0e 7 /anon_hugepage (deleted)",
            false,
            Hugetlb,
        );
        check("1000-2000 r--p 00000000 00:00 0 [vvar]", false, Special);
    }

    #[test]
    fn shared_memory() {
        use MemoryKind::{File, Hugetlb, Shmem, Special};
        check(
            "1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)",
            true,
            Shmem,
        );
        check(
            "1000-2000 rw-s 00000000 00:01 8 /SYSV00000000 (deleted)",
            true,
            Shmem,
        );
        check(
            "1000-2000 rw-s 00000000 00:01 9 /memfd:x (deleted)",
            true,
            Shmem,
        );
        check(
            "1000-2000 rw-s 00000000 00:0e 9 /memfd:x (deleted)",
            true,
            Hugetlb,
        );
        check(
            "1000-2000 rw-s 00000000 00:20 9 /dev/hugepages/x",
            true,
            Hugetlb,
        );
        check("1000-2000 rw-s 00001000 08:01 7 /var/lib/x", true, File);
        check(
            "1000-2000 rw-s 00001000 00:05 7 /dev/dri/card0",
            false,
            Special,
        );
        check(
            "1000-2000 rw-s 00000000 00:0d 7 anon_inode:[perf_event]",
            false,
            Special,
        );
    }

    #[test]
    fn reserved_address_space_is_not_looked_at() {
        let entries = parse(b"1000-2000 ---p 00000000 00:00 0").expect("one region");
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        };
        assert!(!place(process, &entries[0], &devices()).worth_a_look);
    }

    #[test]
    fn this_system_has_a_device_of_shared_memory() {
        let devices = Devices::detect(&ProcRoot::default()).expect("own mounts");
        assert!(
            devices
                .known
                .values()
                .any(|&kind| kind == MemoryKind::Shmem)
        );
    }
}
