//! Which kernels there are, and which of them a request means. Pure: works on the text of Debian's
//! package index.
//!
//! Debian names a kernel package by its *release* (what `uname -r` prints): `linux-image-RELEASE`.
//! Since 6.19 that package is empty and the kernel itself is in `linux-binary-RELEASE`. For 6.1 the
//! release (6.1.0-50-amd64) does not tell the kernel's version; the package's version (6.1.176-1)
//! does. Variants (cloud, rt) and unsigned twins are left out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

const ARCHITECTURE_SUFFIX: &str = "-amd64";

/// A Debian package that holds a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPackage {
    pub package: String,
    /// The package's version, such as `6.1.176-1`.
    pub version: String,
    /// What `uname -r` prints, such as `6.1.0-50-amd64`.
    pub release: String,
    /// Of the download, in bytes.
    pub size: u64,
}

impl KernelPackage {
    /// The version of Linux: what comes before Debian's own revision.
    pub fn upstream_version(&self) -> &str {
        let end = self
            .version
            .find(['-', '+', '~'])
            .unwrap_or(self.version.len());
        &self.version[..end]
    }

    /// Orders packages by age.
    fn age(&self) -> Vec<u64> {
        numbers(&self.version)
    }

    fn is_binary(&self) -> bool {
        self.package.starts_with("linux-binary-")
    }
}

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Newest,
    /// The newest whose version begins with these numbers.
    Series(Vec<u64>),
    /// A release, with or without its architecture, or a package's version.
    Exactly(String),
}

impl FromStr for Request {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let series: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
        Ok(match series {
            Some(series) => Self::Series(series),
            None if text == "newest" => Self::Newest,
            None => Self::Exactly(text.to_owned()),
        })
    }
}

impl Request {
    fn matches(&self, package: &KernelPackage) -> bool {
        match self {
            Self::Newest => true,
            Self::Series(series) => numbers(package.upstream_version()).starts_with(series),
            Self::Exactly(name) => {
                let short_release = package.release.trim_end_matches(ARCHITECTURE_SUFFIX);
                [
                    package.release.as_str(),
                    short_release,
                    package.version.as_str(),
                ]
                .contains(&name.as_str())
            }
        }
    }
}

/// The newest kernel that the request matches.
pub fn pick(index: &[KernelPackage], request: &Request) -> Option<KernelPackage> {
    index
        .iter()
        .filter(|package| request.matches(package))
        .max_by_key(|package| package.age())
        .cloned()
}

/// The series there are, oldest first, for a message.
pub fn series(index: &[KernelPackage]) -> String {
    let mut series: Vec<Vec<u64>> = index
        .iter()
        .map(|package| {
            numbers(package.upstream_version())
                .into_iter()
                .take(2)
                .collect()
        })
        .collect();
    series.sort();
    series.dedup();
    let names = series.iter().map(|numbers| {
        numbers
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(".")
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Whether a package of this name may hold a kernel that we boot.
pub fn is_kernel_name(package: &str) -> bool {
    release_of(package).is_some()
}

fn release_of(package: &str) -> Option<&str> {
    let release = package
        .strip_prefix("linux-image-")
        .or_else(|| package.strip_prefix("linux-binary-"))?;
    let mut parts = release.strip_suffix(ARCHITECTURE_SUFFIX)?.split('-');
    let starts_with_digit = parts
        .next()?
        .starts_with(|first: char| first.is_ascii_digit());
    let no_variant = parts.all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    (starts_with_digit && no_variant).then_some(release)
}

/// Reads the paragraphs that `apt-cache show` prints: one kernel per release, oldest first.
pub fn parse_index(text: &str) -> Result<Vec<KernelPackage>> {
    let mut by_release: BTreeMap<String, KernelPackage> = BTreeMap::new();
    for paragraph in text
        .split("\n\n")
        .filter(|paragraph| !paragraph.trim().is_empty())
    {
        let Some(package) = parse_paragraph(paragraph)? else {
            continue;
        };
        let rank = |package: &KernelPackage| (package.is_binary(), package.age());
        let known = by_release.get(&package.release);
        if known.is_none_or(|known| rank(known) < rank(&package)) {
            by_release.insert(package.release.clone(), package);
        }
    }
    let mut index: Vec<_> = by_release.into_values().collect();
    index.sort_by_key(KernelPackage::age);
    Ok(index)
}

/// `None` for a package that is not a kernel of ours.
fn parse_paragraph(paragraph: &str) -> Result<Option<KernelPackage>> {
    let field = |name: &str| {
        let values = paragraph
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.map(str::trim).next()
    };
    let (Some(package), Some(version), Some(size)) =
        (field("Package"), field("Version"), field("Size"))
    else {
        bail!("a paragraph of the package index lacks Package, Version or Size: {paragraph:?}");
    };
    let Some(release) = release_of(package) else {
        return Ok(None);
    };
    Ok(Some(KernelPackage {
        package: package.to_owned(),
        version: version.to_owned(),
        release: release.to_owned(),
        size: size.parse()?,
    }))
}

/// The numbers in a version, in order. Good enough to compare versions of released kernels, which
/// have no letters that count.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from Debian's index for bookworm, trixie and trixie-backports.
    const RECORDED: &str = include_str!("../../testdata/packages.txt");

    #[track_caller]
    fn check(request: &str, package: &str, version: &str) {
        let picked =
            pick(&parse_index(RECORDED).unwrap(), &request.parse().unwrap()).expect("a kernel");
        assert_eq!(
            (picked.package.as_str(), picked.version.as_str()),
            (package, version)
        );
    }

    #[test]
    fn a_series_means_its_newest_member() {
        check("6.1", "linux-image-6.1.0-50-amd64", "6.1.176-1");
        check("6.12", "linux-image-6.12.107+deb13-amd64", "6.12.107-1");
        check(
            "6.18",
            "linux-image-6.18.15+deb13-amd64",
            "6.18.15-1~bpo13+1",
        );
        check("6", "linux-image-6.18.15+deb13-amd64", "6.18.15-1~bpo13+1");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        check("7.2", "linux-binary-7.2.12+deb13-amd64", "7.2.12-1~bpo13+1");
    }

    #[test]
    fn the_newest_kernel_is_in_its_binary_package() {
        check(
            "newest",
            "linux-binary-7.3.4+deb13-amd64",
            "7.3.4-1~bpo13+1",
        );
        check("7", "linux-binary-7.3.4+deb13-amd64", "7.3.4-1~bpo13+1");
    }

    #[test]
    fn exact_names() {
        check("6.1.170", "linux-image-6.1.0-47-amd64", "6.1.170-3");
        check("6.1.0-47", "linux-image-6.1.0-47-amd64", "6.1.170-3");
        check("6.1.0-47-amd64", "linux-image-6.1.0-47-amd64", "6.1.170-3");
        check("6.1.170-3", "linux-image-6.1.0-47-amd64", "6.1.170-3");
        check(
            "7.2.9+deb13",
            "linux-binary-7.2.9+deb13-amd64",
            "7.2.9-1~bpo13+1",
        );
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let index = parse_index(RECORDED).unwrap();
        for request in [
            "5",
            "6.10",
            "7.3.40",
            "6.1.0-50-cloud-amd64",
            "6.1.0-50-amd64-unsigned",
            "",
            "6.",
        ] {
            assert_eq!(pick(&index, &request.parse().unwrap()), None, "{request}");
        }
    }

    #[test]
    fn the_recorded_series() {
        assert_eq!(
            series(&parse_index(RECORDED).unwrap()),
            "6.1, 6.12, 6.18, 7.2, 7.3"
        );
    }

    #[test]
    fn names_of_kernels() {
        for name in [
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.12.107+deb13-amd64",
            "linux-binary-7.3.4+deb13-amd64",
        ] {
            assert!(is_kernel_name(name), "{name}");
        }
        for name in [
            "linux-image-amd64",
            "linux-image-6.1.0-50-rt-amd64",
            "linux-headers-6.1.0-50-amd64",
            "linux-image-",
        ] {
            assert!(!is_kernel_name(name), "{name}");
        }
    }

    #[test]
    fn a_newer_build_of_the_same_release_wins() {
        let paragraph = |version| {
            format!("Package: linux-image-6.1.0-50-amd64\nVersion: {version}\nSize: 1\n\n")
        };
        let text = paragraph("6.1.176-2") + &paragraph("6.1.176-10") + &paragraph("6.1.176-9");
        let index = parse_index(&text).unwrap();
        assert_eq!(
            index
                .iter()
                .map(|package| package.version.as_str())
                .collect::<Vec<_>>(),
            ["6.1.176-10"]
        );
    }

    #[test]
    fn a_broken_index_is_an_error() {
        assert!(parse_index("Package: linux-image-6.1.0-50-amd64\nVersion: 6.1.176-1\n").is_err());
        assert!(
            parse_index("Package: linux-image-6.1.0-50-amd64\nVersion: 6.1.176-1\nSize: big\n")
                .is_err()
        );
        assert_eq!(parse_index("").unwrap(), []);
    }
}
