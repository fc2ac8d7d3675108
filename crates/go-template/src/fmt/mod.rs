//! Package fmt over [`crate::Value`].

/// `strconv.Quote`.
pub fn quote(text: &[u8]) -> Vec<u8> {
    format!("{:?}", String::from_utf8_lossy(text)).into_bytes()
}
