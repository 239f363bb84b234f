//! `hugepilot pool list`: the pools, who holds their pages, limits and mounts.

use super::{list_json, pools, print};
use hugepilot_linux::pool::cgroups::{self, Group, Groups, Limit};
use hugepilot_linux::pool::holders::{self, Holders};
use hugepilot_linux::pool::mounts::{self, Mount};
use hugepilot_linux::pool::{Counters, PageSize, Pool};
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use std::fmt::Write;
use std::process::ExitCode;

/// `hugepilot pool list`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot pool list\n  sudo hugepilot pool list --json | jq '.pools'\n\nWithout root, other users' mappings are not seen."
)]
pub struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// All that is shown.
pub struct Shown {
    pub pools: Vec<Pool>,
    pub holders: Holders,
    pub groups: Groups,
    pub mounts: Vec<Mount>,
}

impl Shown {
    fn read() -> anyhow::Result<Self> {
        let (sys, proc) = (SysRoot::default(), ProcRoot::default());
        let pools = pools(&sys)?;
        let sizes: Vec<PageSize> = pools.iter().map(|pool| pool.size).collect();
        // Of an empty pool nobody holds anything, and so nobody's page tables are walked.
        let is_used = pools.iter().any(|pool| pool.counters.total > 0);
        Ok(Self {
            holders: if is_used {
                holders::find(&proc, &sizes)?
            } else {
                Holders::default()
            },
            groups: cgroups::all(&proc, &sizes)?,
            mounts: mounts::all(&proc)?,
            pools,
        })
    }

    /// Pages in use that no mapping accounts for, in bytes: files that nobody maps, or processes that were not seen.
    pub fn unaccounted(&self, pool: &Pool) -> hugepilot_core::units::Bytes {
        let used = pool.size.times(pool.counters.in_use());
        match self.holders.accounted.get(&pool.size) {
            // A page shared by fork is accounted for twice.
            Some(&accounted) => used.growth_since(accounted),
            None => used,
        }
    }
}

/// Runs it.
///
/// # Errors
/// If something cannot be read.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = Shown::read()?;
    let text = if args.json {
        list_json::render(&shown)?
    } else {
        render(&shown)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(shown: &Shown) -> String {
    let mut text = row(
        "size",
        [
            "minimum", "current", "maximum", "free", "reserved", "surplus",
        ],
    );
    for pool in &shown.pools {
        text += &pool_rows(pool);
    }
    text += &holders_of(shown);
    text += &groups_of(&shown.groups);
    text += &mounts_of(&shown.mounts);
    text
}

fn row(name: &str, cells: [&str; 6]) -> String {
    let mut line = format!("{name:<10}");
    for cell in cells {
        write!(line, " {cell:>9}").expect("writing to a String cannot fail");
    }
    line.trim_end().to_owned() + "\n"
}

fn pool_rows(pool: &Pool) -> String {
    let counted = |name: &str, counters: Counters, maximum: &str, reserved: &str| {
        let [minimum, total] = [counters.minimum(), counters.total].map(|pages| pages.to_string());
        let [free, surplus] = [counters.free, counters.surplus].map(|pages| pages.to_string());
        row(name, [&minimum, &total, maximum, &free, reserved, &surplus])
    };
    let maximum = match pool.maximum() {
        u64::MAX => "no limit".to_owned(),
        pages => pages.to_string(),
    };
    let reserved = pool.reserved.to_string();
    let mut rows = counted(&pool.size.to_string(), pool.counters, &maximum, &reserved);
    if pool.nodes.len() > 1 {
        for part in &pool.nodes {
            rows += &counted(&format!("  node {}", part.node.0), part.counters, "", "");
        }
    }
    rows
}

fn holders_of(shown: &Shown) -> String {
    let mut text = String::new();
    let holders = &shown.holders;
    if !holders.list.is_empty() {
        text += "\nprocess            pid   page size       private    shared  untouched\n";
    }
    for one in &holders.list {
        let [private, shared, untouched] =
            [one.held.private, one.held.shared, one.held.untouched].map(|bytes| bytes.to_string());
        let size = one.size.to_string();
        let (comm, pid) = (&one.comm, one.pid.0);
        writeln!(
            text,
            "{comm:<15} {pid:>6} {size:>11} {private:>13} {shared:>9} {untouched:>10}"
        )
        .expect("writing to a String cannot fail");
    }
    for pool in &shown.pools {
        let rest = shown.unaccounted(pool);
        if rest.0 > 0 {
            text += &format!(
                "at least {rest} of the {} pages in use are in no mapping seen: files that nobody maps, or processes that we may not look at\n",
                pool.size
            );
        }
    }
    if !holders.hidden.is_empty() {
        let pids: Vec<String> = holders.hidden.iter().map(ToString::to_string).collect();
        text += &format!(
            "have such pages, but we may not see which: pid {}\n",
            pids.join(", ")
        );
    }
    if holders.unseen > 0 {
        text += &format!(
            "not seen: mappings that were never touched, of {} processes that we may not look into; root may look into other users'\n",
            holders.unseen
        );
    }
    text
}

fn groups_of(groups: &Groups) -> String {
    let mut text = String::new();
    if !groups.list.is_empty() {
        text += "\ncgroup\n";
    }
    for group in &groups.list {
        text += &group_line(group);
    }
    if groups.bounded {
        text += &format!(
            "more than {} cgroups: the rest is not shown\n",
            cgroups::GROUPS_MAX
        );
    }
    text
}

fn group_line(group: &Group) -> String {
    let limit = |limit: Limit| match limit.max {
        Some(max) => format!("{} of {max}", limit.current),
        None => format!("{}, no limit", limit.current),
    };
    let mut line = format!(
        "{}: {} pages: {}",
        group.path,
        group.size,
        limit(group.pages)
    );
    if let Some(reservations) = group.reservations {
        line += &format!("; reserved: {}", limit(reservations));
    }
    if group.hits > 0 {
        line += &format!("; hit the limit {} times", group.hits);
    }
    line + "\n"
}

fn mounts_of(mounts: &[Mount]) -> String {
    let mut text = String::new();
    for mount in mounts {
        text += &format!(
            "\nhugetlbfs at {}{}",
            mount.at.display(),
            mount_words(mount)
        );
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// ` (2 MiB pages, 1 GiB at the most)`
pub fn mount_words(mount: &Mount) -> String {
    let size = mount.size.map(|size| format!("{size} pages"));
    let most = mount.most.map(|most| format!("{most} at the most"));
    let words: Vec<String> = size.into_iter().chain(most).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(", "))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use hugepilot_core::ids::{NodeId, Pid};
    use hugepilot_core::units::Bytes;
    use hugepilot_linux::pool::NodePool;
    use hugepilot_linux::pool::holders::{Held, Holder};
    use hugepilot_linux::procfs::cgroup::Version;

    /// Eight pages on two nodes, 3 in use, 2 of them by a database.
    pub fn shown() -> Shown {
        let size = PageSize::new(Bytes::mib(2)).expect("a power of two");
        let counters = |total, free, surplus| Counters {
            total,
            free,
            surplus,
        };
        let part = |node, counters| NodePool {
            node: NodeId(node),
            counters,
        };
        let holder = Holder {
            pid: Pid(42),
            comm: "db".to_owned(),
            size,
            held: Held {
                mapped: Bytes::mib(8),
                private: Bytes::ZERO,
                shared: Bytes::mib(4),
                untouched: Bytes::mib(4),
            },
        };
        let limit = |max| Limit {
            max,
            current: Bytes::mib(4),
        };
        let group = Group {
            path: "/db".to_owned(),
            version: Version::V2,
            size,
            pages: limit(Some(Bytes::mib(16))),
            reservations: Some(limit(None)),
            hits: 1,
        };
        let mount = Mount {
            at: "/dev/hugepages".into(),
            size: Some(size),
            most: None,
        };
        Shown {
            pools: vec![Pool {
                size,
                counters: counters(8, 5, 1),
                reserved: 2,
                overcommit: u64::MAX,
                divides_into: None,
                nodes: vec![part(0, counters(6, 3, 1)), part(1, counters(2, 2, 0))],
            }],
            holders: Holders {
                list: vec![holder],
                accounted: [(size, Bytes::mib(4))].into(),
                hidden: vec![Pid(7)],
                unseen: 3,
            },
            groups: Groups {
                list: vec![group],
                bounded: false,
            },
            mounts: vec![mount],
        }
    }

    #[test]
    fn everything_is_in_the_table() {
        let text = render(&shown());
        for part in [
            "2 MiB              7         8  no limit         5         2         1",
            "  node 1           2         2                   2                   0",
            "db                  42       2 MiB           0 B     4 MiB      4 MiB",
            "at least 2 MiB of the 2 MiB pages in use are in no mapping",
            "pid 7",
            "of 3 processes that we may not look into",
            "/db: 2 MiB pages: 4 MiB of 16 MiB; reserved: 4 MiB, no limit; hit the limit 1 times",
            "hugetlbfs at /dev/hugepages (2 MiB pages)",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn one_node_is_not_told_twice() {
        let mut shown = shown();
        shown.pools[0].nodes.truncate(1);
        assert!(!render(&shown).contains("node 0"));
    }
}
