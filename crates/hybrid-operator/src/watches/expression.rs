//! Reads expressions in CEL.

use go_yaml::tree::Node;
use object_cel::{Expression, Type, Variables};

use super::fields::expected;

/// Reads an expression.
pub(super) fn expression(node: &Node, variables: &Variables) -> Result<Expression, String> {
    let source = node
        .as_str()
        .ok_or_else(|| expected("an expression in CEL", node))?;
    parse(source, variables)
}

/// Parses an expression.
pub(super) fn parse(source: &str, variables: &Variables) -> Result<Expression, String> {
    Expression::parse(source, variables)
        .map_err(|error| format!("{error} (line and column of the expression)"))
}

/// Returns an expression that is true or false.
pub(super) fn condition(expression: Expression) -> Result<Expression, String> {
    match expression.result() {
        Type::Bool | Type::Dyn => Ok(expression),
        other => Err(format!(
            "`{}` is {other}; a condition is true or false, such as `size(spec.hosts) > 0`",
            expression.source()
        )),
    }
}
