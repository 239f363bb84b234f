//! What a workload says, for people. Pure.

use hugepilot_bench::numa::Event;
use hugepilot_bench::numa::event::Figures;
use hugepilot_bench::numa::placement::Placement;
use hugepilot_bench::numa::spec::Spec;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Ratio;

/// An event as lines, ends included.
pub fn of(event: &Event) -> String {
    match event {
        Event::Begins {
            spec, virtual_pmu, ..
        } => begins(spec, *virtual_pmu),
        Event::Interval {
            interval,
            window,
            accesses,
            placement,
        } => {
            let window = window.map_or(String::new(), |window| format!(", window {window}"));
            format!(
                "interval {interval}: {accesses} accesses{window}; {}\n",
                whereabouts(placement)
            )
        }
        Event::Done(figures) => done(figures),
    }
}

fn begins(spec: &Spec, virtual_pmu: bool) -> String {
    let nodes = match spec.nodes() {
        1 => "one node".to_owned(),
        nodes => format!("{nodes} nodes"),
    };
    let judge = if virtual_pmu {
        "the virtual PMU counts"
    } else {
        "no virtual PMU here: nobody counts accesses, what is shown is where the memory is"
    };
    format!(
        "{}: {}\n{} in {} threads on {nodes}, {} intervals of {} accesses a thread, seed {}; {judge}\n",
        spec.name,
        spec.name.about(),
        spec.bytes,
        spec.threads(),
        spec.intervals,
        spec.accesses,
        spec.seed,
    )
}

fn whereabouts(placement: &Placement) -> String {
    let huge = Ratio::of(placement.huge_bytes.0, placement.present_bytes.0);
    let mut text = format!("{} present, {huge} of it huge", placement.present_bytes);
    if let Some(pages) = &placement.pages {
        for (node, pages) in pages {
            text.push_str(&format!(
                ", {} on node {node}",
                Geometry::X86_64.bytes(*pages)
            ));
        }
    }
    text
}

fn done(figures: &Figures) -> String {
    let verdict = if figures.right() {
        "every byte is right".to_owned()
    } else {
        format!(
            "WRONG: {} words, {} updates too few or too many",
            figures.wrong, figures.updates_lost
        )
    };
    format!(
        "{} accesses, {} of them updates, checksum {:#018x}: {verdict}\n",
        figures.accesses, figures.updates, figures.checksum
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_not_overlooked() {
        let right = Figures {
            accesses: 3,
            updates: 1,
            ..Figures::default()
        };
        assert!(done(&right).contains("every byte is right"));
        assert!(done(&Figures { wrong: 1, ..right }).contains("WRONG: 1 words"));
        assert!(
            done(&Figures {
                updates_lost: 1,
                ..right
            })
            .contains("WRONG")
        );
    }

    #[test]
    fn memory_is_shown_by_node_where_there_are_nodes() {
        use hugepilot_core::units::{BasePages, Bytes};
        let mut placement = Placement {
            present_bytes: Bytes::mib(4),
            huge_bytes: Bytes::mib(2),
            pages: None,
        };
        assert_eq!(whereabouts(&placement), "4 MiB present, 50.0 % of it huge");
        placement.pages = Some([(0, BasePages(512)), (3, BasePages(512))].into());
        assert!(whereabouts(&placement).ends_with(", 2 MiB on node 0, 2 MiB on node 3"));
    }
}
