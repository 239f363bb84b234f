//! What is written is read back, to the last bit.

use hugepilot_core::action::Action;
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{CgroupId, NodeId, ObjectId, Pid, ProcessId, SlotId, SlotRange};
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::observation::{
    Accessed, BlindSpot, CgroupObserved, LookCost, Mapping, MemoryKind, NodeObserved,
    ObjectObserved, Observation, ProcessObserved, Sharing, SlotObserved, ThpConsent, Tracker,
    Unseen,
};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::plan::{Accounted, Law, Plan, Planned, Refused};
use hugepilot_core::policy::Settings;
use hugepilot_core::reason::{AccessedShare, PresentBy, Reason};
use hugepilot_core::units::{BasePages, Bytes, Instant, Ratio, Span};
use hugepilot_trace::{Header, Reader, Tick, VERSION, Writer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn process() -> impl Strategy<Value = ProcessId> {
    (1..4_194_304_u32, any::<u64>()).prop_map(|(pid, start_ticks)| ProcessId {
        pid: Pid(pid),
        start_ticks,
    })
}

fn object() -> impl Strategy<Value = ObjectId> {
    prop_oneof![
        process().prop_map(ObjectId::Private),
        (any::<u64>(), any::<u64>()).prop_map(|(device, inode)| ObjectId::Shared { device, inode }),
    ]
}

fn slot() -> impl Strategy<Value = SlotId> {
    (object(), 0..1_u64 << 43).prop_map(|(object, index)| SlotId { object, index })
}

fn range() -> impl Strategy<Value = SlotRange> {
    (slot(), 1..4096_u64).prop_map(|(slot, count)| SlotRange {
        object: slot.object,
        first: slot.index,
        count,
    })
}

fn ratio() -> impl Strategy<Value = Ratio> {
    (0.0..=1.0_f64).prop_map(Ratio::new)
}

fn pages() -> impl Strategy<Value = BasePages> {
    (0..=512_u64).prop_map(BasePages)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<u64>().prop_map(Bytes)
}

fn span() -> impl Strategy<Value = Span> {
    any::<u64>().prop_map(Span)
}

fn backing() -> impl Strategy<Value = Backing> {
    vec(((0..=18_u8).prop_map(Order), pages()), 0..4).prop_map(Backing::from_entries)
}

fn observed_slot() -> impl Strategy<Value = SlotObserved> {
    let tracker = select(vec![
        Tracker::DamonVirtual,
        Tracker::DamonPhysical,
        Tracker::PageIdle,
    ]);
    let accessed = (ratio(), tracker).prop_map(|(share, tracker)| Accessed { share, tracker });
    let sharing = select(vec![
        Sharing::Unknown,
        Sharing::Exclusive,
        Sharing::ForkShared,
    ]);
    let nodes = vec((any::<u16>().prop_map(NodeId), pages()), 0..3);
    let rest = (
        nodes,
        option::of(accessed),
        sharing,
        any::<Option<bool>>(),
        any::<Option<bool>>(),
    );
    (slot(), backing(), pages(), pages(), rest).prop_map(
        |(
            slot,
            backing,
            zero_mapped,
            swapped,
            (nodes, accessed, sharing, locked, partially_mapped),
        )| SlotObserved {
            slot,
            backing,
            zero_mapped,
            swapped,
            nodes,
            accessed,
            sharing,
            locked,
            partially_mapped,
        },
    )
}

fn observed_process() -> impl Strategy<Value = ProcessObserved> {
    let thp = select(vec![
        ThpConsent::Allowed,
        ThpConsent::ExceptAdvised,
        ThpConsent::Refused,
    ]);
    let counters = (
        any::<u64>(),
        span(),
        any::<Option<u64>>(),
        option::of(ratio()),
    );
    (
        process(),
        "[^\n]{0,15}",
        any::<Option<u64>>(),
        thp,
        any::<u32>(),
        bytes(),
        counters,
    )
        .prop_map(
            |(
                process,
                comm,
                cgroup,
                thp,
                forked_children,
                resident,
                (faults, over, l2_misses, share),
            )| ProcessObserved {
                process,
                comm,
                cgroup: cgroup.map(CgroupId),
                thp,
                forked_children,
                resident,
                faults,
                over,
                l2_misses,
                l2_misses_by_walks: l2_misses,
                fault_time_share_max: share,
                nodes_allowed: None,
            },
        )
}

fn observed_object() -> impl Strategy<Value = ObjectObserved> {
    let kind = select(vec![
        MemoryKind::Anonymous,
        MemoryKind::Shmem,
        MemoryKind::File,
    ]);
    let mapping = (
        process(),
        any::<u64>(),
        bytes(),
        any::<u64>(),
        kind,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(process, address, length, offset, kind, writable, excluded)| Mapping {
                process,
                address,
                length,
                offset,
                kind,
                writable,
                excluded,
                placement_fixed: false,
            },
        );
    (object(), vec(mapping, 0..3))
        .prop_map(|(object, mappings)| ObjectObserved { object, mappings })
}

fn observation() -> impl Strategy<Value = Observation> {
    let node =
        (any::<u16>(), bytes(), vec(any::<u64>(), 0..11)).prop_map(|(node, total, free_blocks)| {
            NodeObserved {
                node: NodeId(node),
                total,
                free: total,
                free_blocks,
                controller_requests: None,
                cpus: 0,
                distances: Vec::new(),
            }
        });
    let cgroup = (any::<u64>(), ".{0,40}", bytes(), option::of(ratio())).prop_map(
        |(id, path, current, pressure)| CgroupObserved {
            cgroup: CgroupId(id),
            path,
            current,
            high: Some(current),
            max: None,
            anon_thp: Some(current),
            pressure,
        },
    );
    let answer = (slot(), pages(), pages()).prop_map(|(slot, read, zero)| Answer::ZeroPages {
        slot,
        read,
        zero,
    });
    let blind = (option::of(process()), ".{0,80}").prop_map(|(process, why)| BlindSpot {
        process,
        what: Unseen::AccessedShare,
        why,
    });
    let who = (
        vec(observed_process(), 0..4),
        vec(process(), 0..3),
        vec(observed_object(), 0..3),
    );
    let what = (
        vec(range(), 0..3),
        vec(observed_slot(), 0..6),
        vec(answer, 0..3),
        vec(blind, 0..2),
    );
    (
        any::<u64>(),
        span(),
        option::of(ratio()),
        vec(node, 0..3),
        vec(cgroup, 0..2),
        who,
        what,
    )
        .prop_map(
            |(
                at,
                interval,
                pressure,
                nodes,
                cgroups,
                (processes, exited, objects),
                (scanned, slots, answers, blind),
            )| {
                Observation {
                    at: Instant(at),
                    interval,
                    checkpoint: true,
                    nodes,
                    pressure,
                    cgroups,
                    processes,
                    exited,
                    objects,
                    scanned,
                    slots,
                    answers,
                    blind,
                    cost: LookCost {
                        cpu: interval,
                        slots: at,
                        ..LookCost::default()
                    },
                    ..Observation::default()
                }
            },
        )
}

fn planned() -> impl Strategy<Value = Planned> {
    let accessed = (ratio(), any::<u8>()).prop_map(|(share, scans)| AccessedShare {
        share,
        scans,
        tracker: Tracker::Simulated,
    });
    let collapse = (slot(), ratio(), ratio(), option::of(accessed)).prop_map(
        |(slot, present, least, accessed)| Planned {
            action: Action::Collapse {
                slot,
                order: Order(9),
            },
            reason: Reason::PresentAndUsed {
                present,
                present_min: least,
                accessed,
                accessed_min: least,
            },
        },
    );
    let split = (slot(), ratio()).prop_map(|(slot, present)| Planned {
        action: Action::Split {
            slot,
            order: Order::BASE,
        },
        reason: Reason::Sparse {
            present,
            present_keep: Ratio::new(0.5),
            by: PresentBy::ZeroLook,
        },
    });
    prop_oneof![collapse, split]
}

fn plan() -> impl Strategy<Value = Plan> {
    let look = prop_oneof![
        range().prop_map(Look::PageTables),
        (slot(), pages()).prop_map(|(slot, pages_max)| Look::ZeroPages { slot, pages_max }),
        (vec(slot(), 0..4), span()).prop_map(|(slots, period)| Look::Track { slots, period }),
        any::<u32>().prop_map(|samples_max| Look::Sample { samples_max }),
    ];
    let refused =
        (planned(), select(Law::ALL.to_vec())).prop_map(|(planned, law)| Refused { planned, law });
    (
        vec(planned(), 0..5),
        vec(look, 0..5),
        vec(refused, 0..3),
        any::<u64>(),
        span(),
    )
        .prop_map(|(actions, looks, refused, refused_total, next_tick)| Plan {
            actions,
            looks,
            refused,
            refused_total,
            next_tick,
        })
}

fn accounted() -> impl Strategy<Value = Accounted> {
    let class = select(OutcomeClass::ALL.to_vec());
    let cause = option::of(select(vec![
        Cause::Pinned,
        Cause::ForkShared,
        Cause::ProcessGone,
    ]));
    (
        planned(),
        option::of(process()),
        class,
        cause,
        span(),
        option::of(observed_slot()),
        bytes(),
    )
        .prop_map(
            |(planned, via, class, cause, took, after, freed)| Accounted {
                planned,
                via,
                outcome: Outcome {
                    class,
                    cause,
                    took,
                    after,
                    freed,
                },
            },
        )
}

fn tick() -> impl Strategy<Value = Tick> {
    (observation(), plan(), vec(accounted(), 0..4)).prop_map(|(observation, plan, outcomes)| Tick {
        observation,
        plan,
        outcomes,
    })
}

fn header() -> Header {
    Header {
        hugepilot_trace: VERSION,
        geometry: Geometry::X86_64,
        policy: "mega".to_owned(),
        settings: Settings::default().values(),
        kernel: "6.12.0".to_owned(),
        started_unix_ms: 1_700_000_000_000,
        dry_run: false,
    }
}

fn write(ticks: &[Tick]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = Writer::new(&mut text, &header(), None).expect("memory takes it");
    for tick in ticks {
        writer.tick(tick.as_ref()).expect("memory takes it");
    }
    drop(writer);
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back(ticks in vec(tick(), 0..4)) {
        let text = write(&ticks);
        let mut reader = Reader::new(text.as_slice()).expect("our own header");
        prop_assert_eq!(reader.header(), &header());
        let read: Vec<Tick> = reader.by_ref().collect::<Result<_, _>>().expect("our own lines");
        prop_assert_eq!(read, ticks);
        prop_assert_eq!(reader.truncated(), None);
    }

    #[test]
    fn a_cut_recording_gives_a_part_of_its_ticks_and_never_panics(
        ticks in vec(tick(), 1..4),
        keep in 0.0..1.0_f64,
    ) {
        let text = write(&ticks);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short text")]
        let length = (text.len() as f64 * keep) as usize;
        if let Ok(reader) = Reader::new(&text[..length]) {
            let read: Vec<Tick> = reader.collect::<Result<_, _>>().expect("only the last line is cut");
            prop_assert_eq!(&read[..], &ticks[..read.len()]);
        }
    }

    #[test]
    fn no_input_makes_the_reader_panic(text in vec(any::<u8>(), 0..200)) {
        if let Ok(reader) = Reader::new(text.as_slice()) {
            let _ticks = reader.count();
        }
    }
}
