//! Kernels that were downloaded, in `.cache/vm` of the work tree or where `HUGEPILOT_CACHE` says.
//!
//! ```text
//! lock                         held (flock) while anything below is being changed
//! index.json                   the kernels there were at the last look at Debian's index
//! kernels/RELEASE_VERSION/     vmlinuz; appears whole, by a rename, and never changes
//! apt/                         apt's own files
//! ```
//!
//! A kernel that is here needs no network and no lock. The index is read anew only when it is
//! missing, when it lacks what is asked for, when the mirror no longer has what it names, or on
//! request: so that "newest" means the same from run to run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::apt::Apt;
use super::kernel::{self, KernelPackage, Request};
use super::{command, workspace_root};

const DIRECTORY_VARIABLE: &str = "HUGEPILOT_CACHE";
/// Every kernel image for x86 has this signature here (`Documentation/arch/x86/boot.rst`).
const BOOT_SIGNATURE: (usize, &[u8]) = (0x202, b"HdrS");

pub struct Cache {
    directory: PathBuf,
}

/// A kernel that can be booted.
pub struct Kernel {
    pub package: KernelPackage,
    pub image: PathBuf,
}

impl Cache {
    pub fn open() -> Result<Self> {
        let directory = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) => {
                std::path::absolute(directory).context("cannot use HUGEPILOT_CACHE")?
            }
            None => workspace_root()?.join(".cache/vm"),
        };
        let kernels = directory.join("kernels");
        fs::create_dir_all(&kernels).with_context(|| {
            format!(
                "cannot create {}; name another directory by {DIRECTORY_VARIABLE}",
                kernels.display()
            )
        })?;
        Ok(Self { directory })
    }

    /// The kernel that the request means; downloads it if it is not here.
    pub fn kernel(&self, request: &Request) -> Result<Kernel> {
        let package = self.pick(request)?;
        let error = match self.ensure(&package) {
            Ok(kernel) => return Ok(kernel),
            Err(error) => error,
        };
        eprintln!("cannot fetch {}: {error:#}", package.package);
        self.refresh_index()
            .context("cannot look for another kernel either")?;
        let other = self.pick(request)?;
        ensure!(
            other != package,
            "cannot fetch {}, and the package index has no other",
            package.package
        );
        self.ensure(&other)
    }

    fn pick(&self, request: &Request) -> Result<KernelPackage> {
        if let Some(package) = kernel::pick(&self.index()?, request) {
            return Ok(package);
        }
        self.refresh_index()?;
        let index = self.index()?;
        kernel::pick(&index, request).with_context(|| {
            format!(
                "there is no such kernel; there are: {}, and \"newest\"",
                kernel::series(&index)
            )
        })
    }

    /// All kernels there are, oldest first.
    pub fn index(&self) -> Result<Vec<KernelPackage>> {
        if !self.index_path().exists() {
            self.refresh_index()?;
        }
        let path = self.index_path();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("{} is broken; remove it", path.display()))
    }

    pub fn refresh_index(&self) -> Result<()> {
        let _lock = self.lock()?;
        eprintln!("reading Debian's package index");
        let paragraphs = Apt::prepare(&self.directory.join("apt"))?.kernel_paragraphs()?;
        let index = serde_json::to_vec_pretty(&kernel::parse_index(&paragraphs)?)?;
        let partial = self.directory.join("index.json.partial");
        fs::write(&partial, index)
            .with_context(|| format!("cannot write {}", partial.display()))?;
        fs::rename(&partial, self.index_path()).context("cannot put the index in its place")
    }

    pub fn holds(&self, package: &KernelPackage) -> bool {
        self.image_path(package).exists()
    }

    fn ensure(&self, package: &KernelPackage) -> Result<Kernel> {
        if !self.holds(package) {
            let _lock = self.lock()?;
            // Somebody else may have fetched it while we waited.
            if !self.holds(package) {
                self.fetch(package)?;
            }
        }
        Ok(Kernel {
            package: package.clone(),
            image: self.image_path(package),
        })
    }

    fn fetch(&self, package: &KernelPackage) -> Result<()> {
        eprintln!("fetching {} {}", package.package, package.version);
        let place = self.kernel_directory(package);
        let partial = self.directory.join("kernels/.partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)
                .context("cannot remove what an interrupted download left")?;
        }
        fs::create_dir_all(&partial)
            .with_context(|| format!("cannot create {}", partial.display()))?;
        Apt::prepare(&self.directory.join("apt"))?.download(
            &package.package,
            &package.version,
            &partial,
        )?;
        let archive = only_file(&partial)?;
        extract_image(&archive, &partial.join("vmlinuz"))?;
        fs::remove_file(&archive).context("cannot remove the unpacked package")?;
        fs::rename(&partial, &place)
            .with_context(|| format!("cannot put {} in its place", place.display()))
    }

    /// Waits until nobody else changes the cache. The lock ends when the file is closed, however
    /// that happens.
    fn lock(&self) -> Result<File> {
        let path = self.directory.join("lock");
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => eprintln!("waiting for another xtask that changes the cache"),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    fn index_path(&self) -> PathBuf {
        self.directory.join("index.json")
    }

    fn kernel_directory(&self, package: &KernelPackage) -> PathBuf {
        self.directory
            .join("kernels")
            .join(format!("{}_{}", package.release, package.version))
    }

    fn image_path(&self, package: &KernelPackage) -> PathBuf {
        self.kernel_directory(package).join("vmlinuz")
    }
}

fn only_file(directory: &Path) -> Result<PathBuf> {
    let mut files =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let first = files
        .next()
        .context("apt said that it downloaded the package, but there is no file")??;
    ensure!(
        files.next().is_none(),
        "apt downloaded more than one file into {}",
        directory.display()
    );
    Ok(first.path())
}

/// Takes the kernel out of a package, wherever it lies in there. The rest (over 100 MiB of modules)
/// is not unpacked: all that the guests need is built into Debian's kernels.
fn extract_image(archive: &Path, target: &Path) -> Result<()> {
    let image =
        File::create(target).with_context(|| format!("cannot create {}", target.display()))?;
    let mut unpack = Command::new("dpkg-deb");
    unpack
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut unpacking = unpack
        .spawn()
        .map_err(|error| command::cannot_start(&unpack, error))?;
    let members = unpacking.stdout.take().context("dpkg-deb has no output")?;
    let mut select = Command::new("tar");
    select
        .args(["--extract", "--to-stdout", "--wildcards", "*/vmlinuz*"])
        .stdin(members)
        .stdout(image);
    let selected = select
        .status()
        .map_err(|error| command::cannot_start(&select, error))?;
    let unpacked = unpacking.wait().context("cannot wait for dpkg-deb")?;
    ensure!(
        unpacked.success() && selected.success(),
        "cannot take the kernel out of {}",
        archive.display()
    );
    check_image(target)
}

fn check_image(image: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let (offset, signature) = BOOT_SIGNATURE;
    let found = bytes.get(offset..offset + signature.len());
    ensure!(
        found == Some(signature),
        "{} is not a kernel image",
        image.display()
    );
    Ok(())
}
