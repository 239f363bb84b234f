//! What is wrong with a recording is told, with the line and with what to do.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::observation::Observation;
use hugepilot_core::plan::Plan;
use hugepilot_core::policy::Settings;
use hugepilot_core::units::Bytes;
use hugepilot_trace::{Header, Reader, Tick, TraceError, VERSION, Writer, Written, replay};

fn header() -> Header {
    Header {
        hugepilot_trace: VERSION,
        geometry: Geometry::X86_64,
        policy: "mega".to_owned(),
        settings: Settings::default().values(),
        kernel: "6.12.0".to_owned(),
        started_unix_ms: 0,
        dry_run: false,
    }
}

fn tick(checkpoint: bool) -> Tick {
    let observation = Observation {
        checkpoint,
        ..Observation::default()
    };
    Tick {
        observation,
        plan: Plan::default(),
        outcomes: Vec::new(),
    }
}

fn recording(ticks: &[Tick], bytes_max: Option<Bytes>) -> (Vec<u8>, Vec<Written>) {
    let mut text = Vec::new();
    let mut writer = Writer::new(&mut text, &header(), bytes_max).expect("memory takes it");
    let written = ticks
        .iter()
        .map(|tick| writer.tick(tick.as_ref()).expect("memory takes it"))
        .collect();
    drop(writer);
    (text, written)
}

fn error_of(text: &[u8]) -> TraceError {
    match Reader::new(text) {
        Err(error) => error,
        Ok(mut reader) => reader
            .find_map(Result::err)
            .expect("something is wrong with it"),
    }
}

fn check(text: &[u8], part: &str) {
    let said = error_of(text).to_string();
    assert!(said.contains(part), "{said:?} should contain {part:?}");
    assert!(!said.contains('\n'), "{said:?} is more than a line");
}

#[test]
fn what_is_no_recording_is_told() {
    check(b"", "empty");
    check(b"PNG and so on\n", "line 1 is not a header");
    check(b"{}\n", "line 1 is not a header");
    check(b"{\"hugepilot_trace\":1}\n", "line 1 is not a header");
}

#[test]
fn a_newer_recording_is_refused_with_a_sentence() {
    check(
        b"{\"hugepilot_trace\":2,\"something\":\"new\"}\n",
        "use a newer hugepilot",
    );
}

#[test]
fn a_damaged_line_is_told_by_its_number() {
    let (mut text, _) = recording(&[tick(true), tick(false)], None);
    text.extend(b"{\"observation\":3}\n");
    assert!(matches!(
        error_of(&text),
        TraceError::Damaged { line: 4, .. }
    ));
}

#[test]
fn a_recording_without_a_checkpoint_is_refused() {
    let (text, _) = recording(&[tick(false)], None);
    assert!(matches!(error_of(&text), TraceError::NoCheckpoint));
}

#[test]
fn a_last_line_that_is_cut_off_is_left_out_and_told() {
    let (text, _) = recording(&[tick(true), tick(false)], None);
    let mut reader = Reader::new(&text[..text.len() - 5]).expect("the header is whole");
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert_eq!(reader.truncated(), Some(3));
}

#[test]
fn nothing_comes_after_an_error() {
    let (mut text, _) = recording(&[tick(true)], None);
    text.extend(b"damage\n");
    text.extend(recording(&[tick(true)], None).0);
    let reader = Reader::new(text.as_slice()).expect("the header is whole");
    assert_eq!(
        reader.map(|tick| tick.is_ok()).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn a_bound_is_kept_and_leaves_no_gap() {
    let (small, _) = recording(&[tick(true)], None);
    let most = Bytes(u64::try_from(small.len()).expect("small") + 10);
    let (text, written) = recording(&[tick(true), tick(false), tick(false)], Some(most));
    assert_eq!(written, [Written::Yes, Written::Full, Written::Full]);
    assert_eq!(text, small);
}

#[test]
fn settings_of_the_header_are_those_it_was_written_with() {
    let mut settings = Settings::default();
    settings
        .set("mega", "present_min", &0.123_456_789.into())
        .expect("in range");
    settings
        .set("watch", "tick_ms", &777.into())
        .expect("in range");
    let text = settings.values().to_string();
    let values = serde_json::from_str(&text).expect("our own");
    assert_eq!(replay::settings(&values).expect("our own"), settings);
    let unknown = serde_json::json!({"mega": {"no_such": 1}});
    assert!(matches!(
        replay::settings(&unknown),
        Err(TraceError::Settings { .. })
    ));
}
