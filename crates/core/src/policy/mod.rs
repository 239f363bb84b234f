//! Policies: pure functions of what is known, with a serializable state.
//!
//! A policy proposes; the laws and the budgets dispose. It is asked every tick, with the changes of the tick, and names
//! the actions it wants, the best first, each with its reason. What was held back it simply proposes again.

pub mod carrefour;
pub mod carrefour_lp;
pub mod conservative;
pub mod ingens;
pub mod linux;
pub mod mega;
pub mod numa;
pub mod reactive;
pub mod turn;

use crate::observation::Observation;
use crate::params::{ParamError, Parameters, Spec};
use crate::plan::{Accounted, Wish};
use crate::world::{SlotChange, World};
use serde_json::Value;

/// Actions that a policy proposes in one tick, at the most: four times what the laws admit by default.
pub const WISHES_MAX: usize = 256;

/// What a policy sees in a tick.
#[derive(Debug, Clone, Copy)]
pub struct Tick<'a> {
    /// Everything known, this tick's observation included.
    pub world: &'a World,
    /// The observation.
    pub seen: &'a Observation,
    /// Slots that changed in it.
    pub changes: &'a [SlotChange],
}

/// A policy.
pub trait Policy {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What the user must know of it at start, in sentences ("without compaction").
    fn notes(&self, world: &World) -> Vec<String>;
    /// What it wants now.
    fn plan(&mut self, tick: &Tick) -> Wish;
    /// What came of an action, with the change it made.
    fn account(&mut self, world: &World, done: &Accounted, change: Option<&SlotChange>);
    /// Does it want page tables to be read?
    fn watches(&self) -> bool;
    /// Its state, seeds included: the same state and the same observations give the same plans.
    fn state(&self) -> Value;
    /// Bytes it holds for slots.
    fn bytes(&self) -> usize;
}

/// The policies there are.
pub const NAMES: [&str; 8] = [
    mega::NAME,
    ingens::NAME,
    linux::NAME,
    carrefour::NAME,
    carrefour::NAME_2M,
    conservative::NAME,
    reactive::NAME,
    carrefour_lp::NAME,
];

/// The parameters of all policies, of the laws and of the watching.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// `[watch]`
    pub watch: crate::scan::WatchParams,
    /// `[laws]`
    pub laws: crate::laws::LawParams,
    /// `[mega]`
    pub mega: mega::MegaParams,
    /// `[ingens]`
    pub ingens: ingens::IngensParams,
    /// `[linux]`
    pub linux: linux::LinuxParams,
    /// `[carrefour]`
    pub carrefour: carrefour::CarrefourParams,
    /// `[conservative]`
    pub conservative: conservative::ConservativeParams,
    /// `[reactive]`
    pub reactive: reactive::ReactiveParams,
    /// `[carrefour-lp]`
    pub carrefour_lp: carrefour_lp::CarrefourLpParams,
}

impl Settings {
    /// The sections.
    pub const SECTIONS: [&'static str; 9] = [
        "watch",
        "laws",
        "mega",
        "ingens",
        "linux",
        "carrefour",
        "conservative",
        "reactive",
        "carrefour-lp",
    ];
    /// The sections that can be set as a paper or its released code has them.
    pub const WITH_PRESETS: [&'static str; 5] = [
        "ingens",
        "carrefour",
        "conservative",
        "reactive",
        "carrefour-lp",
    ];

    /// Every parameter.
    #[must_use]
    pub fn specs() -> Vec<Spec> {
        let mut specs = crate::scan::WatchParams::specs();
        specs.extend(crate::laws::LawParams::specs());
        specs.extend(mega::MegaParams::specs());
        specs.extend(ingens::IngensParams::specs());
        specs.extend(linux::LinuxParams::specs());
        specs.extend(carrefour::CarrefourParams::specs());
        specs.extend(conservative::ConservativeParams::specs());
        specs.extend(reactive::ReactiveParams::specs());
        specs.extend(carrefour_lp::CarrefourLpParams::specs());
        specs
    }

    /// Sets `section.field`. The field `preset` sets a whole section to what a paper or its released code has.
    ///
    /// # Errors
    /// Where there is no such parameter or the value does not fit; nothing is changed then.
    pub fn set(&mut self, section: &str, field: &str, value: &Value) -> Result<(), ParamError> {
        match section {
            "watch" => self.watch.set(field, value),
            "laws" => self.laws.set(field, value),
            "mega" => self.mega.set(field, value),
            "ingens" if field == "preset" => self.ingens.preset(value),
            "ingens" => self.ingens.set(field, value),
            "linux" => self.linux.set(field, value),
            "carrefour" | "conservative" | "reactive" | "carrefour-lp" if field == "preset" => {
                self.numa_preset(section, value)
            }
            "carrefour" => self.carrefour.set(field, value),
            "conservative" => self.conservative.set(field, value),
            "reactive" => self.reactive.set(field, value),
            "carrefour-lp" => self.carrefour_lp.set(field, value),
            _ => Err(ParamError::Section {
                section: section.to_owned(),
                known: Self::SECTIONS.join(", "),
            }),
        }
    }

    /// Sets a section of the Carrefour family as a preset has it; that of the whole, `carrefour-lp`, sets all four.
    fn numa_preset(&mut self, section: &str, value: &Value) -> Result<(), ParamError> {
        use carrefour::{CarrefourParams, preset};
        use carrefour_lp::CarrefourLpParams;
        use conservative::ConservativeParams;
        use reactive::ReactiveParams;
        let is = |name: &str| section == name || section == carrefour_lp::NAME;
        let lp = preset(
            section,
            value,
            CarrefourLpParams::paper,
            CarrefourLpParams::released,
        )?;
        if is("carrefour") {
            self.carrefour = preset(
                section,
                value,
                CarrefourParams::paper,
                CarrefourParams::released,
            )?;
        }
        if is("conservative") {
            let released = ConservativeParams::released;
            self.conservative = preset(section, value, ConservativeParams::default, released)?;
        }
        if is("reactive") {
            self.reactive = preset(
                section,
                value,
                ReactiveParams::paper,
                ReactiveParams::released,
            )?;
        }
        if section == carrefour_lp::NAME {
            self.carrefour_lp = lp;
        }
        Ok(())
    }

    /// The values in force, by section and field.
    #[must_use]
    pub fn values(&self) -> Value {
        serde_json::json!({
            "watch": self.watch.values(),
            "laws": self.laws.values(),
            "mega": self.mega.values(),
            "ingens": self.ingens.values(),
            "linux": self.linux.values(),
            "carrefour": self.carrefour.values(),
            "conservative": self.conservative.values(),
            "reactive": self.reactive.values(),
            "carrefour-lp": self.carrefour_lp.values(),
        })
    }

    /// A JSON schema (draft 2020-12) of the configuration.
    #[must_use]
    pub fn schema() -> Value {
        let mut sections = serde_json::Map::new();
        for spec in Self::specs() {
            let (section, field) = spec.name.split_once('.').expect("names have a section");
            let entry = sections.entry(section).or_insert_with(|| {
                serde_json::json!({"type": "object", "additionalProperties": false, "properties": {}})
            });
            let mut schema = spec.schema.clone();
            schema["description"] =
                format!("{} ({}). Source: {}.", spec.what, spec.unit, spec.source).into();
            schema["default"] = spec.default.clone();
            entry["properties"][field] = schema;
        }
        for section in Self::WITH_PRESETS {
            sections[section]["properties"]["preset"] = serde_json::json!({
                "enum": ["paper", "released"],
                "description": "Sets the section as the paper or as the authors' released code has it",
            });
        }
        serde_json::json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "hugepilot configuration",
            "type": "object",
            "additionalProperties": false,
            "properties": sections,
        })
    }

    /// The policy of that name, if there is one.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Box<dyn Policy>> {
        match name {
            mega::NAME => Some(Box::new(mega::Mega::new(self.mega.clone()))),
            ingens::NAME => Some(Box::new(ingens::Ingens::new(self.ingens.clone()))),
            linux::NAME => Some(Box::new(linux::Linux::new(self.linux.clone()))),
            carrefour::NAME => Some(carrefour::policy(self, numa::PagesOf::Base)),
            carrefour::NAME_2M => Some(carrefour::policy(self, numa::PagesOf::AsMapped)),
            conservative::NAME => Some(conservative::policy(self)),
            reactive::NAME => Some(reactive::policy(self)),
            carrefour_lp::NAME => Some(carrefour_lp::policy(self)),
            _ => None,
        }
    }
}
