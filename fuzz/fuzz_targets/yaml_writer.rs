//! Builds trees from any bytes, writes them as YAML in both styles and reads them again.
#![no_main]

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::Values;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

/// Reads a tree from the front of `bytes`: one byte selects its kind, the next its length.
fn tree(bytes: &mut &[u8], depth: usize) -> Value {
    let Some((kind, rest)) = bytes.split_first() else {
        return Value::Null;
    };
    *bytes = rest;
    match kind % 8 {
        0 => Value::Null,
        1 => Value::Bool(kind & 8 == 0),
        2 => Value::from(number(bytes) as i64),
        3 => Value::from(f64::from_bits(number(bytes))),
        4 if depth < 40 => (0..kind >> 3).map(|_| tree(bytes, depth + 1)).collect(),
        5 if depth < 40 => {
            let field = |_| (text(bytes), tree(bytes, depth + 1));
            Value::Object((0..kind >> 3).map(field).collect::<Map<_, _>>())
        }
        _ => Value::String(text(bytes)),
    }
}

fn number(bytes: &mut &[u8]) -> u64 {
    let (head, rest) = bytes.split_at(bytes.len().min(8));
    *bytes = rest;
    head.iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn text(bytes: &mut &[u8]) -> String {
    let length = bytes.first().map_or(0, |length| usize::from(*length));
    let (head, rest) = bytes.split_at(bytes.len().min(length + 1));
    *bytes = rest;
    String::from_utf8_lossy(head.get(1..).unwrap_or_default()).into_owned()
}

fuzz_target!(|bytes: &[u8]| {
    let value = tree(&mut &*bytes, 0);
    if let Ok(text) = go_yaml::to_vec(&value) {
        let _ = go_yaml::from_slice::<Value>(&text);
    }
    let chart = "apiVersion: v2\nname: c\nversion: 0.1.0\n";
    let both = "{{ toYaml .Values.v }}{{ toYamlPretty .Values.v }}{{ toToml .Values }}{{ toJson .Values.v }}";
    let files = [
        File::new("Chart.yaml", chart),
        File::new("templates/_t.tpl", ""),
        File::new("templates/a.txt", both),
    ];
    let Ok(chart) = Chart::from_files(files) else {
        return;
    };
    let Ok(compiled) = CompiledChart::compile(&chart) else {
        return;
    };
    let values: Values = [("v".to_owned(), value)].into_iter().collect();
    let Ok(values) = compiled.coalesce(values) else {
        return;
    };
    let _ = compiled.render_files(&RenderInput::new(ReleaseInfo::new("r", "ns"), &values));
});
