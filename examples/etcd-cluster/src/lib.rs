//! Runs etcd clusters, member by member.
//!
//! A reconcile observes (`observe`), decides on one step (`members`, pure), executes it
//! ([`controller`]) and writes the status (`report`). [`membership`] talks to etcd, [`pods`] builds
//! Pods and Services, and [`api`] has the custom resource.

pub mod api;
pub mod controller;
mod members;
pub mod membership;
mod observe;
pub mod pods;
mod report;
mod version;
