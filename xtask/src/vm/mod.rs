//! The guest rig: boots Debian's own kernels in QEMU's software emulation and runs one program
//! there.
//!
//! What a run is made of, in the order in which it happens:
//!
//! - [`kernel`] knows which kernels Debian's package index offers and picks one (pure).
//! - [`apt`] reads that index and downloads packages with a private configuration; [`cache`] keeps
//!   what came.
//! - [`initramfs`] packs busybox, the program and [`INIT_SCRIPT`](initramfs::INIT_SCRIPT) with the
//!   [`cpio`] writer (pure), after [`elf`] has checked that the program needs no shared libraries
//!   (pure).
//! - [`topology`] says which node has which CPUs and how much memory (pure); [`shapes`] has some by
//!   name, and reads others from files.
//! - [`pmu`] adds the virtual PMU, a plugin of QEMU.
//! - [`qemu`] turns all that into QEMU's arguments and owns the running QEMU; [`console`] keeps the
//!   kernel's last words.
//! - [`build`] makes the static binaries that tests want in a guest.
//!
//! The guest has three serial ports, so that nothing needs to be told apart afterwards: the
//! kernel's console, the program's output (streamed to our own standard output), and the report
//! (the program's exit code). Our messages and those of apt go to standard error.
//!
//! Nothing of a run is left on the disk: the initramfs is a memory file, the ports are pipes.

mod apt;
pub mod build;
mod cache;
mod command;
mod console;
mod cpio;
mod elf;
mod initramfs;
mod kernel;
mod pmu;
mod qemu;
mod shapes;
mod topology;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use cache::Cache;
use initramfs::{ExtraFile, Image};
use kernel::Request;
use pmu::Pmu;
pub use pmu::Wanted;
use qemu::{Guest, Machine, Outcome};
use topology::{Mebibytes, Topology};

/// The exit code when the guest took too long; the same as that of `timeout(1)`.
pub const EXIT_TIMED_OUT: u8 = 124;
/// The exit code when the rig or the guest's kernel failed, so that the program's own exit code is
/// not known.
pub const EXIT_RIG_FAILED: u8 = 125;

/// A week.
const TIMEOUT_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// What `vm fetch` gets when no kernel is named: those that the tests boot.
const USUAL_KERNELS: [&str; 3] = ["6.1", "6.12", "newest"];

#[derive(Subcommand)]
pub enum Command {
    /// Boot a kernel, run a program in it, and exit with its exit code (124: timed out; 125: the
    /// rig or the kernel failed).
    Run(RunArguments),
    /// Download kernels into the cache.
    Fetch(FetchArguments),
    /// List the kernels there are, and which of them are in the cache.
    List {
        /// Read the package index anew.
        #[arg(long)]
        refresh: bool,
    },
    /// List the topologies that have a name.
    Topologies,
    /// Build the static binaries used in guests and print their paths.
    Build {
        /// With optimization.
        #[arg(long)]
        release: bool,
    },
}

#[derive(Args)]
pub struct RunArguments {
    /// A series (6.1, 6.12, 7), a version (7.2.12), a release as uname prints it, or "newest".
    #[arg(long, value_name = "VERSION")]
    kernel: Request,
    /// Memory of the guest, over all nodes.
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    memory: Mebibytes,
    /// CPUs of the guest, over all nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// NUMA nodes, which share memory and CPUs evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// A topology by name (`vm topologies` lists them), or a file that describes one.
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["memory", "cpus", "nodes"])]
    topology: Option<String>,
    /// Give the guest the virtual PMU (tests/qemu-plugin/README.md).
    #[arg(long)]
    pmu: bool,
    /// Where it writes a line of JSON for every window.
    #[arg(long, value_name = "FILE", requires = "pmu")]
    pmu_out: Option<PathBuf>,
    /// Where it writes the samples that it takes, too.
    #[arg(long, value_name = "FILE", requires = "pmu")]
    pmu_samples: Option<PathBuf>,
    /// More of its arguments. May be repeated.
    #[arg(long = "pmu-arg", value_name = "KEY=VALUE", requires = "pmu")]
    pmu_arguments: Vec<String>,
    /// Kill the guest after so many seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_SECONDS_MAX))]
    timeout: u64,
    /// Copy a file into the guest (to /bin/NAME unless said otherwise). May be repeated.
    #[arg(long = "file", value_name = "HOST_PATH[:GUEST_PATH]")]
    files: Vec<ExtraFile>,
    /// More arguments for the kernel. May be repeated.
    #[arg(long, value_name = "KERNEL_ARGS", allow_hyphen_values = true)]
    append: Vec<String>,
    /// Show the kernel's console as it comes (on standard error).
    #[arg(long)]
    verbose: bool,
    /// The program: a static binary or a script on this machine, or else a command of the guest's
    /// busybox.
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    program: Vec<String>,
}

#[derive(Args)]
pub struct FetchArguments {
    /// Which kernel (as in `vm run`). May be repeated. Without it: 6.1, 6.12 and the newest.
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<Request>,
    /// Read the package index anew.
    #[arg(long)]
    refresh: bool,
}

pub fn perform(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => run(arguments),
        Command::Fetch(arguments) => fetch(arguments),
        Command::List { refresh } => list(refresh),
        Command::Topologies => {
            for (name, about) in shapes::list()? {
                println!("{name:<12} {about}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Build { release } => {
            for path in build::guest_binaries(release)? {
                println!("{}", path.display());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run(arguments: RunArguments) -> Result<ExitCode> {
    let topology = match &arguments.topology {
        Some(name_or_file) => shapes::find(name_or_file)?,
        None => Topology::even(arguments.nodes, arguments.cpus, arguments.memory)?,
    };
    let wanted = Wanted {
        out: arguments.pmu_out,
        samples: arguments.pmu_samples,
        arguments: arguments.pmu_arguments,
    };
    let image = Image::new(&arguments.program, &arguments.files)?;
    let machine = Machine {
        kernel: Cache::open()?.kernel(&arguments.kernel)?,
        topology,
        kernel_arguments: arguments.append,
        pmu: arguments.pmu.then(|| Pmu::new(&wanted)).transpose()?,
    };
    let limit = Duration::from_secs(arguments.timeout);
    run_in(&machine, &image, limit, arguments.verbose).map(ExitCode::from)
}

/// A guest that runs one program, for the other chores.
pub struct Boot<'a> {
    /// As `vm run` takes it.
    pub kernel: &'a str,
    /// As `vm run` takes it.
    pub memory: &'a str,
    pub cpus: u32,
    /// Nodes, which share memory and CPUs evenly.
    pub nodes: u32,
    /// With the virtual PMU, or without.
    pub pmu: Option<&'a Wanted>,
    /// Files to copy in, as `vm run` takes them.
    pub files: &'a [String],
    /// The program and its arguments.
    pub program: &'a [String],
    pub timeout: Duration,
    pub verbose: bool,
}

/// Boots a guest; its program's exit code, or ours for a guest that failed.
pub fn boot(boot: &Boot) -> Result<u8> {
    let files: Vec<ExtraFile> = boot
        .files
        .iter()
        .map(|file| file.parse())
        .collect::<Result<_>>()?;
    let image = Image::new(boot.program, &files)?;
    let machine = Machine {
        kernel: Cache::open()?.kernel(&boot.kernel.parse()?)?,
        topology: Topology::even(boot.nodes, boot.cpus, boot.memory.parse()?)?,
        kernel_arguments: Vec::new(),
        pmu: boot.pmu.map(Pmu::new).transpose()?,
    };
    run_in(&machine, &image, boot.timeout, boot.verbose)
}

fn run_in(machine: &Machine, image: &Image, limit: Duration, verbose: bool) -> Result<u8> {
    let outcome = run_once(machine, image, limit, verbose)?;
    // Emulated processors now and then kill a kernel that boots. Nothing of ours ran yet, so nothing is hidden.
    if matches!(outcome, Outcome::Panicked { began: false, .. }) {
        eprintln!("guest: the program had not begun; booting once more");
        return Ok(exit_code(&run_once(machine, image, limit, verbose)?));
    }
    Ok(exit_code(&outcome))
}

fn run_once(machine: &Machine, image: &Image, limit: Duration, verbose: bool) -> Result<Outcome> {
    eprintln!("guest: {machine}");
    let guest = Guest::start(machine, &image.archive()?, verbose)?;
    let outcome = guest.wait(limit)?;
    if let Some(evidence) = outcome.evidence() {
        eprint!("{evidence}");
    }
    eprintln!("guest: {outcome}");
    Ok(outcome)
}

fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Exited { code, .. } => *code,
        Outcome::TimedOut { .. } => EXIT_TIMED_OUT,
        Outcome::Panicked { .. } | Outcome::Vanished { .. } => EXIT_RIG_FAILED,
    }
}

fn fetch(arguments: FetchArguments) -> Result<ExitCode> {
    let cache = Cache::open()?;
    if arguments.refresh {
        cache.refresh_index()?;
    }
    let mut kernels = arguments.kernels;
    if kernels.is_empty() {
        kernels = USUAL_KERNELS
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?;
    }
    for request in &kernels {
        let kernel = cache.kernel(request)?;
        println!("{} {}", kernel.package.release, kernel.image.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn list(refresh: bool) -> Result<ExitCode> {
    let cache = Cache::open()?;
    if refresh {
        cache.refresh_index()?;
    }
    for package in cache.index()? {
        let state = if cache.holds(&package) { "cached" } else { "" };
        let size_mib = package.size / (1024 * 1024);
        println!(
            "{:<12} {:<24} {size_mib:>4} MiB  {state}",
            package.upstream_version(),
            package.release
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The root of the work tree that this program was built from.
pub fn workspace_root() -> Result<PathBuf> {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = manifest
        .parent()
        .context("xtask's directory has no parent")?;
    Ok(root.to_path_buf())
}
