mod compared;
mod generate;
mod golden;
mod kinds;
mod samples;
mod server;

use serde_json::Value;

use super::{ApplyError, TypeRef, Writer};

fn apply(
    live: Option<&Value>,
    applied: &Value,
    type_: &TypeRef,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    super::apply(live, applied, type_, writer, force).map(|applied| applied.object)
}
