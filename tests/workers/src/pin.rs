//! Holding a base page, as DMA does: a pipe refers to it.

use crate::region::PAGE;
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Both ends of a pipe that holds a page.
#[derive(Debug)]
pub struct Pipe {
    _read: OwnedFd,
    write: OwnedFd,
}

/// Puts the page at `address` into a new pipe.
pub fn hold(address: usize) -> io::Result<Pipe> {
    let (read, write) = rustix::pipe::pipe()?;
    let pipe = Pipe { _read: read, write };
    sys::splice_into(pipe.write.as_raw_fd(), address, PAGE)?;
    Ok(pipe)
}
