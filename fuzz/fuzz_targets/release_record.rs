//! Decodes any bytes as a stored release: as they are, and as the JSON inside.
#![no_main]

use data_encoding::BASE64;
use helm_core::release::codec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = codec::decode(bytes);
    if let Ok(release) = codec::decode(BASE64.encode(bytes).as_bytes()) {
        let _ = codec::encode(&release);
        let _ = helm_core::manifest::parse_objects(&release.manifest);
    }
});
