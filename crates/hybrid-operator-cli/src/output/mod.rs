//! Output of results: as a table, JSON or YAML, with colours on terminals only.

mod progress;
mod table;

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use serde::Serialize;

pub(crate) use progress::{Steps, with_progress};
pub(crate) use table::Table;

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// One name per line
    Name,
}

impl Format {
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Something that has a name in lists.
pub(crate) trait Named {
    /// Returns the name by which kubectl finds it, such as `shops.example.com/main`.
    fn name(&self) -> String;
}

/// Prints a list as JSON or YAML, or only its names. Returns false for a table, which the caller prints.
pub(crate) fn print_list(
    format: Format,
    list: &[impl Named + Serialize],
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    if format != Format::Name {
        return print_data(format, list, out);
    }
    for item in list {
        writeln!(out, "{}", item.name())?;
    }
    Ok(true)
}

/// Flags of commands that print a table.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) color: ColorArgs,
}

/// Flag of commands that print colours.
#[derive(Debug, clap::Args)]
pub(crate) struct ColorArgs {
    /// Print no colours; they are printed only on terminals, and not if `NO_COLOR` is set
    #[arg(long)]
    no_color: bool,
}

impl ColorArgs {
    /// Returns the colours of standard output.
    pub(crate) fn paint(&self) -> Paint {
        let choice = AutoStream::choice(&io::stdout());
        Paint(!self.no_color && choice != ColorChoice::Never)
    }
}

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    pub(crate) fn styled(self, style: Style, text: &str) -> String {
        if self.0 {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    pub(crate) fn colored(self, color: AnsiColor, text: &str) -> String {
        self.styled(color.on_default(), text)
    }
}

/// Prints data as JSON or YAML. Returns false for a table, which the caller prints.
pub(crate) fn print_data(
    format: Format,
    data: &(impl Serialize + ?Sized),
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    match format {
        Format::Table | Format::Wide | Format::Name => return Ok(false),
        Format::Json => {
            let text = serde_json::to_string_pretty(data).context("cannot write JSON")?;
            writeln!(out, "{text}")?;
        }
        Format::Yaml => {
            let text = go_yaml::to_string(data).context("cannot write YAML")?;
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(true)
}

/// Returns a text with all its white space as single spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats the time since `then` as kubectl does: `5d`, `3h20m`, `40s`.
pub(crate) fn age(then: jiff::Timestamp, now: jiff::Timestamp) -> String {
    let seconds = (now.as_second() - then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let both = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        both(minutes, 'm', seconds % 60, 's')
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        both(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        both(days, 'd', hours % 24, 'h')
    } else if days < 730 {
        format!("{days}d")
    } else {
        both(days / 365, 'y', days % 365, 'd')
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::age;

    #[test]
    fn ages_are_formatted_as_by_kubectl() {
        let then = Timestamp::from_second(1_000).unwrap();
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (20 * 3600, "20h"),
            (3 * 86_400 + 7200, "3d2h"),
            (100 * 86_400, "100d"),
            (800 * 86_400, "2y70d"),
        ] {
            let now = Timestamp::from_second(1_000 + seconds).unwrap();
            assert_eq!(age(then, now), text, "{seconds}");
        }
    }
}
