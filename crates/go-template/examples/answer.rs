//! Answers template questions, one JSON object per line: `{"template": …, "values": …}` in,
//! `{"output": …}` or `{"error": …}` out. It has Go's own functions and Sprig's, not Helm's.
//!
//! Useful to try a template, and to compare with a program that answers by Go.

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::io::{BufRead, Write};

use go_template::{Funcs, Limits, Session, TemplateSet, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let funcs = std::sync::Arc::new(Funcs::new());
    let mut answers = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let question: serde_json::Value = serde_json::from_str(&line?)?;
        let field = |name| question.get(name).unwrap_or(&serde_json::Value::Null);
        let template = field("template").as_str().unwrap_or_default();
        let mut set = TemplateSet::new("gotpl", funcs.clone());
        let name = "chart/templates/main.yaml";
        let mut out = Vec::new();
        let answer = match set.parse(name, template) {
            Err(error) => serde_json::json!({ "error": error.to_string() }),
            Ok(_) => {
                let root = Value::from(&support::root(support::json_to_tree(field("values"))));
                let mut session = Session::new(Limits::default());
                match session.execute(&set, name, &root, &mut out) {
                    Ok(()) => {
                        let output = String::from_utf8_lossy(&out).replace("<no value>", "");
                        serde_json::json!({ "output": output })
                    }
                    Err(error) => serde_json::json!({ "error": error.to_string() }),
                }
            }
        };
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}
