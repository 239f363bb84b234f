//! One Redis server: started in its cgroup, asked, and killed when dropped.

use super::cgroup::Cgroup;
use super::resp::Client;
use super::scratch::Scratch;
use crate::bench::interrupt::Interrupt;
use crate::bench::own_program;
use anyhow::{Context, bail};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An empty server answers within this time.
const UP_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
const LOG: &str = "redis.log";

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
}

/// The server's version line.
///
/// # Errors
/// If there is no such program: says how to get it.
pub fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| {
            format!(
                "cannot start {}: apt-get install redis-server",
                program.display()
            )
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().to_owned())
}

impl Server {
    /// Starts one that keeps nothing on disk, listens on a free port of the loopback device, and leaves THP on.
    ///
    /// # Errors
    /// If it does not come up: with the end of its log.
    pub fn start(
        program: &Path,
        cgroup: &Cgroup,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = own_program();
        command
            .args(["demo", "exec", "--cgroup"])
            .arg(cgroup.procs());
        command.arg("--").arg(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--disable-thp", "no"]);
        command.args(["--daemonize", "no", "--logfile", LOG, "--dir"]);
        command.arg(scratch.path());
        // Ctrl-C in the terminal is ours to handle.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().context("cannot start Redis")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { child, address };
        server
            .wait_until_up(interrupt)
            .with_context(|| log_end(scratch))?;
        Ok(server)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection.
    ///
    /// # Errors
    /// If it went away.
    pub fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(self.address).context("cannot connect to Redis")
    }

    fn wait_until_up(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let until = Instant::now() + UP_WITHIN;
        loop {
            interrupt.check()?;
            if let Some(status) = self.child.try_wait().context("cannot wait for Redis")? {
                bail!("Redis ended at once: {status}");
            }
            match Client::connect(self.address) {
                Ok(mut client) => return client.call(&["PING"]).map(drop),
                Err(error) if Instant::now() >= until => {
                    return Err(error)
                        .with_context(|| format!("Redis is not up after {UP_WITHIN:?}"));
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill, and it is only reaped.
        drop(self.child.kill());
        if let Err(error) = self.child.wait() {
            eprintln!("hugepilot: cannot wait for Redis: {error}");
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

fn log_end(scratch: &Scratch) -> String {
    const LINES: usize = 5;
    let log =
        std::fs::read_to_string(scratch.path().join(LOG)).unwrap_or_else(|error| error.to_string());
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
    format!("Redis does not run; its log ends with:\n{end}")
}
