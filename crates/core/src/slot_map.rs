//! A compact map from slots to small values.
//!
//! Slots come in long runs, so values are kept in chunks of 64 with one bit a slot for "is there": a dense object costs
//! the value's size plus about one byte a slot, where a tree of single entries would cost twice the value.

use crate::ids::{ObjectId, SlotId, SlotRange};
use std::collections::BTreeMap;

/// Slots in a chunk: the bits of its occupancy word.
const CHUNK: u64 = 64;

#[derive(Debug, Clone)]
struct Chunk<T> {
    occupied: u64,
    values: Box<[T]>,
}

/// A map from [`SlotId`] to `T`.
#[derive(Debug, Clone)]
pub struct SlotMap<T> {
    chunks: BTreeMap<(ObjectId, u64), Chunk<T>>,
    len: usize,
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self {
            chunks: BTreeMap::new(),
            len: 0,
        }
    }
}

/// The key of the chunk that holds `slot`, and the slot's place in it.
fn place(slot: SlotId) -> ((ObjectId, u64), usize) {
    let within = usize::try_from(slot.index % CHUNK).expect("less than 64");
    ((slot.object, slot.index / CHUNK), within)
}

impl<T: Clone + Default> SlotMap<T> {
    /// Slots in the map.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Is it empty?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a slot.
    #[must_use]
    pub fn get(&self, slot: SlotId) -> Option<&T> {
        let (key, at) = place(slot);
        self.chunks
            .get(&key)
            .filter(|chunk| chunk.occupied >> at & 1 == 1)
            .map(|chunk| &chunk.values[at])
    }

    /// The value of a slot, to change.
    pub fn get_mut(&mut self, slot: SlotId) -> Option<&mut T> {
        let (key, at) = place(slot);
        self.chunks
            .get_mut(&key)
            .filter(|chunk| chunk.occupied >> at & 1 == 1)
            .map(|chunk| &mut chunk.values[at])
    }

    /// The value of a slot, made by default where there is none.
    pub fn entry(&mut self, slot: SlotId) -> &mut T {
        let (key, at) = place(slot);
        let chunk = self.chunks.entry(key).or_insert_with(|| Chunk {
            occupied: 0,
            values: vec![T::default(); usize::try_from(CHUNK).expect("64")].into_boxed_slice(),
        });
        if chunk.occupied >> at & 1 == 0 {
            chunk.occupied |= 1 << at;
            self.len += 1;
        }
        &mut chunk.values[at]
    }

    /// Sets a slot's value; gives back the one before.
    pub fn insert(&mut self, slot: SlotId, value: T) -> Option<T> {
        let before = self.get(slot).cloned();
        *self.entry(slot) = value;
        before
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: SlotId) -> Option<T> {
        let (key, at) = place(slot);
        let chunk = self.chunks.get_mut(&key)?;
        if chunk.occupied >> at & 1 == 0 {
            return None;
        }
        chunk.occupied &= !(1 << at);
        self.len -= 1;
        let value = std::mem::take(&mut chunk.values[at]);
        if chunk.occupied == 0 {
            self.chunks.remove(&key);
        }
        Some(value)
    }

    /// Takes all slots of an object out.
    pub fn remove_object(&mut self, object: ObjectId) {
        let keys: Vec<_> = self
            .chunks
            .range((object, 0)..=(object, u64::MAX))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(chunk) = self.chunks.remove(&key) {
                self.len -= chunk.occupied.count_ones() as usize;
            }
        }
    }

    /// All slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        self.chunks
            .iter()
            .flat_map(|(key, chunk)| occupied(*key, chunk))
    }

    /// All slots after `from` (or all), in order.
    pub fn after(&self, from: Option<SlotId>) -> impl Iterator<Item = (SlotId, &T)> {
        let first = from.map(|slot| place(slot).0);
        let chunks = match first {
            Some(key) => self.chunks.range(key..),
            None => self.chunks.range(..),
        };
        chunks
            .flat_map(|(key, chunk)| occupied(*key, chunk))
            .filter(move |(slot, _)| from.is_none_or(|from| *slot > from))
    }

    /// The slots of a range, in order.
    pub fn range(&self, range: SlotRange) -> impl Iterator<Item = (SlotId, &T)> {
        let keys = (range.object, range.first / CHUNK)..=(range.object, range.end() / CHUNK);
        self.chunks
            .range(keys)
            .flat_map(|(key, chunk)| occupied(*key, chunk))
            .filter(move |(slot, _)| range.contains(*slot))
    }

    /// The objects that have slots in the map, in order.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.chunks.keys().map(|(object, _)| *object).collect();
        objects.dedup();
        objects
    }

    /// All slots of one object, in order.
    pub fn of_object(&self, object: ObjectId) -> impl Iterator<Item = (SlotId, &T)> {
        self.chunks
            .range((object, 0)..=(object, u64::MAX))
            .flat_map(|(key, chunk)| occupied(*key, chunk))
    }

    /// Takes out every slot of which `keep` says no.
    pub fn retain(&mut self, mut keep: impl FnMut(SlotId, &T) -> bool) {
        let gone: Vec<SlotId> = self
            .iter()
            .filter(|(slot, value)| !keep(*slot, value))
            .map(|(slot, _)| slot)
            .collect();
        for slot in gone {
            self.remove(slot);
        }
    }

    /// Changes every value of a range.
    pub fn for_each_mut(&mut self, range: SlotRange, mut change: impl FnMut(SlotId, &mut T)) {
        let keys = (range.object, range.first / CHUNK)..=(range.object, range.end() / CHUNK);
        for ((object, number), chunk) in self.chunks.range_mut(keys) {
            for (at, value) in chunk.values.iter_mut().enumerate() {
                let slot = SlotId {
                    object: *object,
                    index: number * CHUNK + at as u64,
                };
                if chunk.occupied >> at & 1 == 1 && range.contains(slot) {
                    change(slot, value);
                }
            }
        }
    }

    /// Bytes that the map holds, but for what the values themselves point to.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let chunk = size_of::<((ObjectId, u64), Chunk<T>)>() + size_of::<T>() * 64;
        self.chunks.len() * chunk
    }
}

fn occupied<T>(key: (ObjectId, u64), chunk: &Chunk<T>) -> impl Iterator<Item = (SlotId, &T)> {
    chunk
        .values
        .iter()
        .enumerate()
        .filter(|(at, _)| chunk.occupied >> at & 1 == 1)
        .map(move |(at, value)| {
            (
                SlotId {
                    object: key.0,
                    index: key.1 * CHUNK + at as u64,
                },
                value,
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Pid, ProcessId};

    fn object(pid: u32) -> ObjectId {
        ObjectId::Private(ProcessId {
            pid: Pid(pid),
            start_ticks: 1,
        })
    }

    fn slot(pid: u32, index: u64) -> SlotId {
        SlotId {
            object: object(pid),
            index,
        }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut map = SlotMap::<u16>::default();
        for index in [0, 63, 64, 1 << 40] {
            assert_eq!(map.insert(slot(1, index), 7), None);
        }
        assert_eq!(map.insert(slot(1, 63), 8), Some(7));
        assert_eq!(map.len(), 4);
        assert_eq!(map.get(slot(1, 63)), Some(&8));
        assert_eq!(map.get(slot(1, 62)), None);
        assert_eq!(map.remove(slot(1, 63)), Some(8));
        assert_eq!(map.remove(slot(1, 63)), None);
        assert_eq!(map.len(), 3);
    }

    #[test]
    fn a_range_holds_its_slots_and_no_others() {
        let mut map = SlotMap::<u16>::default();
        for index in 0..200 {
            map.insert(slot(1, index), 0);
            map.insert(slot(2, index), 0);
        }
        let range = SlotRange {
            object: object(1),
            first: 60,
            count: 10,
        };
        assert_eq!(map.range(range).count(), 10);
        map.for_each_mut(range, |_, value| *value += 1);
        assert_eq!(map.iter().filter(|(_, value)| **value == 1).count(), 10);
        map.remove_object(object(1));
        assert_eq!(map.len(), 200);
    }
}
