//! The memcached operator: a chart and a Rust controller in one manager.
//!
//! [`api`] holds the types of the native custom resources, [`controllers`] what reconciles them.
//! `Memcached` has no code here: `watches.yaml` binds it to `helm-charts/memcached`.

pub mod api;
pub mod controllers;
