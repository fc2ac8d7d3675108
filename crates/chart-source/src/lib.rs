//! Helm charts from afar: archives behind a URL, HTTP repositories and OCI registries.
//!
//! ```no_run
//! use chart_source::{Access, Cache, ChartReference, Puller};
//!
//! let puller = Puller::new(&Access::default(), Cache::open_default())?;
//! let chart = ChartReference::parse("oci://ghcr.io/stefanprodan/charts/podinfo:6.9.1", None, None)?;
//! let pulled = puller.pull_blocking(&chart)?;
//! println!("{} has {} bytes", pulled.resolved.digest, pulled.archive.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ChartReference`] says which chart is meant, [`Puller`] finds the version and fetches the archive,
//! and [`Cache`] keeps archives by their digest. A [`verify::Policy`] says who must have signed the chart.
//! Versions and URLs are chosen as Helm chooses them.
//!
//! The feature `provenance` verifies provenance files (`.prov`), and the feature `cosign-identity` the signatures of
//! cosign that an identity has made; those that were made with a key need no feature.
//!
//! # Guarantees
//! - An archive is compared with the digest of the index, the manifest or the reference, if there is one,
//!   before it is returned, and each time it is read from the cache.
//! - With a [`verify::Policy`], an archive is returned only if the signature proves it, which is computed from
//!   its bytes each time, also when archive and signature come from the cache.
//! - No answer takes more memory than its limit: see [`limits`].
//! - Credentials are sent to the host that they were given for and, after a challenge, to the token
//!   service that this host names. They are not sent to another host after a redirect, are not sent
//!   without encryption unless the registry itself is reached so, and are not part of errors.

mod access;
mod body;
mod cache;
mod challenge;
mod digest;
mod docker_config;
mod document;
mod error;
mod evidence;
mod index;
pub mod limits;
mod proxy;
mod puller;
mod reference;
mod registry;
mod repositories;
#[cfg(test)]
#[path = "../tests/support/rows.rs"]
mod rows;
mod tls;
mod transport;
pub mod verify;
mod version;

pub use access::{Access, Password, Patience};
pub use cache::{Cache, CacheError};
pub use digest::{Digest, DigestError};
pub use docker_config::DockerConfigError;
pub use document::DocumentFetcher;
pub use error::PullError;
pub use puller::{Pulled, Puller, Resolved};
pub use reference::{ChartReference, Location, OciName, ReferenceError, check_version};
pub use repositories::{Repositories, RepositoriesError, Repository};
