//! Provenance files (`.prov`), as Helm makes and verifies them: a text in OpenPGP's cleartext format with the
//! metadata of the chart and, after a line with `...`, the digests of files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use pgp::composed::{CleartextSignedMessage, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType};
use pgp::types::{KeyDetails, KeyId, Tag, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::{Subject, VerifyError, keyring};
use crate::digest::Digest;
use crate::limits;

/// Separator between the metadata and the digests.
const SEPARATOR: &str = "\n...\n";

/// Beginning and end of a signed message.
const BEGIN: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const END: &str = "-----END PGP SIGNATURE-----";

/// The public keys of those who may sign charts.
#[derive(Clone)]
pub(crate) struct Keyring {
    path: PathBuf,
    keys: Vec<SignedPublicKey>,
    /// Digest of the file.
    digest: Digest,
}

/// Evidence for an archive: its provenance file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provenance {
    /// The name of the archive, unless it is not known.
    pub(crate) file: Option<String>,
    /// The provenance file.
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Sums {
    #[serde(default)]
    files: Option<BTreeMap<String, String>>,
}

impl Provenance {
    /// Returns the evidence that a provenance file is.
    pub(crate) fn of(file: Option<String>, text: Vec<u8>) -> Result<Vec<u8>, VerifyError> {
        let malformed = |why: &str| VerifyError::Malformed(why.to_owned());
        let text = String::from_utf8(text).map_err(|_| malformed("it is not a text"))?;
        let evidence = Self { file, text };
        serde_json::to_vec(&evidence).map_err(|_| malformed("it cannot be kept"))
    }
}

impl Keyring {
    /// Parses a keyring: GnuPG's binary format (`pubring.gpg`), its keybox (`pubring.kbx`), or armored keys.
    pub(super) fn parse(path: &Path, data: &[u8]) -> Result<Self, VerifyError> {
        let keys = keyring::parse(data).map_err(|why| VerifyError::Keyring {
            path: path.to_owned(),
            why,
        })?;
        Ok(Self {
            path: path.to_owned(),
            keys,
            digest: Digest::of(data),
        })
    }

    /// Verifies that evidence proves an archive.
    pub(super) fn check(&self, evidence: &[u8], subject: &Subject) -> Result<(), VerifyError> {
        let evidence: Provenance = serde_json::from_slice(evidence)
            .map_err(|_| VerifyError::Malformed("it is incomplete".to_owned()))?;
        let text = self.verified_text(&evidence.text)?;
        // From here on, the text is what the owner of a key has written.
        let other = |why: &str| VerifyError::OtherSubject(why.to_owned());
        let (_, sums) = text
            .split_once(SEPARATOR)
            .ok_or_else(|| other("the provenance file has no part with digests"))?;
        let sums = sums.split_once(SEPARATOR).map_or(sums, |(sums, _)| sums);
        let sums: Sums = go_yaml::from_slice(sums.as_bytes())
            .map_err(|_| other("the digests in the provenance file are not YAML"))?;
        let files = sums.files.unwrap_or_default();
        let actual = subject.archive.to_string();
        let signed = match &evidence.file {
            Some(file) => files.get(file).ok_or_else(|| {
                let names: Vec<&str> = files.keys().map(String::as_str).take(3).collect();
                other(&format!(
                    "the provenance file is for {}, not for {file}",
                    names.join(", ")
                ))
            })?,
            None => files
                .values()
                .find(|signed| **signed == actual)
                .or(files.values().next())
                .ok_or_else(|| other("the provenance file names no file"))?,
        };
        if *signed == actual {
            return Ok(());
        }
        Err(VerifyError::Digest {
            signed: signed.clone(),
            actual: subject.archive,
        })
    }

    /// Returns the signed text of a provenance file, with `\n` as the end of a line.
    fn verified_text(&self, armored: &str) -> Result<String, VerifyError> {
        let message = CleartextSignedMessage::from_string(message(armored));
        let (message, _) = message.map_err(|error| {
            VerifyError::Malformed(format!(
                "it is not a complete OpenPGP message in cleartext: {error}"
            ))
        })?;
        if message.signatures().len() > limits::SIGNATURES {
            let limit = limits::SIGNATURES;
            return Err(VerifyError::Malformed(format!(
                "it has more than {limit} signatures"
            )));
        }
        let text = message.signed_text();
        let mut failure = None;
        for signature in message.signatures() {
            match self.check_signature(signature, text.as_bytes()) {
                Ok(()) => return Ok(text.replace("\r\n", "\n")),
                Err(VerifyError::UnknownSigner { .. }) if failure.is_some() => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| VerifyError::Malformed("it has no signature".to_owned())))
    }

    /// Verifies one signature of a text with the keys that may have made it.
    fn check_signature(&self, signature: &Signature, text: &[u8]) -> Result<(), VerifyError> {
        let now = now();
        let mut failure = None;
        for key in &self.keys {
            let found = if names(signature, &key.primary_key) {
                let usable = usable_primary(key, now);
                check_with(signature, text, &key.primary_key, usable, now)
            } else {
                let mut subkeys = key.public_subkeys.iter();
                let Some(subkey) = subkeys.find(|subkey| names(signature, &subkey.key)) else {
                    continue;
                };
                let usable = usable_subkey(key, subkey, now);
                check_with(signature, text, &subkey.key, usable, now)
            };
            match found {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| VerifyError::UnknownSigner {
            key: signer_of(signature),
            keyring: self.path.clone(),
        }))
    }
}

/// Returns a signed message without the text around it, which proves nothing.
fn message(text: &str) -> &str {
    let start = text.find(BEGIN).unwrap_or_default();
    let text = text.get(start..).unwrap_or_default();
    let end = text.find(END).map_or(text.len(), |at| at + END.len());
    text.get(..end).unwrap_or_default()
}

/// Verifies a signature of a text with one key.
fn check_with(
    signature: &Signature,
    text: &[u8],
    key: &impl VerifyingKey,
    usable: Result<(), &'static str>,
    now: u64,
) -> Result<(), VerifyError> {
    let refused = |why: &'static str| VerifyError::Signer {
        key: hex(key.legacy_key_id().as_ref()),
        why,
    };
    let is_of_text = matches!(
        signature.typ(),
        Some(SignatureType::Binary | SignatureType::Text)
    );
    if !is_of_text || !is_strong(signature) {
        return Err(refused(
            "its signature is not one of a text with a hash of the SHA-2 or SHA-3 family",
        ));
    }
    if signature.verify(key, text).is_err() {
        return Err(VerifyError::Changed {
            key: hex(key.legacy_key_id().as_ref()),
        });
    }
    usable.map_err(refused)?;
    if is_expired(signature, now) {
        return Err(refused("the signature has expired, or is from the future"));
    }
    Ok(())
}

/// Returns whether a signature says that it was made with a key.
fn names(signature: &Signature, key: &impl KeyDetails) -> bool {
    let fingerprints = signature.issuer_fingerprint();
    if !fingerprints.is_empty() {
        return fingerprints.contains(&&key.fingerprint());
    }
    let id: KeyId = key.legacy_key_id();
    signature.issuer_key_id().contains(&&id)
}

fn signer_of(signature: &Signature) -> String {
    let fingerprint = signature
        .issuer_fingerprint()
        .first()
        .map(|one| hex(one.as_bytes()));
    let id = signature.issuer_key_id().first().map(|id| hex(id.as_ref()));
    fingerprint
        .or(id)
        .unwrap_or_else(|| "that it does not name".to_owned())
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXUPPER.encode(bytes)
}

fn is_strong(signature: &Signature) -> bool {
    matches!(
        signature.hash_alg(),
        Some(
            HashAlgorithm::Sha224
                | HashAlgorithm::Sha256
                | HashAlgorithm::Sha384
                | HashAlgorithm::Sha512
                | HashAlgorithm::Sha3_256
                | HashAlgorithm::Sha3_512
        )
    )
}

/// Checks that a primary key may sign, as Helm does.
fn usable_primary(key: &SignedPublicKey, now: u64) -> Result<(), &'static str> {
    let signature = check_primary(key, now)?;
    if signature.key_flags().sign() {
        Ok(())
    } else {
        Err("it is not a key for signatures")
    }
}

/// Checks that a primary key is valid, and returns the signature that says what it is for.
fn check_primary(key: &SignedPublicKey, now: u64) -> Result<&Signature, &'static str> {
    let primary = &key.primary_key;
    let revocations = key.details.revocation_signatures.iter();
    for revocation in revocations {
        if revocation.verify_key(primary).is_ok() {
            return Err("it was revoked");
        }
    }
    let direct = key
        .details
        .direct_signatures
        .iter()
        .filter(|one| one.verify_key(primary).is_ok());
    let users = key.details.users.iter().flat_map(|user| {
        let valid = user.signatures.iter().filter(|one| {
            one.verify_certification(primary, Tag::UserId, &user.id)
                .is_ok()
        });
        let valid: Vec<&Signature> = valid.collect();
        let is_revoked = valid
            .iter()
            .any(|one| one.typ() == Some(SignatureType::CertRevocation));
        if is_revoked { Vec::new() } else { valid }
    });
    let newest = direct
        .chain(users)
        .filter(|one| !is_expired(one, now))
        .max_by_key(|one| one.created());
    let newest = newest.ok_or("it has no valid signature of its own")?;
    if key_is_expired(primary, newest, now) {
        return Err("it has expired");
    }
    Ok(newest)
}

/// Checks that a subkey may sign.
fn usable_subkey(
    key: &SignedPublicKey,
    subkey: &SignedPublicSubKey,
    now: u64,
) -> Result<(), &'static str> {
    check_primary(key, now)?;
    let valid = subkey.signatures.iter().filter(|one| {
        one.verify_subkey_binding(&key.primary_key, &subkey.key)
            .is_ok()
    });
    let valid: Vec<&Signature> = valid.collect();
    if valid
        .iter()
        .any(|one| one.typ() == Some(SignatureType::SubkeyRevocation))
    {
        return Err("it was revoked");
    }
    let newest = valid
        .into_iter()
        .filter(|one| !is_expired(one, now))
        .max_by_key(|one| one.created());
    let newest = newest.ok_or("its primary key does not vouch for it")?;
    let back = newest.embedded_signature();
    let vouches = back.is_some_and(|back| {
        back.verify_primary_key_binding(&subkey.key, &key.primary_key)
            .is_ok()
    });
    if !newest.key_flags().sign() || !vouches {
        return Err("it is not a key for signatures");
    }
    if key_is_expired(&subkey.key, newest, now) {
        return Err("it has expired");
    }
    Ok(())
}

fn key_is_expired(key: &impl KeyDetails, signature: &Signature, now: u64) -> bool {
    let lifetime = signature.key_expiration_time();
    let lifetime = lifetime.map_or(0, |time| u64::from(time.as_secs()));
    let created = u64::from(key.created_at().as_secs());
    created > now || (lifetime > 0 && now > created + lifetime)
}

fn is_expired(signature: &Signature, now: u64) -> bool {
    let lifetime = signature.signature_expiration_time();
    let lifetime = lifetime.map_or(0, |time| u64::from(time.as_secs()));
    let created = signature.created();
    let created = created.map_or(0, |time| u64::from(time.as_secs()));
    created > now || (lifetime > 0 && now > created + lifetime)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

impl PartialEq for Keyring {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.digest == other.digest
    }
}

impl Eq for Keyring {}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({}, {})", self.path.display(), self.digest)
    }
}
