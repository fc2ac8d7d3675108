//! Reads keyrings in the three formats that Helm reads.

use std::io::Read as _;

use pgp::armor::Dearmor;
use pgp::composed::{Deserializable as _, SignedPublicKey, SignedSecretKey};
use pgp::packet::{Packet, PacketParser};

use crate::limits;

/// Beginning of an armored block.
const ARMOR: &str = "-----BEGIN PGP";
/// The type of the first part of a keybox, and of one with keys.
const HEADER: u8 = 1;
const OPENPGP: u8 = 2;
/// Flag of a part that GnuPG does not count as part of the keyring.
const EPHEMERAL: u16 = 2;

/// Parses the keys of a keyring.
pub(super) fn parse(data: &[u8]) -> Result<Vec<SignedPublicKey>, String> {
    let mut keys = Vec::new();
    if is_keybox(data) {
        for block in keybox(data)? {
            read(block, &mut keys)?;
        }
    } else if let Some(text) = armored(data) {
        for (start, _) in text.match_indices(ARMOR) {
            let rest = text.get(start..).unwrap_or_default();
            let next = rest.get(ARMOR.len()..).and_then(|rest| rest.find(ARMOR));
            let block = next.map_or(rest, |end| {
                rest.get(..end + ARMOR.len()).unwrap_or_default()
            });
            let mut binary = Vec::new();
            Dearmor::new(block.as_bytes())
                .read_to_end(&mut binary)
                .map_err(|error| format!("its armor is broken: {error}"))?;
            read(&binary, &mut keys)?;
        }
    } else {
        read(data, &mut keys)?;
    }
    if keys.is_empty() {
        return Err("it has no keys".to_owned());
    }
    Ok(keys)
}

/// Adds the keys of one block. What cannot be read, such as a key of a kind that is not supported, is left out.
fn read(block: &[u8], keys: &mut Vec<SignedPublicKey>) -> Result<(), String> {
    // GnuPG keeps what it knows about trust between the packets of a key.
    let parser = PacketParser::new(block).take(limits::KEYS * 100);
    let packets = parser.flatten().filter(|packet| {
        !matches!(
            packet,
            Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_)
        )
    });
    let mut packets = packets.map(Ok).peekable();
    let found: Box<dyn Iterator<Item = _>> = match packets.peek() {
        Some(Ok(Packet::SecretKey(_))) => {
            let secret = SignedSecretKey::from_packets(packets);
            Box::new(secret.map(|key| key.map(|key| key.to_public_key())))
        }
        _ => SignedPublicKey::from_packets(packets),
    };
    for key in found.flatten() {
        if keys.len() >= limits::KEYS {
            return Err(format!("it has more than {} keys", limits::KEYS));
        }
        keys.push(key);
    }
    Ok(())
}

fn armored(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?;
    text.trim_start().starts_with(ARMOR).then_some(text)
}

fn is_keybox(data: &[u8]) -> bool {
    data.get(4) == Some(&HEADER) && data.get(8..12) == Some(b"KBXf")
}

/// Returns the blocks with keys of a keybox: parts with their length, type, flags, and the place of the keys.
fn keybox(data: &[u8]) -> Result<Vec<&[u8]>, String> {
    let broken = || "its keybox is incomplete".to_owned();
    let number = |part: &[u8], at: usize| -> Option<usize> {
        let bytes: [u8; 4] = part.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(bytes)).ok()
    };
    let mut blocks = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let length = number(rest, 0).filter(|length| *length >= 5);
        let (part, after) = length
            .and_then(|length| rest.split_at_checked(length))
            .ok_or_else(broken)?;
        rest = after;
        if part.get(4) != Some(&OPENPGP) {
            continue;
        }
        let flags: [u8; 2] = part
            .get(6..8)
            .and_then(|flags| flags.try_into().ok())
            .ok_or_else(broken)?;
        let (start, size) = number(part, 8).zip(number(part, 12)).ok_or_else(broken)?;
        let block = part.get(start..start.saturating_add(size));
        let block = block.ok_or_else(broken)?;
        if u16::from_be_bytes(flags) & EPHEMERAL == 0 {
            blocks.push(block);
        }
    }
    Ok(blocks)
}
