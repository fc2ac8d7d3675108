//! A real control plane in one call, for the tests of operators.
