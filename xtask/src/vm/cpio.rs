//! The archive format of an initramfs ("newc" cpio), as the kernel's
//! `driver-api/early-userspace/buffer-format` describes it.
//!
//! Only what an initramfs of ours holds: directories, regular files and symbolic links, all owned
//! by root and dated at the epoch, so that the same contents give the same bytes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_REGULAR: u32 = 0o100_000;
const MODE_SYMLINK: u32 = 0o120_777;
/// Header, name and data each start at a multiple of this many bytes.
const ALIGNMENT: usize = 4;

/// One thing in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Directory,
    File {
        data: Vec<u8>,
        permissions: Permissions,
    },
    Symlink {
        target: String,
    },
}

/// Whether a file may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    Executable,
    ReadOnly,
}

/// A tree of entries, by absolute path without the leading slash. A later entry replaces an earlier
/// one of the same path.
#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Adds an entry and the directories above it.
    pub fn insert(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.entries
                .entry(path[..end].to_owned())
                .or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The archive. Every directory comes before what it holds, as the kernel wants it.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut inode = 0;
        for (path, entry) in &self.entries {
            inode += 1;
            let (mode, data) = match entry {
                Entry::Directory => (MODE_DIRECTORY, &[][..]),
                Entry::File { data, permissions } => {
                    (MODE_REGULAR | permission_bits(*permissions), &data[..])
                }
                Entry::Symlink { target } => (MODE_SYMLINK, target.as_bytes()),
            };
            append(&mut out, inode, mode, path, data)
                .with_context(|| format!("cannot archive /{path}"))?;
        }
        append(&mut out, 0, 0, "TRAILER!!!", &[])?;
        Ok(out)
    }
}

fn permission_bits(permissions: Permissions) -> u32 {
    match permissions {
        Permissions::Executable => 0o755,
        Permissions::ReadOnly => 0o644,
    }
}

fn append(out: &mut Vec<u8>, inode: u32, mode: u32, name: &str, data: &[u8]) -> Result<()> {
    ensure!(!name.contains('\0'), "the name contains a zero byte");
    let name_size = u32::try_from(name.len() + 1).context("the name is too long")?;
    let data_size =
        u32::try_from(data.len()).context("a file in an initramfs must be smaller than 4 GiB")?;
    // In order: inode, mode, uid, gid, links, mtime, file size, device, device of a node (major and
    // minor each), name size with its final zero, checksum (unused in this format).
    let fields = [inode, mode, 0, 0, 1, 0, data_size, 0, 0, 0, 0, name_size, 0];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(data);
    pad(out);
    Ok(())
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader of the format finds: mode, name, data.
    fn read(mut archive: &[u8]) -> Vec<(u32, String, Vec<u8>)> {
        let start = archive.len();
        let mut found = Vec::new();
        loop {
            assert_eq!(&archive[..6], b"070701");
            let field = |index: usize| {
                let digits = std::str::from_utf8(&archive[6 + index * 8..14 + index * 8]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(archive[110..110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(
                archive[110 + name_size - 1],
                0,
                "the name ends in a zero byte"
            );
            let data_start = (110 + name_size).next_multiple_of(4);
            let data = archive[data_start..data_start + size].to_vec();
            archive = &archive[(data_start + size).next_multiple_of(4)..];
            assert_eq!((start - archive.len()) % 4, 0);
            if name == "TRAILER!!!" {
                assert!(archive.is_empty());
                return found;
            }
            found.push((mode, name, data));
        }
    }

    fn file(data: &[u8], permissions: Permissions) -> Entry {
        Entry::File {
            data: data.to_vec(),
            permissions,
        }
    }

    #[test]
    fn what_was_inserted_is_read_back() {
        let mut tree = Tree::default();
        tree.insert("/init", file(b"#!/bin/sh\n", Permissions::Executable));
        tree.insert(
            "/bin/sh",
            Entry::Symlink {
                target: "busybox".into(),
            },
        );
        tree.insert("/etc/note", file(b"12345", Permissions::ReadOnly));
        let expected = [
            (0o040_755, "bin", &b""[..]),
            (0o120_777, "bin/sh", b"busybox"),
            (0o040_755, "etc", b""),
            (0o100_644, "etc/note", b"12345"),
            (0o100_755, "init", b"#!/bin/sh\n"),
        ];
        let expected: Vec<_> = expected
            .map(|(mode, name, data)| (mode, name.to_owned(), data.to_vec()))
            .into();
        assert_eq!(read(&tree.archive().unwrap()), expected);
    }

    #[test]
    fn every_length_of_name_and_data_is_padded() {
        for length in 0..9 {
            let mut tree = Tree::default();
            tree.insert(
                &"n".repeat(length + 1),
                file(&vec![7; length], Permissions::ReadOnly),
            );
            assert_eq!(read(&tree.archive().unwrap())[0].2, vec![7; length]);
        }
    }

    #[test]
    fn directories_come_before_their_contents() {
        let mut tree = Tree::default();
        tree.insert("a/b/c", Entry::Directory);
        tree.insert("a-file", file(b"", Permissions::ReadOnly));
        let names: Vec<_> = read(&tree.archive().unwrap())
            .into_iter()
            .map(|(_, name, _)| name)
            .collect();
        assert_eq!(names, ["a", "a-file", "a/b", "a/b/c"]);
    }

    #[test]
    fn a_later_entry_replaces_an_earlier_one() {
        let mut tree = Tree::default();
        tree.insert(
            "/bin/cat",
            Entry::Symlink {
                target: "busybox".into(),
            },
        );
        tree.insert("/bin/cat", file(b"mine", Permissions::Executable));
        assert_eq!(
            read(&tree.archive().unwrap())[1],
            (0o100_755, "bin/cat".into(), b"mine".to_vec())
        );
    }

    #[test]
    fn a_zero_byte_in_a_name_is_refused() {
        let mut tree = Tree::default();
        tree.insert("a\0b", Entry::Directory);
        assert!(tree.archive().is_err());
    }
}
