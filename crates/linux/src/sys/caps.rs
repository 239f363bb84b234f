//! `capget(2)`: what we may do.

use super::Errno;

/// Our effective capabilities, bit n for capability n.
///
/// # Errors
/// The kernel's errno.
pub fn effective() -> Result<u64, Errno> {
    rustix::thread::capabilities(None).map(|sets| sets.effective.bits())
}
