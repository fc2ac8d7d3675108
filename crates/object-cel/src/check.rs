//! The checker: from the tree of the parser to a checked expression, with its type and what it reads.

mod call;

use std::collections::BTreeSet;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators,
};

use crate::node::{Loop, LoopKind, Node};
use crate::source::{Source, Wrong};
use crate::types::{escaped, is_reserved, nearest};
use crate::unify::{Mapping, most_general};
use crate::value::Value;
use crate::{Type, Variables};

/// Limit on loops within loops.
const MAX_LOOPS: usize = 3;

/// The paths of the fields that an expression reads.
pub(crate) type Reads = BTreeSet<Vec<String>>;

pub(crate) struct Checked {
    pub(crate) node: Node,
    pub(crate) type_: Type,
    pub(crate) reads: Reads,
}

/// A part of an expression.
struct Part {
    node: Node,
    type_: Type,
    /// The path of the value, if it begins with a variable.
    path: Option<Path>,
}

struct Path {
    steps: Vec<String>,
    /// Whether the path ends with a step that is known only in an evaluation.
    is_closed: bool,
}

impl Part {
    fn new(node: Node, type_: Type) -> Self {
        Self {
            node,
            type_,
            path: None,
        }
    }
}

struct Checker<'c> {
    source: &'c Source<'c>,
    variables: &'c Variables,
    /// Variables of loops.
    locals: Vec<(String, Type)>,
    loops: usize,
    mapping: Mapping,
    reads: Reads,
    /// Elements of literals that must have the type of the first one, with their offsets.
    alike: Vec<(usize, Type, Type)>,
    /// Whether the current part is an argument of `format`, which takes lists of different types.
    in_format: bool,
}

/// Checks the tree of an expression.
pub(crate) fn check(
    source: &Source<'_>,
    tree: &IdedExpr,
    variables: &Variables,
) -> Result<Checked, Wrong> {
    let mut checker = Checker {
        source,
        variables,
        locals: Vec::new(),
        loops: 0,
        mapping: Mapping::default(),
        reads: Reads::new(),
        alike: Vec::new(),
        in_format: false,
    };
    let (node, type_) = checker.check(tree)?;
    for (offset, first, other) in &checker.alike {
        let [first, other] = [first, other].map(|type_| checker.mapping.finish(type_));
        if first != other {
            let message = format!(
                "elements of a literal have one type, not {first} and {other}; write dyn(VALUE)"
            );
            return Err(Wrong(*offset, message));
        }
    }
    let type_ = checker.mapping.finish(&type_);
    if let Some(inner) = type_.without_json() {
        let hint = if let Type::Optional(_) = inner {
            "use orValue"
        } else {
            "convert it"
        };
        return Err(Wrong(
            0,
            format!("the result cannot be of type {inner}; {hint}"),
        ));
    }
    Ok(Checked {
        node,
        type_,
        reads: checker.reads,
    })
}

type Typed = (Node, Type);

impl Checker<'_> {
    fn check(&mut self, expr: &IdedExpr) -> Result<Typed, Wrong> {
        let part = self.part(expr)?;
        if let Some(path) = part.path {
            self.reads.insert(path.steps);
        }
        Ok((part.node, part.type_))
    }

    fn check_all(&mut self, exprs: &[IdedExpr]) -> Result<(Vec<Node>, Vec<Type>), Wrong> {
        let typed = exprs.iter().map(|expr| self.check(expr));
        Ok(typed.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
    }

    /// Checks an expression without noting what it reads, for it may be the start of a longer path.
    fn part(&mut self, expr: &IdedExpr) -> Result<Part, Wrong> {
        let id = expr.id;
        let unsupported = |what: &str| {
            Err(Wrong(
                self.source.offset(id),
                format!("{what} are not supported"),
            ))
        };
        match &expr.expr {
            Expr::Ident(name) => self.variable(id, name),
            Expr::Select(select) => self.select(id, select),
            Expr::Call(call) => self.call(id, call),
            Expr::Literal(literal) => {
                let (value, type_) = literal_value(literal);
                Ok(Part::new(Node::Literal(value), type_))
            }
            Expr::List(list) if list.optional_indices.is_empty() => {
                let (nodes, types) = self.check_all(&list.elements)?;
                let offsets = list
                    .elements
                    .iter()
                    .map(|element| self.source.offset(element.id));
                let offsets: Vec<usize> = offsets.collect();
                let elements = self.join(&types, &offsets);
                Ok(Part::new(Node::List(nodes), Type::list(elements)))
            }
            Expr::Map(map) => self.map(id, map),
            Expr::Comprehension(comprehension) => self.comprehension(id, comprehension),
            Expr::List(_) => unsupported("optional elements"),
            Expr::Struct(_) => unsupported("messages"),
            Expr::Unspecified => unsupported("empty expressions"),
        }
    }

    fn variable(&mut self, id: u64, name: &str) -> Result<Part, Wrong> {
        let node = Node::Variable(name.to_owned());
        if let Some((_, type_)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(Part::new(node, type_.clone()));
        }
        let Some(type_) = self.variables.get(name) else {
            let locals = self.locals.iter().map(|(local, _)| local.as_str());
            let message = format!("there is no variable {name}");
            let known = nearest(name, locals.chain(self.variables.names()));
            return Err(Wrong(self.source.offset(id), suggest(message, known)));
        };
        Ok(Part {
            node,
            type_: type_.clone(),
            path: Some(Path {
                steps: vec![name.to_owned()],
                is_closed: false,
            }),
        })
    }

    fn select(&mut self, id: u64, select: &SelectExpr) -> Result<Part, Wrong> {
        let offset = if select.test {
            self.source.last_name_offset(id)
        } else {
            self.source.field_offset(id)
        };
        let mut part = self.field(offset, &select.operand, &select.field, false)?;
        if let (true, Node::Select { of, field, .. }) = (select.test, &part.node) {
            part.node = Node::Has {
                of: of.clone(),
                field: field.clone(),
            };
            part.type_ = Type::Bool;
        }
        Ok(part)
    }

    fn field(
        &mut self,
        offset: usize,
        operand: &IdedExpr,
        written: &str,
        optional: bool,
    ) -> Result<Part, Wrong> {
        let operand = self.part(operand)?;
        let of = self.mapping.resolve(&operand.type_);
        let (target, was_optional) = match &of {
            Type::Optional(inner) => (&**inner, true),
            other => (other, false),
        };
        let mut field = written.to_owned();
        let type_ = match target {
            Type::Object(object) => match object.field(written) {
                Some((name, type_)) => {
                    name.clone_into(&mut field);
                    type_.clone()
                }
                None if object.open => Type::Dyn,
                None => {
                    let names: Vec<String> =
                        object.fields.keys().map(|name| escaped(name)).collect();
                    let known = match names.iter().find(|name| **name == escaped(written)) {
                        Some(name) => Some(name.as_str()),
                        None => nearest(written, names.iter().map(String::as_str)),
                    };
                    let message = format!("{} has no field {written}", object.name);
                    return Err(Wrong(offset, suggest(message, known)));
                }
            },
            Type::Map(values) => (**values).clone(),
            Type::Dyn => Type::Dyn,
            Type::Parameter(_) => {
                self.mapping.accepts(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                let message = format!("a value of type {other} has no fields, such as {written}");
                return Err(Wrong(offset, message));
            }
        };
        let node = Node::Select {
            of: Box::new(operand.node),
            field: field.clone(),
            optional,
        };
        Ok(Part {
            node,
            type_: if optional || was_optional {
                Type::optional(type_)
            } else {
                type_
            },
            path: operand.path.map(|path| path.then(Some(field))),
        })
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Result<Part, Wrong> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::OPT_SELECT, [operand, field]) => {
                let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
                    return Err(Wrong(
                        self.source.offset(id),
                        "the name of a field is expected".to_owned(),
                    ));
                };
                self.field(self.source.field_offset(id), operand, field.inner(), true)
            }
            (operators::INDEX | operators::OPT_INDEX, [operand, index]) => {
                self.index(id, name, operand, index)
            }
            _ => {
                let (node, type_) = self.function(id, name, call)?;
                Ok(Part::new(node, type_))
            }
        }
    }

    fn index(
        &mut self,
        id: u64,
        name: &str,
        of: &IdedExpr,
        index: &IdedExpr,
    ) -> Result<Part, Wrong> {
        let of = self.part(of)?;
        let (index, index_type) = self.check(index)?;
        let key = match &index {
            Node::Literal(Value::String(key)) => Some(key.to_string()),
            _ => None,
        };
        let result = self.resolve(id, name, &[of.type_, index_type])?;
        Ok(Part {
            node: Node::Index {
                of: Box::new(of.node),
                index: Box::new(index),
                optional: name == operators::OPT_INDEX,
            },
            type_: result,
            path: of.path.map(|path| path.then(key)),
        })
    }

    /// Returns the common type of the elements of a literal.
    fn join(&mut self, types: &[Type], offsets: &[usize]) -> Type {
        let Some((first, others)) = types.split_first() else {
            return Type::Parameter(self.mapping.fresh(1));
        };
        let mut joined = first.clone();
        for (other, offset) in others.iter().zip(offsets.iter().skip(1)) {
            if !self.in_format {
                self.alike.push((*offset, first.clone(), other.clone()));
            }
            let fits = self.mapping.accepts(&joined, other);
            joined = if fits {
                most_general(&joined, other)
            } else {
                Type::Dyn
            };
        }
        joined
    }

    fn map(&mut self, id: u64, map: &MapExpr) -> Result<Part, Wrong> {
        let mut entries = Vec::new();
        let mut found = Vec::new();
        let mut offsets = Vec::new();
        for entry in &map.entries {
            let (key, value) = match &entry.expr {
                EntryExpr::MapEntry(entry) if !entry.optional => (&entry.key, &entry.value),
                _ => {
                    let message = "optional entries are not supported".to_owned();
                    return Err(Wrong(self.source.offset(id), message));
                }
            };
            let (key_node, key_type) = self.check(key)?;
            if self.mapping.resolve(&key_type) != Type::String {
                let message = format!("a key is a string, not {}", self.mapping.finish(&key_type));
                return Err(Wrong(self.source.offset(key.id), message));
            }
            let (node, type_) = self.check(value)?;
            entries.push((key_node, node));
            found.push(type_);
            offsets.push(self.source.offset(value.id));
        }
        let values = self.join(&found, &offsets);
        Ok(Part::new(Node::Map(entries), Type::map(values)))
    }

    fn comprehension(&mut self, id: u64, of: &ComprehensionExpr) -> Result<Part, Wrong> {
        let offset = self.source.name_offset(id);
        let Some((kind, filter, body)) = parts_of(of) else {
            return Err(Wrong(offset, "this macro is not supported".to_owned()));
        };
        if is_reserved(&of.iter_var) {
            let message = format!("{} is a reserved name", of.iter_var);
            return Err(Wrong(offset, message));
        }
        let (range, range_type) = self.check(&of.iter_range)?;
        let range_type = self.mapping.resolve(&range_type);
        let element = match &range_type {
            Type::List(elements) => (**elements).clone(),
            Type::Map(_) => Type::String,
            Type::Dyn => Type::Dyn,
            Type::Parameter(_) => {
                self.mapping.accepts(&Type::Dyn, &range_type);
                Type::Dyn
            }
            other => {
                let message = format!("{other} is neither a list nor a map");
                return Err(Wrong(offset, message));
            }
        };
        if self.loops == MAX_LOOPS {
            let message = format!("more than {MAX_LOOPS} loops within each other");
            return Err(Wrong(offset, message));
        }
        self.loops += 1;
        self.locals.push((of.iter_var.clone(), element));
        let filter = filter.map(|filter| self.condition(filter)).transpose()?;
        let (body, type_) = if kind == LoopKind::Map {
            let (body, type_) = self.check(body)?;
            (body, Type::list(type_))
        } else {
            (self.condition(body)?, Type::Bool)
        };
        self.locals.pop();
        self.loops -= 1;
        let node = Node::Loop(Box::new(Loop {
            kind,
            range,
            variable: of.iter_var.clone(),
            filter,
            body,
        }));
        Ok(Part::new(node, type_))
    }
}

impl Path {
    /// Returns the path with another step, which is `None` if it is known only in an evaluation.
    fn then(mut self, step: Option<String>) -> Self {
        match step {
            Some(step) if !self.is_closed => self.steps.push(step),
            _ => self.is_closed = true,
        }
        self
    }
}

fn suggest(message: String, known: Option<&str>) -> String {
    match known {
        Some(known) => format!("{message}; did you mean {}?", known.trim_start_matches('.')),
        None => message,
    }
}

fn literal_value(literal: &LiteralValue) -> (Value, Type) {
    match literal {
        LiteralValue::Boolean(value) => (Value::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(bytes) => (Value::Bytes(bytes.inner().into()), Type::Bytes),
        LiteralValue::Double(number) => (Value::Double(*number.inner()), Type::Double),
        LiteralValue::Int(number) => (Value::Int(*number.inner()), Type::Int),
        LiteralValue::Null => (Value::Null, Type::Null),
        LiteralValue::String(text) => (text.inner().into(), Type::String),
        LiteralValue::UInt(number) => (Value::Uint(*number.inner()), Type::Uint),
    }
}

/// Returns the macro that the parser has expanded, with its filter and its body.
fn parts_of(of: &ComprehensionExpr) -> Option<(LoopKind, Option<&IdedExpr>, &IdedExpr)> {
    let Expr::Call(step) = &of.loop_step.expr else {
        return None;
    };
    match (step.func_name.as_str(), step.args.as_slice()) {
        (operators::LOGICAL_AND, [_, body]) => Some((LoopKind::All, None, body)),
        (operators::LOGICAL_OR, [_, body]) => Some((LoopKind::Exists, None, body)),
        (operators::ADD, [_, element]) => Some((LoopKind::Map, None, single(element)?)),
        (operators::CONDITIONAL, [condition, then, _]) => {
            let Expr::Call(then) = &then.expr else {
                return None;
            };
            let added = then.args.get(1)?;
            if matches!(added.expr, Expr::List(_)) {
                Some((LoopKind::Map, Some(condition), single(added)?))
            } else {
                Some((LoopKind::ExistsOne, None, condition))
            }
        }
        _ => None,
    }
}

/// Returns the element of a list with one.
fn single(expr: &IdedExpr) -> Option<&IdedExpr> {
    match &expr.expr {
        Expr::List(list) => list.elements.first(),
        _ => None,
    }
}
