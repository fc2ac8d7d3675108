//! Parses any text as a template; parse errors must be printable.
#![no_main]

use std::sync::{Arc, LazyLock};

use go_template::{Funcs, TemplateSet, sprig};
use libfuzzer_sys::fuzz_target;

static FUNCS: LazyLock<Arc<Funcs>> = LazyLock::new(|| Arc::new(Funcs::new().with(&sprig::FUNCS)));

fuzz_target!(|text: &[u8]| {
    let mut set = TemplateSet::new("set", Arc::clone(&FUNCS));
    if let Err(error) = set.parse("main", text) {
        let _ = (error.to_string(), error.report().to_string());
    }
});
