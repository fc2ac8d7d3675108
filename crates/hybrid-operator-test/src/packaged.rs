//! Packaged charts, for tests of charts that are fetched.

use flate2::Compression;
use flate2::write::GzEncoder;

/// Packages a chart with these files, besides `Chart.yaml`. The same arguments make the same archive.
#[must_use]
pub fn packaged_chart(name: &str, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (path, text) in [("Chart.yaml", metadata.as_str())].iter().chain(files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        // Writing to a vector does not fail.
        let _ = tar.append_data(&mut header, format!("{name}/{path}"), text.as_bytes());
    }
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .unwrap_or_default()
}
