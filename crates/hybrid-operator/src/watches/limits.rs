//! `limits`: what one render of a chart may take.

use std::time::Duration;

use helm_core::engine::{BudgetError, RenderLimits};

/// Limits of one render of a chart. `None` means the default of the operator, and of Helm's engine
/// here if it has none either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChartLimits {
    /// Memory that values and output hold at one time, in bytes. Default: 256 MiB.
    pub memory: Option<usize>,
    /// Processor time; zero means no limit. Default: 10 s.
    pub time: Option<Duration>,
}

impl ChartLimits {
    /// Returns these limits, and those of `other` where there are none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.or(other.memory),
            time: self.time.or(other.time),
        }
    }

    /// Returns the limits of a render.
    pub fn of_render(self) -> RenderLimits {
        let mut limits = RenderLimits::default();
        if let Some(memory) = self.memory {
            limits.memory = memory;
        }
        if let Some(time) = self.time {
            limits.time = Some(time).filter(|time| !time.is_zero());
        }
        limits
    }
}

/// Less would not suffice for a chart with one object.
const SMALLEST: usize = 1 << 20;

/// Parses a size in bytes, of at least 1 MiB: `512Mi`, `1Gi`, or a number of bytes.
///
/// # Errors
/// If the text is not such a size.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("", 0)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((text, &0));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<usize>().ok().filter(|_| is_number);
    let size = number.and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| *size >= SMALLEST)
        .ok_or_else(|| "expected a size of at least 1Mi, such as 512Mi or 1Gi".to_owned())
}

/// Parses a duration in Go's format, such as `1m30s`.
///
/// # Errors
/// If the text is not such a duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    operator_runtime::duration::parse(text).map_err(|error| error.to_string())
}

/// Returns how an exceeded limit is raised, if an option does that.
pub fn way_to_raise(limit: &BudgetError) -> Option<&'static str> {
    match limit {
        BudgetError::Memory { .. } => {
            Some("raise it with `limits.memory` in watches.yaml or with --limit-memory")
        }
        BudgetError::Time { .. } => {
            Some("raise it with `limits.time` in watches.yaml or with --limit-time")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in [
            ("1Mi", Some(1 << 20)),
            ("256Mi", Some(256 << 20)),
            ("2Gi", Some(2 << 30)),
            ("2048Ki", Some(2 << 20)),
            ("3000000", Some(3_000_000)),
            ("1023Ki", None),
            ("0", None),
            ("", None),
            ("Mi", None),
            ("+5Mi", None),
            ("-5Mi", None),
            ("5M", None),
            ("1.5Gi", None),
            ("99999999999999Gi", None),
        ] {
            assert_eq!(parse_size(text).ok(), size, "{text}");
        }
    }

    #[test]
    fn limits_of_an_entry_come_before_those_of_the_operator() {
        let own = ChartLimits {
            memory: Some(1 << 30),
            time: None,
        };
        let operator = ChartLimits {
            memory: Some(1 << 25),
            time: Some(Duration::ZERO),
        };
        let limits = own.or(operator).of_render();
        assert_eq!((limits.memory, limits.time), (1 << 30, None));
        let limits = ChartLimits::default().of_render();
        let seconds = Some(Duration::from_secs(10));
        assert_eq!((limits.memory, limits.time), (256 << 20, seconds));
    }
}
