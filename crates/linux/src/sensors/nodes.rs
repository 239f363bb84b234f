//! Nodes: their memory, their free blocks; and the machine's memory pressure.

use super::watched::Activity;
use crate::error::Error;
use crate::procfs::{
    ProcRoot, SysRoot, buddyinfo, meminfo, pressure, read, read_if_there, understood,
};
use hugepilot_core::ids::NodeId;
use hugepilot_core::observation::NodeObserved;
use hugepilot_core::units::{Instant, Ratio, Span};

/// Nodes are read so often; in between the last numbers are said again.
const PERIOD_ACTIVE: Span = Span::secs(1);
/// While nobody whom we watch does anything.
const PERIOD_QUIET: Span = Span::secs(4);

/// What the nodes showed last.
#[derive(Debug, Default)]
pub struct Nodes {
    read_at: Option<Instant>,
    /// All nodes with memory.
    pub observed: Vec<NodeObserved>,
    /// Share of the last 10 s in which some task waited for memory, where known.
    pub pressure: Option<Ratio>,
}

impl Nodes {
    /// Reads them, if they are due.
    ///
    /// # Errors
    /// If a file is missing or not understood; what was known stays.
    pub fn refresh(
        &mut self,
        proc: &ProcRoot,
        sys: &SysRoot,
        activity: Activity,
        now: Instant,
    ) -> Result<(), Error> {
        let period = match activity {
            Activity::Some => PERIOD_ACTIVE,
            Activity::None => PERIOD_QUIET,
        };
        if self.read_at.is_some_and(|at| now.since(at) < period) {
            return Ok(());
        }
        self.read_at = Some(now);
        self.observed = read_nodes(proc, sys)?;
        self.pressure = read_pressure(proc)?;
        Ok(())
    }
}

/// The ids of the nodes that have memory; a kernel without NUMA has node 0.
///
/// # Errors
/// If the list is not understood.
pub fn node_ids(sys: &SysRoot) -> Result<Vec<NodeId>, Error> {
    let path = sys.path("devices/system/node/has_memory");
    match read_if_there(&path)? {
        Some(text) => understood(&path, meminfo::parse_node_list(&text)),
        None => Ok(vec![NodeId(0)]),
    }
}

fn read_nodes(proc: &ProcRoot, sys: &SysRoot) -> Result<Vec<NodeObserved>, Error> {
    let path = proc.system("buddyinfo");
    let mut blocks = understood(&path, buddyinfo::parse(&read(&path)?))?;
    let mut nodes = Vec::new();
    for node in node_ids(sys)? {
        let own = sys.path(&format!("devices/system/node/node{}/meminfo", node.0));
        let path = if own.exists() {
            own
        } else {
            proc.system("meminfo")
        };
        let memory = understood(&path, meminfo::parse(&read(&path)?))?;
        nodes.push(NodeObserved {
            node,
            total: memory.total,
            free: memory.free,
            free_blocks: blocks.remove(&node).unwrap_or_default(),
            controller_requests: None,
        });
    }
    Ok(nodes)
}

/// `None` where the kernel has no PSI or it is switched off.
fn read_pressure(proc: &ProcRoot) -> Result<Option<Ratio>, Error> {
    let path = proc.system("pressure/memory");
    match read_if_there(&path) {
        Ok(None) => Ok(None),
        Ok(Some(text)) => understood(&path, pressure::parse(&text)).map(Some),
        Err(Error::Read { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::Bytes;

    #[test]
    fn this_machine_has_a_node_with_memory() {
        let mut nodes = Nodes::default();
        let outcome = nodes.refresh(
            &ProcRoot::default(),
            &SysRoot::default(),
            Activity::Some,
            Instant(0),
        );
        outcome.expect("own machine");
        assert!(nodes.observed[0].total > Bytes::mib(64));
        assert!(nodes.observed[0].free_blocks.len() > 9);
    }
}
