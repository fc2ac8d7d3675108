//! Checks of calls: of functions, methods and operators.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::{Checker, Typed, suggest};
use crate::calls;
use crate::functions;
use crate::node::Node;
use crate::pattern;
use crate::source::Wrong;
use crate::types::Type;
use crate::value::Value;

impl Checker<'_> {
    /// Checks a call of a function, a method or an operator.
    pub(super) fn function(
        &mut self,
        id: u64,
        name: &str,
        call: &CallExpr,
    ) -> Result<Typed, Wrong> {
        let arguments = call.args.as_slice();
        let Some(target) = call.target.as_deref() else {
            let logical = [operators::LOGICAL_AND, operators::LOGICAL_OR];
            if let (true, [left, right]) = (logical.contains(&name), arguments) {
                let sides = Box::new([self.condition(left)?, self.condition(right)?]);
                let is_and = name == operators::LOGICAL_AND;
                let node = if is_and { Node::And } else { Node::Or };
                return Ok((node(sides), Type::Bool));
            }
            // A point before the name is that of the outermost scope.
            let known = self.known(id, name.trim_start_matches('.'), "")?;
            return self.apply(id, known, arguments);
        };
        if let Expr::Ident(prefix) = &target.expr
            && let Some(known) = functions::function(&format!("{prefix}.{name}"))
        {
            return self.apply(id, known, arguments);
        }
        let known = self.known(id, name, ".")?;
        let arguments: Vec<IdedExpr> = std::iter::once(target).chain(arguments).cloned().collect();
        self.apply(id, known, &arguments)
    }

    /// Returns the name of a function, or of a method with a point as its prefix.
    fn known(&self, id: u64, name: &str, prefix: &str) -> Result<&'static str, Wrong> {
        let written = format!("{prefix}{name}");
        functions::function(&written).ok_or_else(|| {
            let offset = self.source.name_offset(id);
            if functions::is_unsupported(name) {
                return Wrong(offset, format!("{name} is not supported in this form"));
            }
            let (kind, other) = match prefix {
                "." => ("method", name.to_owned()),
                _ => ("function", format!(".{name}")),
            };
            let other = functions::function(&other);
            let near = other.or_else(|| functions::nearest_function(&written));
            let message = suggest(format!("there is no {kind} {name}"), near);
            Wrong(offset, message)
        })
    }

    fn apply(&mut self, id: u64, name: &'static str, exprs: &[IdedExpr]) -> Result<Typed, Wrong> {
        if let (".format", [format, arguments]) = (name, exprs) {
            return self.format(id, format, arguments);
        }
        let (mut arguments, types) = self.check_all(exprs)?;
        let result = self.resolve(id, name, &types)?;
        let offset = |at: usize| exprs.get(at).map_or(0, |expr| self.source.offset(expr.id));
        let literal = |at: usize| match arguments.get(at) {
            Some(Node::Literal(Value::String(text))) => Some(text.clone()),
            _ => None,
        };
        if let ("duration" | "timestamp", [Node::Literal(value)]) = (name, arguments.as_slice())
            && calls::convert(name, value).is_none()
        {
            let example = if name == "duration" {
                "1h30m"
            } else {
                "2026-01-31T12:00:00Z"
            };
            let message = format!("this is no {name} such as '{example}'");
            return Err(Wrong(offset(0), message));
        }
        let node = match (name, literal(1)) {
            (operators::CONDITIONAL, _) => {
                let parts = <[Node; 3]>::try_from(arguments);
                let wrong = |_| Wrong(offset(0), "a condition has three parts".to_owned());
                Node::Conditional(Box::new(parts.map_err(wrong)?))
            }
            ("matches" | ".matches" | ".find" | ".findAll", text) => {
                let text = text.ok_or_else(|| {
                    let message = "the pattern must be a literal".to_owned();
                    Wrong(self.source.name_offset(id), message)
                })?;
                let pattern =
                    pattern::compile(&text).map_err(|message| Wrong(offset(1), message))?;
                arguments.remove(1);
                Node::Search {
                    function: name.trim_start_matches('.'),
                    pattern,
                    arguments,
                }
            }
            (".sum", _) => {
                arguments.push(Node::Literal(match &result {
                    Type::Uint => Value::Uint(0),
                    Type::Double => Value::Double(0.0),
                    Type::Duration => Value::Duration(0),
                    _ => Value::Int(0),
                }));
                Node::Call {
                    function: name,
                    arguments,
                }
            }
            _ => Node::Call {
                function: name,
                arguments,
            },
        };
        Ok((node, result))
    }

    fn format(&mut self, id: u64, format: &IdedExpr, arguments: &IdedExpr) -> Result<Typed, Wrong> {
        let (text, list) = match (&format.expr, &arguments.expr) {
            (Expr::Literal(LiteralValue::String(text)), Expr::List(list))
                if list.optional_indices.is_empty() =>
            {
                (text, list)
            }
            _ => {
                let message = "format needs a literal, and its values in brackets";
                return Err(Wrong(self.source.name_offset(id), message.to_owned()));
            }
        };
        let is_outer_format = std::mem::replace(&mut self.in_format, true);
        let checked = self.check_all(&list.elements);
        self.in_format = is_outer_format;
        let (nodes, types) = checked?;
        let types: Vec<Type> = types
            .iter()
            .map(|type_| self.mapping.finish(type_))
            .collect();
        crate::format::check(text.inner(), &types)
            .map_err(|message| Wrong(self.source.name_offset(id), message))?;
        let node = Node::Call {
            function: ".format",
            arguments: vec![Node::Literal(text.inner().into()), Node::List(nodes)],
        };
        Ok((node, Type::String))
    }

    /// Returns the type of the result of a function or operator.
    pub(super) fn resolve(&mut self, id: u64, name: &str, types: &[Type]) -> Result<Type, Wrong> {
        if let Some(result) = functions::result(name, types, &mut self.mapping) {
            return Ok(result);
        }
        let names: Vec<String> = types
            .iter()
            .map(|type_| self.mapping.finish(type_).to_string())
            .collect();
        let is_operator = !name.chars().any(char::is_alphanumeric) || name == operators::IN;
        let mut message = match (names.split_first(), name.strip_prefix('.')) {
            (Some((target, others)), Some(method)) => {
                format!("{target} has no method {method}({})", others.join(", "))
            }
            _ if name == operators::CONDITIONAL => {
                format!(
                    "a condition is a bool with two values of one type, not {}",
                    names.join(" and ")
                )
            }
            _ if is_operator => {
                let symbol = name.trim_matches(['_', '@']);
                let symbol = if symbol == "[_]" || symbol == "[?_]" || symbol == "[_" {
                    "[]"
                } else {
                    symbol
                };
                format!("there is no {symbol} for {}", names.join(" and "))
            }
            _ => format!("{name} cannot take {}", names.join(" and ")),
        };
        if name == operators::ADD && names.iter().any(|name| name == "string") {
            message.push_str("; convert with string(...)");
        }
        Err(Wrong(self.source.name_offset(id), message))
    }

    /// Checks an expression that must be a bool.
    pub(super) fn condition(&mut self, expr: &IdedExpr) -> Result<Node, Wrong> {
        let (node, type_) = self.check(expr)?;
        if self.mapping.accepts(&type_, &Type::Bool) {
            return Ok(node);
        }
        let message = format!("a condition is a bool, not {}", self.mapping.finish(&type_));
        Err(Wrong(self.source.offset(expr.id), message))
    }
}
