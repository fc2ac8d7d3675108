//! Leader election: of several replicas, only the leader runs the controllers.

mod lease;

pub(crate) use lease::{Elector, LeaseOptions, Term};
