//! The custom resources of native controllers, one module per API version.
