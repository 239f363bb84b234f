//! Text tables: first column to the left, the others to the right.

/// A table as text. Every row has as many cells as the head.
///
/// # Panics
/// If a row has another number of cells.
#[must_use]
pub fn render(head: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    for line in lines() {
        assert_eq!(line.len(), head.len(), "a ragged table: {line:?}");
    }
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).filter_map(width).collect();
    let mut text = String::new();
    for (n, line) in lines().enumerate() {
        text.push_str(&aligned(line, &widths));
        text.push('\n');
        if n == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&rule.join("  "));
            text.push('\n');
        }
    }
    text
}

fn aligned(line: &[String], widths: &[usize]) -> String {
    let pad = |cell: &String, width: usize| " ".repeat(width - cell.chars().count());
    let cells: Vec<String> = line
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(column, (cell, width))| match column {
            0 => cell.clone() + &pad(cell, *width),
            _ => pad(cell, *width) + cell,
        })
        .collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_not_bytes() {
        let head = ["what".to_owned(), "took".to_owned()];
        let rows = [
            vec!["p99".to_owned(), "1.0 µs".to_owned()],
            vec!["max".to_owned(), "12.5 ms".to_owned()],
        ];
        let expected = "what     took\n----  -------\np99    1.0 µs\nmax   12.5 ms\n";
        assert_eq!(render(&head, &rows), expected);
    }
}
