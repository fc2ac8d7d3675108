//! Helm's release records: what a release is, as Helm 3 and 4 store it in Secrets.
//!
//! ```
//! use helm_core::release::{codec, name, Release, ReleaseName, Revision, Status};
//! let name: ReleaseName = "web".parse()?;
//! let mut release = Release::new(name.clone(), "prod", Revision::FIRST);
//! release.info.status = Status::Deployed;
//! let stored = codec::encode(&release)?;
//! assert_eq!(codec::decode(stored.as_bytes())?.info.status, Status::Deployed);
//! assert_eq!(name::secret_name(&name, Revision::FIRST), "sh.helm.release.v1.web.v1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod codec;
pub mod compact;
pub mod name;
mod record;
mod status;
pub(crate) mod time;

pub use codec::CodecError;
pub use name::{NameError, ReleaseName, Revision};
pub use record::{ApplyMethod, Info, Release, ReleaseChart, SYSTEM_LABELS, StoredFile};
pub use status::Status;
pub use time::{Time, TimeError};

use serde::{Deserialize, Deserializer};

/// Deserializes null as the empty value, because Go writes a nil slice or map as null.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns whether a field is left out of JSON, as Go leaves out the empty values of its types.
pub(crate) fn is_empty<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
