//! Runs etcd clusters, member by member.
//!
//! A reconcile observes ([`observe`]), decides on one step ([`members`], pure), executes it and
//! reports ([`controller`]). [`membership`] talks to etcd, [`pods`] builds Pods and Services, and
//! [`api`] has the custom resource.

pub mod api;
pub mod controller;
pub mod members;
pub mod membership;
pub mod observe;
pub mod pods;
pub mod report;
pub mod version;
