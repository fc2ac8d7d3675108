//! Leader election: of several replicas, only the leader runs the controllers.

mod lease;

pub use lease::{Elector, LeaseError, LeaseOptions, Term};
