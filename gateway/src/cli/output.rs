//! Standard output, and tables for people. A closed pipe is an error like any other, not a panic.

use super::error::CliError;
use serde::Serialize;
use std::io::{self, Write};

pub(super) fn text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
        .map_err(CliError::Output)
}

pub(super) fn lines(lines: impl IntoIterator<Item = String>) -> Result<(), CliError> {
    text(&lines.into_iter().map(|line| line + "\n").collect::<String>())
}

pub(super) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let shown = serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
    text(&shown)
}

pub(super) fn json_line(value: &impl Serialize) -> Result<(), CliError> {
    let shown = serde_json::to_string(value).map_err(|error| CliError::Output(error.into()))?;
    text(&shown)
}

/// Columns as wide as their widest cell, the last one ragged.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut shown = String::new();
    for row in std::iter::once(&head.map(String::from)).chain(rows) {
        let cells: String = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        shown += cells.trim_end();
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a".to_owned(), "1".to_owned()], ["longer".to_owned(), "2".to_owned()]];
        assert_eq!(super::table(["NAME", "N"], &rows), "NAME    N\na       1\nlonger  2\n");
    }
}
