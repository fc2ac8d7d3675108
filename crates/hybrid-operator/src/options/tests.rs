//! Tests of the options of `run`, from flags and the environment.

mod table;
