//! The native controllers, one module per controller.
