//! The custom resources of native controllers, one module per API version.

pub mod v1alpha1;
