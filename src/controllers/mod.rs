//! The native controllers, a module each.

pub mod memcached_backup;
