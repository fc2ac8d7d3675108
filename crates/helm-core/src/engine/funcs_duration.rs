//! Functions over durations that Helm adds to Sprig's.

use go_template::Func;

pub(crate) static FUNCS: &[Func] = &[];
