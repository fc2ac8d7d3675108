//! Counts the memory of compiled charts and of their renders, and prints it as JSON by chart. The bytes that are
//! allocated are counted on one thread, so it must run on one processor. Started by `benches/run`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a development tool; panicking is its error report"
)]

mod cases;

use std::collections::BTreeMap;
use std::path::PathBuf;

use allocation_counter::measure;
use cases::{Case, cases, compile, name};
use serde_json::{Value, json};

fn main() {
    let folder = std::env::var_os("BENCH_CHARTS").expect("the environment that benches/run sets");
    let folder = PathBuf::from(folder);
    let mut charts: BTreeMap<String, Value> = BTreeMap::new();
    for directory in cases(&folder) {
        let (case, user) = Case::read(&directory);
        let capabilities = case.capabilities();
        let packed = std::fs::read(folder.join(&case.chart)).unwrap();
        // What is made once for all charts is not part of the first one.
        drop(case.render(&compile(&packed), &capabilities, &user));
        let mut chart = None;
        let compiled = measure(|| {
            let compiled = compile(&packed);
            drop(case.render(&compiled, &capabilities, &user));
            chart = Some(compiled);
        });
        let chart = chart.unwrap();
        let render = measure(|| drop(case.render(&chart, &capabilities, &user)));
        let of_case = [compiled.bytes_current.unsigned_abs(), render.bytes_max];
        // Of the cases of a chart, the one that needs most.
        let entry = charts.entry(name(directory.parent().unwrap())).or_default();
        let larger = |key: &str, bytes: u64| entry[key].as_u64().unwrap_or(0).max(bytes);
        *entry = json!({
            "archive": packed.len(),
            "compiled": larger("compiled", of_case[0]),
            "render": larger("render", of_case[1]),
        });
    }
    println!("{}", serde_json::to_string(&charts).unwrap());
}
