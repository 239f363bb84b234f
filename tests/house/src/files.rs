//! The files of the work tree: what git would track, found without git, so that an unpacked archive is judged as well.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories at the root that are not ours: built, downloaded, or git's own. All are in `.gitignore` but the last.
const FOREIGN: [&str; 3] = ["target", ".cache", ".git"];

/// A text file: its path from the root, with slashes, and its text.
#[derive(Debug, Clone)]
pub struct File {
    /// Path from the root.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// Its lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line))
    }

    /// Does its name end so?
    #[must_use]
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// The root of the work tree.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("tests/house is two below the root")
        .to_path_buf()
}

/// All text files of the work tree, sorted by path.
///
/// # Errors
/// Where something cannot be read.
pub fn read_all(root: &Path) -> io::Result<Vec<File>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let path = entry.path();
            let name = path
                .strip_prefix(root)
                .expect("below the root")
                .to_string_lossy()
                .into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !FOREIGN.contains(&name.as_str()) {
                directories.push(path);
            } else if kind.is_file() {
                if let Ok(text) = String::from_utf8(fs::read(&path)?) {
                    found.push(File { path: name, text });
                }
            }
        }
    }
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}
