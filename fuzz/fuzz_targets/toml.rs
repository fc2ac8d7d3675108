//! Reads any text as TOML, and writes what was read.
#![no_main]

use std::sync::LazyLock;

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::Values;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The limits are those of production.
static CHART: LazyLock<Option<CompiledChart>> = LazyLock::new(|| {
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 1.2.3}"),
        File::new(
            "templates/a.yaml",
            "# {{ fromToml .Values.text | toToml | len }}",
        ),
    ]);
    CompiledChart::compile(&chart.ok()?).ok()
});

fuzz_target!(|input: &[u8]| {
    let Some(chart) = CHART.as_ref() else {
        return;
    };
    let text = String::from_utf8_lossy(input).into_owned();
    let values: Values = [("text".to_owned(), Value::String(text))]
        .into_iter()
        .collect();
    if let Ok(values) = chart.coalesce(values) {
        let _ = chart.render(&RenderInput::new(ReleaseInfo::new("r", "ns"), &values));
    }
});
