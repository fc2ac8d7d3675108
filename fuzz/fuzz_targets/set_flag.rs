//! Applies any texts as `--set`, `--set-string`, `--set-literal` and `--set-json`, one a line.
#![no_main]

use helm_core::values::{Values, set, set_json, set_literal, set_string};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut values = Values::new();
    for line in text.lines() {
        for apply in [set, set_string, set_literal, set_json] {
            let _ = apply(line, &mut values);
        }
    }
});
