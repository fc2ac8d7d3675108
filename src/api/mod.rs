//! The custom resources that native controllers reconcile, a module for each API version.

pub mod v1alpha1;
