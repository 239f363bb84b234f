//! Page-level false sharing from end to end: two threads of two nodes on alternate base pages under huge pages. What is
//! judged is where the simulator's frames lie and who accesses them, not what the policy thinks.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{NodeId, ObjectId, SlotId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::plan::{Accounted, Planned};
use hugepilot_core::policy::Settings;
use hugepilot_core::sample::{Sample, Sampler};
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{BasePages, Bytes, Span};
use hugepilot_sim::{Area, Config, Contents, Sim, ThpMode};
use std::collections::BTreeMap;

const GEOMETRY: Geometry = Geometry::X86_64;
/// So many that no one is hot: a huge page has 4 % of all accesses.
const SLOTS: u64 = 24;
const PAGES: u64 = SLOTS * 512;
/// Samples ordered: every access of a round, since the simulator drops the last ones first.
const ORDER: u32 = 100_000;
/// Rounds in which it must be done.
const ROUNDS_MAX: u64 = 10;

struct Run {
    sim: Sim,
    area: Area,
    pilot: Pilot,
    looks: Vec<Look>,
    done: Vec<Planned>,
    /// Samples are thinned to what hinting faults would show.
    hinting: bool,
    ticks: usize,
}

/// Which node's thread uses base page `page`.
type Pattern = fn(page: u64) -> u16;

const fn alternate(page: u64) -> u16 {
    if page % 2 == 0 { 0 } else { 1 }
}

/// Each slot is one thread's own, and lies where it was first touched.
const fn private(page: u64) -> u16 {
    if (page / 512) % 2 == 0 { 0 } else { 1 }
}

impl Run {
    fn new(policy: &str, settings: &Settings, first_touch: Pattern) -> Self {
        let mut sim = Sim::new(Config {
            nodes: vec![Bytes::mib(64), Bytes::mib(64)],
            thp: ThpMode::Always,
            ..Config::default()
        });
        let process = sim.start("test");
        let area = sim.map(process, Bytes::mib(2 * SLOTS)).expect("alive");
        let policy = settings.policy(policy).expect("a known policy");
        let mut run = Self {
            pilot: Pilot::new(GEOMETRY, policy, settings),
            sim,
            area,
            looks: Vec::new(),
            done: Vec::new(),
            hinting: false,
            ticks: 0,
        };
        run.touch(first_touch, |_| true);
        // The first observation is the policy's: it says everything, later ones what changed.
        run.tick(Span::ZERO);
        run
    }

    fn page(&self, page: u64) -> Area {
        self.area.part(&GEOMETRY, BasePages(page), BasePages(1))
    }

    /// Every base page that is `wanted`, from its thread's node.
    fn touch(&mut self, pattern: Pattern, wanted: impl Fn(u64) -> bool) {
        for node in 0..2 {
            let process = self.area.process;
            self.sim.run_on(process, NodeId(node)).expect("alive");
            for page in (0..PAGES).filter(|page| pattern(*page) == node && wanted(*page)) {
                self.sim
                    .write(self.page(page), Contents::Data)
                    .expect("memory is free");
            }
        }
    }

    fn tick(&mut self, span: Span) {
        self.sim.advance(span);
        let Ok(mut seen) = self.sim.observe(&self.looks);
        if self.hinting {
            self.thin(&mut seen.samples.taken);
        }
        let plan = self.pilot.plan(&seen);
        for planned in plan.actions {
            let (outcome, via) = self.sim.act(&planned.action);
            assert_eq!(self.sim.check(), Ok(()));
            if outcome.class == OutcomeClass::Done {
                self.done.push(planned.clone());
            }
            self.pilot.account(&Accounted {
                planned,
                via,
                outcome,
            });
        }
        self.looks = plan.looks;
    }

    /// One sample a page and round, as the page is mapped, without a rate: who, not how often. Which access of a huge page
    /// comes first after a scan is a matter of chance.
    fn thin(&mut self, samples: &mut Vec<Sample>) {
        self.ticks += 1;
        let world = self.pilot.world();
        let mut pages: BTreeMap<(SlotId, Option<BasePages>), Vec<Sample>> = BTreeMap::new();
        for sample in samples.drain(..) {
            let state = world.slots.get(sample.slot);
            let huge = state.is_some_and(|state| state.is_huge(&GEOMETRY));
            let key = (sample.slot, (!huge).then_some(sample.base_page));
            pages.entry(key).or_default().push(sample);
        }
        for (number, of_page) in pages.into_values().enumerate() {
            let chance = ((number * 7919 + self.ticks * 104_729) * 2_654_435_761) >> 9;
            let first = of_page[chance % of_page.len()].clone();
            samples.push(Sample {
                sampler: Sampler::HintingFault,
                rate: None,
                ..first
            });
        }
    }

    /// A round: every base page is accessed twice, and what comes of it is carried out.
    fn round(&mut self, pattern: Pattern) {
        self.touch(pattern, |_| true);
        self.touch(pattern, |_| true);
        self.tick(Span::millis(900));
        for _ in 0..4 {
            self.tick(Span::millis(25));
        }
    }

    /// Share of base pages that lie on the node of their thread.
    fn local_pages(&mut self, pattern: Pattern) -> f64 {
        let mut local = 0_u32;
        let all_of_them = Look::Sample { samples_max: ORDER };
        let Ok(_) = self.sim.observe(&[all_of_them]);
        self.touch(pattern, |_| true);
        let Ok(seen) = self.sim.observe(&[]);
        for sample in &seen.samples.taken {
            local += u32::from(sample.page_node == Some(sample.cpu_node));
        }
        let all = u32::try_from(PAGES).expect("few");
        assert_eq!(
            seen.samples.taken.len(),
            usize::try_from(PAGES).expect("few")
        );
        f64::from(local) / f64::from(all)
    }

    fn huge_slots(&mut self) -> usize {
        let first = self.area.address >> GEOMETRY.slot_shift();
        let looks: Vec<Look> = (first..first + SLOTS)
            .map(|index| SlotId {
                object: ObjectId::Private(self.area.process),
                index,
            })
            .map(Look::Nodes)
            .collect();
        let Ok(seen) = self.sim.observe(&looks);
        let huge = seen
            .slots
            .iter()
            .filter(|slot| slot.is_huge(GEOMETRY.slot_order));
        huge.count()
    }
}

fn settings(preset: &str) -> Settings {
    let mut settings = Settings::default();
    let mut set = |section: &str, field: &str, value: serde_json::Value| {
        settings.set(section, field, &value).expect("a parameter");
    };
    if preset != "ours" {
        set("carrefour-lp", "preset", preset.into());
    }
    set("carrefour", "samples_max", ORDER.into());
    set("carrefour", "samples_close", ORDER.into());
    settings
}

#[test]
fn carrefour_lp_splits_and_places_and_every_access_becomes_local() {
    for preset in ["ours", "paper"] {
        let mut run = Run::new("carrefour-lp", &settings(preset), alternate);
        assert!(
            (run.local_pages(alternate) - 0.5).abs() < 1e-9,
            "half is remote"
        );
        let mut rounds = 0;
        while run.local_pages(alternate) < 0.97 {
            rounds += 1;
            assert!(
                rounds <= ROUNDS_MAX,
                "{preset}: {}",
                run.local_pages(alternate)
            );
            run.round(alternate);
        }
        assert_eq!(run.huge_slots(), 0, "{preset}");
    }
}

#[test]
fn hinting_faults_suffice_since_probes_show_what_is_below() {
    let mut run = Run::new("carrefour-lp", &settings("ours"), alternate);
    run.hinting = true;
    let mut rounds = 0;
    while run.local_pages(alternate) < 0.97 {
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX, "{}", run.local_pages(alternate));
        run.round(alternate);
    }
}

#[test]
fn hinting_faults_split_nothing_that_threads_use_apart() {
    let mut run = Run::new("carrefour-lp", &settings("ours"), private);
    run.hinting = true;
    for _ in 0..ROUNDS_MAX {
        run.round(private);
    }
    assert_eq!(run.huge_slots(), usize::try_from(SLOTS).expect("few"));
}

#[test]
fn carrefour_2m_alone_cannot_help() {
    let mut run = Run::new("carrefour-2m", &settings("paper"), alternate);
    for _ in 0..ROUNDS_MAX {
        run.round(alternate);
    }
    assert!((run.local_pages(alternate) - 0.5).abs() < 1e-9);
    assert_eq!(run.huge_slots(), usize::try_from(SLOTS).expect("few"));
}

#[test]
fn where_threads_keep_to_their_huge_pages_none_is_split() {
    let mut run = Run::new("carrefour-lp", &settings("ours"), private);
    for _ in 0..ROUNDS_MAX {
        run.round(private);
    }
    assert!((run.local_pages(private) - 1.0).abs() < 1e-9);
    assert_eq!(run.huge_slots(), usize::try_from(SLOTS).expect("few"));
}

#[test]
fn huge_pages_that_one_node_uses_are_moved_there_whole() {
    const fn first_touch(_: u64) -> u16 {
        0
    }
    for policy in ["carrefour-2m", "reactive", "carrefour-lp"] {
        let mut run = Run::new(policy, &settings("paper"), first_touch);
        for _ in 0..ROUNDS_MAX {
            run.round(private);
        }
        assert!((run.local_pages(private) - 1.0).abs() < 1e-9, "{policy}");
        assert_eq!(
            run.huge_slots(),
            usize::try_from(SLOTS).expect("few"),
            "{policy}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = || {
        let mut run = Run::new("carrefour-lp", &settings("paper"), alternate);
        for _ in 0..4 {
            run.round(alternate);
        }
        (run.done, run.pilot.policy().state())
    };
    assert_eq!(history(), history());
}

#[test]
fn samples_past_the_order_are_counted_as_lost() {
    let mut run = Run::new("carrefour-2m", &settings("paper"), alternate);
    let Ok(seen) = run.sim.observe(&[Look::Sample { samples_max: 10 }]);
    assert_eq!(
        (seen.samples.taken.len(), seen.samples.lost),
        (0, 0),
        "from now on"
    );
    run.touch(alternate, |page| page < 25);
    let Ok(seen) = run.sim.observe(&[Look::Sample { samples_max: 0 }]);
    assert_eq!((seen.samples.taken.len(), seen.samples.lost), (10, 15));
}
