//! Flags that limit what a render may take.

use std::time::Duration;

use hybrid_operator::watches::{self, ChartLimits};

/// Limits of a render.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Memory that the values and the output of a render may hold [default: 256Mi]
    #[arg(long, value_name = "SIZE", value_parser = watches::parse_size)]
    limit_memory: Option<usize>,

    /// Processor time that a render may take; 0 means no limit [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = watches::parse_duration)]
    limit_time: Option<Duration>,
}

impl LimitArgs {
    pub(crate) fn limits(self) -> ChartLimits {
        ChartLimits {
            memory: self.limit_memory,
            time: self.limit_time,
        }
    }
}
