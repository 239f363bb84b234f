//! The virtual PMU of a guest: builds the plugin, and says to QEMU what it gets
//! (tests/qemu-plugin/README.md).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use super::qemu::inherited_path;
use super::topology::Topology;
use super::{command, workspace_root};

const PACKAGE: &str = "qemu-plugin";
const LIBRARY: &str = "libqemu_plugin.so";
/// What guest and plugin share; crates/vpmu says so, too.
const SHARED_MIB: u64 = 4;

/// What of a virtual PMU is wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Where the lines of the windows go.
    pub out: Option<PathBuf>,
    /// Where samples go in addition to the guest.
    pub samples: Option<PathBuf>,
    /// More of the plugin's arguments, `KEY=VALUE`.
    pub arguments: Vec<String>,
}

/// A plugin and the files that QEMU inherits with it.
#[derive(Debug)]
pub struct Pmu {
    library: PathBuf,
    shared: File,
    out: File,
    samples: Option<File>,
    arguments: Vec<String>,
}

impl Pmu {
    /// Builds the plugin and opens the files; those on the disk are emptied.
    pub fn new(wanted: &Wanted) -> Result<Self> {
        let shared = memfd_create("virtual-pmu", MemfdFlags::empty())
            .context("cannot create the memory that the guest and the virtual PMU share")?;
        let shared = File::from(shared);
        shared
            .set_len(SHARED_MIB << 20)
            .context("cannot size the virtual PMU's memory")?;
        let out = wanted.out.as_deref().unwrap_or(Path::new("/dev/null"));
        Ok(Self {
            library: build()?,
            shared,
            out: writable(out)?,
            samples: wanted.samples.as_deref().map(writable).transpose()?,
            arguments: wanted.arguments.clone(),
        })
    }

    /// QEMU's arguments. They come after the nodes' memory, on whose place the plugin counts.
    pub fn arguments(&self, topology: &Topology) -> Vec<String> {
        let shared = inherited_path(&self.shared);
        let device = [
            "-object".to_owned(),
            format!("memory-backend-file,id=pmu,share=on,mem-path={shared},size={SHARED_MIB}M"),
            "-device".to_owned(),
            "ivshmem-plain,memdev=pmu".to_owned(),
        ];
        let mut plugin = vec![
            format!("file={}", self.library.display()),
            format!("shared={shared}"),
            format!("out={}", inherited_path(&self.out)),
            format!("cpu_nodes={}", joined(topology.cpu_nodes())),
            format!("memory_mib={}", joined(topology.memory_mib())),
        ];
        plugin.extend(
            self.samples
                .as_ref()
                .map(|file| format!("samples={}", inherited_path(file))),
        );
        plugin.extend(self.arguments.iter().cloned());
        let plugin: Vec<String> = plugin.iter().map(|word| escaped(word)).collect();
        let mut arguments = device.to_vec();
        arguments.extend(["-plugin".to_owned(), plugin.join(",")]);
        arguments
    }
}

/// QEMU takes a comma for the end of a word, and two for one.
fn escaped(word: &str) -> String {
    word.replace(',', ",,")
}

fn joined(numbers: impl Iterator<Item = u64>) -> String {
    let words: Vec<String> = numbers.map(|number| number.to_string()).collect();
    words.join(":")
}

/// An empty file that QEMU inherits.
fn writable(path: &Path) -> Result<File> {
    let context = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(context)?;
    fcntl_setfd(&file, FdFlags::empty()).context("cannot let QEMU inherit a file")?;
    Ok(file)
}

/// Builds the plugin for this host, apart from other builds, and returns its path.
fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = workspace_root()?.join("target/plugin");
    let mut build = Command::new(cargo);
    build
        .current_dir(workspace_root()?)
        .args(["build", "--quiet", "--release", "--package", PACKAGE])
        .arg("--target-dir")
        .arg(&target);
    command::complete(&mut build)?;
    let library = target.join("release").join(LIBRARY);
    if !library.is_file() {
        bail!("cargo built no {}", library.display());
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::super::topology::Mebibytes;
    use super::*;

    fn pmu(samples: Option<File>) -> Pmu {
        let file = || File::options().write(true).open("/dev/null").unwrap();
        Pmu {
            library: "/a,b/libqemu_plugin.so".into(),
            shared: file(),
            out: file(),
            samples,
            arguments: vec!["l1=16:8".to_owned()],
        }
    }

    #[test]
    fn the_plugin_is_told_the_nodes() {
        let topology = Topology::even(2, 3, Mebibytes(1024)).unwrap();
        let arguments = pmu(None).arguments(&topology);
        let plugin = arguments.last().unwrap();
        assert!(plugin.starts_with("file=/a,,b/libqemu_plugin.so,shared=/dev/fd/"));
        assert!(plugin.contains(",cpu_nodes=0:1:1,memory_mib=512:512,l1=16:8"));
        assert!(!plugin.contains("samples="));
        assert_eq!(arguments[3], "ivshmem-plain,memdev=pmu");
    }

    #[test]
    fn samples_go_to_a_file_where_one_is_named() {
        let topology = Topology::even(1, 1, Mebibytes(512)).unwrap();
        let file = File::options().write(true).open("/dev/null").unwrap();
        let arguments = pmu(Some(file)).arguments(&topology);
        assert!(arguments.last().unwrap().contains(",samples=/dev/fd/"));
    }
}
