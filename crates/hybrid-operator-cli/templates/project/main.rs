//! The program of {{project_name}}: what runs in its manager.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
{{#if charts}}
        .with_charts()
{{/if}}
        .main()
}
