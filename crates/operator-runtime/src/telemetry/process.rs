//! The metrics `process_*`, with the names and meanings of Prometheus' client libraries. They are read from `/proc`
//! at each scrape, so there are none on other systems than Linux.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reports what this process uses.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Scrapers get the other metrics where /proc cannot be read.
        let Some(usage) = Usage::read() else {
            return Ok(());
        };
        let cpu = encoder.encode_descriptor(
            // The encoder appends `_total` to the names of counters.
            "process_cpu_seconds",
            "Processor time of the process in user and system mode in seconds",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(usage.cpu_seconds).encode(cpu)?;
        let gauges = [
            (
                "process_open_fds",
                "Number of open file descriptors",
                usage.open_files,
            ),
            (
                "process_max_fds",
                "Number of file descriptors that may be open",
                usage.max_files,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory in bytes",
                usage.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Size of the address space in bytes",
                usage.virtual_bytes,
            ),
            (
                "process_start_time_seconds",
                "Time at which the process started, in seconds since 1970",
                usage.started,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        Ok(())
    }
}

/// Resources that a process uses, in the units of the metrics.
#[derive(Debug)]
struct Usage {
    cpu_seconds: f64,
    open_files: f64,
    max_files: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    started: f64,
}

impl Usage {
    /// Returns what this process uses, or `None` if `/proc` cannot be read.
    #[cfg(target_os = "linux")]
    #[expect(
        clippy::cast_precision_loss,
        reason = "samples are floats, as in all client libraries"
    )]
    fn read() -> Option<Self> {
        use procfs::process::{LimitValue, Process};

        let process = Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let max_files = match process.limits().ok()?.max_open_files.soft_limit {
            LimitValue::Value(files) => files as f64,
            LimitValue::Unlimited => f64::INFINITY,
        };
        Some(Self {
            cpu_seconds: seconds(stat.utime.saturating_add(stat.stime)),
            open_files: process.fd_count().ok()? as f64,
            max_files,
            resident_bytes: stat.rss.saturating_mul(procfs::page_size()) as f64,
            virtual_bytes: stat.vsize as f64,
            started: procfs::boot_time_secs().ok()? as f64 + seconds(stat.starttime),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn read() -> Option<Self> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::Usage;

    #[test]
    fn the_usage_is_that_of_this_process() {
        let before = Usage::read().unwrap();
        let file = tempfile::tempfile().unwrap();
        let memory = vec![1_u8; 128 << 20];
        let after = Usage::read().unwrap();
        assert!(memory.iter().all(|byte| *byte == 1));
        drop(file);

        let more = after.resident_bytes - before.resident_bytes;
        assert!(more > 32e6, "{after:?}");
        assert!(after.virtual_bytes >= after.resident_bytes, "{after:?}");
        assert!(after.cpu_seconds >= before.cpu_seconds, "{after:?}");
        let possible = 4.0..=after.max_files;
        assert!(possible.contains(&after.open_files), "{after:?}");
        assert!((after.started - before.started).abs() < f64::EPSILON);
        // The kernel's time of the boot is in whole seconds, so the start can seem to be in the future.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap().as_secs_f64();
        assert!((now - after.started).abs() < 3600.0, "{after:?} at {now}");
    }
}
