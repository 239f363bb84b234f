//! Planning a recording again.
//!
//! The pilot is shown the recorded observations and told the recorded outcomes, whatever it planned itself: the world
//! went on as the recorded actions made it. Under the recorded policy and parameters the plans come out the same.

use crate::error::TraceError;
use crate::format::{Header, Tick};
use hugepilot_core::plan::Plan;
use hugepilot_core::policy::{NAMES, Settings};
use hugepilot_core::tick::Pilot;
use serde_json::Value;

/// The parameters of a header.
///
/// # Errors
/// If one of them is unknown or out of range.
pub fn settings(values: &Value) -> Result<Settings, TraceError> {
    let mut settings = Settings::default();
    let sections = values.as_object().ok_or(TraceError::SettingsShape)?;
    for (section, fields) in sections {
        for (field, value) in fields.as_object().ok_or(TraceError::SettingsShape)? {
            settings
                .set(section, field, value)
                .map_err(|source| TraceError::Settings { source })?;
        }
    }
    Ok(settings)
}

/// A pilot for the header's machine, under `policy` with `settings`.
///
/// # Errors
/// If there is no such policy.
pub fn pilot(header: &Header, policy: &str, settings: &Settings) -> Result<Pilot, TraceError> {
    let planner = settings.policy(policy).ok_or_else(|| TraceError::Policy {
        name: policy.to_owned(),
        known: NAMES.join(", "),
    })?;
    Ok(Pilot::new(header.geometry, planner, settings))
}

/// Plans one recorded tick again, then takes its recorded outcomes in.
pub fn step(pilot: &mut Pilot, tick: &Tick) -> Plan {
    let plan = pilot.plan(&tick.observation);
    for done in &tick.outcomes {
        pilot.account(done);
    }
    plan
}

/// A tick in which the replay planned something else.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The line of the recording, from 1.
    pub line: u64,
    /// What was planned then.
    pub recorded: Plan,
    /// What is planned now.
    pub replayed: Plan,
}

/// Replays all ticks under the recorded policy; `None`: every plan is the same.
///
/// # Errors
/// If the recording cannot be read to its end or its policy or parameters are unknown.
pub fn first_difference<R: std::io::BufRead>(
    reader: &mut crate::Reader<R>,
) -> Result<Option<Difference>, TraceError> {
    let settings = settings(&reader.header().settings)?;
    let mut pilot = pilot(reader.header(), &reader.header().policy, &settings)?;
    while let Some(tick) = reader.next() {
        let tick = tick?;
        let replayed = step(&mut pilot, &tick);
        if replayed != tick.plan {
            return Ok(Some(Difference {
                line: reader.line(),
                recorded: tick.plan,
                replayed,
            }));
        }
    }
    Ok(None)
}
