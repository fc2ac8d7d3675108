//! Cryptography: passwords, ciphers, private keys and certificates.
//!
//! Keys and certificates are random and differ between renders, but their form agrees with Go:
//! types of PEM blocks, algorithms, extensions and their order, validity, serial numbers. Only the
//! elliptic curve P-256 is supported.

mod certificate;
mod der;
mod dsa;
mod key;
mod password;
mod pem;
mod prime;
mod rsa_key;

use bounded::Buffer;
use std::net::IpAddr;
use std::sync::LazyLock;

use certificate::{Authority, CertificateTemplate, Issuer};
use key::PrivateKey;
use rsa_key::KeySize;

use super::date::current_time;
use super::encoding::base64_decode;
use super::text::strval;
use super::{Answer, INT, STRING};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{Field, Object, Type, TypeInfo, Value};

const LIST: Type = Type::LIST;

/// The cost of keys, in steps of the budget; a step is about 100 ns.
const SMALL_KEY_STEPS: u64 = 1_000;
const RSA_2048_STEPS: u64 = 1_000_000;
const RSA_4096_STEPS: u64 = 10_000_000;
const DSA_STEPS: u64 = 10_000_000;

static CERTIFICATE_INFO: TypeInfo = TypeInfo::structure(
    "sprig.certificate",
    &[Field::new("Cert"), Field::new("Key")],
);
/// Sprig's `certificate`: a certificate with its key.
const CERTIFICATE: Type = Type::new(&CERTIFICATE_INFO);

/// The parameters that describe a certificate: name, IP addresses, DNS names, days of validity.
const LEAF: &[Type] = &[STRING, LIST, LIST, INT];

static OWN_FUNCS: &[Func] = &[
    Func::value("buildCustomCert", &[STRING, STRING], build_custom_cert),
    Func::value("genCA", &[STRING, INT], gen_ca),
    Func::value("genCAWithKey", &[STRING, INT, STRING], gen_ca_with_key),
    Func::text("genPrivateKey", &[STRING], gen_private_key),
    Func::value("genSelfSignedCert", LEAF, gen_self_signed),
    Func::value(
        "genSelfSignedCertWithKey",
        &[STRING, LIST, LIST, INT, STRING],
        gen_self_signed_with_key,
    ),
    Func::value(
        "genSignedCert",
        &[STRING, LIST, LIST, INT, CERTIFICATE],
        gen_signed,
    ),
    Func::value(
        "genSignedCertWithKey",
        &[STRING, LIST, LIST, INT, CERTIFICATE, STRING],
        gen_signed_with_key,
    ),
];

pub(super) static FUNCS: LazyLock<Vec<Func>> =
    LazyLock::new(|| [OWN_FUNCS, password::FUNCS].concat());

fn gen_private_key(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    let key = match args.str(0).as_bytes() {
        b"" | b"rsa" => {
            call.budget().key(RSA_4096_STEPS)?;
            rsa_key(call, KeySize::Bits4096)?
        }
        b"dsa" => {
            call.budget().key(DSA_STEPS)?;
            if call.session().has_weak_secrets() {
                PrivateKey::generate_ec()?
            } else {
                PrivateKey::generate_dsa()?
            }
        }
        b"ecdsa" => {
            call.budget().key(SMALL_KEY_STEPS)?;
            PrivateKey::generate_ec()?
        }
        b"ed25519" => {
            call.budget().key(SMALL_KEY_STEPS)?;
            PrivateKey::generate_ed25519()?
        }
        other => {
            out.extend_from_slice(b"Unknown type ");
            out.extend_from_slice(other);
            return Ok(());
        }
    };
    out.extend(key.to_pem().into_bytes());
    Ok(())
}

fn certificate_value(certificate: impl Into<Value>, key: impl Into<Value>) -> Value {
    let fields = vec![certificate.into(), key.into()];
    Value::Object(Object::structure(CERTIFICATE, fields))
}

/// Checks a certificate and its key, both base64 of PEM, and returns them decoded.
fn build_custom_cert(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let decode = |index: usize, what: &str| {
        base64_decode(args.str(index).as_bytes())
            .map_err(|_| FuncError::new(format!("unable to decode base64 {what}")))
    };
    let certificate = decode(0, "certificate")?;
    let key = decode(1, "private key")?;
    certificate::check(&certificate)?;
    PrivateKey::from_pem(&key)
        .map_err(|error| FuncError::new(format!("error parsing private key: {error}")))?;
    Ok(certificate_value(certificate, key))
}

fn new_rsa_key(call: &mut Call<'_>) -> Result<PrivateKey, FuncError> {
    call.budget().key(RSA_2048_STEPS)?;
    rsa_key(call, KeySize::Bits2048)
}

/// Generates a key that has been counted.
fn rsa_key(call: &mut Call<'_>, size: KeySize) -> Result<PrivateKey, FuncError> {
    // The primes are found by other threads.
    call.varies();
    if call.session().has_weak_secrets() {
        PrivateKey::generate_ec()
    } else {
        PrivateKey::generate_rsa(size)
    }
}

fn key_argument(args: &Args<'_>, index: usize) -> Result<PrivateKey, FuncError> {
    PrivateKey::from_pem(args.str(index).as_bytes())
        .map_err(|error| FuncError::new(format!("parsing private key: {error}")))
}

/// Returns the template of an authority: name and days of validity are the first two arguments.
fn authority_template(call: &Call<'_>, args: &Args<'_>) -> Result<CertificateTemplate, FuncError> {
    Ok(CertificateTemplate {
        common_name: args.str(0).as_bytes().to_vec(),
        addresses: Vec::new(),
        names: Vec::new(),
        not_before: current_time(call)?,
        days: args.int(1),
        is_authority: true,
    })
}

/// Returns the template of other certificates: name, IP addresses, DNS names, days of validity.
fn leaf_template(call: &mut Call<'_>, args: &Args<'_>) -> Result<CertificateTemplate, FuncError> {
    let mut addresses = Vec::new();
    for item in items(args.get(1)) {
        let Value::Str(text) = &item else {
            return Err(not_a_string(call, "error parsing ip: ", &item));
        };
        let address = text.to_str().and_then(|text| text.parse::<IpAddr>().ok());
        let failed = || FuncError::with_value("error parsing ip: ", text.to_string(), "");
        addresses.push(address.ok_or_else(failed)?);
    }
    let mut names = Vec::new();
    for item in items(args.get(2)) {
        let Value::Str(text) = &item else {
            return Err(not_a_string(
                call,
                "error processing alternate dns name: ",
                &item,
            ));
        };
        names.push(text.as_bytes().to_vec());
    }
    Ok(CertificateTemplate {
        common_name: args.str(0).as_bytes().to_vec(),
        addresses,
        names,
        not_before: current_time(call)?,
        days: args.int(3),
        is_authority: false,
    })
}

fn not_a_string(call: &Call<'_>, before: &'static str, item: &Value) -> FuncError {
    match strval(item, call.budget()) {
        Ok(shown) => {
            let shown = String::from_utf8_lossy(&shown);
            FuncError::with_value(before, shown, " is not a string")
        }
        Err(error) => error.into(),
    }
}

fn items(value: &Value) -> Vec<Value> {
    value.as_list().map_or_else(Vec::new, |list| list.to_vec())
}

fn create(template: &CertificateTemplate, key: &PrivateKey, issuer: &Issuer<'_>) -> Answer {
    let certificate = pem::encode("CERTIFICATE", &template.create(key, issuer)?);
    Ok(certificate_value(certificate, key.to_pem()))
}

fn gen_ca(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let template = authority_template(call, args)?;
    create(&template, &new_rsa_key(call)?, &Issuer::Itself)
}

fn gen_ca_with_key(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let template = authority_template(call, args)?;
    create(&template, &key_argument(args, 2)?, &Issuer::Itself)
}

fn gen_self_signed(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let template = leaf_template(call, args)?;
    create(&template, &new_rsa_key(call)?, &Issuer::Itself)
}

fn gen_self_signed_with_key(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let key = key_argument(args, 4)?;
    create(&leaf_template(call, args)?, &key, &Issuer::Itself)
}

/// Returns the authority in argument 4.
fn authority_argument(args: &Args<'_>) -> Result<Authority, FuncError> {
    let part = |name: &str| {
        let field = args.get(4).as_object()?.field(name)?;
        field.as_str().cloned()
    };
    let [certificate, key] = ["Cert", "Key"].map(|name| part(name).unwrap_or_default());
    Authority::from_pem(certificate.as_bytes(), key.as_bytes())
}

fn gen_signed(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let authority = authority_argument(args)?;
    let template = leaf_template(call, args)?;
    let issuer = Issuer::Authority(&authority);
    create(&template, &new_rsa_key(call)?, &issuer)
}

fn gen_signed_with_key(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let key = key_argument(args, 5)?;
    let authority = authority_argument(args)?;
    let issuer = Issuer::Authority(&authority);
    create(&leaf_template(call, args)?, &key, &issuer)
}
