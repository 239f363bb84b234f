//! What the program of the proof does, and what the metrics must then be, worked out by hand from their definitions.

/// Loads of one thread: node, first page, pages, eighths of [`LOADS`](super::LOADS).
pub type Item = (usize, usize, usize, u64);

/// What the metrics at one grain must be.
pub struct Pages {
    pub count: u64,
    pub pamup: f64,
    pub nhp: u64,
    pub psp_threads: f64,
}

pub struct Phase {
    pub name: &'static str,
    /// Of each thread; thread N runs on node N.
    pub threads: [&'static [Item]; 4],
    pub lar: f64,
    pub imbalance: f64,
    pub base_pages: Pages,
    pub huge_pages: Pages,
    /// Share of the accesses that goes to memory, where the caches' sizes tell.
    pub dram: Option<f64>,
}

pub const PHASES: [Phase; 6] = [
    Phase {
        name: "everybody at home",
        threads: [
            &[(0, 0, 512, 8)],
            &[(1, 0, 512, 8)],
            &[(2, 0, 512, 8)],
            &[(3, 0, 512, 8)],
        ],
        lar: 1.0,
        imbalance: 0.0,
        base_pages: Pages {
            count: 2048,
            pamup: 1.0 / 2048.0,
            nhp: 0,
            psp_threads: 0.0,
        },
        huge_pages: Pages {
            count: 4,
            pamup: 0.25,
            nhp: 4,
            psp_threads: 0.0,
        },
        dram: None,
    },
    Phase {
        name: "all on one node, falsely shared",
        threads: [
            &[(0, 0, 128, 8)],
            &[(0, 128, 128, 8)],
            &[(0, 256, 128, 8)],
            &[(0, 384, 128, 8)],
        ],
        lar: 0.25,
        // Loads 4, 0, 0, 0: mean 1, deviation the root of 3.
        imbalance: 1.732_050_8,
        base_pages: Pages {
            count: 512,
            pamup: 1.0 / 512.0,
            nhp: 0,
            psp_threads: 0.0,
        },
        huge_pages: Pages {
            count: 1,
            pamup: 1.0,
            nhp: 1,
            psp_threads: 1.0,
        },
        dram: None,
    },
    Phase {
        name: "all shared, unevenly",
        threads: [&UNEVEN; 4],
        // Each thread loads 4, 2, 1, 1 eighths from nodes 0 to 3.
        lar: 0.25,
        // Shares 4, 2, 1, 1 of eight: the root of 3/8.
        imbalance: 0.612_372_4,
        base_pages: Pages {
            count: 1024,
            pamup: 0.5 / 256.0,
            nhp: 0,
            psp_threads: 1.0,
        },
        huge_pages: Pages {
            count: 4,
            pamup: 0.5,
            nhp: 4,
            psp_threads: 1.0,
        },
        dram: None,
    },
    Phase {
        name: "a hot page",
        threads: [
            &[(1, 0, 1, 4), (0, 1024, 128, 4)],
            &[(1, 0, 1, 4), (1, 1024, 128, 4)],
            &[(1, 0, 1, 4), (2, 1024, 128, 4)],
            &[(1, 0, 1, 4), (3, 1024, 128, 4)],
        ],
        lar: 0.625,
        // Shares 1, 5, 1, 1 of eight: the root of 3/4.
        imbalance: 0.866_025_4,
        base_pages: Pages {
            count: 513,
            pamup: 0.5,
            nhp: 1,
            psp_threads: 0.5,
        },
        huge_pages: Pages {
            count: 5,
            pamup: 0.5,
            nhp: 5,
            psp_threads: 0.5,
        },
        dram: None,
    },
    Phase {
        name: "streams that no cache holds",
        threads: [
            &[(0, 0, 4096, 8)],
            &[(1, 0, 4096, 8)],
            &[(2, 0, 4096, 8)],
            &[(3, 0, 4096, 8)],
        ],
        lar: 1.0,
        imbalance: 0.0,
        base_pages: Pages {
            count: 16_384,
            pamup: 1.0 / 16_384.0,
            nhp: 0,
            psp_threads: 0.0,
        },
        huge_pages: Pages {
            count: 32,
            pamup: 1.0 / 32.0,
            nhp: 0,
            psp_threads: 0.0,
        },
        dram: Some(1.0),
    },
    Phase {
        name: "a page that every cache holds, on the next node",
        threads: [
            &[(1, 9, 1, 8)],
            &[(2, 9, 1, 8)],
            &[(3, 9, 1, 8)],
            &[(0, 9, 1, 8)],
        ],
        lar: 0.0,
        imbalance: 0.0,
        base_pages: Pages {
            count: 4,
            pamup: 0.25,
            nhp: 4,
            psp_threads: 0.0,
        },
        huge_pages: Pages {
            count: 4,
            pamup: 0.25,
            nhp: 4,
            psp_threads: 0.0,
        },
        dram: Some(0.0),
    },
];

const UNEVEN: [Item; 4] = [
    (0, 512, 256, 4),
    (1, 512, 256, 2),
    (2, 512, 256, 1),
    (3, 512, 256, 1),
];
