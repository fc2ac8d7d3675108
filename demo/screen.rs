//! The output of the demo.

use std::io::IsTerminal;

use anyhow::{Context, Result};

/// Rows of a server-side table, starting with the headings.
pub(crate) type Table = Vec<Vec<String>>;

/// Prints steps, commands and tables, with colour if the terminal supports it.
pub(crate) struct Screen {
    colour: bool,
    count: std::cell::Cell<u32>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            colour,
            count: std::cell::Cell::new(0),
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Prints a numbered heading.
    pub(crate) fn step(&self, title: &str) {
        self.count.set(self.count.get() + 1);
        println!(
            "\n{}",
            self.paint("1", &format!("{}. {title}", self.count.get()))
        );
    }

    /// Prints a command.
    pub(crate) fn command(&self, line: &str) {
        println!("{} {}", self.paint("2", "$"), self.paint("36", line));
    }

    /// Prints a remark.
    pub(crate) fn note(&self, text: &str) {
        println!("{}", self.paint("32", &format!("# {text}")));
    }

    /// Prints the output of a command.
    pub(crate) fn text(text: &str) {
        println!("{text}");
    }

    /// Prints a file without its comments.
    pub(crate) fn file(path: &str) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
        {
            println!("  {line}");
        }
        Ok(())
    }

    /// Prints a command and a table as its output.
    pub(crate) fn table(&self, command: &str, table: &Table) {
        self.command(command);
        if table.len() < 2 {
            println!("No resources found.");
            return;
        }
        let columns = table.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|i| {
                table
                    .iter()
                    .filter_map(|row| row.get(i))
                    .map(|c| c.chars().count())
                    .max()
            })
            .map(|width| width.unwrap_or(0))
            .collect();
        for row in table {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            println!("{}", cells.join("   ").trim_end());
        }
    }
}
