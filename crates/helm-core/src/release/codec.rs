//! Encoding of stored records: base64 of gzip of JSON, as Go writes it.

use std::io::{self, Read as _, Write};

use data_encoding::BASE64;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter};

use super::Release;

/// The largest record that [`decode`] unpacks, in bytes of JSON.
pub const MAX_UNPACKED: u64 = 64 << 20;

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// An error in a stored record.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The record is not base64.
    #[error("the release record is not base64")]
    Base64(#[source] data_encoding::DecodeError),
    /// The record cannot be compressed or unpacked.
    #[error("the release record is not gzip")]
    Gzip(#[source] io::Error),
    /// The record unpacks to more than the limit.
    #[error("the release record unpacks to more than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The JSON is not a release.
    #[error("the release record is not a release")]
    Json(#[source] serde_json::Error),
}

impl CodecError {
    /// Returns the reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        "CorruptRelease"
    }
}

/// Returns the record as Helm stores it under the key `release` of a Secret, before the base64
/// encoding by Kubernetes itself.
///
/// # Errors
/// If the record cannot be serialized.
pub fn encode(release: &Release) -> Result<String, CodecError> {
    pack(&to_json(release)?)
}

/// Compresses and encodes JSON of a record or of a part of one.
pub(crate) fn pack(json: &[u8]) -> Result<String, CodecError> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(json.len() / 4), Compression::best());
    gzip.write_all(json).map_err(CodecError::Gzip)?;
    Ok(BASE64.encode(&gzip.finish().map_err(CodecError::Gzip)?))
}

/// Decodes a stored record of Helm 3 or 4, which may also be uncompressed. Unknown fields are
/// ignored.
///
/// # Errors
/// If the text is not a record, or unpacks to more than [`MAX_UNPACKED`] bytes.
pub fn decode(stored: &[u8]) -> Result<Release, CodecError> {
    serde_json::from_slice(&unpack(stored)?).map_err(CodecError::Json)
}

/// Returns the JSON from the output of [`pack`].
pub(crate) fn unpack(stored: &[u8]) -> Result<Vec<u8>, CodecError> {
    // Go's decoder skips line breaks.
    let compact: Vec<u8>;
    let stored = if stored.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        compact = stored
            .iter()
            .copied()
            .filter(|byte| !matches!(byte, b'\n' | b'\r'))
            .collect();
        &compact
    } else {
        stored
    };
    let packed = BASE64.decode(stored).map_err(CodecError::Base64)?;
    if packed.len() <= 3 || !packed.starts_with(&GZIP_MAGIC) {
        return Ok(packed);
    }
    let mut json = Vec::new();
    let mut gzip = MultiGzDecoder::new(packed.as_slice()).take(MAX_UNPACKED + 1);
    gzip.read_to_end(&mut json).map_err(CodecError::Gzip)?;
    if json.len() as u64 > MAX_UNPACKED {
        return Err(CodecError::TooLarge {
            limit: MAX_UNPACKED,
        });
    }
    Ok(json)
}

/// Returns the record as JSON, byte for byte as Go's `json.Marshal` writes it.
///
/// # Errors
/// If the record cannot be serialized.
pub fn to_json(release: &Release) -> Result<Vec<u8>, CodecError> {
    go_json(release).map_err(CodecError::Json)
}

/// Writes `value` as Go's `json.Marshal` does: HTML characters escaped, floats in Go's form.
pub(crate) fn go_json(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut json = Vec::with_capacity(4096);
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut json,
        GoFormatter,
    ))?;
    Ok(json)
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(go_float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let escaped = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| escaped(*c)) {
            let (plain, after) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            write!(writer, "\\u{:04x}", u32::from(found))?;
            rest = after.strip_prefix(found).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Solidus => writer.write_all(b"/"),
            CharEscape::AsciiControl(byte) => write!(writer, "\\u{byte:04x}"),
            CharEscape::Quote => writer.write_all(b"\\\""),
            CharEscape::ReverseSolidus => writer.write_all(b"\\\\"),
            CharEscape::Backspace => writer.write_all(b"\\b"),
            CharEscape::FormFeed => writer.write_all(b"\\f"),
            CharEscape::LineFeed => writer.write_all(b"\\n"),
            CharEscape::CarriageReturn => writer.write_all(b"\\r"),
            CharEscape::Tab => writer.write_all(b"\\t"),
        }
    }
}

/// Formats a float as Go's JSON encoder: shortest digits, with an exponent below 1e-6 and from 1e21
/// on.
pub(crate) fn go_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        }
    } else {
        format!("{value}")
    }
}

/// Serializes bytes as base64, as Go writes a `[]byte`.
pub(crate) mod base64_bytes {
    use std::sync::Arc;

    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(data: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(data))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        BASE64
            .decode(text.as_bytes())
            .map(Arc::from)
            .map_err(serde::de::Error::custom)
    }
}

/// Like [`base64_bytes`], with null for `None`.
pub(crate) mod base64_option {
    use std::sync::Arc;

    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        data: &Option<Arc<[u8]>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match data {
            Some(data) => to.serialize_str(&BASE64.encode(data)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<[u8]>>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        let data = BASE64
            .decode(text.as_bytes())
            .map_err(serde::de::Error::custom)?;
        Ok(Some(Arc::from(data)))
    }
}

/// Serializes a time that Go does not omit when it is zero.
#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn time_or_year_one<S: serde::Serializer>(
    time: &Option<super::Time>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.collect_str(time),
        None => to.serialize_str("0001-01-01T00:00:00Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{ApplyMethod, Revision, Status};

    fn release() -> Release {
        let mut release = Release::new("web".parse().unwrap(), "prod", Revision(2));
        release.set_status(Status::Deployed, "Install complete");
        release.info.first_deployed = Some("2026-01-02T03:04:05.6Z".parse().unwrap());
        release.config = serde_json::from_str(r#"{"b":1,"a":{"f":1.0,"s":"<&>"}}"#).unwrap();
        release.manifest = "---\na: 1\n".to_owned();
        release.apply_method = Some(ApplyMethod::ServerSide);
        release
    }

    #[test]
    fn records_are_json_as_go_writes_it() {
        assert_eq!(
            String::from_utf8(to_json(&release()).unwrap()).unwrap(),
            r#"{"name":"web","info":{"first_deployed":"2026-01-02T03:04:05.6Z","#.to_owned()
                + r#""description":"Install complete","status":"deployed"},"#
                + r#""config":{"a":{"f":1,"s":"\u003c\u0026\u003e"},"b":1},"#
                + r#""manifest":"---\na: 1\n","version":2,"namespace":"prod","apply_method":"ssa"}"#
        );
    }

    #[test]
    fn stored_record_round_trips() {
        let stored = encode(&release()).unwrap();
        let mut expected = release();
        expected.config = serde_json::from_str(r#"{"b":1,"a":{"f":1,"s":"<&>"}}"#).unwrap();
        assert_eq!(decode(stored.as_bytes()).unwrap(), expected);
        let plain = BASE64.encode(&to_json(&release()).unwrap());
        assert_eq!(decode(plain.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn records_of_helm_3_and_unknown_fields_are_read() {
        let json = r#"{"name":"old","info":{"first_deployed":"2020-01-01T00:00:00Z","deleted":"",
            "status":"superseded","resources":{"v1/Pod":[]}},"chart":{"metadata":null,"lock":null,
            "templates":null,"values":null,"schema":"e30=","files":null,"later":1},"config":null,
            "hooks":[{"name":"h","events":["post-install"],"last_run":{"started_at":"",
            "completed_at":"","phase":""}}],"version":4,"namespace":"n","later":{}}"#;
        let release = decode(BASE64.encode(json.as_bytes()).as_bytes()).unwrap();
        assert_eq!(release.info.status, Status::Superseded);
        assert_eq!(release.info.deleted, None);
        assert_eq!(release.hooks[0].last_run.started_at, None);
        assert_eq!(
            release.chart.unwrap().schema.as_deref(),
            Some(b"{}".as_slice())
        );
        assert_eq!(release.apply_method, None);
    }

    #[test]
    fn corrupt_records_are_errors() {
        let stored = encode(&release()).unwrap();
        for bad in ["", "!!", "e30=", "H4sIAAAA", &stored[..stored.len() / 2]] {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (value, text) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (0.000_001, "0.000001"),
            (-2.5e300, "-2.5e+300"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }
}
