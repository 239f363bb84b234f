//! What makes a pool or a mount last beyond the next boot: lines for the system's own files, to print. Pure.

use hugepilot_linux::pool::PageSize;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A pool: the boot parameters, and for pages of the default size the sysctl.
pub fn pool(size: PageSize, pages: u64, default: Option<PageSize>) -> String {
    let boot = format!(
        "on the kernel's command line: hugepagesz={} hugepages={pages}",
        size.short()
    );
    if default == Some(size) {
        format!("to keep it: vm.nr_hugepages={pages} in /etc/sysctl.d/hugepages.conf, or {boot}")
    } else {
        format!("to keep it: {boot} (sysctl sets the default size alone)")
    }
}

/// The line of `/etc/fstab`.
pub fn fstab(at: &Path, options: &str) -> String {
    let mut escaped = String::new();
    for letter in at.to_string_lossy().chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' | '#' => {
                write!(escaped, "\\{:03o}", u32::from(letter))
                    .expect("writing to a String cannot fail");
            }
            letter => escaped.push(letter),
        }
    }
    format!("hugetlbfs {escaped} hugetlbfs {options},nodev,nosuid 0 0")
}

/// The name of systemd's unit for a mount, which must be derived from its path.
pub fn unit_name(at: &Path) -> String {
    let bytes = at.as_os_str().as_bytes();
    let words = bytes
        .split(|&byte| byte == b'/')
        .filter(|word| !word.is_empty());
    let mut name = String::new();
    for (index, word) in words.enumerate() {
        if index > 0 {
            name.push('-');
        }
        for (offset, &byte) in word.iter().enumerate() {
            let plain = byte.is_ascii_alphanumeric() || b":_.".contains(&byte);
            if plain && !(byte == b'.' && index == 0 && offset == 0) {
                name.push(char::from(byte));
            } else {
                write!(name, "\\x{byte:02x}").expect("writing to a String cannot fail");
            }
        }
    }
    if name.is_empty() {
        name.push('-');
    }
    name + ".mount"
}

/// That unit.
pub fn unit(at: &Path, size: PageSize, options: &str) -> String {
    // A percent sign begins a specifier of systemd.
    let place = at.display().to_string().replace('%', "%%");
    format!(
        "[Unit]\nDescription=hugetlbfs of {size} pages\n\n[Mount]\nWhat=hugetlbfs\nWhere={place}\nType=hugetlbfs\nOptions={options},nodev,nosuid\n\n[Install]\nWantedBy=local-fs.target\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::Bytes;

    fn size(bytes: Bytes) -> PageSize {
        PageSize::new(bytes).expect("a power of two")
    }

    #[test]
    fn sysctl_is_for_the_default_size() {
        let (two, one) = (size(Bytes::mib(2)), size(Bytes::gib(1)));
        assert!(pool(two, 512, Some(two)).contains("vm.nr_hugepages=512"));
        let other = pool(one, 4, Some(two));
        assert!(
            other.contains("hugepagesz=1G hugepages=4") && !other.contains("vm."),
            "{other}"
        );
    }

    #[test]
    fn fstab_escapes_what_would_end_a_field() {
        assert_eq!(
            fstab(Path::new("/mnt/huge pages"), "pagesize=2M"),
            "hugetlbfs /mnt/huge\\040pages hugetlbfs pagesize=2M,nodev,nosuid 0 0"
        );
    }

    #[test]
    fn units_are_named_as_systemd_wants() {
        let name = |path: &str| unit_name(Path::new(path));
        assert_eq!(name("/mnt/huge"), "mnt-huge.mount");
        assert_eq!(name("/mnt/huge-1G/"), "mnt-huge\\x2d1G.mount");
        assert_eq!(name("/.a b/.c"), "\\x2ea\\x20b-.c.mount");
        assert_eq!(name("/"), "-.mount");
    }

    #[test]
    fn a_unit_says_where_and_how() {
        let unit = unit(Path::new("/mnt/50%"), size(Bytes::gib(1)), "pagesize=1G");
        assert!(unit.contains("\nWhere=/mnt/50%%\n"), "{unit}");
        assert!(
            unit.contains("\nOptions=pagesize=1G,nodev,nosuid\n"),
            "{unit}"
        );
    }
}
