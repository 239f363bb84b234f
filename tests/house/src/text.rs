//! Rules on any text: length of files, and words that tie the repository to one place.

use crate::Violation;
use crate::files::File;

/// Lines of a file, at the most: beyond it nobody reads it as one.
pub const LINES_MAX: usize = 1000;
/// Files that may be longer, and why. None is.
pub const LONGER: [(&str, &str); 0] = [];
/// The map of the house is read in one sitting.
const MAP: (&str, usize) = ("ARCHITECTURE.md", 400);
/// Written by tools, or recorded: not judged.
const NOT_WRITTEN: [&str; 3] = [
    "Cargo.lock",
    "xtask/testdata/",
    "tests/conformance/expected.json",
];

/// Hosts of package registries: which one is used is the user's choice, made in the user's configuration.
const HOSTS: [&str; 6] = [
    concat!("deb.", "debian.org"),
    concat!("snapshot.", "debian.org"),
    concat!("ftp.", "debian.org"),
    concat!("crates", ".io"),
    concat!("static.", "rust-lang.org"),
    concat!("registry.", "npmjs.org"),
];
/// Where developers live.
const HOMES: [&str; 3] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

/// A checkout in a directory right below the root has a name that says nothing: `/src` stands in many a text.
const CHECKOUT_DEPTH_MIN: usize = 2;

fn is_written(file: &File) -> bool {
    !NOT_WRITTEN.iter().any(|path| file.path.starts_with(path)) && !file.is("snap")
}

/// Files that are too long.
#[must_use]
pub fn check_length(file: &File) -> Vec<Violation> {
    let lines = file.text.lines().count();
    let may = !is_written(file) || LONGER.iter().any(|(path, _)| *path == file.path);
    let most = if file.path == MAP.0 { MAP.1 } else { LINES_MAX };
    if lines <= most || may {
        return Vec::new();
    }
    vec![Violation::of(
        &file.path,
        format!("has {lines} lines, more than {most}: split it"),
    )]
}

/// Hosts of registries and places on a developer's disk; `checkout` is the directory that the work tree lies in.
#[must_use]
pub fn check_places(file: &File, checkout: &str) -> Vec<Violation> {
    if !is_written(file) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (at, line) in file.lines() {
        for host in HOSTS.iter().filter(|host| line.contains(**host)) {
            wrong.push(Violation::at(
                &file.path,
                at,
                format!("names a registry: {host}"),
            ));
        }
        let tells = checkout.matches('/').count() >= CHECKOUT_DEPTH_MIN;
        let checkout = tells.then_some(&checkout);
        for path in HOMES
            .iter()
            .chain(checkout)
            .filter(|path| begins_path(line, path))
        {
            wrong.push(Violation::at(
                &file.path,
                at,
                format!("names a place on somebody's disk: {path}"),
            ));
        }
    }
    wrong
}

/// Does an absolute path in `line` begin with `prefix`, as a whole directory?
fn begins_path(line: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    line.match_indices(prefix).any(|(at, _)| {
        let is_name = |letter: char| letter.is_alphanumeric() || "._-/}".contains(letter);
        let before = line[..at].chars().next_back();
        let after = line[at + prefix.len()..].chars().next();
        !before.is_some_and(is_name) && after == Some('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn long_files_are_found() {
        assert!(check_length(&file("a.rs", &"\n".repeat(LINES_MAX))).is_empty());
        assert_eq!(
            check_length(&file("a.rs", &"\n".repeat(LINES_MAX + 1))).len(),
            1
        );
        assert_eq!(check_length(&file(MAP.0, &"\n".repeat(MAP.1 + 1))).len(), 1);
        assert!(check_length(&file("Cargo.lock", &"\n".repeat(9 * LINES_MAX))).is_empty());
    }

    #[test]
    fn registries_are_found() {
        for host in HOSTS {
            let found = check_places(
                &file("a.sh", &format!("fetch https://{host}/x")),
                "/some/tree",
            );
            assert_eq!(found.len(), 1, "{host}");
        }
    }

    #[test]
    fn places_on_a_disk_are_found() {
        for home in HOMES {
            let found = check_places(
                &file("a.md", &format!("see `{home}me/notes`")),
                "/some/tree",
            );
            assert_eq!(found.len(), 1, "{home}");
        }
        assert_eq!(
            check_places(&file("a.md", "in /some/tree/crates"), "/some/tree").len(),
            1
        );
    }

    #[test]
    fn a_checkout_right_below_the_root_is_not_looked_for() {
        assert!(check_places(&file("a.md", "in /src/lib.rs"), "/src").is_empty());
    }

    #[test]
    fn paths_that_only_look_alike_are_none() {
        for text in [
            "crates/some/tree/x",
            "/some/treehouse/x",
            "cgroup/root/x",
            "$DIR/root/x",
        ] {
            assert!(
                check_places(&file("a.md", text), "/some/tree").is_empty(),
                "{text}"
            );
        }
    }
}
