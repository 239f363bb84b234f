//! The machine's physical memory: every base frame, what holds it and how often it is mapped.
//!
//! It is the kernel's `struct page` array with what the simulation needs: the folio that a frame is part of, how many
//! page-table entries (and page caches) refer to it, pins, and whether it holds anything but zeros. Every frame is free
//! (then the node's buddy allocator has it), part of a folio, or taken by the simulated kernel itself.

use crate::buddy::Buddy;
use crate::cgroup::{CgroupIndex, Cgroups};
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::{BasePages, Bytes};

/// A base frame of the machine; nodes follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// Its place in arrays.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).expect("usize has at least 32 bits")
    }

    /// The frame `pages` further.
    pub(crate) const fn offset(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}

/// What a frame is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Free,
    /// Part of the folio that starts at the frame.
    Folio(Frame),
    /// The simulated kernel's own, never moved.
    Kernel,
}

#[derive(Debug, Clone, Copy)]
struct State {
    used: Use,
    /// Page-table entries and caches that refer to this frame.
    references: u32,
    /// Holds something else than zeros.
    filled: bool,
    /// Of a folio's first frame only:
    order: u8,
    pins: u32,
    /// References to all frames of the folio.
    total_references: u32,
    cgroup: CgroupIndex,
}

const FREE: State = State {
    used: Use::Free,
    references: 0,
    filled: false,
    order: 0,
    pins: 0,
    total_references: 0,
    cgroup: CgroupIndex::ROOT,
};

/// Why a folio could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// No free block of that order where it had to be.
    Node,
    /// The cgroup is at its limit.
    Cgroup,
}

/// Where a new folio may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// On this node, or on the next ones if it has no room.
    Near(NodeId),
    /// On this node only.
    On(NodeId),
}

/// All frames of all nodes.
#[derive(Debug)]
pub(crate) struct Frames {
    states: Vec<State>,
    nodes: Vec<Buddy>,
    pub(crate) cgroups: Cgroups,
}

impl Frames {
    /// One node for each length of `nodes`.
    pub(crate) fn new(geometry: &Geometry, nodes: &[Bytes]) -> Self {
        let mut first = 0;
        let mut buddies = Vec::new();
        for bytes in nodes {
            let frames = u32::try_from(bytes.0 >> geometry.base_shift)
                .expect("a simulated node has fewer than 2^32 base pages");
            buddies.push(Buddy::new(first, frames));
            first += frames;
        }
        let states = vec![FREE; Frame(first).index()];
        Self {
            states,
            nodes: buddies,
            cgroups: Cgroups::new(),
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Buddy)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(number, buddy)| (node_id(number), buddy))
    }

    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.nodes.len()
    }

    pub(crate) fn node_of(&self, frame: Frame) -> NodeId {
        let past = self.nodes.partition_point(|node| node.first() <= frame.0);
        node_id(past - 1)
    }

    fn buddy(&mut self, node: NodeId) -> &mut Buddy {
        &mut self.nodes[usize::from(node.0)]
    }

    /// A new folio, charged to `cgroup`, mapped nowhere yet and full of zeros.
    pub(crate) fn allocate(
        &mut self,
        place: Place,
        order: Order,
        cgroup: CgroupIndex,
    ) -> Result<Frame, NoRoom> {
        if !self.cgroups.has_room(cgroup, order.base_pages()) {
            return Err(NoRoom::Cgroup);
        }
        let start = self.take_block(place, order).ok_or(NoRoom::Node)?;
        self.cgroups.charge(cgroup, order.base_pages());
        self.start_folio(start, order, cgroup);
        Ok(start)
    }

    /// A new folio on `to` that is to take the place of the one at `head`: of its order, and charged where it is charged,
    /// whatever the limit, since the old one goes.
    pub(crate) fn allocate_for_move(&mut self, head: Frame, to: NodeId) -> Option<Frame> {
        let (head, order) = self.folio(head);
        let cgroup = self.states[head.index()].cgroup;
        let start = self.buddy(to).allocate(order)?;
        self.cgroups.charge(cgroup, order.base_pages());
        self.start_folio(start, order, cgroup);
        Some(start)
    }

    fn start_folio(&mut self, start: Frame, order: Order, cgroup: CgroupIndex) {
        for frame in folio_frames(start, order) {
            self.states[frame.index()] = State {
                used: Use::Folio(start),
                ..FREE
            };
        }
        let head = &mut self.states[start.index()];
        head.order = order.0;
        head.cgroup = cgroup;
    }

    fn take_block(&mut self, place: Place, order: Order) -> Option<Frame> {
        match place {
            Place::On(node) => self.buddy(node).allocate(order),
            Place::Near(node) => {
                let count = self.nodes.len();
                (0..count)
                    .map(|step| (usize::from(node.0) + step) % count)
                    .find_map(|number| self.nodes[number].allocate(order))
            }
        }
    }

    /// Takes one free frame for the kernel itself.
    pub(crate) fn take_for_kernel(&mut self, node: NodeId) -> Option<Frame> {
        let frame = self.buddy(node).allocate(Order::BASE)?;
        self.states[frame.index()].used = Use::Kernel;
        Some(frame)
    }

    /// Gives back a frame of the kernel's own.
    pub(crate) fn give_back_kernel(&mut self, frame: Frame) {
        assert_eq!(
            self.states[frame.index()].used,
            Use::Kernel,
            "{frame:?} is not the kernel's"
        );
        self.states[frame.index()] = FREE;
        let node = self.node_of(frame);
        self.buddy(node).free(frame, Order::BASE);
    }

    fn head(&self, frame: Frame) -> Frame {
        match self.states[frame.index()].used {
            Use::Folio(head) => head,
            Use::Free | Use::Kernel => panic!("{frame:?} is not part of a folio"),
        }
    }

    /// The folio that `frame` is part of: its first frame and its order.
    pub(crate) fn folio(&self, frame: Frame) -> (Frame, Order) {
        let head = self.head(frame);
        (head, Order(self.states[head.index()].order))
    }

    /// One more page-table entry or cache refers to `frame`.
    pub(crate) fn refer(&mut self, frame: Frame) {
        let head = self.head(frame);
        self.states[frame.index()].references += 1;
        self.states[head.index()].total_references += 1;
    }

    /// One less; the folio is freed when nothing refers to any of it and nobody holds it.
    pub(crate) fn release(&mut self, frame: Frame) {
        let head = self.head(frame);
        let state = &mut self.states[frame.index()];
        state.references = state
            .references
            .checked_sub(1)
            .expect("a reference to release");
        self.states[head.index()].total_references -= 1;
        self.free_if_unused(head);
    }

    fn free_if_unused(&mut self, head: Frame) {
        let state = self.states[head.index()];
        if state.total_references > 0 || state.pins > 0 {
            return;
        }
        let order = Order(state.order);
        for frame in folio_frames(head, order) {
            self.states[frame.index()] = FREE;
        }
        self.cgroups.uncharge(state.cgroup, order.base_pages());
        let node = self.node_of(head);
        self.buddy(node).free(head, order);
    }

    /// Breaks a folio into base pages and frees those that nothing refers to.
    ///
    /// # Panics
    /// If it is pinned: callers look first.
    pub(crate) fn split(&mut self, frame: Frame) {
        let (head, order) = self.folio(frame);
        let whole = self.states[head.index()];
        assert_eq!(whole.pins, 0, "a pinned folio cannot be split");
        for frame in folio_frames(head, order) {
            let state = &mut self.states[frame.index()];
            state.used = Use::Folio(frame);
            state.order = 0;
            state.total_references = state.references;
            state.cgroup = whole.cgroup;
        }
        for frame in folio_frames(head, order) {
            self.free_if_unused(frame);
        }
    }

    pub(crate) fn references(&self, frame: Frame) -> u32 {
        self.states[frame.index()].references
    }

    pub(crate) fn is_filled(&self, frame: Frame) -> bool {
        self.states[frame.index()].filled
    }

    pub(crate) fn set_filled(&mut self, frame: Frame, filled: bool) {
        self.states[frame.index()].filled = filled;
    }

    /// Is the folio of `frame` held by somebody, so that it can be neither moved nor split?
    pub(crate) fn is_pinned(&self, frame: Frame) -> bool {
        self.states[self.head(frame).index()].pins > 0
    }

    pub(crate) fn pin(&mut self, frame: Frame) {
        let head = self.head(frame);
        self.states[head.index()].pins += 1;
    }

    pub(crate) fn unpin(&mut self, frame: Frame) {
        let head = self.head(frame);
        let pins = &mut self.states[head.index()].pins;
        *pins = pins.checked_sub(1).expect("a pin to take away");
        self.free_if_unused(head);
    }

    /// Does the folio of `frame` hold base pages that nothing refers to?
    pub(crate) fn has_unmapped_part(&self, frame: Frame) -> bool {
        let (head, order) = self.folio(frame);
        order > Order::BASE && folio_frames(head, order).any(|frame| self.references(frame) == 0)
    }

    pub(crate) fn used(&self, frame: Frame) -> Use {
        self.states[frame.index()].used
    }

    /// Every frame of the machine.
    pub(crate) fn all(&self) -> impl Iterator<Item = Frame> {
        (0..u32::try_from(self.states.len()).expect("built from a u32")).map(Frame)
    }

    /// Free base pages of all nodes.
    pub(crate) fn free_pages(&self) -> BasePages {
        self.nodes.iter().map(Buddy::free_pages).sum()
    }

    /// Base pages that folios and the kernel hold on a node.
    pub(crate) fn taken_on(&self, node: NodeId) -> BasePages {
        let buddy = &self.nodes[usize::from(node.0)];
        let frames = (buddy.first()..buddy.first() + buddy.frames()).map(Frame);
        let taken = frames
            .filter(|frame| self.used(*frame) != Use::Free)
            .count();
        BasePages(u64::try_from(taken).expect("a count of frames"))
    }

    /// Base pages charged to `cgroup`, counted folio by folio.
    pub(crate) fn charged_to(&self, cgroup: CgroupIndex) -> BasePages {
        self.all()
            .filter(|frame| self.used(*frame) == Use::Folio(*frame))
            .map(|head| self.states[head.index()])
            .filter(|head| head.cgroup == cgroup)
            .map(|head| Order(head.order).base_pages())
            .sum()
    }

    /// References and pins of the folio that starts at `head`, as it accounts for them itself.
    pub(crate) fn accounted(&self, head: Frame) -> (u32, u32) {
        let state = self.states[head.index()];
        (state.total_references, state.pins)
    }
}

fn node_id(number: usize) -> NodeId {
    NodeId(u16::try_from(number).expect("a machine has fewer than 65536 nodes"))
}

/// The frames of a folio of `order` that starts at `head`.
pub(crate) fn folio_frames(head: Frame, order: Order) -> impl Iterator<Item = Frame> {
    (head.0..head.0 + (1 << order.0)).map(Frame)
}
