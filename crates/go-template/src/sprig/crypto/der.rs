//! The subset of DER, the encoding of keys and certificates, that these need.

/// Tags of the used types.
pub(super) mod tag {
    pub(in crate::sprig::crypto) const BOOLEAN: u8 = 0x01;
    pub(in crate::sprig::crypto) const INTEGER: u8 = 0x02;
    pub(in crate::sprig::crypto) const BIT_STRING: u8 = 0x03;
    pub(in crate::sprig::crypto) const OCTET_STRING: u8 = 0x04;
    pub(in crate::sprig::crypto) const NULL: u8 = 0x05;
    pub(in crate::sprig::crypto) const OID: u8 = 0x06;
    pub(in crate::sprig::crypto) const UTF8_STRING: u8 = 0x0C;
    pub(in crate::sprig::crypto) const PRINTABLE_STRING: u8 = 0x13;
    pub(in crate::sprig::crypto) const UTC_TIME: u8 = 0x17;
    pub(in crate::sprig::crypto) const GENERALIZED_TIME: u8 = 0x18;
    pub(in crate::sprig::crypto) const SEQUENCE: u8 = 0x30;
    pub(in crate::sprig::crypto) const SET: u8 = 0x31;

    /// Returns a context-specific tag for constructed elements.
    pub(in crate::sprig::crypto) const fn constructed(number: u8) -> u8 {
        0xA0 | number
    }

    /// Returns a context-specific tag for primitive elements.
    pub(in crate::sprig::crypto) const fn primitive(number: u8) -> u8 {
        0x80 | number
    }
}

/// Encoded object identifiers.
pub(super) mod oid {
    pub(in crate::sprig::crypto) const RSA: &[u8] = b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x01";
    pub(in crate::sprig::crypto) const SHA256_WITH_RSA: &[u8] =
        b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x0B";
    pub(in crate::sprig::crypto) const EC: &[u8] = b"\x2A\x86\x48\xCE\x3D\x02\x01";
    pub(in crate::sprig::crypto) const P256: &[u8] = b"\x2A\x86\x48\xCE\x3D\x03\x01\x07";
    pub(in crate::sprig::crypto) const ECDSA_WITH_SHA256: &[u8] =
        b"\x2A\x86\x48\xCE\x3D\x04\x03\x02";
    pub(in crate::sprig::crypto) const ED25519: &[u8] = b"\x2B\x65\x70";
    pub(in crate::sprig::crypto) const COMMON_NAME: &[u8] = b"\x55\x04\x03";
    pub(in crate::sprig::crypto) const SUBJECT_KEY_ID: &[u8] = b"\x55\x1D\x0E";
    pub(in crate::sprig::crypto) const KEY_USAGE: &[u8] = b"\x55\x1D\x0F";
    pub(in crate::sprig::crypto) const SUBJECT_ALT_NAME: &[u8] = b"\x55\x1D\x11";
    pub(in crate::sprig::crypto) const BASIC_CONSTRAINTS: &[u8] = b"\x55\x1D\x13";
    pub(in crate::sprig::crypto) const AUTHORITY_KEY_ID: &[u8] = b"\x55\x1D\x23";
    pub(in crate::sprig::crypto) const EXT_KEY_USAGE: &[u8] = b"\x55\x1D\x25";
    pub(in crate::sprig::crypto) const SERVER_AUTH: &[u8] = b"\x2B\x06\x01\x05\x05\x07\x03\x01";
    pub(in crate::sprig::crypto) const CLIENT_AUTH: &[u8] = b"\x2B\x06\x01\x05\x05\x07\x03\x02";
}

/// Encodes an element with the given tag.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    let bytes = content.len().to_be_bytes();
    let significant = bytes.iter().skip_while(|&&byte| byte == 0);
    if let Ok(length @ ..0x80) = u8::try_from(content.len()) {
        out.push(length);
    } else {
        out.push(0x80 | u8::try_from(significant.clone().count()).unwrap_or(8));
        out.extend(significant);
    }
    out.extend_from_slice(content);
    out
}

/// Encodes a sequence of elements.
pub(super) fn sequence(elements: &[&[u8]]) -> Vec<u8> {
    element(tag::SEQUENCE, &elements.concat())
}

/// Encodes a non-negative number, given as big-endian bytes.
pub(super) fn integer(magnitude: &[u8]) -> Vec<u8> {
    let zeros = magnitude.iter().take_while(|&&byte| byte == 0).count();
    let significant = magnitude.get(zeros..).unwrap_or_default();
    match significant.first() {
        Some(..0x80) => element(tag::INTEGER, significant),
        _ => element(tag::INTEGER, &[&[0], significant].concat()),
    }
}

/// Encodes whole bytes as a bit string.
pub(super) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(tag::BIT_STRING, &[&[0], bytes].concat())
}

/// Malformed DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("asn1: structure error: malformed or unexpected element")]
pub(super) struct Malformed;

/// Reads elements one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct DerReader<'d> {
    rest: &'d [u8],
}

/// A parsed element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    pub(super) content: &'d [u8],
    /// The element including tag and length.
    pub(super) whole: &'d [u8],
}

impl<'d> DerReader<'d> {
    pub(super) fn new(bytes: &'d [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the tag of the next element.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads the next element of any type.
    pub(super) fn any(&mut self) -> Result<Element<'d>, Malformed> {
        let [tag, first, after @ ..] = self.rest else {
            return Err(Malformed);
        };
        let (length, after) = match first {
            0..=0x7F => (usize::from(*first), after),
            0x81..=0x84 => {
                let count = usize::from(first & 0x7F);
                let (digits, after) = after.split_at_checked(count).ok_or(Malformed)?;
                let length = digits
                    .iter()
                    .fold(0, |length, &digit| length << 8 | usize::from(digit));
                (length, after)
            }
            _ => return Err(Malformed),
        };
        let (content, rest) = after.split_at_checked(length).ok_or(Malformed)?;
        let whole = self
            .rest
            .get(..self.rest.len() - rest.len())
            .ok_or(Malformed)?;
        self.rest = rest;
        Ok(Element {
            tag: *tag,
            content,
            whole,
        })
    }

    /// Reads the content of the next element, which must have the given tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<&'d [u8], Malformed> {
        let element = self.any()?;
        if element.tag == tag {
            Ok(element.content)
        } else {
            Err(Malformed)
        }
    }

    /// Returns a reader for the elements of the next element, which must be a sequence.
    pub(super) fn sequence(&mut self) -> Result<Self, Malformed> {
        self.expect(tag::SEQUENCE).map(Self::new)
    }
}
