//! `hugepilot pool explain`: whether a mapping would succeed now, and why, in words.

use super::amount;
use super::list::mount_words;
use super::words::{pages, pages_of};
use super::{pool_of, pools, print};
use crate::failure::Usage;
use crate::text;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Bytes;
use hugepilot_linux::pool::mounts::{self, Mount};
use hugepilot_linux::pool::room::{Answer, Lowest, Room};
use hugepilot_linux::pool::{PageSize, Pool, cgroups};
use hugepilot_linux::procfs::{self, ProcRoot, SysRoot, status};
use std::process::ExitCode;

/// `hugepilot pool explain`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot pool explain\n  hugepilot pool explain 2M --length 1G\n  sudo hugepilot pool explain 1G --length 4G --pid 1234\n\nWith --length, exit code 1 if that mapping would be refused, or killed by its faults."
)]
pub struct Args {
    /// The size of the pages; all pools without it
    #[arg(value_name = "SIZE", value_parser = amount::size)]
    size: Option<PageSize>,
    /// The length of the mapping, rounded up to whole pages
    #[arg(long, value_name = "BYTES", value_parser = length)]
    length: Option<Bytes>,
    /// Who would map it: its cgroup and nodes count; hugepilot's own without it
    #[arg(long, value_name = "PID", value_parser = text::pid)]
    pid: Option<Pid>,
}

/// The kernel maps nothing of no length.
fn length(text: &str) -> Result<Bytes, String> {
    match text::bytes(text)? {
        Bytes::ZERO => Err("a mapping has one byte at least".to_owned()),
        length => Ok(length),
    }
}

/// Runs it.
///
/// # Errors
/// If something cannot be read, or there is no such pool or process.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (sys, proc) = (SysRoot::default(), ProcRoot::default());
    let pools = pools(&sys)?;
    let asked: Vec<&Pool> = match args.size {
        Some(size) => vec![pool_of(&pools, size)?],
        None => pools.iter().collect(),
    };
    let mounts = mounts::all(&proc)?;
    let mut text = String::new();
    let mut refused = false;
    for pool in asked {
        let room = room(&proc, pool, args.pid)?;
        let answer = args.length.map(|length| {
            let pages = pool.size.pages_for(length);
            (pages, room.answer(pages))
        });
        refused |= answer.is_some_and(|(_, answer)| !may_succeed(answer));
        text += &(render(pool, &room, &mounts, answer).join("\n  ") + "\n");
    }
    print(&text)?;
    Ok(ExitCode::from(u8::from(refused)))
}

/// The room that a process has.
fn room(proc: &ProcRoot, pool: &Pool, pid: Option<Pid>) -> anyhow::Result<Room> {
    let who = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let path = proc.system(&who).join("status");
    let gone = |error: hugepilot_linux::error::Error| {
        if error.is_gone() {
            Usage::error(format!("there is no process {who}"))
        } else {
            error.into()
        }
    };
    let text = procfs::read(&path).map_err(gone)?;
    let status = procfs::understood(&path, status::parse(&text))?;
    let groups = cgroups::above(proc, &who, pool.size).map_err(gone)?;
    Ok(Room::of(pool, &groups, status.nodes_allowed.as_deref()))
}

const fn may_succeed(answer: Answer) -> bool {
    match answer {
        Answer::Succeeds | Answer::Perhaps { .. } => true,
        Answer::RefusedByPool
        | Answer::RefusedByNodes
        | Answer::RefusedByCgroup
        | Answer::KilledByCgroup => false,
    }
}

fn render(
    pool: &Pool,
    room: &Room,
    mounts: &[Mount],
    answer: Option<(u64, Answer)>,
) -> Vec<String> {
    let mut said = vec![format!("{} pages:", pool.size)];
    said.extend(answer.map(|(pages, answer)| judged(pool.size, room, pages, answer)));
    said.push(format!(
        "{} free, less {} promised to mappings that have not touched them: {} to be had now",
        pages(pool.counters.free),
        pool.reserved,
        pages_of(room.available, pool.size)
    ));
    said.push(surplus(pool, room));
    said.extend(room.free_on_allowed.map(|free| {
        format!(
            "on the nodes that the process may use, {} free",
            pages(free)
        )
    }));
    said.extend(room.reservations.as_ref().map(|lowest| {
        limit(
            lowest,
            "reserve",
            "beyond that a mapping is refused (ENOMEM)",
        )
    }));
    said.extend(
        room.pages
            .as_ref()
            .map(|lowest| limit(lowest, "use", "beyond that a fault kills (SIGBUS)")),
    );
    said.push(mounted(pool.size, mounts));
    said.push("MAP_NORESERVE mappings always succeed, and are killed (SIGBUS) by the first fault that finds no page".to_owned());
    said
}

fn surplus(pool: &Pool, room: &Room) -> String {
    match (pool.overcommit, room.surplus_left) {
        (0, _) => "no surplus pages are allowed (overcommit is 0)".to_owned(),
        (overcommit, left) => format!(
            "up to {} more as surplus, if the kernel finds memory for them at that moment (overcommit {overcommit}, {} there)",
            pages(left),
            pool.counters.surplus
        ),
    }
}

fn limit(lowest: &Lowest, verb: &str, consequence: &str) -> String {
    format!(
        "cgroup {} may {verb} {}, {} left: {consequence}",
        lowest.path,
        lowest.max,
        pages(lowest.left)
    )
}

fn mounted(size: PageSize, mounts: &[Mount]) -> String {
    let of_size = mounts.iter().filter(|mount| mount.size == Some(size));
    let places: Vec<String> = of_size
        .map(|mount| format!("{}{}", mount.at.display(), mount_words(mount)))
        .collect();
    if places.is_empty() {
        format!(
            "no hugetlbfs of this size is mounted: files need one (`hugepilot pool mount --size {} DIR`), MAP_HUGETLB, memfd_create and shmget do not",
            size.short()
        )
    } else {
        format!("files: hugetlbfs at {}", places.join(", "))
    }
}

fn judged(size: PageSize, room: &Room, count: u64, answer: Answer) -> String {
    let what = format!("a mapping of {}", pages_of(count, size));
    let cgroup = |lowest: &Option<Lowest>| {
        lowest
            .as_ref()
            .map_or(String::new(), |lowest| format!(" {}", lowest.path))
    };
    match answer {
        Answer::Succeeds => format!("{what} succeeds now"),
        Answer::Perhaps { surplus } => format!(
            "{what} succeeds if the kernel finds memory for {} of surplus at that moment",
            pages(surplus)
        ),
        Answer::RefusedByPool => format!(
            "{what} is refused (ENOMEM): {} missing; `hugepilot pool grow {} +{0}` adds them",
            count - room.available - room.surplus_left,
            size.short()
        ),
        Answer::RefusedByNodes => format!(
            "{what} is refused (ENOMEM): the nodes that the process may use have not so many free; grow the pool there (N@NODE)"
        ),
        Answer::RefusedByCgroup => format!(
            "{what} is refused (ENOMEM): cgroup{} may not reserve so many; raise hugetlb.{}.rsvd.max",
            cgroup(&room.reservations),
            size.of_cgroups()
        ),
        Answer::KilledByCgroup => format!(
            "{what} succeeds, but touching all of it kills the process (SIGBUS): cgroup{} may not use so many; raise hugetlb.{}.max",
            cgroup(&room.pages),
            size.of_cgroups()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::shown;
    use super::*;

    fn said(change: impl Fn(&mut Pool), groups: &[cgroups::Group], count: u64) -> String {
        let mut shown = shown();
        change(&mut shown.pools[0]);
        let pool = &shown.pools[0];
        let room = Room::of(pool, groups, None);
        let answer = room.answer(count);
        render(pool, &room, &shown.mounts, Some((count, answer))).join("\n")
    }

    #[test]
    fn a_mapping_that_fits_succeeds() {
        let said = said(|_| {}, &[], 3);
        for part in [
            "3 pages of 2 MiB (6 MiB) succeeds now",
            "5 pages free, less 2",
            "/dev/hugepages",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }

    #[test]
    fn what_is_missing_is_counted() {
        let said = said(|pool| pool.overcommit = 0, &[], 10);
        for part in [
            "is refused (ENOMEM): 7 missing",
            "grow 2M +7",
            "overcommit is 0",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }

    #[test]
    fn surplus_is_no_promise() {
        let said = said(|pool| pool.overcommit = 4, &[], 5);
        assert!(
            said.contains("finds memory for 2 pages of surplus"),
            "{said}"
        );
    }

    #[test]
    fn a_cgroup_is_named() {
        let groups = shown().groups.list;
        let said = said(|pool| pool.overcommit = 8, &groups, 7);
        assert!(
            said.contains("kills the process (SIGBUS): cgroup /db"),
            "{said}"
        );
        assert!(said.contains("raise hugetlb.2MB.max"), "{said}");
    }

    #[test]
    fn without_a_mount_it_says_who_needs_one() {
        let shown = shown();
        let said = mounted(shown.pools[0].size, &[]);
        assert!(said.contains("pool mount --size 2M"), "{said}");
    }
}
