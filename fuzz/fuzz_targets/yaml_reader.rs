//! Any bytes as YAML, read in every way; what was read can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let _ = go_yaml::documents::<Value>(text);
    let _ = go_yaml::from_slice_strict::<Value>(text);
    let _ = go_yaml::tree::parse(text);
    let _ = helm_core::values::read(text);
    if let Ok(value) = go_yaml::from_slice::<Value>(text) {
        let _ = go_yaml::to_vec(&value);
    }
});
