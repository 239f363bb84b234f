use super::*;
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{CpuId, ObjectId, Pid};
use hugepilot_core::observation::{NodeObserved, SlotObserved};
use hugepilot_core::sample::{Samples, ServedBy};
use hugepilot_core::units::Bytes;

const HOT: Ratio = Ratio::percent(6);
const G: Geometry = Geometry::X86_64;

fn process() -> ProcessId {
    ProcessId {
        pid: Pid(7),
        start_ticks: 1,
    }
}

fn slot(index: u64) -> SlotId {
    SlotId {
        object: ObjectId::Private(process()),
        index,
    }
}

fn node(node: u16) -> NodeObserved {
    NodeObserved {
        node: NodeId(node),
        total: Bytes::gib(1),
        free: Bytes::gib(1),
        free_blocks: Vec::new(),
        controller_requests: None,
        cpus: 1,
        distances: Vec::new(),
    }
}

/// An access by the thread of `from` to a page that lies on node 0.
fn sample(from: u16, slot_index: u64, page: u64) -> Sample {
    Sample {
        process: process(),
        thread: Tid(u32::from(from) + 100),
        cpu: CpuId(u32::from(from)),
        cpu_node: NodeId(from),
        slot: slot(slot_index),
        base_page: BasePages(page),
        page_node: Some(NodeId(0)),
        served_by: ServedBy::Dram,
        rate: Some(10.0),
        sampler: Sampler::Virtual,
    }
}

fn seen(nodes: u16, taken: Vec<Sample>) -> (World, Gathered) {
    let huge = Backing::uniform(G.slot_order, G.slot_pages());
    let observation = Observation {
        checkpoint: true,
        nodes: (0..nodes).map(node).collect(),
        slots: vec![SlotObserved::new(slot(1), huge)],
        samples: Samples {
            taken,
            sampler: Some(Sampler::Virtual),
            ..Samples::default()
        },
        ..Observation::default()
    };
    let mut world = World::new(G);
    world.fold(&observation);
    let mut gathered = Gathered::default();
    gathered.take(&world, &observation);
    (world, gathered)
}

/// Two nodes on alternate base pages of one huge page.
fn alternate() -> Vec<Sample> {
    (0..400)
        .map(|at| sample(u16::from(at % 2 == 1), 1, at % 32))
        .collect()
}

#[test]
fn a_falsely_shared_page_is_found_with_its_threads() {
    let (world, gathered) = seen(2, alternate());
    let view = View::of(&gathered, &world, HOT).expect("two nodes");
    assert_eq!(view.shared.len(), 1);
    let shared = &view.shared[0];
    assert!(
        (shared.placed - 0.5).abs() < 1e-9 && (shared.split - 1.0).abs() < 1e-9,
        "{shared:?}"
    );
    let threads: Vec<(u32, usize)> = shared
        .threads
        .iter()
        .map(|((_, tid), pages)| (tid.0, *pages))
        .collect();
    assert_eq!(threads, [(100, 16), (101, 16)]);
    let lar = view.lar.expect("known").value;
    assert!((lar - 0.5).abs() < 1e-9, "{lar}");
}

#[test]
fn a_hot_page_is_listed_with_what_makes_it_hot() {
    let mut taken = alternate();
    taken.extend((0..400).map(|_| sample(0, 1, 5)));
    let (world, gathered) = seen(2, taken);
    let view = View::of(&gathered, &world, HOT).expect("two nodes");
    assert_eq!(view.hot[0].parts[0].0, BasePages(5));
    let text = lines(Some(&view)).join("\n");
    assert!(text.contains("page 5"), "{text}");
    assert_eq!(json(Some(&view))["hot"][0]["base_pages"][0]["page"], 5);
}

#[test]
fn one_node_is_one_line() {
    let (world, gathered) = seen(1, alternate());
    assert!(View::of(&gathered, &world, HOT).is_none());
    assert_eq!(lines(None).len(), 1);
    assert!(json(None).is_null());
}

#[test]
fn without_samples_nothing_is_claimed() {
    let (world, gathered) = seen(2, Vec::new());
    let view = View::of(&gathered, &world, HOT).expect("two nodes");
    assert_eq!((view.lar, view.shared.len(), view.hot.len()), (None, 0, 0));
    assert_eq!(lines(Some(&view)).len(), 1);
}

#[test]
fn old_samples_give_way() {
    let (world, mut gathered) = seen(2, alternate());
    for seconds in [11, 22] {
        let later = Observation {
            at: Instant(0).after(Span::secs(seconds)),
            samples: Samples {
                taken: vec![sample(0, 1, 1)],
                ..Samples::default()
            },
            ..Observation::default()
        };
        gathered.take(&world, &later);
    }
    assert_eq!(
        View::of(&gathered, &world, HOT)
            .expect("two nodes")
            .samples
            .0,
        1
    );
}
