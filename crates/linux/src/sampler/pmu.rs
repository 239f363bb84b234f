//! What a PMU's files below `/sys/bus/event_source/devices` say: its type, its named events, where a field of theirs goes.

use super::SamplerUnavailable;
use crate::procfs::SysRoot;
use crate::sys::perf::Event;
use std::io;

/// One PMU.
#[derive(Debug, Clone)]
pub struct Pmu {
    name: &'static str,
    sys: SysRoot,
    /// perf's number of it.
    pub kind: u32,
}

impl Pmu {
    /// The PMU of that name, if the machine has it.
    ///
    /// # Errors
    /// If its files cannot be read or understood.
    pub fn find(sys: &SysRoot, name: &'static str) -> Result<Option<Self>, SamplerUnavailable> {
        let Some(text) = file(sys, name, "type")? else {
            return Ok(None);
        };
        let kind = text
            .trim()
            .parse()
            .map_err(|_not_a_number| odd(name, "type", &text))?;
        Ok(Some(Self {
            name,
            sys: sys.clone(),
            kind,
        }))
    }

    /// Its event of that name, if it has it: every field put where its format says.
    ///
    /// # Errors
    /// If a file cannot be read or understood.
    pub fn event(&self, name: &str) -> Result<Option<Event>, SamplerUnavailable> {
        let Some(text) = file(&self.sys, self.name, &format!("events/{name}"))? else {
            return Ok(None);
        };
        let mut event = Event {
            kind: self.kind,
            ..Event::default()
        };
        for term in text.trim().split(',') {
            self.set(&mut event, term)
                .and_then(|set| set.then_some(()).ok_or_else(|| odd(self.name, name, &text)))?;
        }
        Ok(Some(event))
    }

    /// Sets `term` (`field=value`, or `field` alone for 1) in `event`. Is there such a field?
    ///
    /// # Errors
    /// If the field's format cannot be read or understood.
    pub fn set(&self, event: &mut Event, term: &str) -> Result<bool, SamplerUnavailable> {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let Some(format) = file(&self.sys, self.name, &format!("format/{name}"))? else {
            return Ok(false);
        };
        let value = number(value).ok_or_else(|| odd(self.name, name, term))?;
        let place = Place::parse(&format).ok_or_else(|| odd(self.name, name, &format))?;
        place.put(event, value);
        Ok(true)
    }
}

/// A file of a PMU, where it is there.
fn file(sys: &SysRoot, pmu: &str, name: &str) -> Result<Option<String>, SamplerUnavailable> {
    let path = sys.path(&format!("bus/event_source/devices/{pmu}/{name}"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SamplerUnavailable::Read {
            what: path.display().to_string(),
            source,
            fix: "it is readable by everybody, unless /sys is not the kernel's",
        }),
    }
}

fn odd(pmu: &str, name: &str, text: &str) -> SamplerUnavailable {
    SamplerUnavailable::Absent(format!(
        "{pmu}'s {name} is not understood: {}; please report it",
        text.trim()
    ))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Where a field goes: `config1:0-15`, or several ranges of bits, the lowest first: `config:0-7,32-35`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    second: bool,
    bits: Vec<(u32, u32)>,
}

impl Place {
    fn parse(format: &str) -> Option<Self> {
        let (word, ranges) = format.trim().split_once(':')?;
        let second = match word {
            "config" => false,
            "config1" => true,
            _other => return None,
        };
        let range = |range: &str| {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high && high < 64).then_some((low, high))
        };
        let bits = ranges.split(',').map(range).collect::<Option<_>>()?;
        Some(Self { second, bits })
    }

    fn put(&self, event: &mut Event, mut value: u64) {
        let word = if self.second {
            &mut event.config1
        } else {
            &mut event.config
        };
        for (low, high) in &self.bits {
            let width = high - low + 1;
            let mask = u64::MAX >> (64 - width);
            *word |= (value & mask) << low;
            value = value.checked_shr(width).unwrap_or(0);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::path::Path;

    /// A `/sys` with these files of PMUs.
    pub fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, SysRoot) {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = dir.path().join("bus/event_source/devices").join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let root = SysRoot::new(dir.path());
        (dir, root)
    }

    #[test]
    fn fields_go_where_their_format_says() {
        let (_dir, sys) = fake(&[
            ("cpu/type", "4\n"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("cpu/format/event", "config:0-7\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/ldlat", "config1:0-15\n"),
        ]);
        let pmu = Pmu::find(&sys, "cpu").expect("readable").expect("there");
        let event = pmu.event("mem-loads").expect("readable").expect("there");
        assert_eq!((event.kind, event.config, event.config1), (4, 0x1cd, 3));
        assert!(pmu.event("mem-stores").expect("readable").is_none());
        assert!(Pmu::find(&sys, "ibs_op").expect("readable").is_none());
    }

    #[test]
    fn a_field_may_lie_in_pieces() {
        let mut event = Event::default();
        let place = Place::parse("config:0-7,32-35\n").expect("a format");
        place.put(&mut event, 0xf12);
        assert_eq!(event.config, 0xf_0000_0012);
        assert_eq!(Place::parse("config:9-3"), None);
        assert_eq!(Place::parse("config3:0-63"), None);
    }

    #[test]
    fn an_event_with_an_unknown_field_is_refused() {
        let (_dir, sys) = fake(&[
            ("cpu/type", "4"),
            ("cpu/events/mem-loads", "event=0xcd,magic=1"),
        ]);
        let pmu = Pmu::find(&sys, "cpu").expect("readable").expect("there");
        assert!(pmu.event("mem-loads").is_err());
    }
}
