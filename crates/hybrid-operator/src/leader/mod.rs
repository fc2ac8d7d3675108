//! Leader election: of several replicas one works.

mod lease;

pub use lease::{Elector, LeaseError, LeaseOptions, Term};
