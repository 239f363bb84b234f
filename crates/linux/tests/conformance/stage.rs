//! The live kernel as a stage: worker processes, and a machine that watches them.

use crate::cgroup::Confinement;
use hugepilot_conformance::{Area, Fault, Faulty, Feature, Features, Memory, Stage, StageError};
use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
use hugepilot_core::machine::Machine;
use hugepilot_core::units::{BasePages, Bytes, Ratio};
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_workers::client::{Kind, Mapped, SharedFile, Worker, WorkerError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a base page and of a slot here.
const PAGE: u64 = 4096;
const SLOT: u64 = 2 << 20;
/// Between two looks at what takes the machine a while.
const MOMENT: Duration = Duration::from_millis(50);

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct Program {
    pub file: PathBuf,
    pub prefix: Vec<&'static str>,
}

impl Program {
    fn start(&self) -> Result<Worker, WorkerError> {
        Worker::start_behind(&self.file, &self.prefix)
    }
}

struct Running {
    worker: Worker,
    areas: BTreeMap<u64, Mapped>,
}

pub struct LiveStage {
    program: Program,
    fault: Option<Fault>,
    running: BTreeMap<ProcessId, Running>,
    confined: BTreeMap<ProcessId, Confinement>,
    machine: Option<Faulty<LiveMachine>>,
}

type Done = Result<(), StageError>;

impl LiveStage {
    pub fn new(program: Program, fault: Option<Fault>) -> Self {
        Self {
            program,
            fault,
            running: BTreeMap::new(),
            confined: BTreeMap::new(),
            machine: None,
        }
    }

    fn worker(&mut self, process: ProcessId) -> Result<&mut Running, StageError> {
        let missing = || StageError(format!("no worker is {process}"));
        self.running.get_mut(&process).ok_or_else(missing)
    }

    /// Tells the worker `command NAME rest`.
    fn tell(&mut self, area: &Area, command: &str, rest: &str) -> Done {
        let running = self.worker(area.process)?;
        let mapped = running.areas.get(&area.address);
        let name = mapped.map(|mapped| mapped.name.clone());
        let name =
            name.ok_or_else(|| StageError(format!("nothing is mapped at {:#x}", area.address)))?;
        let line = format!("{command} {name} {rest}");
        running
            .worker
            .ask(&line)
            .map(drop)
            .map_err(StageError::from_error)
    }

    fn tell_about(&mut self, area: &Area, command: &str, pages: &Range<u64>) -> Done {
        let (offset, length) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
        self.tell(area, command, &format!("{offset} {length}"))
    }

    fn ask(&mut self, process: ProcessId, command: &str) -> Done {
        self.worker(process)?
            .worker
            .ask(command)
            .map(drop)
            .map_err(StageError::from_error)
    }

    fn map_kind(
        &mut self,
        process: ProcessId,
        bytes: Bytes,
        kind: &Kind,
    ) -> Result<Area, StageError> {
        let running = self.worker(process)?;
        let name = format!("area{}", running.areas.len());
        let mapped = running
            .worker
            .map(&name, bytes.0, kind)
            .map_err(StageError::from_error)?;
        let area = area_of(process, &mapped);
        running.areas.insert(mapped.address, mapped);
        Ok(area)
    }
}

fn area_of(process: ProcessId, mapped: &Mapped) -> Area {
    let (object, start) = match &mapped.file {
        None => (ObjectId::Private(process), mapped.address),
        Some(SharedFile { device, inode, .. }) => (
            ObjectId::Shared {
                device: *device,
                inode: *inode,
            },
            0,
        ),
    };
    Area {
        process,
        address: mapped.address,
        bytes: Bytes(mapped.bytes),
        object,
        first_slot: start / SLOT,
        slots: mapped.bytes.div_ceil(SLOT),
    }
}

impl Stage for LiveStage {
    type M = Faulty<LiveMachine>;

    fn machine(&mut self) -> Result<&mut Faulty<LiveMachine>, StageError> {
        if self.machine.is_none() {
            let pids = self.running.keys().map(|process| process.pid).collect();
            let built = LiveMachine::builder()
                .select(Selection {
                    pids,
                    ..Selection::default()
                })
                .watch_cpu_max(Ratio::ONE)
                .build()
                .map_err(StageError::from_error)?;
            self.machine = Some(Faulty::new(built, self.fault));
        }
        Ok(self.machine.as_mut().expect("was just built"))
    }

    fn start(&mut self) -> Result<ProcessId, StageError> {
        let mut worker = self.program.start().map_err(StageError::from_error)?;
        worker.ask("base-pages").map_err(StageError::from_error)?;
        let process = identity(worker.pid())?;
        self.running.insert(
            process,
            Running {
                worker,
                areas: BTreeMap::new(),
            },
        );
        Ok(process)
    }

    fn map(
        &mut self,
        process: ProcessId,
        bytes: Bytes,
        memory: Memory,
    ) -> Result<Area, StageError> {
        let kind = match memory {
            Memory::Private => Kind::Anonymous,
            Memory::Shmem => Kind::Shmem,
        };
        self.map_kind(process, bytes, &kind)
    }

    fn share(&mut self, area: &Area, process: ProcessId) -> Result<Area, StageError> {
        let mapped = self.worker(area.process)?.areas.get(&area.address);
        let file = mapped.and_then(|mapped| mapped.file.clone());
        let file = file.ok_or_else(|| StageError("only shared memory can be shared".to_owned()))?;
        self.map_kind(process, area.bytes, &Kind::File(file.path))
    }

    fn write(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.tell_about(area, "touch", &pages)
    }

    fn zero(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.tell_about(area, "zero", &pages)
    }

    fn read(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.tell_about(area, "read", &pages)
    }

    fn free(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.tell_about(area, "free", &pages)
    }

    fn unmap(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.tell_about(area, "punch", &pages)
    }

    fn refuse_huge(&mut self, area: &Area) -> Done {
        self.tell(area, "advise", "nohugepage")
    }

    fn opt_out(&mut self, process: ProcessId) -> Done {
        self.ask(process, "thp-disable on")
    }

    fn lock(&mut self, area: &Area) -> Done {
        self.tell(area, "mlock", "")
    }

    fn pin(&mut self, area: &Area, page: BasePages) -> Done {
        self.tell(area, "pin", &(page.0 * PAGE).to_string())
    }

    fn unpin(&mut self, area: &Area, page: BasePages) -> Done {
        self.tell(area, "unpin", &(page.0 * PAGE).to_string())
    }

    fn fork(&mut self, process: ProcessId) -> Done {
        self.ask(process, "fork")
    }

    fn end_children(&mut self, process: ProcessId) -> Done {
        self.ask(process, "unfork")
    }

    fn make_huge(&mut self, area: &Area, slot: u64) -> Done {
        self.tell(area, "collapse", &(slot * SLOT).to_string())
    }

    fn confine(&mut self, process: ProcessId) -> Done {
        let confined = Confinement::of(process.pid.0).map_err(StageError)?;
        self.confined.insert(process, confined);
        Ok(())
    }

    fn limit(&mut self, process: ProcessId, room: Bytes) -> Done {
        let confined = self.confined.get(&process);
        let confined = confined.ok_or_else(|| StageError(format!("{process} is not confined")))?;
        confined.leave_room(room.0).map_err(StageError)
    }

    fn wait(&mut self) {
        std::thread::sleep(MOMENT);
    }

    fn kill(&mut self, process: ProcessId) -> Done {
        let mut running = self
            .running
            .remove(&process)
            .ok_or_else(|| StageError("is gone".to_owned()))?;
        running
            .worker
            .kill()
            .map(drop)
            .map_err(StageError::from_error)
    }
}

impl Drop for LiveStage {
    /// Workers first: a cgroup goes only when it is empty.
    fn drop(&mut self) {
        self.running.clear();
        self.confined.clear();
    }
}

/// A process with its start time.
fn identity(pid: u32) -> Result<ProcessId, StageError> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(StageError::from_error)?;
    // Fields count from 1; the name, the second one, is in parentheses and may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let start = rest
        .split_whitespace()
        .nth(22 - 3)
        .and_then(|field| field.parse().ok());
    let start_ticks = start.ok_or_else(|| StageError(format!("/proc/{pid}/stat: {stat}")))?;
    Ok(ProcessId {
        pid: Pid(pid),
        start_ticks,
    })
}

/// What this kernel does, found out by a worker that does it to itself.
pub fn features(program: &Program) -> Result<Features, StageError> {
    let frees = split_frees_zero_pages(program).map_err(StageError::from_error)?;
    let sees = sees_partial_mappings();
    Ok([
        (Feature::SplitFreesZeroPages, frees),
        (Feature::SeesPartialMappings, sees),
    ]
    .into())
}

/// Are page frames and their flags visible? A frame of our own stack is present for sure.
fn sees_partial_mappings() -> bool {
    use std::os::unix::fs::FileExt;
    let here = 1_u8;
    let page = u64::try_from((&raw const here).addr()).expect("addresses have 64 bits") / PAGE;
    let word = |path: &str, at: u64| {
        let mut word = [0; 8];
        let file = std::fs::File::open(path).ok()?;
        file.read_exact_at(&mut word, at * 8).ok()?;
        Some(u64::from_ne_bytes(word))
    };
    let frame = word("/proc/self/pagemap", page).map_or(0, |entry| entry & ((1 << 55) - 1));
    frame != 0 && word("/proc/kpageflags", frame).is_some()
}

fn split_frees_zero_pages(program: &Program) -> Result<bool, WorkerError> {
    let mut worker = program.start()?;
    worker.map("probe", SLOT, &Kind::Anonymous)?;
    worker.touch("probe", 0, PAGE)?;
    worker.ask("collapse probe 0")?;
    let huge = worker.ask("resident")?.number("bytes")?;
    worker.ask("split probe 0")?;
    let split = worker.ask("resident")?.number("bytes")?;
    // 511 of 512 base pages hold zeros; half of that is far above what else may change.
    Ok(split + SLOT / 2 < huge)
}

/// The kernel's version, without what its builder added.
pub fn kernel() -> Result<String, StageError> {
    let path = "/proc/sys/kernel/osrelease";
    let release = std::fs::read_to_string(path).map_err(StageError::from_error)?;
    let numbers = |letter: &char| letter.is_ascii_digit() || *letter == '.';
    let version: String = release.chars().take_while(numbers).collect();
    Ok(format!("Linux {version}"))
}

/// The machine's page sizes are those that the workers were written for.
pub fn check_geometry() -> Result<(), StageError> {
    let machine = LiveMachine::builder()
        .build()
        .map_err(StageError::from_error)?;
    let geometry = machine.geometry();
    if (geometry.base_page().0, geometry.slot().0) == (PAGE, SLOT) {
        return Ok(());
    }
    Err(StageError(format!(
        "the workers know pages of 4 KiB and 2 MiB; here: {geometry:?}"
    )))
}
