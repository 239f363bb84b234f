//! The guest's file system: busybox, the program, extra files, and the script that runs them.
//!
//! A guest has no other programs and no shared libraries. Everything is in memory, uncompressed:
//! software emulation would spend longer on decompressing than the host does on copying.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

use super::command;
use super::cpio::{Entry, Permissions, Tree};
use super::elf::{Linkage, linkage};

/// What the kernel starts.
pub const INIT_SCRIPT: &str = include_str!("init.sh");

const BUSYBOX_PLACES: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
const DIRECTORIES: [&str; 9] = [
    "bin", "sbin", "etc", "root", "usr/bin", "usr/sbin", "proc", "sys", "dev",
];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n";
const GROUP: &str = "root:x:0:\nuser:x:1000:\n";

/// A file of the host to be copied into the guest, as `HOST_PATH[:GUEST_PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraFile {
    host: PathBuf,
    guest: String,
}

impl FromStr for ExtraFile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) => (host, guest.to_owned()),
            None => (text, path_in_bin(Path::new(text))?),
        };
        ensure!(
            guest.starts_with('/') && guest.len() > 1,
            "the path in the guest must be absolute"
        );
        ensure!(
            !guest.split('/').any(|part| part == ".."),
            "the path in the guest must not contain \"..\""
        );
        Ok(Self {
            host: host.into(),
            guest,
        })
    }
}

/// What a guest is booted from.
pub struct Image {
    tree: Tree,
}

impl Image {
    /// `program` and its arguments: a file of the host, which is copied in, or a command of
    /// busybox.
    pub fn new(program: &[String], files: &[ExtraFile]) -> Result<Self> {
        let (name, arguments) = program.split_first().context("name a program to run")?;
        let mut tree = base()?;
        for file in files {
            tree.insert(&file.guest, read_file(&file.host)?);
            if let Some(trouble) = trouble_in_guest(&fs::read(&file.host)?) {
                eprintln!("warning: {} {trouble}", file.host.display());
            }
        }
        let guest_name = if Path::new(name).is_file() {
            add_program(&mut tree, Path::new(name))?
        } else {
            name.clone()
        };
        tree.insert(
            "command",
            executable(command_script(&guest_name, arguments).into_bytes()),
        );
        Ok(Self { tree })
    }

    pub fn archive(&self) -> Result<Vec<u8>> {
        self.tree.archive()
    }
}

fn base() -> Result<Tree> {
    let mut tree = Tree::default();
    for directory in DIRECTORIES {
        tree.insert(directory, Entry::Directory);
    }
    let busybox = busybox()?;
    for applet in command::output(Command::new(&busybox).arg("--list"))?.lines() {
        tree.insert(
            &format!("bin/{applet}"),
            Entry::Symlink {
                target: "busybox".to_owned(),
            },
        );
    }
    tree.insert("bin/busybox", read_file(&busybox)?);
    tree.insert("init", executable(INIT_SCRIPT.as_bytes().to_vec()));
    for (path, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP)] {
        tree.insert(
            path,
            Entry::File {
                data: text.as_bytes().to_vec(),
                permissions: Permissions::ReadOnly,
            },
        );
    }
    Ok(tree)
}

/// The system's, or the one that `scripts/setup.sh` unpacked.
fn busybox() -> Result<PathBuf> {
    let unpacked = super::workspace_root()?.join("target/tools/busybox");
    for place in BUSYBOX_PLACES
        .map(PathBuf::from)
        .into_iter()
        .chain([unpacked])
    {
        if place.exists() && linkage(&fs::read(&place)?) == Linkage::Static {
            return Ok(place);
        }
    }
    bail!("the guest needs a static busybox; install it with: apt-get install busybox-static")
}

/// Copies the program into /bin and returns its path there.
fn add_program(tree: &mut Tree, program: &Path) -> Result<String> {
    let data = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    if let Some(trouble) = trouble_in_guest(&data) {
        bail!("{} {trouble}", program.display());
    }
    let path = path_in_bin(program)?;
    tree.insert(&path, executable(data));
    Ok(path)
}

/// Why a file cannot be executed in a guest, if so.
fn trouble_in_guest(file: &[u8]) -> Option<String> {
    match linkage(file) {
        Linkage::Static | Linkage::NotElf => None,
        Linkage::Dynamic { interpreter } => Some(format!(
            "needs shared libraries (its loader is {interpreter}), which a guest does not have: \
             link it statically. \
             `cargo xtask vm build` does that for hugepilot; for C it is `cc -static`; for Rust, \
             RUSTFLAGS='-C target-feature=+crt-static' with `--target x86_64-unknown-linux-gnu`"
        )),
        Linkage::Foreign => Some("is not for x86-64, as the guest is".to_owned()),
        Linkage::Malformed => Some("is not a complete ELF file; build it anew".to_owned()),
    }
}

fn path_in_bin(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(format!(
        "/bin/{}",
        name.with_context(|| format!("{} has no usable file name", path.display()))?
    ))
}

fn read_file(path: &Path) -> Result<Entry> {
    let context = || format!("cannot read {}", path.display());
    let mode = fs::metadata(path)
        .with_context(context)?
        .permissions()
        .mode();
    let data = fs::read(path).with_context(context)?;
    let permissions = if mode & 0o111 == 0 {
        Permissions::ReadOnly
    } else {
        Permissions::Executable
    };
    Ok(Entry::File { data, permissions })
}

fn executable(data: Vec<u8>) -> Entry {
    Entry::File {
        data,
        permissions: Permissions::Executable,
    }
}

/// The shell script that becomes the program.
fn command_script(program: &str, arguments: &[String]) -> String {
    let mut script = format!("exec {}", quoted(program));
    for argument in arguments {
        script.push(' ');
        script.push_str(&quoted(argument));
    }
    script.push('\n');
    script
}

/// A word that the shell takes literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_to_bin_or_where_they_are_told() {
        let file = |host: &str, guest: &str| ExtraFile {
            host: host.into(),
            guest: guest.into(),
        };
        assert_eq!(
            "target/tool".parse::<ExtraFile>().unwrap(),
            file("target/tool", "/bin/tool")
        );
        assert_eq!(
            "a:b:/etc/c".parse::<ExtraFile>().unwrap(),
            file("a:b", "/etc/c")
        );
        for bad in ["a:b", "a:/../b", "/", "a:/", "a:"] {
            assert!(bad.parse::<ExtraFile>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_shell_hands_on_every_word_unchanged() {
        let words = [
            "printf",
            "%s|",
            "two words",
            "it's",
            "$HOME",
            "",
            "\\",
            "a\nb",
            "*",
        ];
        let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
        let script = command_script(words[0], &arguments);
        let printed = command::output(Command::new("sh").args(["-c", &script])).unwrap();
        assert_eq!(
            printed,
            words[2..]
                .iter()
                .map(|word| format!("{word}|"))
                .collect::<String>()
        );
    }

    #[test]
    fn a_dynamic_program_is_refused_with_advice() {
        let trouble = trouble_in_guest(&fs::read("/bin/sh").unwrap()).unwrap();
        assert!(trouble.contains("link it statically"), "{trouble}");
        assert_eq!(trouble_in_guest(b"#!/bin/sh\n"), None);
    }
}
