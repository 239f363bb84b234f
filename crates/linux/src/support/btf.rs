//! The kernel's types (BTF), as far as it takes to find the id of one function.
//!
//! The blob is a header, a section of types one after another, and a section of names. A type's id is its place in the
//! order, from 1 on; how long it is follows from its kind. Anything that does not fit ends the search with `None`.

const MAGIC: u16 = 0xEB9F;
const TYPE_BYTES: usize = 12;

/// Kinds of types, as numbered by the kernel.
mod kind {
    pub const INT: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const ENUM64: u32 = 19;
    pub const LAST: u32 = 19;
}

/// The BTF id of the function `name`.
#[must_use]
pub fn function_id(blob: &[u8], name: &str) -> Option<u32> {
    let (types, names) = sections(blob)?;
    let mut rest = types;
    for id in 1.. {
        if rest.is_empty() {
            return None;
        }
        let (name_at, info) = (u32_at(rest, 0)?, u32_at(rest, 4)?);
        let of_kind = (info >> 24) & 0x1f;
        if of_kind == kind::FUNC && name_is(names, name_at, name) {
            return Some(id);
        }
        rest = rest.get(TYPE_BYTES + extra_bytes(of_kind, info & 0xffff)?..)?;
    }
    None
}

/// The sections of types and of names.
fn sections(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let magic = u16::from_le_bytes(blob.get(..2)?.try_into().ok()?);
    if magic != MAGIC {
        return None;
    }
    let body = blob.get(usize_at(blob, 4)?..)?;
    let section = |at: usize| {
        let start = usize_at(blob, at)?;
        body.get(start..start.checked_add(usize_at(blob, at + 4)?)?)
    };
    Some((section(8)?, section(16)?))
}

/// Bytes behind the common part of a type of this kind with `members` members.
fn extra_bytes(of_kind: u32, members: u32) -> Option<usize> {
    let members = usize::try_from(members).ok()?;
    match of_kind {
        kind::INT | kind::VAR | kind::DECL_TAG => Some(4),
        kind::ARRAY => Some(12),
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => Some(12 * members),
        kind::ENUM | kind::FUNC_PROTO => Some(8 * members),
        other => (other <= kind::LAST).then_some(0),
    }
}

fn name_is(names: &[u8], at: u32, wanted: &str) -> bool {
    usize::try_from(at)
        .ok()
        .and_then(|at| names.get(at..))
        .and_then(|rest| rest.strip_prefix(wanted.as_bytes()))
        .is_some_and(|rest| rest.first() == Some(&0))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

/// Blobs for tests, here and outside.
#[doc(hidden)]
pub mod testing {
    /// A blob with an int, a struct of two members, and one function of this name: its id is 3.
    #[must_use]
    pub fn blob_with_function(name: &str) -> Vec<u8> {
        let type_words: [u32; 3 + 1 + 3 + 6 + 3] = [
            1,
            1 << 24,
            4,
            32, // an int and its encoding
            1,
            (4 << 24) | 2,
            8,
            1,
            1,
            0,
            1,
            1,
            32, // a struct of two
            5,
            12 << 24,
            0, // the function
        ];
        let types: Vec<u8> = type_words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut names = b"\0int\0".to_vec();
        names.extend(name.bytes());
        names.push(0);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("small");
        let header = [24, 0, length(&types), length(&types), length(&names)];
        let mut blob = vec![0x9F, 0xEB, 1, 0];
        blob.extend(header.iter().flat_map(|w| w.to_le_bytes()));
        blob.extend(types);
        blob.extend(names);
        blob
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_behind_other_types() {
        let blob = testing::blob_with_function("handle_mm_fault");
        assert_eq!(function_id(&blob, "handle_mm_fault"), Some(3));
        assert_eq!(function_id(&blob, "handle_mm"), None);
        assert_eq!(function_id(&blob, "int"), None);
    }

    #[test]
    fn no_prefix_of_a_blob_makes_it_panic() {
        let blob = testing::blob_with_function("handle_mm_fault");
        for length in 0..blob.len() {
            assert_eq!(function_id(&blob[..length], "handle_mm_fault"), None);
        }
    }
}
