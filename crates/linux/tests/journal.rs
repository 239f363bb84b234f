//! The journal on a false sysfs: what is changed is put back, whatever happens in between.

use hugepilot_linux::journal::{DamonUndo, Journal, JournalError, RestoreOutcome, Restored, Undo};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
const CHILD: &str = "HUGEPILOT_TEST_JOURNAL_CHILD";

/// A directory with two settings and one for journals.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().expect("a directory"));
        // A real file shows all choices; a false one shows the last write, which parses the same.
        world.put("enabled", "always [madvise] never\n");
        world.put("pages_to_scan", "4096\n");
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).expect("a setting");
    }

    fn shows(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).expect("a setting")
    }

    fn journals(&self) -> PathBuf {
        self.at("journals")
    }

    fn journal(&self) -> Journal {
        Journal::open(&self.journals()).expect("a journal")
    }

    fn recover(&self) -> Vec<Restored> {
        Journal::recover(&self.journals()).expect("a readable directory")
    }

    fn set(&self, journal: &Journal, name: &str, value: &str) {
        journal.set(&self.at(name), value).expect("settable");
    }
}

fn restored(world: &World, name: &str, from: &str, to: &str) -> Restored {
    Restored {
        path: world.at(name),
        outcome: RestoreOutcome::Restored {
            from: from.to_owned(),
            to: to.to_owned(),
        },
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        std::thread::yield_now();
    }
}

/// The test `name` of this program again, as a process of its own that is told where the world is.
fn again(name: &str, world: &World) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name])
        .env(CHILD, world.0.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("startable")
}

/// In the process that [`again`] started: changes both settings and stays until it is killed.
fn live_in(world: &Path) -> ! {
    let journal = Journal::open(&world.join("journals")).expect("a journal");
    let set = |name: &str, value| journal.set(&world.join(name), value).expect("settable");
    set("enabled", "always");
    set("enabled", "never");
    set("pages_to_scan", "1");
    loop {
        std::thread::park();
    }
}

fn kill(mut child: Child) {
    child.kill().expect("ours to kill");
    child.wait().expect("ours to wait for");
}

#[test]
fn what_was_set_is_restored_in_reverse_order_and_the_file_goes() {
    let world = World::new();
    let journal = world.journal();
    assert!(!journal.file().exists());
    world.set(&journal, "enabled", "never");
    world.set(&journal, "pages_to_scan", "1");
    assert_eq!(world.shows("enabled"), "never");
    assert!(journal.file().exists());
    let report = journal.restore();
    let expected = [
        restored(&world, "pages_to_scan", "1", "4096"),
        restored(&world, "enabled", "never", "madvise"),
    ];
    assert_eq!(report, expected);
    assert_eq!(world.shows("enabled"), "madvise");
    assert!(!journal.file().exists());
}

#[test]
fn many_changes_of_one_setting_are_one_entry_with_the_first_value() {
    let world = World::new();
    let journal = world.journal();
    for value in ["never", "always", "never", "always"] {
        world.set(&journal, "enabled", value);
    }
    assert_eq!(journal.entries().len(), 1);
    let expected = [restored(&world, "enabled", "always", "madvise")];
    assert_eq!(journal.restore(), expected);
}

#[test]
fn one_setting_can_be_released_before_the_rest() {
    let world = World::new();
    let journal = world.journal();
    let enabled = world.at("enabled");
    world.set(&journal, "enabled", "never");
    world.set(&journal, "pages_to_scan", "1");
    let one = journal.release(&enabled).expect("writable");
    assert_eq!(one, Some(restored(&world, "enabled", "never", "madvise")));
    assert_eq!(world.shows("pages_to_scan"), "1");
    assert_eq!(journal.release(&enabled).expect("writable"), None);
    let expected = [restored(&world, "pages_to_scan", "1", "4096")];
    assert_eq!(journal.restore(), expected);
}

#[test]
fn what_somebody_else_changed_since_is_left() {
    let world = World::new();
    let journal = world.journal();
    world.set(&journal, "enabled", "never");
    world.put("enabled", "[always] madvise never");
    let report = journal.restore();
    let expected = RestoreOutcome::ChangedSince {
        found: "always".to_owned(),
        ours: "never".to_owned(),
    };
    assert_eq!(report[0].outcome, expected);
    let sentence = report[0].to_string();
    assert!(
        sentence.contains("changed by somebody else since"),
        "{sentence}"
    );
    assert_eq!(world.shows("enabled"), "[always] madvise never");
    assert!(!journal.file().exists());
}

#[test]
fn a_value_that_the_system_refuses_is_an_error_and_nothing_to_restore() {
    let world = World::new();
    let journal = world.journal();
    let refused = journal.set(Path::new("/proc/self/oom_score_adj"), "not a number");
    assert!(
        matches!(refused, Err(JournalError::Write { .. })),
        "{refused:?}"
    );
    assert_eq!(journal.restore()[0].outcome, RestoreOutcome::Unchanged);
}

#[test]
fn dropping_the_last_handle_restores_also_in_a_panic() {
    let world = World::new();
    let journal = world.journal();
    world.set(&journal, "enabled", "never");
    let other = journal.clone();
    drop(journal);
    assert_eq!(world.shows("enabled"), "never");
    let panicked = std::thread::spawn(move || {
        let _held = other;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(world.shows("enabled"), "madvise");
}

#[test]
fn a_killed_owner_is_recovered() {
    if let Some(world) = std::env::var_os(CHILD) {
        live_in(Path::new(&world));
    }
    let world = World::new();
    let child = again("a_killed_owner_is_recovered", &world);
    until("the change", || world.shows("pages_to_scan") == "1");
    kill(child);
    assert_eq!(world.shows("enabled"), "never");
    let refused = world.journal().set(&world.at("enabled"), "always");
    assert!(
        matches!(refused, Err(JournalError::LeftByDead { .. })),
        "{refused:?}"
    );
    let expected = [
        restored(&world, "pages_to_scan", "1", "4096"),
        restored(&world, "enabled", "never", "madvise"),
    ];
    assert_eq!(world.recover(), expected);
    assert_eq!(world.shows("enabled"), "madvise");
    assert_eq!(world.recover(), [], "nothing is left for a second time");
}

#[test]
fn a_living_owner_keeps_what_it_holds() {
    if let Some(world) = std::env::var_os(CHILD) {
        live_in(Path::new(&world));
    }
    let world = World::new();
    let child = again("a_living_owner_keeps_what_it_holds", &world);
    until("the change", || world.shows("pages_to_scan") == "1");
    let refused = world.journal().set(&world.at("enabled"), "always");
    let report = world.recover();
    let pid = child.id();
    kill(child);
    let refused = refused.expect_err("held").to_string();
    assert!(refused.contains(&format!("pid {pid}")), "{refused}");
    assert_eq!(report.len(), 1);
    let RestoreOutcome::Living(owner) = report[0].outcome else {
        panic!("{report:?}");
    };
    assert_eq!(owner.pid.0, pid);
    assert_eq!(world.shows("enabled"), "never");
}

/// The journal that a killed instance leaves, with its text.
fn left_behind(world: &World) -> (PathBuf, String) {
    let child = again("a_killed_owner_is_recovered", world);
    until("the change", || world.shows("pages_to_scan") == "1");
    kill(child);
    let file = fs::read_dir(world.journals())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|e| e == "json"))
        .expect("a journal");
    let text = fs::read_to_string(&file).expect("readable");
    (file, text)
}

#[test]
fn a_torn_journal_is_reported_and_does_not_stop_the_others() {
    let world = World::new();
    let (file, text) = left_behind(&world);
    let torn = file.with_file_name("1-1.journal.json");
    fs::write(&torn, &text[..text.len() / 2]).expect("writable");
    let report = world.recover();
    assert_eq!(report[0].path, torn);
    let unreadable = matches!(report[0].outcome, RestoreOutcome::Unreadable { .. });
    assert!(unreadable, "{report:?}");
    assert!(
        report[0].to_string().contains("1-1.journal.json"),
        "{}",
        report[0]
    );
    assert_eq!(report[2], restored(&world, "enabled", "never", "madvise"));
    assert!(torn.exists() && !file.exists());
    let journal = world.journal();
    world.set(&journal, "enabled", "always");
}

#[test]
fn a_crash_between_the_journal_and_the_change_is_no_change() {
    let world = World::new();
    let (file, _) = left_behind(&world);
    world.put("enabled", "always [madvise] never\n");
    world.put("pages_to_scan", "4096\n");
    let outcomes: Vec<_> = world.recover().into_iter().map(|r| r.outcome).collect();
    let expected = [RestoreOutcome::Unchanged, RestoreOutcome::Unchanged];
    assert_eq!(outcomes, expected);
    assert!(!file.exists());
}

#[test]
fn a_journal_of_another_boot_restores_nothing() {
    let world = World::new();
    let (file, text) = left_behind(&world);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("readable");
    fs::write(&file, text.replace(boot.trim(), "another boot")).expect("writable");
    let report = world.recover();
    assert_eq!(report[0].outcome, RestoreOutcome::OtherBoot);
    assert_eq!(world.shows("enabled"), "never");
    assert!(!file.exists());
}

#[test]
fn a_setting_that_went_away_is_gone_and_settled() {
    let world = World::new();
    let journal = world.journal();
    world.set(&journal, "enabled", "never");
    fs::remove_file(world.at("enabled")).expect("removable");
    assert_eq!(journal.restore()[0].outcome, RestoreOutcome::Gone);
    assert!(!journal.file().exists());
}

#[test]
fn what_could_not_be_restored_stays_in_the_journal_and_is_tried_again() {
    let world = World::new();
    let journal = world.journal();
    world.set(&journal, "enabled", "never");
    world.set(&journal, "pages_to_scan", "1");
    fs::remove_file(world.at("enabled")).expect("removable");
    fs::create_dir(world.at("enabled")).expect("something that cannot be read as a file");
    let report = journal.restore();
    assert_eq!(report[0], restored(&world, "pages_to_scan", "1", "4096"));
    assert!(
        matches!(report[1].outcome, RestoreOutcome::Failed { .. }),
        "{report:?}"
    );
    assert_eq!(report.len(), 2);
    assert!(journal.file().exists());
    fs::remove_dir(world.at("enabled")).expect("removable");
    world.put("enabled", "never");
    let expected = [restored(&world, "enabled", "never", "madvise")];
    assert_eq!(journal.restore(), expected);
    assert!(!journal.file().exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_one_sentence() {
    let world = World::new();
    world.put("file", "");
    let error = Journal::open(&world.at("file/journals")).expect_err("no directory");
    assert!(
        error.to_string().contains("cannot keep a journal in"),
        "{error}"
    );
    let nothing = Journal::recover(&world.at("nowhere")).expect("nothing there");
    assert_eq!(nothing, []);
}

#[test]
fn a_directory_that_went_away_refuses_the_change() {
    let world = World::new();
    let journal = world.journal();
    fs::remove_dir_all(world.journals()).expect("removable");
    let error = journal
        .set(&world.at("enabled"), "never")
        .expect_err("no journal");
    assert!(
        error.to_string().contains("cannot keep a journal in"),
        "{error}"
    );
    assert_eq!(world.shows("enabled"), "always [madvise] never\n");
}

#[test]
fn a_directory_that_others_can_write_is_not_trusted() {
    let world = World::new();
    fs::create_dir(world.journals()).expect("a directory");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(world.journals(), open).expect("ours");
    let error = Journal::open(&world.journals()).expect_err("anybody could write it");
    assert!(matches!(error, JournalError::Untrusted { .. }), "{error}");
}

/// A false `kdamonds` directory with one running kdamond that carries `mark`.
fn kdamond(world: &World, mark: u64) -> PathBuf {
    let kdamonds = world.at("kdamonds");
    let context = kdamonds.join("0/contexts/0");
    for dir in ["targets", "monitoring_attrs/intervals"] {
        fs::create_dir_all(context.join(dir)).expect("a directory");
    }
    for (file, value) in [
        ("nr_kdamonds", "1".to_owned()),
        ("0/state", "on".to_owned()),
        ("0/contexts/nr_contexts", "1".to_owned()),
        ("0/contexts/0/targets/nr_targets", "1".to_owned()),
        (
            "0/contexts/0/monitoring_attrs/intervals/update_us",
            mark.to_string(),
        ),
    ] {
        fs::write(kdamonds.join(file), value).expect("a setting");
    }
    kdamonds
}

/// Restores a kdamond that carries the mark which `mark` makes: what came of it, its state, and how many there are.
fn undo_kdamond(mark: impl Fn(&Journal) -> u64) -> (RestoreOutcome, String, String) {
    let world = World::new();
    let journal = world.journal();
    let kdamonds = kdamond(&world, mark(&journal));
    let undo = DamonUndo { kdamonds, count: 1 };
    journal.note(Undo::Damon(undo)).expect("writable");
    let outcome = journal.restore().remove(0).outcome;
    let state = world.shows("kdamonds/0/state");
    (outcome, state, world.shows("kdamonds/nr_kdamonds"))
}

#[test]
fn our_kdamonds_are_turned_off_and_removed() {
    let (outcome, state, number) = undo_kdamond(|j| DamonUndo::mark_us(j.owner().pid));
    assert!(
        matches!(outcome, RestoreOutcome::Restored { .. }),
        "{outcome:?}"
    );
    assert_eq!((state.as_str(), number.as_str()), ("off", "0"));
}

#[test]
fn kdamonds_of_somebody_else_stay() {
    let (outcome, state, number) = undo_kdamond(|_| 1_000_000);
    assert!(
        matches!(outcome, RestoreOutcome::ChangedSince { .. }),
        "{outcome:?}"
    );
    assert_eq!((state.as_str(), number.as_str()), ("on", "1"));
}
