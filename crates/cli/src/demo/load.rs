//! The load: a fill in a closed loop with a few requests in flight, paced writes during the save, a random deletion.

use super::resp::{Client, Reply};
use crate::bench::interrupt::Interrupt;
use anyhow::bail;
use hugepilot_bench::clock::{Clock, Ticks};
use hugepilot_bench::latency::{Latencies, LatencySummary};
use hugepilot_core::units::Span;
use serde::Serialize;
use std::collections::VecDeque;

/// Bytes of an object, as in the paper.
pub const OBJECT: usize = 4_096;
/// Requests in flight: a client that pipelines a little, so that the server is busy and its queue is short.
pub const DEPTH: usize = 8;
/// Keys in one DEL.
const DELETE_BATCH: usize = 64;
/// One object in so many stays.
pub const KEEP_ONE_OF: u64 = 4;
/// How often a long loop looks for a signal.
const CHECK_EVERY: u32 = 1_024;

/// A fill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Filled {
    /// From a request's sending to its reply.
    pub latency: LatencySummary,
    /// In all.
    pub took_ns: Span,
    /// Requests a second.
    pub per_s: f64,
}

/// The key of object `index`.
pub fn key(index: u32) -> String {
    format!("object:{index:010}")
}

/// Object `index`: different in each, never zero, and compressible, so that a save costs little disk.
pub fn value(index: u32, buffer: &mut Vec<u8>) {
    buffer.clear();
    let line = format!("{index:010} hugepilot demo ");
    while buffer.len() < OBJECT {
        buffer.extend_from_slice(line.as_bytes());
    }
    buffer.truncate(OBJECT);
}

/// Does object `index` stay? As good as random, and the same in every run.
pub fn stays(index: u32) -> bool {
    mix(u64::from(index)) % KEEP_ONE_OF == 0
}

/// SplitMix64's finishing step: every bit of the input moves every bit of the output.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Sets objects 0 to `keys`, `progress` told of each thousand.
///
/// # Errors
/// If the server fails, or at a signal.
pub fn fill(
    client: &mut Client,
    keys: u32,
    interrupt: &Interrupt,
    mut progress: impl FnMut(u32),
) -> anyhow::Result<Filled> {
    let clock = Clock::calibrated();
    let mut latencies = Latencies::new()?;
    let mut sent_at = VecDeque::with_capacity(DEPTH);
    let mut buffer = Vec::with_capacity(OBJECT);
    let from = clock.now();
    let mut next = 0;
    let mut done = 0;
    while done < keys {
        while next < keys && sent_at.len() < DEPTH {
            value(next, &mut buffer);
            client.queue(&[b"SET", key(next).as_bytes(), &buffer]);
            sent_at.push_back(clock.now());
            next += 1;
        }
        client.send()?;
        done += take_replies(client, &clock, &mut sent_at, &mut latencies)?;
        if done % CHECK_EVERY < 8 {
            interrupt.check()?;
            progress(done);
        }
    }
    let took_ns = clock.span(from, clock.now());
    Ok(Filled {
        latency: latencies.summary(),
        took_ns,
        per_s: f64::from(keys) / took_ns.as_secs_f64(),
    })
}

/// Waits for one reply and takes all that have come with it.
fn take_replies(
    client: &mut Client,
    clock: &Clock,
    sent_at: &mut VecDeque<Ticks>,
    latencies: &mut Latencies,
) -> anyhow::Result<u32> {
    let mut taken = 0;
    while let Some(sent) = sent_at.pop_front() {
        expect_ok(&client.reply()?)?;
        latencies.record(clock.span(sent, clock.now()));
        taken += 1;
        if !client.has_more() {
            break;
        }
    }
    Ok(taken)
}

fn expect_ok(reply: &Reply) -> anyhow::Result<()> {
    match reply {
        Reply::Simple(word) if word == "OK" => Ok(()),
        Reply::Simple(_) | Reply::Integer(_) | Reply::Bulk(_) => bail!("Redis answered {reply:?}"),
    }
}

/// Writes to random objects at a fixed rate: latency counts from the time that a write was due.
#[derive(Debug)]
pub struct PacedWrites {
    clock: Clock,
    from: Ticks,
    gap: Span,
    keys: u32,
    done: u32,
    limit: u32,
    latencies: Latencies,
    buffer: Vec<u8>,
}

impl PacedWrites {
    /// From now on `per_s` a second, `limit` in all.
    ///
    /// # Errors
    /// If there is no histogram.
    pub fn new(keys: u32, per_s: u32, limit: u32) -> anyhow::Result<Self> {
        let clock = Clock::calibrated();
        Ok(Self {
            clock,
            from: clock.now(),
            gap: Span(1_000_000_000 / u64::from(per_s)),
            keys,
            done: 0,
            limit,
            latencies: Latencies::new()?,
            buffer: Vec::with_capacity(OBJECT),
        })
    }

    /// Does the next write when it is due, or nothing if there are no more.
    ///
    /// # Errors
    /// If the server fails.
    pub fn step(&mut self, client: &mut Client) -> anyhow::Result<Step> {
        if self.done == self.limit {
            return Ok(Step::Finished);
        }
        let offset = Span(self.gap.0 * u64::from(self.done));
        let due = self.clock.after(self.from, offset);
        let early = self.clock.span(self.clock.now(), due);
        if early > Span::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(early.0));
        }
        let index = mix(u64::from(self.done) << 32) % u64::from(self.keys);
        let index = u32::try_from(index)?;
        value(index, &mut self.buffer);
        client.queue(&[b"SET", key(index).as_bytes(), &self.buffer]);
        client.send()?;
        expect_ok(&client.reply()?)?;
        self.latencies
            .record(self.clock.span(due, self.clock.now()));
        self.done += 1;
        Ok(Step::Done)
    }

    /// Latencies so far.
    pub fn latency(&self) -> LatencySummary {
        self.latencies.summary()
    }
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// One write.
    Done,
    /// There are no more.
    Finished,
}

/// Deletes three quarters of the objects.
///
/// # Errors
/// If the server fails or does not have them, or at a signal.
pub fn delete(client: &mut Client, keys: u32, interrupt: &Interrupt) -> anyhow::Result<u32> {
    let gone: Vec<String> = (0..keys).filter(|index| !stays(*index)).map(key).collect();
    for batch in gone.chunks(DELETE_BATCH) {
        interrupt.check()?;
        let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..])
            .chain(batch.iter().map(String::as_bytes))
            .collect();
        client.queue(&words);
        client.send()?;
        let expected = Reply::Integer(i64::try_from(batch.len())?);
        let reply = client.reply()?;
        if reply != expected {
            bail!("Redis deleted {reply:?} of {} objects", batch.len());
        }
    }
    Ok(u32::try_from(gone.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_stays() {
        let kept = (0..100_000).filter(|index| stays(*index)).count();
        assert!((24_000..26_000).contains(&kept), "{kept}");
    }

    #[test]
    fn objects_are_of_one_size_and_differ() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        value(1, &mut one);
        value(2, &mut other);
        assert_eq!((one.len(), other.len()), (OBJECT, OBJECT));
        assert_ne!(one, other);
        assert!(!one.contains(&0));
    }
}
