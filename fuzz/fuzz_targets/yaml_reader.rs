//! Reads any bytes as YAML in every way; what was read must be writable and equal to the tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let _ = go_yaml::documents::<Value>(text);
    let _ = go_yaml::from_slice_strict::<Value>(text);
    let tree = go_yaml::tree::parse(text).and_then(|node| go_yaml::from_node::<Value>(&node));
    assert_eq!(go_yaml::from_slice::<Value>(text), tree);
    let _ = helm_core::values::read(text);
    if let Ok(value) = go_yaml::from_slice::<Value>(text) {
        let _ = go_yaml::to_vec(&value);
    }
});
