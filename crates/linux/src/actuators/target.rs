//! Where an action on a slot is carried out: through which process, at which address; and how the slot looks there.

use super::Verdict;
use super::errno::{Call, verdict_of};
use crate::sensors::fingerprints::SlotCounts;
use crate::sensors::page_tables::{Expecting, Method, PageClass, PageTables};
use crate::sensors::watched::Watched;
use crate::sys::{Errno, time};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, SlotId};
use hugepilot_core::observation::{Sharing, SlotObserved};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::{Bytes, Span};

/// A slot, as one process maps it, with what is needed to look at it.
pub struct Target<'m> {
    /// The slot.
    pub slot: SlotId,
    /// The process through which it is reached.
    pub process: &'m Watched,
    /// Where that process maps the slot's first byte.
    pub address: u64,
    /// Page sizes.
    pub geometry: Geometry,
    /// The reader of page tables.
    pub tables: &'m mut PageTables,
}

/// The slot page by page.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    /// How many of each class.
    pub counts: SlotCounts,
    /// Its first page that is present and not the zero page, as an address.
    pub first_present: Option<u64>,
    /// Is anonymous memory of it shared copy-on-write?
    pub sharing: Sharing,
    /// Is a page watched by userfaultfd's write protection?
    pub write_protected: bool,
}

impl Target<'_> {
    /// The bytes of the slot.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        self.geometry.slot()
    }

    /// Bytes of `pages` base pages.
    #[must_use]
    pub fn bytes_of(&self, pages: u64) -> Bytes {
        Bytes(pages << self.geometry.base_shift)
    }

    /// Is it all huge?
    #[must_use]
    pub fn is_huge(&self, counts: SlotCounts) -> bool {
        u64::from(counts.huge) == self.geometry.slot_pages().0
    }

    /// Can huge mappings be told from others here?
    #[must_use]
    pub fn sees_huge(&self) -> bool {
        match self.tables.method() {
            Method::Scan | Method::ReadFrames => true,
            Method::Read => false,
        }
    }

    /// Is the process the one we mean, and does one region still map the whole slot?
    ///
    /// # Errors
    /// What stands in the way, where not.
    pub fn still_there(&self) -> Result<(), Verdict> {
        if !self.process.alive() {
            return Err(Verdict::new(OutcomeClass::Gone).because(Cause::ProcessGone));
        }
        match self.process.region_at(self.address) {
            Ok(Some(region)) if self.address + self.bytes().0 > region.end => {
                Err(Verdict::new(OutcomeClass::Ineligible).because(Cause::NotMappedWhole))
            }
            Ok(Some(region))
                if region
                    .page
                    .is_some_and(|page| page != self.geometry.base_page()) =>
            {
                Err(Verdict::new(OutcomeClass::Ineligible))
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Verdict::new(OutcomeClass::Gone)),
            Err(errno) => Err(verdict_of(Call::Look, errno)),
        }
    }

    /// The slot as its page table shows it now.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn look(&mut self) -> Result<Pages, Verdict> {
        let failed = |errno| verdict_of(Call::Look, errno);
        let (start, page) = (self.address, self.geometry.base_page().0);
        let mut pages = Pages::default();
        let mut zero = vec![false; usize::try_from(self.geometry.slot_pages().0).unwrap_or(0)];
        let end = start + self.bytes().0;
        let read = self
            .tables
            .read(&self.process.pagemap, start, end, Expecting::Base, |run| {
                let count = u16::try_from((run.end - run.start) / page).unwrap_or(u16::MAX);
                match run.class {
                    PageClass::Base => pages.counts.base += count,
                    PageClass::Huge => pages.counts.huge += count,
                    PageClass::Swapped => pages.counts.swapped += count,
                    PageClass::Zero => {
                        pages.counts.zero += count;
                        let index = |address: u64| usize::try_from((address - start) / page).ok();
                        if let (Some(from), Some(to)) = (index(run.start), index(run.end)) {
                            zero[from..to].fill(true);
                        }
                    }
                }
                if matches!(run.class, PageClass::Base | PageClass::Huge) {
                    pages.first_present.get_or_insert(run.start);
                }
            });
        read.map_err(failed)?;
        self.look_closer(&mut pages, &zero).map_err(failed)?;
        Ok(pages)
    }

    /// What only the words of pagemap say.
    fn look_closer(&mut self, pages: &mut Pages, zero: &[bool]) -> Result<(), Errno> {
        let entries = self
            .tables
            .slot_entries(&self.process.pagemap, self.address)?;
        let anonymous = || {
            let present = entries.iter().zip(zero);
            present.filter(|(entry, zero)| entry.present() && !entry.file() && !**zero)
        };
        pages.write_protected = entries.iter().any(|entry| entry.write_protected());
        pages.sharing = match self.slot.object {
            ObjectId::Shared { .. } => Sharing::Unknown,
            ObjectId::Private(_) if anonymous().all(|(entry, _)| entry.exclusive()) => {
                Sharing::Exclusive
            }
            ObjectId::Private(_) => Sharing::ForkShared,
        };
        Ok(())
    }

    /// As an outcome says it.
    #[must_use]
    pub fn observed(&self, pages: &Pages) -> SlotObserved {
        SlotObserved {
            sharing: pages.sharing,
            ..pages.counts.observed(self.slot, &self.geometry)
        }
    }

    /// `verdict` with the slot as it looks now, if that can still be seen.
    #[must_use]
    pub fn with_after(&mut self, verdict: Verdict) -> Outcome {
        Outcome {
            after: self.look().ok().map(|pages| self.observed(&pages)),
            ..verdict.into()
        }
    }
}

impl Target<'_> {
    /// `verdict` with the slot as it looked before.
    #[must_use]
    pub fn with(&self, verdict: Verdict, pages: &Pages) -> Outcome {
        Outcome {
            after: Some(self.observed(pages)),
            ..verdict.into()
        }
    }
}

/// Does `call`, and says how long it took.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Span) {
    let before = time::monotonic();
    let returned = call();
    (returned, time::monotonic().since(before))
}
