//! Signals and waiting, without a busy loop: signals arrive in a pipe, and a poll waits for it.

use anyhow::Context;
use hugepilot_core::units::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Signals that were caught and not looked at yet.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Catches these signals from now on.
    ///
    /// # Errors
    /// If there is no pipe for them, or one of them cannot be caught.
    pub fn catch(numbers: &[i32]) -> anyhow::Result<Self> {
        let (read, write) = UnixStream::pair().context("cannot make a pipe for signals")?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)
            .context("cannot catch signals")?;
        Ok(Self { delivery })
    }

    /// The numbers of those that arrived since the last time.
    pub fn arrived(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }

    /// Waits until a signal arrives, one of `others` can be read, or `span` is over.
    ///
    /// # Errors
    /// If the kernel cannot poll.
    pub fn wait(&self, span: Span, others: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let own = self.delivery.get_read().as_fd();
        let mut fds: Vec<PollFd<'_>> = std::iter::once(own)
            .chain(others.iter().copied())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timespec(span))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait"),
        }
    }
}

/// From now on the second SIGINT or SIGTERM ends the program on the spot, whatever it is doing. What it has changed is
/// then in the journal.
///
/// # Errors
/// If a signal cannot be caught.
pub fn second_one_ends() -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let first = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&first))
            .and_then(|_| signal_hook::flag::register(signal, first))
            .context("cannot catch signals")?;
    }
    Ok(())
}

fn timespec(span: Span) -> Timespec {
    let seconds = i64::try_from(span.0 / 1_000_000_000).expect("2^64 ns are 585 years");
    let nanoseconds = i64::try_from(span.0 % 1_000_000_000).expect("less than a second");
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}
