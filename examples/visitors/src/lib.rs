//! Runs the visitors site, a web site with a backend and a database: [`api`] has the custom resource,
//! [`controller`] the order in which things are created, [`objects`] what is created.

pub mod api;
pub mod controller;
pub mod objects;
