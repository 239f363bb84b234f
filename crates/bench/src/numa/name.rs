//! The workloads by name, each with the published program whose shape it has.

use serde::{Deserialize, Serialize};

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// One thread touches, all use.
    FirstTouch,
    /// A hot shared vector beside large private streams.
    HotVector,
    /// Private data of several threads in one huge page.
    FalseSharing,
    /// The same, with owners that change.
    FalseSharingPhases,
    /// A table used by all.
    HashTable,
    /// Private buffers, allocated and given back all the time.
    MapReduce,
    /// Hot spots of one 1 GiB page.
    HotGigantic,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FirstTouch,
        Self::HotVector,
        Self::FalseSharing,
        Self::FalseSharingPhases,
        Self::HashTable,
        Self::MapReduce,
        Self::HotGigantic,
    ];

    /// As on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstTouch => "first-touch",
            Self::HotVector => "hot-vector",
            Self::FalseSharing => "false-sharing",
            Self::FalseSharingPhases => "false-sharing-phases",
            Self::HashTable => "hash-table",
            Self::MapReduce => "map-reduce",
            Self::HotGigantic => "hot-gigantic",
        }
    }

    /// What it does, and its published counterpart.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::FirstTouch => {
                "One thread touches all memory first, then each uses its own part of it (SP.B, pca and EPC in \
                 Carrefour-LP's figure 5: ill placed with either page size)"
            }
            Self::HotVector => {
                "A vector of half as many huge pages as nodes, gathered at random by all, beside large private streams \
                 (CG.D of NPB: hot pages)"
            }
            Self::FalseSharing => {
                "Data of each thread alone, interleaved at 256 KiB, so that a huge page holds that of eight; a tenth of \
                 the accesses go to a neighbour's (UA.B, UA.C of NPB: page-level false sharing)"
            }
            Self::FalseSharingPhases => {
                "The same, with owners that change every few intervals (UA's refinement of its mesh)"
            }
            Self::HashTable => {
                "One table, looked up and counted in at random by all (SSCA, SPECjbb: shared, whatever the page size)"
            }
            Self::MapReduce => {
                "Each thread fills fresh buffers of its own, reads its share of everybody's, gives its own back (Metis, \
                 WC and WR: faults)"
            }
            Self::HotGigantic => {
                "Spots of 512 KiB in one 1 GiB page, used at random by all (Carrefour-LP 4.4: SSCA and streamcluster \
                 on 1 GiB pages); needs a free 1 GiB page or --backing ordinary"
            }
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_on_the_command_line_and_in_json() {
        for name in Name::ALL {
            let json = serde_json::to_string(&name).expect("a name");
            assert_eq!(json, format!("\"{name}\""));
        }
    }
}
