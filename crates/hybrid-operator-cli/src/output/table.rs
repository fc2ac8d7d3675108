//! Tables like those of kubectl, which fit the width of the terminal.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use comfy_table::{Cell, Color, ContentArrangement};

use super::Paint;

/// Fewest columns of a terminal that a table is arranged for.
const NARROWEST: u16 = 20;
/// Space between columns, as of kubectl.
const WIDE_PADDING: u16 = 3;
/// Least average width of columns whose cells are readable when they are wrapped.
const READABLE: usize = 8;

/// Rows of text under headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<(String, Option<AnsiColor>)>>,
}

impl Table {
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of plain texts.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.colored(cells.into_iter().map(|text| (text, None)));
    }

    /// Adds a row of texts, some with a colour.
    pub(crate) fn colored(&mut self, cells: impl IntoIterator<Item = (String, Option<AnsiColor>)>) {
        let mut row: Vec<_> = cells.into_iter().collect();
        for (text, _) in &mut row {
            if text.is_empty() {
                text.push('-');
            }
        }
        self.rows.push(row);
    }

    /// Formats the table for standard output.
    pub(crate) fn text(&self, paint: Paint) -> String {
        self.within(comfy_table::Table::new().width(), paint)
    }

    /// Formats the table in at most `width` columns, if possible: with less space between its columns
    /// and with wrapped cells, or as a block of lines for each row if the cells would be unreadable.
    fn within(&self, width: Option<u16>, paint: Paint) -> String {
        let Some(width) = width.map(|width| width.max(NARROWEST)) else {
            return self.arranged(None, WIDE_PADDING, paint);
        };
        let (space, columns) = (usize::from(width), self.columns.len());
        if self.natural_width() + columns * usize::from(WIDE_PADDING) <= space {
            self.arranged(Some(width), WIDE_PADDING, paint)
        } else if space >= columns * READABLE {
            self.arranged(Some(width), 1, paint)
        } else {
            self.blocks(space, paint)
        }
    }

    /// Returns the sum of the widths of the longest cells.
    fn natural_width(&self) -> usize {
        let longest = |(index, heading): (usize, &&str)| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widths = cells.map(|(text, _)| text.chars().count());
            widths.max().unwrap_or_default().max(heading.len())
        };
        self.columns.iter().enumerate().map(longest).sum()
    }

    fn arranged(&self, width: Option<u16>, padding: u16, paint: Paint) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if paint.0 {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        match width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(|(text, color)| {
                let cell = Cell::new(text);
                match color.and_then(of_table) {
                    Some(color) => cell.fg(color),
                    None => cell,
                }
            }));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, padding));
        }
        let mut text = String::new();
        for line in table.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// Formats each row as lines of a heading and a cell.
    fn blocks(&self, width: usize, paint: Paint) -> String {
        let headings = self.columns.iter().map(|heading| heading.len());
        let margin = headings.max().unwrap_or_default() + 2;
        let space = width.saturating_sub(margin).max(1);
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            for (heading, (cell, color)) in self.columns.iter().zip(row) {
                let cell: Vec<char> = cell.chars().collect();
                for (line, piece) in cell.chunks(space).enumerate() {
                    let piece: String = piece.iter().collect();
                    let piece = match color {
                        Some(color) => paint.colored(*color, &piece),
                        None => piece,
                    };
                    let heading = if line == 0 { heading } else { "" };
                    let _ = writeln!(text, "{heading:margin$}{piece}");
                }
            }
        }
        text
    }
}

fn of_table(color: AnsiColor) -> Option<Color> {
    match color {
        AnsiColor::Green => Some(Color::Green),
        AnsiColor::Red => Some(Color::Red),
        AnsiColor::Yellow => Some(Color::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "READY", "REASON", "RELEASE", "CHART"]);
        table.row(["shop", "True", "", "shop-with-a-long-name", "shop-1.2.3"].map(str::to_owned));
        table
    }

    #[test]
    fn a_table_without_a_terminal_has_one_line_for_each_row() {
        let expected = "NAME   READY   REASON   RELEASE                 CHART\n\
                        shop   True    -        shop-with-a-long-name   shop-1.2.3\n";
        assert_eq!(table().within(None, Paint(false)), expected);
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let text = table().within(Some(50), Paint(false));
        let fits = text.lines().all(|line| line.chars().count() <= 50);
        assert!(fits, "{text}");
        assert!(text.starts_with("NAME READY REASON RELEASE"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        let expected = "NAME     shop\n\
                        READY    True\n\
                        REASON   -\n\
                        RELEASE  shop-with-a-long-name\n\
                        CHART    shop-1.2.3\n";
        assert_eq!(table().within(Some(30), Paint(false)), expected);
        let narrow = table().within(Some(24), Paint(false));
        let wrapped = "RELEASE  shop-with-a-lon\n         g-name\n";
        assert!(narrow.contains(wrapped), "{narrow}");
    }

    #[test]
    fn colours_are_printed_only_if_wanted() {
        let mut table = Table::new(&["READY"]);
        table.colored([("True".to_owned(), Some(AnsiColor::Green))]);
        assert!(table.within(None, Paint(true)).contains('\u{1b}'));
        assert!(!table.within(None, Paint(false)).contains('\u{1b}'));
    }
}
