use crypto_bigint::BoxedUint;

use super::{KeySize, RsaError, RsaKey, generate, number, power};
use crate::sprig::crypto::der::{integer, sequence};
use crate::sprig::crypto::pem;
use crate::sprig::encoding::base64_decode;

/// Made by `openssl genrsa -traditional 1024` for this test.
const KEY: &str = "\
-----BEGIN RSA PRIVATE KEY-----
MIICXgIBAAKBgQCzebT7R4/nRc+fbGA7Z1HXUcTjDcL+6Ka7Ptpz+0O0E/5rWxQb
v9tuVFV+htMQOR+GZEpxh3Ey6p1k9w5Zeim9kgLf5YU2PXwu5XQI1P/OAV/wJlil
IiXZbbrPtIl9wGKAT3JPfmGoaEiiUX/mfxDJISzqGfmGaM0Mhi3h5z+F7wIDAQAB
AoGBAKn9N57cy/7YT2uHYapCFPElIJ+RtERuJSWqxYwey6RvX4VdUbFqybI5LHTX
zGdMQ4Ct0xiumVgJgaRUoAG9xHOTpzm6tjrx+T9ZDuIFLhuEaLosOc6LmolKlGC1
ugZE8/QfrJ4oytDcvyMcAuiQ19YC5l7cG+/cTOi+2HZJs9JRAkEA4P7iS9X7iK2f
3CjGkTlj7/Epe7dd8dMgz64hvT75lAnZWZGdkTEnkFYl8KHMlfH86JERbkBafI+G
GBxihP4K+QJBAMw1BGr4WSd7oON7ik47wsGiDbwJySCjeAYoUIDjFxjb0CRTQ+y/
j13XvK6TQvOKWkzS6+7O2j0HnzeewAV3KicCQQDWyfx2sRyjajzGDBcj5EnHcc5M
UMzaYtdb67xB0bCo5o4bt6tYRDikzdkCUzPfoVfzHSoqujyn1MwKkG5sz6jhAkAO
SIcOlGBoCpWuU63Q2w08TgF37ZdL2SNECv3WhgvPiVB9ufU+UgfNIJHqBBLixgKa
7QXjpkRNkILqeQglWbhxAkEA1JV4OmQsz3p5OQ0p4dEZ/X56CdJEuA9bSU1mWVNB
67Lr7VI6Hi86IAVZ2LnC2jBqTXSAqntReMEwbQVS4F7YeQ==
-----END RSA PRIVATE KEY-----
";
/// Made by `printf text | openssl dgst -sha256 -sign KEY | base64`.
const SIGNATURE: &str = "FS3vly8gMKm7XKmqi/UVbTlM92EogDPxbbRBFTe33eiUy6lNhsVkaGzwKoeowQkfAPUG5J9m2cxn\
    dezMHZ1RqUkmpGl4WJuGCn57rZYxBRH95SXZoRuqX193aguwNpLwaEjgfW9tM6M8w6KpExhqdL4i\
    ZMTrmifPMaljNZQ7JmU=";

fn key() -> RsaKey {
    RsaKey::from_der(&pem::decode(KEY.as_bytes()).unwrap().bytes).unwrap()
}

fn integers(numbers: &[&BoxedUint]) -> Vec<u8> {
    let numbers = numbers.iter();
    numbers
        .flat_map(|number| integer(&number.to_be_bytes()))
        .collect()
}

/// Encodes numbers of a key after the version 0.
fn encoded(numbers: &[&BoxedUint]) -> Vec<u8> {
    sequence(&[&integer(&[0]), &integers(numbers)])
}

fn numbers(key: &RsaKey) -> [&BoxedUint; 8] {
    let ([p, q], [p_exponent, q_exponent]) = (&key.primes, &key.exponents);
    [
        &key.modulus,
        &key.public_exponent,
        &key.private_exponent,
        p,
        q,
        p_exponent,
        q_exponent,
        &key.coefficient,
    ]
}

#[test]
fn a_signature_is_that_of_openssl() {
    let signature = base64_decode(SIGNATURE.as_bytes()).unwrap();
    assert_eq!(key().sign(b"text").unwrap(), signature);
}

#[test]
fn keys_are_valid_distinct_and_of_the_requested_size() {
    let mut keys = vec![generate(KeySize::Bits4096).unwrap()];
    keys.extend([(); 3].map(|()| generate(KeySize::Bits2048).unwrap()));
    for (index, key) in keys.iter().enumerate() {
        let bits = if index == 0 { 4096 } else { 2048 };
        assert_eq!(key.modulus.bits_vartime(), bits);
        for prime in &key.primes {
            assert_eq!(prime.bits_vartime(), bits / 2);
        }
        // What is read is checked.
        assert_eq!(RsaKey::from_der(&key.to_der()).as_ref(), Ok(key));
        // The signature is verified with the public key before it is returned.
        let signature = number(&key.sign(b"text").unwrap());
        let padded = power(&signature, &key.public_exponent, &key.modulus);
        assert_eq!(padded.bits_vartime(), bits - 15);
        assert!(keys[..index].iter().all(|other| other != key));
    }
}

#[test]
fn a_key_is_encoded_as_it_was_read() {
    let bytes = pem::decode(KEY.as_bytes()).unwrap().bytes;
    assert_eq!(key().to_der(), bytes);
    assert_eq!(encoded(&numbers(&key())), bytes);
    // What follows from the primes may be missing.
    let [modulus, public, private, p, q, ..] = numbers(&key()).map(Clone::clone);
    let short = encoded(&[&modulus, &public, &private, &p, &q]);
    assert_eq!(RsaKey::from_der(&short).unwrap(), key());
}

#[test]
fn numbers_that_do_not_fit_together_are_refused() {
    let one = BoxedUint::one();
    let texts = [
        "crypto/rsa: invalid private exponent",
        "crypto/rsa: invalid CRT exponent",
        "crypto/rsa: d does not match dP",
        "crypto/rsa: p * q != n",
        "crypto/rsa: p * q != n",
        "crypto/rsa: invalid CRT exponent",
        "crypto/rsa: invalid CRT exponent",
        "crypto/rsa: invalid CRT coefficient",
    ];
    for (index, text) in texts.into_iter().enumerate() {
        let key = key();
        let mut numbers = numbers(&key).map(Clone::clone);
        // A modulus of 1, and other numbers more by 2.
        numbers[index] = match index {
            0 => one.clone(),
            _ => numbers[index].wrapping_add(&one).wrapping_add(&one),
        };
        let error = RsaKey::from_der(&encoded(&numbers.each_ref())).unwrap_err();
        assert_eq!(error.to_string(), text, "number {index}");
    }
    let zero = BoxedUint::zero();
    assert_eq!(
        RsaKey::from_der(&encoded(&[&zero])),
        Err(RsaError::NotPositive)
    );
    let bytes = sequence(&[&integer(&[2]), &integer(&[5])]);
    assert_eq!(RsaKey::from_der(&bytes), Err(RsaError::Version));
}

#[test]
fn the_size_of_a_key_is_limited() {
    let large = BoxedUint::max(16_448);
    let one = BoxedUint::one();
    let error = RsaKey::from_der(&encoded(&[&large, &one, &one, &one, &one]));
    assert_eq!(error, Err(RsaError::TooLong(16_448)));
}

#[test]
fn keys_of_more_than_two_primes_are_refused() {
    let key = key();
    let numbers = integers(&numbers(&key));
    let with = |others: &[u8]| {
        RsaKey::from_der(&sequence(&[&integer(&[1]), &numbers, &sequence(&[others])]))
    };
    assert_eq!(
        with(&sequence(&[&integer(&[7])])),
        Err(RsaError::ManyPrimes)
    );
    // With an empty list, there are two primes.
    assert_eq!(with(&[]).as_ref(), Ok(&key));
}

#[test]
fn public_exponents_are_odd() {
    let key = key();
    let mut numbers = numbers(&key).map(Clone::clone);
    numbers[1] = number(&[4]);
    let error = RsaKey::from_der(&encoded(&numbers.each_ref())).unwrap_err();
    assert_eq!(error.to_string(), "crypto/rsa: public exponent is even");
}
