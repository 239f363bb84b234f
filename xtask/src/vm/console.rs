//! The last lines of a guest's console, and whether its kernel panicked.

use std::collections::VecDeque;

/// How many lines are kept.
pub const LINES_MAX: usize = 60;
/// A longer line is broken here, so that a guest gone mad does not fill our memory.
const LINE_BYTES_MAX: usize = 512;
const PANIC_MARK: &str = "Kernel panic";

/// Takes the console's bytes as they come.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    unfinished: Vec<u8>,
    panic: Option<String>,
}

impl Tail {
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.finish_line(),
                b'\r' => {}
                other => self.unfinished.push(other),
            }
            if self.unfinished.len() == LINE_BYTES_MAX {
                self.finish_line();
            }
        }
    }

    fn finish_line(&mut self) {
        let line = String::from_utf8_lossy(&self.unfinished).into_owned();
        self.unfinished.clear();
        if self.panic.is_none() && line.contains(PANIC_MARK) {
            self.panic = Some(line.clone());
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The last lines, at most [`LINES_MAX`], and with them how the kernel announced a panic, if it
    /// did.
    pub fn finish(mut self) -> LastWords {
        if !self.unfinished.is_empty() {
            self.finish_line();
        }
        LastWords {
            lines: self.lines.into(),
            panic: self.panic,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    pub lines: Vec<String>,
    pub panic: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(chunks: &[&[u8]]) -> LastWords {
        let mut tail = Tail::default();
        chunks.iter().for_each(|chunk| tail.feed(chunk));
        tail.finish()
    }

    #[test]
    fn lines_may_come_in_pieces() {
        assert_eq!(finish(&[b"on", b"e\r\ntw", b"o"]).lines, ["one", "two"]);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let text: String = (0..LINES_MAX + 5).map(|line| format!("{line}\n")).collect();
        let words = finish(&[text.as_bytes()]);
        assert_eq!(
            (words.lines.len(), words.lines[0].as_str()),
            (LINES_MAX, "5")
        );
    }

    #[test]
    fn endless_lines_are_broken() {
        let words = finish(&[&vec![b'x'; 3 * LINE_BYTES_MAX]]);
        assert_eq!(
            words.lines.iter().map(String::len).collect::<Vec<_>>(),
            [LINE_BYTES_MAX; 3]
        );
    }

    #[test]
    fn a_panic_is_remembered_when_its_line_is_gone() {
        let text = format!(
            "[1.0] Kernel panic - not syncing: test\n{}",
            "trace\n".repeat(LINES_MAX)
        );
        let words = finish(&[text.as_bytes()]);
        assert_eq!(
            words.panic.as_deref(),
            Some("[1.0] Kernel panic - not syncing: test")
        );
        assert!(!words.lines.iter().any(|line| line.contains("panic")));
    }
}
