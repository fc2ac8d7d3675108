//! Executes templates, one JSON object per line: `{"template": …, "values": …}` in, `{"output":
//! …}`, `{"outputBase64": …}` or `{"error": …}` out. Go's own functions and Sprig's are available,
//! Helm's are not.
//!
//! Useful to try a template, and to compare with a program that uses Go.

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value, sprig};

/// Renders a template, or returns Go's error message.
fn answer(
    template: &str,
    values: &serde_json::Value,
    funcs: &Arc<Funcs>,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut set = TemplateSet::new("gotpl", Arc::clone(funcs));
    let name = "chart/templates/main.yaml";
    set.parse(name, template)?;
    let root = Value::from(&support::root(&support::json_to_tree(values)));
    let mut out = Buffer::new();
    Session::new(Limits::default()).execute(&set, name, &root, &mut out)?;
    Ok(out.into_vec())
}

fn main() -> Result<(), Box<dyn Error>> {
    let funcs = Arc::new(Funcs::new().with(&sprig::FUNCS));
    let mut answers = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let question: serde_json::Value = serde_json::from_str(&line?)?;
        let field = |name| question.get(name).unwrap_or(&serde_json::Value::Null);
        let template = field("template").as_str().unwrap_or_default();
        let answer = match answer(template, field("values"), &funcs) {
            Ok(output) => match String::from_utf8(output) {
                Ok(text) => serde_json::json!({ "output": text.replace("<no value>", "") }),
                Err(error) => {
                    let bytes = data_encoding::BASE64.encode(error.as_bytes());
                    serde_json::json!({ "outputBase64": bytes })
                }
            },
            Err(error) => serde_json::json!({ "error": error.to_string() }),
        };
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}
