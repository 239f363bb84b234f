//! Whether a program can run in a guest, which has no shared libraries: read from the ELF header
//! and program headers.

/// How a program is linked, as far as a guest cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// Runs as it is.
    Static,
    /// Needs a loader (and then libraries) that the guest does not have.
    Dynamic { interpreter: String },
    /// For another architecture than the guest's x86-64.
    Foreign,
    /// Cut short or broken.
    Malformed,
    /// A script, or data.
    NotElf,
}

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86_64: u16 = 62;
/// The type of the program header that names the loader (PT_INTERP).
const SEGMENT_INTERPRETER: u32 = 3;

pub fn linkage(file: &[u8]) -> Linkage {
    if !file.starts_with(MAGIC) {
        return Linkage::NotElf;
    }
    match (file.get(4), file.get(5), read_u16(file, 18)) {
        (Some(&CLASS_64), Some(&LITTLE_ENDIAN), Some(MACHINE_X86_64)) => {}
        (Some(_), Some(_), Some(_)) => return Linkage::Foreign,
        (_, _, _) => return Linkage::Malformed,
    }
    match interpreter(file) {
        None => Linkage::Malformed,
        Some(None) => Linkage::Static,
        Some(Some(interpreter)) => Linkage::Dynamic { interpreter },
    }
}

/// The loader that the file names, if any; `None` when the file is malformed.
fn interpreter(file: &[u8]) -> Option<Option<String>> {
    let headers = usize::try_from(read_u64(file, 32)?).ok()?;
    let header_size = usize::from(read_u16(file, 54)?);
    let header_count = usize::from(read_u16(file, 56)?);
    for index in 0..header_count {
        let header = headers.checked_add(index * header_size)?;
        if read_u32(file, header)? == SEGMENT_INTERPRETER {
            let start = usize::try_from(read_u64(file, header.checked_add(8)?)?).ok()?;
            let length = usize::try_from(read_u64(file, header.checked_add(32)?)?).ok()?;
            let name = file.get(start..start.checked_add(length)?)?;
            return Some(Some(
                String::from_utf8_lossy(name)
                    .trim_end_matches('\0')
                    .to_owned(),
            ));
        }
    }
    Some(None)
}

fn read_u16(file: &[u8], at: usize) -> Option<u16> {
    read(file, at).map(u16::from_le_bytes)
}

fn read_u32(file: &[u8], at: usize) -> Option<u32> {
    read(file, at).map(u32::from_le_bytes)
}

fn read_u64(file: &[u8], at: usize) -> Option<u64> {
    read(file, at).map(u64::from_le_bytes)
}

fn read<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, one PT_LOAD and, where a loader is named, one PT_INTERP.
    fn sample(interpreter: Option<&str>) -> Vec<u8> {
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&MACHINE_X86_64.to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&2_u16.to_le_bytes());
        file[64] = 1;
        if let Some(name) = interpreter {
            let start = u64::try_from(file.len()).unwrap();
            let length = u64::try_from(name.len() + 1).unwrap();
            file[120] = 3;
            file[128..136].copy_from_slice(&start.to_le_bytes());
            file[152..160].copy_from_slice(&length.to_le_bytes());
            file.extend_from_slice(name.as_bytes());
            file.push(0);
        }
        file
    }

    #[test]
    fn without_an_interpreter_it_is_static() {
        assert_eq!(linkage(&sample(None)), Linkage::Static);
    }

    #[test]
    fn the_interpreter_is_named() {
        let interpreter = "/lib64/ld-linux-x86-64.so.2".to_owned();
        assert_eq!(
            linkage(&sample(Some(&interpreter))),
            Linkage::Dynamic { interpreter }
        );
    }

    #[test]
    fn other_machines_are_foreign() {
        let mut file = sample(None);
        file[18] = 183;
        assert_eq!(linkage(&file), Linkage::Foreign);
        file[4] = 1;
        assert_eq!(linkage(&file), Linkage::Foreign);
    }

    #[test]
    fn scripts_are_not_elf() {
        assert_eq!(linkage(b"#!/bin/sh\n"), Linkage::NotElf);
        assert_eq!(linkage(b""), Linkage::NotElf);
    }

    #[test]
    fn every_cut_is_malformed() {
        let file = sample(Some("/loader"));
        for length in 4..file.len() {
            assert_eq!(
                linkage(&file[..length]),
                Linkage::Malformed,
                "{length} bytes"
            );
        }
    }

    #[test]
    fn offsets_beyond_the_end_are_malformed() {
        let mut file = sample(None);
        file[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(linkage(&file), Linkage::Malformed);
    }

    #[test]
    fn this_test_program_is_read() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected_dynamic = !cfg!(target_feature = "crt-static");
        assert_eq!(
            matches!(linkage(&file), Linkage::Dynamic { .. }),
            expected_dynamic
        );
    }
}
