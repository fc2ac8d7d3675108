//! Tables like those of kubectl, which fit the width of the terminal.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Width};

use super::Paint;

/// Fewest columns of a terminal that a table is arranged for.
const NARROWEST: u16 = 20;

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
        let shown = |(text, color): (String, _)| {
            let text = if text.is_empty() {
                "-".to_owned()
            } else {
                text
            };
            (text, color)
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// Formats the table for standard output.
    pub(crate) fn text(&self, paint: Paint) -> String {
        self.within(comfy_table::Table::new().width(), paint)
    }

    /// Formats the table in at most `width` columns, if possible.
    fn within(&self, width: Option<u16>, paint: Paint) -> String {
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
                table.set_width(width.max(NARROWEST));
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
        let narrow = width.is_some_and(|width| usize::from(width) < self.columns.len() * 12);
        for column in table.column_iter_mut() {
            column.set_padding((0, if narrow { 1 } else { 3 }));
            if narrow {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(3)));
            }
        }
        let mut text = String::new();
        for line in table.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
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
        assert_eq!(
            table().within(None, Paint(false)),
            "NAME   READY   REASON   RELEASE                 CHART\n\
             shop   True    -        shop-with-a-long-name   shop-1.2.3\n"
        );
    }

    #[test]
    fn a_table_fits_a_terminal_of_forty_columns() {
        let text = table().within(Some(40), Paint(false));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        let letters: String = text.split_whitespace().collect();
        assert!(letters.contains("NAME") && text.contains("shop"), "{text}");
    }

    #[test]
    fn colours_are_printed_only_if_wanted() {
        let mut table = Table::new(&["READY"]);
        table.colored([("True".to_owned(), Some(AnsiColor::Green))]);
        assert!(table.within(None, Paint(true)).contains('\u{1b}'));
        assert!(!table.within(None, Paint(false)).contains('\u{1b}'));
    }
}
