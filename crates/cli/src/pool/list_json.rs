//! The same as JSON; documented in docs/json.md. Pure.

use super::list::Shown;
use anyhow::Context;
use hugepilot_linux::pool::cgroups::{Group, Limit};
use hugepilot_linux::pool::holders::Holder;
use hugepilot_linux::pool::mounts::Mount;
use hugepilot_linux::pool::{Counters, Pool};
use hugepilot_linux::procfs::cgroup::Version;
use serde_json::{Value, json};

/// One object.
///
/// # Errors
/// If it cannot be written as text.
pub fn render(shown: &Shown) -> anyhow::Result<String> {
    let object = json!({
        "pools": shown.pools.iter().map(|pool| pool_of(shown, pool)).collect::<Vec<_>>(),
        "holders": shown.holders.list.iter().map(holder).collect::<Vec<_>>(),
        "hidden_pids": shown.holders.hidden,
        "unseen_processes": shown.holders.unseen,
        "cgroups": shown.groups.list.iter().map(group).collect::<Vec<_>>(),
        "cgroups_bounded": shown.groups.bounded,
        "mounts": shown.mounts.iter().map(mount).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&object).context("writing the pools as JSON")?;
    Ok(text + "\n")
}

fn pool_of(shown: &Shown, pool: &Pool) -> Value {
    let mut object = counters(pool.counters);
    object["page_bytes"] = json!(pool.size);
    object["reserved_pages"] = json!(pool.reserved);
    object["overcommit_pages"] = json!(pool.overcommit);
    object["maximum_pages"] = json!(pool.maximum());
    object["demote_bytes"] = json!(pool.divides_into);
    object["unaccounted_bytes"] = json!(shown.unaccounted(pool));
    let nodes = pool.nodes.iter().map(|part| {
        let mut object = counters(part.counters);
        object["node"] = json!(part.node);
        object
    });
    object["nodes"] = nodes.collect();
    object
}

fn counters(counters: Counters) -> Value {
    json!({
        "minimum_pages": counters.minimum(),
        "current_pages": counters.total,
        "free_pages": counters.free,
        "surplus_pages": counters.surplus,
    })
}

fn holder(one: &Holder) -> Value {
    json!({
        "pid": one.pid,
        "comm": one.comm,
        "page_bytes": one.size,
        "mapped_bytes": one.held.mapped,
        "private_bytes": one.held.private,
        "shared_bytes": one.held.shared,
        "untouched_bytes": one.held.untouched,
    })
}

fn group(group: &Group) -> Value {
    let limit = |limit: Limit| json!({"max_bytes": limit.max, "current_bytes": limit.current});
    json!({
        "path": group.path,
        "version": match group.version {
            Version::V1 => 1,
            Version::V2 => 2,
        },
        "page_bytes": group.size,
        "pages": limit(group.pages),
        "reservations": group.reservations.map(limit),
        "hits": group.hits,
    })
}

fn mount(mount: &Mount) -> Value {
    json!({
        "at": mount.at.to_string_lossy(),
        "page_bytes": mount.size,
        "max_bytes": mount.most,
    })
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::shown;
    use super::*;

    #[test]
    fn it_says_what_the_table_says() {
        let text = render(&shown()).expect("JSON");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let pool = &value["pools"][0];
        assert_eq!(pool["page_bytes"], 2 << 20);
        assert_eq!(pool["minimum_pages"], 7);
        assert_eq!(pool["nodes"][1]["free_pages"], 2);
        assert_eq!(pool["unaccounted_bytes"], 2 << 20);
        assert_eq!(pool["demote_bytes"], Value::Null);
        assert_eq!(value["holders"][0]["untouched_bytes"], 4 << 20);
        assert_eq!(value["cgroups"][0]["pages"]["max_bytes"], 16 << 20);
        assert_eq!(
            value["cgroups"][0]["reservations"]["max_bytes"],
            Value::Null
        );
        assert_eq!(value["mounts"][0]["at"], "/dev/hugepages");
    }
}
