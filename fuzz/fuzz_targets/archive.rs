//! Reads any bytes as a packaged chart: as they are, and as the tar inside the gzip.
#![no_main]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use helm_core::chart::{Chart, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        entries: 100,
        unpacked: 1 << 20,
        ..Limits::default()
    };
    let _ = Chart::from_archive(bytes, &limits);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    if gzip.write_all(bytes).is_ok()
        && let Ok(packed) = gzip.finish()
        && let Ok(chart) = Chart::from_archive(&packed, &limits)
    {
        let _ = (chart.to_record(), chart.crds());
    }
});
