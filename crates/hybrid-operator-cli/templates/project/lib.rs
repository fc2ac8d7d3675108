//! The native part of {{project_name}}: [`api`] has the types of its custom resources,
//! [`controllers`] their controllers.
{{#if charts}}
//!
//! Kinds that a chart serves need no code: `watches.yaml` binds them to a directory in
//! `helm-charts/`. `main.rs` runs both in one manager.
{{/if}}

pub mod api;
pub mod controllers;
