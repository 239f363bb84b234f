//! What the tests share: the built library, C programs against it, and the pool of huge pages.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The compiler's options for the test programs.
/// (Warnings are shown where a test fails, and are no errors: the next compiler has new ones.)
const C_FLAGS: [&str; 6] = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-pthread"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The directory with the libraries, built as they are installed.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = scratch().join("hugetlb-library");
        let built = Command::new(here().join("link.sh"))
            .arg(&directory)
            .env("CARGO_TARGET_DIR", scratch().join("hugetlb-build"))
            .status();
        assert!(
            built.expect("link.sh starts").success(),
            "the library cannot be built"
        );
        directory
    })
}

/// How a program is bound to the library.
#[derive(Debug, Clone, Copy)]
pub enum Link {
    Shared,
    Static,
    /// Not at all.
    None,
}

/// A compiled program, which goes away with this.
pub struct Program(PathBuf);

impl Program {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let removed = fs::remove_file(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// Tests run at once, in threads and in processes, and each has programs of its own.
fn new_path(name: &str) -> PathBuf {
    static COMPILED: AtomicUsize = AtomicUsize::new(0);
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    scratch().join(format!("{name}-{}-{number}", std::process::id()))
}

/// The C compiler.
pub fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Compiles a program of `tests/c`.
pub fn compile(name: &str, link: Link) -> Program {
    let library = library();
    let program = new_path(name);
    let mut compiler = compiler();
    compiler.args(C_FLAGS).arg("-I").arg(here().join("include"));
    compiler
        .arg("-o")
        .arg(&program)
        .arg(here().join(format!("tests/c/{name}.c")));
    match link {
        Link::Shared => {
            compiler.arg("-L").arg(library).arg("-lhugetlbfs");
            compiler.arg(format!("-Wl,-rpath,{}", library.display()));
        }
        Link::Static => {
            compiler.arg("-static").arg(library.join("libhugetlbfs.a"));
        }
        Link::None => {}
    }
    let output = compiler
        .output()
        .expect("the C compiler starts: is cc there?");
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    Program(program)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command without any of the library's settings but the given ones.
pub fn run(command: &mut Command, settings: &[(&str, &str)]) -> Output {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HUGETLB_")) {
        command.env_remove(name);
    }
    command
        .envs(settings.iter().copied())
        .output()
        .expect("it starts")
}

/// Runs a test program that ends well, and returns what it printed.
#[track_caller]
pub fn passes(name: &str, link: Link) -> String {
    let program = compile(name, link);
    let output = run(&mut Command::new(program.path()), &[]);
    well(output.status, name, link, &output);
    text(&output.stdout)
}

#[track_caller]
fn well(status: ExitStatus, name: &str, link: Link, output: &Output) {
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    assert!(status.success(), "{name}, {link:?}: {status}\n{said}");
}

/// The pool of huge pages of the kernel's default size, set for a test and put back after it, however the test ends.
///
/// Putting back is done by another process that waits for us to be gone: so it happens after a panic and after `kill -9`
/// as well. It also holds the lock that keeps other tests away from the pool meanwhile.
pub struct Pool {
    restorer: Child,
}

const VM: &str = "/proc/sys/vm";

impl Pool {
    /// A pool of just so many pages, all of them free, without surplus.
    pub fn of(pages: u32) -> Self {
        let lock =
            File::create(std::env::temp_dir().join("hugepilot-pool.lock")).expect("a lock file");
        flock(&lock, FlockOperation::LockExclusive).expect("the lock");
        let [total, surplus] = ["nr_hugepages", "nr_overcommit_hugepages"].map(read);
        let restore = format!(
            "trap '' INT TERM HUP; read -r _; echo {total} > {VM}/nr_hugepages; echo {surplus} > {VM}/nr_overcommit_hugepages"
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &restore])
            .stdin(Stdio::piped())
            .stdout(lock);
        let pool = Self {
            restorer: shell.spawn().expect("sh"),
        };
        write("nr_overcommit_hugepages", 0);
        write("nr_hugepages", pages);
        let free = free_pages();
        assert_eq!(
            free, pages,
            "free huge pages: is there memory, and does nobody else use them?"
        );
        pool
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        let restored = self.restorer.wait();
        if !std::thread::panicking() {
            assert!(
                restored.expect("sh").success(),
                "the pool is not what it was"
            );
        }
    }
}

fn read(name: &str) -> u32 {
    let text = fs::read_to_string(format!("{VM}/{name}")).expect("the kernel has huge pages");
    text.trim().parse().expect("a number")
}

fn write(name: &str, value: u32) {
    fs::write(format!("{VM}/{name}"), value.to_string()).expect("these tests need root");
}

fn free_pages() -> u32 {
    let meminfo = fs::read_to_string("/proc/meminfo").expect("there is one");
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.expect("the kernel has huge pages")
        .trim()
        .parse()
        .expect("a number")
}
