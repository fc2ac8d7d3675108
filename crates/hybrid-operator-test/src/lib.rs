#![doc = include_str!("../README.md")]

pub mod api_server;
pub mod audit;
pub mod browser;
pub mod control_plane;
pub mod fault;
pub mod gitops;
pub mod go_operator;
pub mod helm;
pub mod http_server;
pub mod namespace;
pub mod olm;
pub mod packaged;
pub mod process;
pub mod program;
pub mod registry;
pub mod request;
pub mod scripted;
pub mod sharder;
pub mod shared;
pub mod simulation;
pub mod storage;
pub mod wait;

pub use control_plane::{ControlPlane, Options, StartError};
pub use http_server::HttpServer;
pub use namespace::TestNamespace;
pub use packaged::packaged_chart;
pub use process::Operator;
pub use program::Program;
pub use registry::Registry;
pub use scripted::ScriptedApi;
pub use shared::{binary_or_skip, shared, shared_or_skip, skipped};
