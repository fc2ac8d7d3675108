//! Checks values against any schema: the input is a schema, a NUL byte, and the values in YAML.
#![no_main]

use helm_core::chart::{Chart, File};
use helm_core::engine::CompiledChart;
use helm_core::values::Values;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let schema = parts.next().unwrap_or_default();
    let values = parts.next().unwrap_or_default();
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 1.2.3}"),
        File::new("values.schema.json", schema),
        File::new("values.yaml", values),
    ]);
    let Ok(compiled) = chart.map(|chart| CompiledChart::compile(&chart)) else {
        return;
    };
    if let Ok(compiled) = compiled
        && let Err(error) = compiled.coalesce(Values::new())
    {
        drop(error.to_string());
    }
});
