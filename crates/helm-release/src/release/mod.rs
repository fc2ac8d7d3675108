//! Reads and writes release records and indexes their history.
//!
//! A record is one revision of a release in Helm's storage format, so that the Helm CLI can list,
//! show and roll back releases of the operator, and the operator can adopt those of Helm. A
//! [`ReleaseIndex`] keeps the metadata of all records in memory, updated by a watch. Contents are
//! loaded on demand.
//!
//! * [`RecordStore`]: reads and writes records.
//! * [`ReleaseIndex`]: the history of all releases, with listeners for changes by other clients.
//! * [`ProofKeys`]: the key that proves which records this operator wrote.
//! * `side`: splits records that do not fit into one Secret into parts.
//!
//! Writes are conditional: a revision is created only if it does not exist, and updated only if it
//! is unchanged. Two writers can therefore never both succeed.

mod asked;
mod error;
mod history;
mod index;
mod lru;
mod meta;
mod proof;
mod records;
mod side;
mod storage;
mod store;

pub(crate) use asked::Asked;
pub use error::StoreError;
pub(crate) use history::removable;
pub use index::{IndexState, RecordChange, ReleaseIndex};
#[cfg(test)]
pub(crate) use meta::Format;
pub(crate) use meta::{Failures, RecordTags};
pub use meta::{InputsDigest, RecordMeta};
pub use proof::ProofKeys;
pub use proof::record_key_secret;
pub use records::AllRecords;
pub use storage::Storage;
pub use store::{RecordStore, StoredContent};
