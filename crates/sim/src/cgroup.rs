//! Memory cgroups: what is charged to them and where they stop.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::CgroupId;
use hugepilot_core::observation::CgroupObserved;
use hugepilot_core::units::BasePages;

/// A cgroup of the machine, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupIndex(u32);

impl CgroupIndex {
    /// The root: no limit.
    pub const ROOT: Self = Self(0);

    fn index(self) -> usize {
        usize::try_from(self.0).expect("usize has at least 32 bits")
    }

    /// As observations name it: the inode of its directory.
    #[must_use]
    pub fn id(self) -> CgroupId {
        CgroupId(u64::from(self.0) + 1)
    }
}

#[derive(Debug)]
struct Cgroup {
    path: String,
    current: BasePages,
    max: Option<BasePages>,
}

/// All cgroups; they have no children.
#[derive(Debug)]
pub(crate) struct Cgroups(Vec<Cgroup>);

impl Cgroups {
    pub(crate) fn new() -> Self {
        Self(vec![Cgroup {
            path: "/".to_owned(),
            current: BasePages::ZERO,
            max: None,
        }])
    }

    pub(crate) fn create(&mut self, path: &str) -> CgroupIndex {
        let index = CgroupIndex(u32::try_from(self.0.len()).expect("few cgroups"));
        self.0.push(Cgroup {
            path: path.to_owned(),
            current: BasePages::ZERO,
            max: None,
        });
        index
    }

    pub(crate) fn set_max(&mut self, cgroup: CgroupIndex, max: Option<BasePages>) {
        self.0[cgroup.index()].max = max;
    }

    pub(crate) fn current(&self, cgroup: CgroupIndex) -> BasePages {
        self.0[cgroup.index()].current
    }

    pub(crate) fn has_room(&self, cgroup: CgroupIndex, pages: BasePages) -> bool {
        let cgroup = &self.0[cgroup.index()];
        cgroup.max.is_none_or(|max| cgroup.current + pages <= max)
    }

    pub(crate) fn charge(&mut self, cgroup: CgroupIndex, pages: BasePages) {
        self.0[cgroup.index()].current += pages;
    }

    pub(crate) fn uncharge(&mut self, cgroup: CgroupIndex, pages: BasePages) {
        let current = &mut self.0[cgroup.index()].current;
        *current = current.checked_sub(pages).expect("charged before");
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = CgroupIndex> {
        (0..u32::try_from(self.0.len()).expect("few cgroups")).map(CgroupIndex)
    }

    pub(crate) fn observed(&self, cgroup: CgroupIndex, geometry: &Geometry) -> CgroupObserved {
        let state = &self.0[cgroup.index()];
        CgroupObserved {
            cgroup: cgroup.id(),
            path: state.path.clone(),
            current: geometry.bytes(state.current),
            high: None,
            max: state.max.map(|pages| geometry.bytes(pages)),
            anon_thp: None,
            pressure: None,
        }
    }
}
