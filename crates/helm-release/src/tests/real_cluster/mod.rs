//! Tests of the cluster and release layers on a real API server.

mod apply;
mod deletion;
mod discovery;
mod drift;
mod records;
mod streaming;
mod support;
