//! Ctrl-C and SIGTERM: noticed between two steps, so that everything is put back on the way out.

use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a signal is noticed while waiting.
pub const NOTICE: Duration = Duration::from_millis(50);

/// Was there a signal?
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, the first signal only sets a flag.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn install() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .context("cannot install a signal handler")?;
        }
        Ok(Self(flag))
    }

    /// Goes on only if there was none.
    ///
    /// # Errors
    /// If there was one.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::SeqCst) {
            bail!("interrupted; everything was put back");
        }
        Ok(())
    }

    /// Sleeps, and wakes up for a signal.
    ///
    /// # Errors
    /// If there was one.
    pub fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NOTICE));
        }
    }
}
