//! PEM: parses the first block of a text, and writes blocks like Go.

use data_encoding::BASE64;

use crate::sprig::encoding::base64_decode;

/// A block with its type, such as `RSA PRIVATE KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) kind: String,
    pub(super) bytes: Vec<u8>,
}

/// Finds the first well-formed block; text around it and headers in it are skipped.
pub(super) fn decode(text: &[u8]) -> Option<Block> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        let kind = line
            .strip_prefix("-----BEGIN ")
            .and_then(|line| line.strip_suffix("-----"));
        let Some(kind) = kind else {
            continue;
        };
        let end = format!("-----END {kind}-----");
        let mut body = String::new();
        let mut closed = false;
        for line in lines.clone() {
            if line.trim_end() == end {
                closed = true;
                break;
            }
            if !line.contains(':') {
                body.push_str(line.trim());
            }
        }
        if closed && let Ok(bytes) = base64_decode(body.as_bytes()) {
            return Some(Block {
                kind: kind.to_owned(),
                bytes,
            });
        }
    }
    None
}

/// Encodes a block with 64 characters per line.
pub(super) fn encode(kind: &str, bytes: &[u8]) -> String {
    let digits = BASE64.encode(bytes);
    let mut out = format!("-----BEGIN {kind}-----\n");
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            out.push('\n');
        }
        out.push(digit);
    }
    if !digits.is_empty() {
        out.push('\n');
    }
    out + &format!("-----END {kind}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_text_and_headers() {
        let bytes: Vec<u8> = (0..100).collect();
        let block = encode("TEST KEY", &bytes);
        assert_eq!(block.lines().nth(1).map(str::len), Some(64));
        let block = block.replacen('\n', "\nProc-Type: 4\n\n", 1);
        let decoded = decode(format!("Bag Attributes\n{block}").as_bytes()).unwrap();
        let kind = "TEST KEY".to_owned();
        assert_eq!(decoded, Block { kind, bytes });
        assert_eq!(decode(b"-----BEGIN X-----\n!!\n-----END X-----\n"), None);
        assert_eq!(decode(b"-----BEGIN X-----\nAAAA\n"), None);
    }
}
