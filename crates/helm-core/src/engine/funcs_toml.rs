//! `toToml`, `mustToToml` and `fromToml`.

use go_template::Func;

pub(crate) static FUNCS: &[Func] = &[];
