//! Passwords: hashing for `htpasswd`, derivation from a master password, and AES encryption.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use bcrypt::Version;
use bounded::Buffer;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::sprig::encoding::{base64_decode, push_base64};
use crate::sprig::random::fill;
use crate::sprig::{STRING, Text};
use crate::value::{Str, Type};

/// The cost of slow functions, in steps of the budget.
const HASH_STEPS: u64 = 200_000;

const BCRYPT_COST: u32 = 10;
const WEAK_BCRYPT_COST: u32 = 4;
/// Binary logarithm of scrypt's cost.
const SCRYPT_COST: u8 = 15;
const WEAK_SCRYPT_COST: u8 = 1;
const BLOCK: usize = 16;

pub(super) static FUNCS: &[Func] = &[
    Func::text("bcrypt", &[STRING], bcrypt_hash),
    Func::text("decryptAES", &[STRING, STRING], decrypt_aes),
    Func::text(
        "derivePassword",
        &[Type::UINT32, STRING, STRING, STRING, STRING],
        derive,
    ),
    Func::text("encryptAES", &[STRING, STRING], encrypt_aes),
    Func::text("htpasswd", &[STRING, STRING], htpasswd),
];

fn push_bcrypt(call: &mut Call<'_>, password: &[u8], out: &mut Buffer) -> Text {
    call.budget().step(HASH_STEPS)?;
    if password.len() > 72 {
        out.extend_from_slice(
            b"failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes",
        );
        return Ok(());
    }
    let mut salt = [0; 16];
    fill(&mut salt)?;
    let cost = if call.session().has_weak_secrets() {
        WEAK_BCRYPT_COST
    } else {
        BCRYPT_COST
    };
    match bcrypt::hash_with_salt(password, cost, salt) {
        Ok(parts) => out.extend(parts.format_for_version(Version::TwoA).into_bytes()),
        Err(error) => {
            out.extend(format!("failed to encrypt string with bcrypt: {error}").into_bytes());
        }
    }
    Ok(())
}

fn bcrypt_hash(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_bcrypt(call, args.str(0).as_bytes(), out)
}

fn htpasswd(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let user = args.str(0).as_bytes();
    if user.contains(&b':') {
        out.extend_from_slice(b"invalid username: ");
        out.extend_from_slice(user);
        return Ok(());
    }
    out.extend_from_slice(user);
    out.push(b':');
    push_bcrypt(call, args.str(1).as_bytes(), out)
}

const MAXIMUM: &str = "anoxxxxxxxxxxxxxxxxx axxxxxxxxxxxxxxxxxno";
const LONG: &str = "CvcvnoCvcvCvcv CvcvCvcvnoCvcv CvcvCvcvCvcvno CvccnoCvcvCvcv CvccCvcvnoCvcv \
    CvccCvcvCvcvno CvcvnoCvccCvcv CvcvCvccnoCvcv CvcvCvccCvcvno CvcvnoCvcvCvcc CvcvCvcvnoCvcc \
    CvcvCvcvCvccno CvccnoCvccCvcv CvccCvccnoCvcv CvccCvccCvcvno CvcvnoCvccCvcc CvcvCvccnoCvcc \
    CvcvCvccCvccno CvccnoCvcvCvcc CvccCvcvnoCvcc CvccCvcvCvccno";
const MEDIUM: &str = "CvcnoCvc CvcCvcno";
const SHORT: &str = "Cvcn";
const BASIC: &str = "aaanaaan aannaaan aaannaaa";
const PIN: &str = "nnnn";

/// Returns the characters that a letter of a template represents.
fn characters(class: u8) -> &'static [u8] {
    match class {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// Derives a site password from the user's password with the Master Password algorithm.
fn derive(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    let kind = args.str(1);
    let templates = match kind.as_bytes() {
        b"maximum" => MAXIMUM,
        b"long" => LONG,
        b"medium" => MEDIUM,
        b"short" => SHORT,
        b"basic" => BASIC,
        b"pin" => PIN,
        other => {
            out.extend_from_slice(b"cannot find password template ");
            out.extend_from_slice(other);
            return Ok(());
        }
    };
    call.budget().step(HASH_STEPS)?;
    let cost = if call.session().has_weak_secrets() {
        WEAK_SCRYPT_COST
    } else {
        SCRYPT_COST
    };
    let counter = u32::try_from(args.int(0)).unwrap_or(0);
    let [password, user, site] = [args.str(2), args.str(3), args.str(4)].map(Str::as_bytes);
    let length = |text: &[u8]| u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    let salt = [SEED, &length(user), user].concat();
    let failed = |error: &dyn std::fmt::Display| {
        FuncError::new(format!("failed to derive password: {error}"))
    };
    let params = scrypt::Params::new(cost, 8, 2).map_err(|error| failed(&error))?;
    let mut key = [0; 64];
    scrypt::scrypt(password, &salt, &params, &mut key).map_err(|error| failed(&error))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|error| failed(&error))?;
    mac.update(&[SEED, &length(site), site, &counter.to_be_bytes()].concat());
    let seed = mac.finalize().into_bytes();
    let pick = |from: &[u8], seed: u8| from.get(usize::from(seed) % from.len()).copied();
    let first = seed.first().copied().unwrap_or(0);
    let templates: Vec<_> = templates.split(' ').collect();
    let template = templates.get(usize::from(first) % templates.len());
    let template = template.copied().unwrap_or_default();
    for (class, seed) in template.bytes().zip(seed.iter().skip(1)) {
        out.extend(pick(characters(class), *seed));
    }
    Ok(())
}

/// Derives the key from the password: cut or zero-padded to 32 bytes.
fn cipher(password: &[u8]) -> Aes256 {
    let mut key = [0; 32];
    for (slot, byte) in key.iter_mut().zip(password) {
        *slot = *byte;
    }
    Aes256::new(&Array::from(key))
}

fn xor(block: &mut [u8; BLOCK], other: &[u8; BLOCK]) {
    for (byte, other) in block.iter_mut().zip(other) {
        *byte ^= other;
    }
}

/// Encrypts in CBC mode with a random initialization vector in front, in base64.
fn encrypt_aes(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let (cipher, text) = (cipher(args.str(0).as_bytes()), args.str(1).as_bytes());
    if text.is_empty() {
        return Ok(());
    }
    let padding = BLOCK - text.len() % BLOCK;
    let mut padded = text.to_vec();
    padded.resize(text.len() + padding, u8::try_from(padding).unwrap_or(0));
    let mut previous = [0; BLOCK];
    fill(&mut previous)?;
    let mut encrypted = previous.to_vec();
    let (blocks, _) = padded.as_chunks::<BLOCK>();
    for block in blocks {
        xor(&mut previous, block);
        let mut state = Array::from(previous);
        cipher.encrypt_block(&mut state);
        previous = state.into();
        encrypted.extend_from_slice(&previous);
    }
    push_base64(out, &encrypted);
    Ok(())
}

fn decrypt_aes(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let (cipher, text) = (cipher(args.str(0).as_bytes()), args.str(1).as_bytes());
    if text.is_empty() {
        return Ok(());
    }
    let encrypted = base64_decode(text).map_err(|error| FuncError::new(error.to_string()))?;
    let (blocks, rest) = encrypted.as_chunks::<BLOCK>();
    let Some((first, blocks)) = blocks.split_first() else {
        let length = encrypted.len();
        let message =
            format!("runtime error: slice bounds out of range [:16] with capacity {length}");
        return Err(FuncError::new(message));
    };
    if !rest.is_empty() {
        return Err(FuncError::new("crypto/cipher: input not full blocks"));
    }
    let mut previous = *first;
    let mut plain = Vec::with_capacity(encrypted.len());
    for encrypted in blocks {
        let mut block = Array::from(*encrypted);
        cipher.decrypt_block(&mut block);
        let mut block: [u8; BLOCK] = block.into();
        xor(&mut block, &previous);
        plain.extend_from_slice(&block);
        previous = *encrypted;
    }
    let Some(&padding) = plain.last() else {
        return Err(FuncError::new("runtime error: index out of range [-1]"));
    };
    let Some(length) = plain.len().checked_sub(padding.into()) else {
        let end = i64::try_from(plain.len()).unwrap_or(i64::MAX) - i64::from(padding);
        return Err(FuncError::new(format!(
            "runtime error: slice bounds out of range [:{end}]"
        )));
    };
    out.extend_from_slice(plain.get(..length).unwrap_or_default());
    Ok(())
}
