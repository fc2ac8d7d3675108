//! Compiles any pattern and searches any text: the input is a pattern, a NUL byte, and a text.
#![no_main]

use std::time::Duration;

use go_template::go::regexp;
use go_template::{Budget, Buffer, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let pattern = parts.next().unwrap_or_default();
    let text = parts.next().unwrap_or_default();
    let budget = Budget::new(Limits {
        time: Some(Duration::from_secs(5)),
        ..Limits::default()
    });
    let Ok(Ok(regexp)) = regexp::cached(pattern, &budget) else {
        return;
    };
    // Long texts, in which a search that starts over takes most time.
    let text = text.repeat(100);
    let _ = regexp.find_all(&text, -1, &budget);
    let _ = regexp.split(&text, -1, &budget);
    let _ = regexp.replace_all(&text, b"<$1>", &mut Buffer::new(), &budget);
});
