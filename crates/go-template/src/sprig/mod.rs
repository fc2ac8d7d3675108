//! Sprig's functions over [`crate::Value`].
