//! The native controllers, one module per controller.

pub mod memcached_backup;
