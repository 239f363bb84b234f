//! Which regions of a process consent to THP, as far as we were told.
//!
//! Whether a region is advised against THP (`VM_NOHUGEPAGE`) is printed in `smaps` alone, which is far too dear. But the
//! kernel says it when we act: it refuses. Both answers are believed for a while only, since the program may change its
//! advice; a refusal for longer, because asking again is what costs.

use super::regions::Placed;
use hugepilot_core::units::{Instant, Span};

/// How long a refusal is believed.
const REFUSED_FOR: Span = Span::secs(60);
/// How long consent is believed.
const GIVEN_FOR: Span = Span::secs(10);

/// A stretch of addresses of which something is believed for a while.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
    until: Instant,
}

impl Stretch {
    const fn of(placed: &Placed, until: Instant) -> Self {
        Self {
            start: placed.mapping.address,
            end: placed.mapping.address + placed.mapping.length.0,
            until,
        }
    }

    const fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What the regions of one process said.
#[derive(Debug, Clone, Default)]
pub struct Consents {
    given: Vec<Stretch>,
    refused: Vec<Stretch>,
}

impl Consents {
    /// Did the region at `address` consent lately?
    #[must_use]
    pub fn given(&self, address: u64, now: Instant) -> bool {
        self.given
            .iter()
            .any(|given| given.start <= address && address < given.end && given.until > now)
    }

    /// The region consents.
    pub fn gave(&mut self, placed: &Placed, now: Instant) {
        self.forget_old(now);
        if !self.given(placed.mapping.address, now) {
            self.given.push(Stretch::of(placed, now.after(GIVEN_FOR)));
        }
    }

    /// The region refuses.
    pub fn refused(&mut self, placed: &Placed, now: Instant) {
        let refusal = Stretch::of(placed, now.after(REFUSED_FOR));
        self.given.retain(|given| !given.meets(&refusal));
        self.refused.push(refusal);
    }

    /// What is too old to be believed is forgotten.
    pub fn forget_old(&mut self, now: Instant) {
        self.given.retain(|given| given.until > now);
        self.refused.retain(|refusal| refusal.until > now);
    }

    /// The region, excluded if it or what it came from refused.
    #[must_use]
    pub fn marked(&self, mut placed: Placed) -> Placed {
        let stretch = Stretch::of(&placed, Instant::default());
        placed.mapping.excluded = self.refused.iter().any(|refusal| refusal.meets(&stretch));
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
    use hugepilot_core::observation::{Mapping, MemoryKind};
    use hugepilot_core::units::Bytes;

    fn region(address: u64, length: u64) -> Placed {
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        };
        Placed {
            object: ObjectId::Private(process),
            mapping: Mapping {
                process,
                address,
                length: Bytes(length),
                offset: address,
                kind: MemoryKind::Anonymous,
                writable: true,
                excluded: false,
                placement_fixed: false,
            },
            worth_a_look: true,
        }
    }

    #[test]
    fn a_refusal_ends_consent_and_ends_itself() {
        let mut consents = Consents::default();
        let (now, whole) = (Instant(0), region(0x1000, 0x4000));
        consents.gave(&whole, now);
        assert!(consents.given(0x2000, now) && !consents.given(0x5000, now));
        consents.refused(&whole, now);
        assert!(!consents.given(0x2000, now));
        let part = region(0x4000, 0x1000);
        assert!(consents.marked(part.clone()).mapping.excluded);
        assert!(!consents.marked(region(0x5000, 0x1000)).mapping.excluded);
        consents.forget_old(now.after(REFUSED_FOR));
        assert!(!consents.marked(part).mapping.excluded);
    }

    #[test]
    fn consent_is_believed_for_a_while() {
        let mut consents = Consents::default();
        consents.gave(&region(0x1000, 0x1000), Instant(0));
        assert!(!consents.given(0x1000, Instant(0).after(GIVEN_FOR)));
    }
}
