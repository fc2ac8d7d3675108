//! Limits on what servers may send. They are checked before memory is taken.

/// Largest `index.yaml` of a repository, in bytes.
pub const INDEX: usize = 50 << 20;
/// Largest packaged chart, in bytes.
pub const ARCHIVE: usize = 64 << 20;
/// Largest document of the web that a schema refers to, in bytes.
pub const DOCUMENT: usize = 4 << 20;
/// Largest manifest of an OCI registry, in bytes.
pub const MANIFEST: usize = 4 << 20;
/// Largest number of manifests among which the chart of an index is looked for.
pub const INDEXED: usize = 100;
/// Largest page of a list of tags, in bytes.
pub const TAGS: usize = 4 << 20;
/// Largest number of pages of a list of tags.
pub const TAG_PAGES: usize = 100;
/// Largest answer of a token service, in bytes.
pub const TOKEN: usize = 1 << 20;
/// Largest number of redirects that are followed for one request.
pub const REDIRECTS: usize = 10;
/// Largest manifest of a chart whose signature is verified, with its index, in bytes.
pub const SIGNED_MANIFEST: usize = 1 << 20;
/// Largest text that cosign signs, in bytes.
pub const PAYLOAD: usize = 64 << 10;
/// Largest signature of cosign, in bytes of its text.
pub const SIGNATURE: usize = 4 << 10;
/// Largest bundle of cosign, in bytes.
pub const BUNDLE: usize = 256 << 10;
/// Largest certificate, chain or entry of the log in an annotation of a signature, in bytes.
pub const KEYLESS: usize = 64 << 10;
/// Largest trusted root of Sigstore, in bytes.
pub const TRUSTED_ROOT: usize = 1 << 20;
/// Largest regular expression for an identity, in bytes when it is compiled.
pub const PATTERN: usize = 1 << 20;
/// Largest number of signatures of one chart that are tried.
pub const SIGNATURES: usize = 16;
/// Largest file with a public key, in bytes.
pub const KEY: usize = 64 << 10;
/// Largest provenance file (`.prov`), in bytes. It contains the metadata of the chart.
pub const PROVENANCE: usize = 1 << 20;
/// Largest keyring, in bytes.
pub const KEYRING: usize = 16 << 20;
/// Largest number of keys in a keyring.
pub const KEYS: usize = 10_000;
/// Largest evidence that is kept beside an archive, in bytes.
pub const EVIDENCE: usize = 4 << 20;
/// Default size of the cache, in bytes.
pub const CACHE: u64 = 512 << 20;
