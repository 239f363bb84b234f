use super::*;
use crate::procfs::{ProcRoot, SysRoot};
use hugepilot_core::ids::{NodeId, Pid, ProcessId};
use std::fs;

struct World {
    dir: tempfile::TempDir,
    actuator: SystemActuator,
}

const FOUND: [(SysSwitch, &str); 6] = [
    (SysSwitch::ThpEnabled, "madvise"),
    (SysSwitch::ThpDefrag, "defer+madvise"),
    (SysSwitch::ShmemEnabled, "advise"),
    (SysSwitch::KhugepagedDefrag, "0"),
    (SysSwitch::KhugepagedScanSleep, "10000"),
    (SysSwitch::KhugepagedMaxPtesNone, "511"),
];

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let roots = SwitchRoots {
            sys: SysRoot::new(dir.path().join("sys")),
            proc: ProcRoot::new(dir.path().join("proc")),
        };
        for (switch, value) in FOUND {
            let path = switch.path(&roots);
            fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
            fs::write(path, value).expect("a setting");
        }
        let journal = Journal::open(&dir.path().join("journals")).expect("a journal");
        let actuator = SystemActuator::new(journal, roots);
        Self { dir, actuator }
    }

    fn act(&mut self, action: &Action) -> OutcomeClass {
        self.actuator.act(action).class
    }

    fn baseline(&mut self, mode: LinuxMode) {
        assert_eq!(self.act(&Action::Baseline { mode }), OutcomeClass::Done);
    }

    fn shows(&self, switch: SysSwitch) -> String {
        let value = self.actuator.switches().read(switch);
        value.expect("readable").expect("there")
    }

    fn all(&self) -> Vec<(SysSwitch, String)> {
        FOUND
            .map(|(switch, _)| (switch, self.shows(switch)))
            .to_vec()
    }

    fn would_undo(&self) -> WouldUndo {
        khugepaged_would_undo(self.actuator.switches()).expect("readable")
    }
}

fn found() -> Vec<(SysSwitch, String)> {
    FOUND
        .map(|(switch, value)| (switch, value.to_owned()))
        .to_vec()
}

fn allocation(switch: Switch) -> Action {
    let scope = Scope::System;
    Action::HugeAllocation { scope, switch }
}

fn promotion(switch: Switch) -> Action {
    let scope = Scope::System;
    Action::Promotion { scope, switch }
}

#[test]
fn a_mode_is_the_same_whatever_came_before_it() {
    for mode in [
        LinuxMode::Never,
        LinuxMode::Madvise,
        LinuxMode::Always,
        LinuxMode::Khugepaged,
    ] {
        let mut fresh = World::new();
        fresh.baseline(mode);
        for (switch, value) in settings(mode) {
            assert_eq!(fresh.shows(*switch), *value, "{mode}");
        }
        let mut used = World::new();
        used.baseline(LinuxMode::Khugepaged);
        used.baseline(LinuxMode::Madvise);
        used.baseline(mode);
        assert_eq!(used.all(), fresh.all(), "{mode}");
    }
}

#[test]
fn all_modes_together_leave_nothing() {
    let mut world = World::new();
    world.baseline(LinuxMode::Khugepaged);
    world.baseline(LinuxMode::Never);
    world.baseline(LinuxMode::Always);
    world.actuator.switches().journal().restore();
    assert_eq!(world.all(), found());
}

#[test]
fn shared_memory_and_max_ptes_none_are_nobody_s_business() {
    let mut world = World::new();
    world.baseline(LinuxMode::Khugepaged);
    assert_eq!(world.shows(SysSwitch::ShmemEnabled), "advise");
    assert_eq!(world.shows(SysSwitch::KhugepagedMaxPtesNone), "511");
}

#[test]
fn allocation_is_the_system_s_enabled() {
    let mut world = World::new();
    assert_eq!(world.act(&allocation(Switch::On)), OutcomeClass::Done);
    assert_eq!(world.shows(SysSwitch::ThpEnabled), "always");
    assert_eq!(world.act(&allocation(Switch::Off)), OutcomeClass::Done);
    assert_eq!(world.shows(SysSwitch::ThpEnabled), "never");
}

#[test]
fn promotion_pauses_and_goes_on_every_ten_milliseconds() {
    let mut world = World::new();
    assert_eq!(world.act(&promotion(Switch::Off)), OutcomeClass::Done);
    assert_eq!(world.shows(SysSwitch::KhugepagedScanSleep), PAUSE_MS);
    assert_eq!(world.act(&promotion(Switch::On)), OutcomeClass::Done);
    assert_eq!(world.shows(SysSwitch::KhugepagedScanSleep), PROMOTION_MS);
}

#[test]
fn promotion_without_allocation_has_no_switch() {
    let mut world = World::new();
    world.act(&allocation(Switch::Off));
    assert_eq!(world.act(&promotion(Switch::On)), OutcomeClass::Unsupported);
}

#[test]
fn a_scope_below_the_system_is_unsupported_and_changes_nothing() {
    let mut world = World::new();
    let scope = Scope::Process(ProcessId {
        pid: Pid(1),
        start_ticks: 1,
    });
    for switch in [Switch::On, Switch::Off] {
        let allocation = Action::HugeAllocation { scope, switch };
        assert_eq!(world.act(&allocation), OutcomeClass::Unsupported);
        let promotion = Action::Promotion { scope, switch };
        assert_eq!(world.act(&promotion), OutcomeClass::Unsupported);
    }
    let node = NodeId(0);
    assert_eq!(
        world.act(&Action::CompactNode { node }),
        OutcomeClass::Unsupported
    );
    assert_eq!(world.all(), found());
}

#[test]
fn a_switch_that_the_kernel_does_not_have_is_unsupported() {
    let mut world = World::new();
    fs::remove_dir_all(world.dir.path().join("sys")).expect("removable");
    let mode = LinuxMode::Never;
    assert_eq!(
        world.act(&Action::Baseline { mode }),
        OutcomeClass::Unsupported
    );
    assert_eq!(world.would_undo(), WouldUndo::No);
}

#[test]
fn the_guards_end_the_undoing() {
    let world = World::new();
    let advised = WouldUndo::Advised {
        absent_max: "511".to_owned(),
    };
    assert_eq!(world.would_undo(), advised);
    world
        .actuator
        .switches()
        .set(SysSwitch::ThpEnabled, "always")
        .expect("settable");
    assert!(matches!(world.would_undo(), WouldUndo::Everywhere { .. }));
    world
        .actuator
        .guard(KhugepagedGuard::OnlyAdvised)
        .expect("settable");
    assert_eq!(world.would_undo(), advised);
    world
        .actuator
        .guard(KhugepagedGuard::OnlyFull)
        .expect("settable");
    assert_eq!(world.would_undo(), WouldUndo::No);
    assert!(WouldUndo::No.to_string().contains("does not undo"));
}
