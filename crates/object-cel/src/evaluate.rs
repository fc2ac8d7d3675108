//! The evaluation of a checked expression.
//!
//! It is not that of `cel`, which copies the values of a map once for each element, counts the bytes of strings instead
//! of their characters, finds that 1 is not 1.0, takes a field of a number to be `false`, and panics at `-i` of the
//! smallest integer; and which cannot be interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::node::{Loop, LoopKind, Node, Pattern};
use crate::value::{self, Budget, Stop, Value};
use crate::{EvaluationError, Type, Variables, calls};

/// A value of an object, or a computed one.
enum Found<'v> {
    Given(&'v Json, &'v Type),
    Computed(Value),
}

/// A variable of a loop.
struct Local<'v> {
    name: &'v str,
    value: Value,
    /// Where the value is, for messages.
    path: String,
}

/// An evaluation.
pub(crate) struct Run<'v> {
    values: &'v BTreeMap<String, Json>,
    variables: &'v Variables,
    pub(crate) budget: Budget,
    locals: Vec<Local<'v>>,
}

type Evaluated<T = Value> = Result<T, Stop>;

impl<'v> Run<'v> {
    pub(crate) fn new(
        values: &'v BTreeMap<String, Json>,
        variables: &'v Variables,
        max_steps: u64,
    ) -> Self {
        Self {
            values,
            variables,
            budget: Budget::new(max_steps),
            locals: Vec::new(),
        }
    }

    /// Evaluates a node.
    pub(crate) fn value(&mut self, node: &'v Node) -> Evaluated {
        match self.find(node)? {
            Found::Computed(value) => Ok(value),
            Found::Given(value, type_) => {
                let locals = &self.locals;
                let path: &dyn Fn() -> String = &|| path(node, locals);
                value::read(value, type_, &mut self.budget, path)
            }
        }
    }

    fn values(&mut self, nodes: &'v [Node]) -> Evaluated<Vec<Value>> {
        nodes.iter().map(|node| self.value(node)).collect()
    }

    fn find(&mut self, node: &'v Node) -> Evaluated<Found<'v>> {
        self.budget.charge(1)?;
        let value = match node {
            Node::Literal(value) => value.clone(),
            Node::Variable(name) => return self.variable(node, name),
            Node::Select {
                of,
                field,
                optional,
            } => {
                return self.select(node, of, field, *optional);
            }
            Node::Has { of, field } => Value::Bool(self.has(of, field)?),
            Node::Index {
                of,
                index,
                optional,
            } => {
                return self.index(node, of, index, *optional);
            }
            Node::List(elements) => Value::list(self.values(elements)?),
            Node::Map(entries) => self.map(entries)?,
            Node::And(sides) => self.logical(sides, false)?,
            Node::Or(sides) => self.logical(sides, true)?,
            Node::Conditional(parts) => {
                let [condition, then, otherwise] = &**parts;
                let is_true = self.condition(condition)?;
                return self.find(if is_true { then } else { otherwise });
            }
            Node::Call {
                function: function @ (".or" | ".orValue"),
                arguments,
            } => return self.or(function, arguments),
            Node::Call {
                function,
                arguments,
            } => {
                let values = self.values(arguments)?;
                let called = calls::call(function, &values, &mut self.budget);
                called.map_err(|stop| self.naming_longest(stop, arguments, &values))?
            }
            Node::Search {
                function,
                pattern,
                arguments,
            } => {
                let arguments = self.values(arguments)?;
                self.search(function, pattern, &arguments)?
            }
            Node::Loop(of) => self.repeat(of)?,
        };
        Ok(Found::Computed(value))
    }

    /// Returns the error with the longest list among the arguments of a call, if it has none of a loop.
    fn naming_longest(&self, mut stop: Stop, nodes: &[Node], values: &[Value]) -> Stop {
        if let Stop::Failed(EvaluationError::TooManySteps {
            list: list @ None, ..
        }) = &mut stop
        {
            let lists = nodes
                .iter()
                .zip(values)
                .filter_map(|(node, value)| match value {
                    Value::List(list) => Some((node, list.len())),
                    Value::Map(map) => Some((node, map.len())),
                    _ => None,
                });
            let longest = lists.max_by_key(|(_, length)| *length);
            *list = longest.map(|(node, length)| (path(node, &self.locals), length));
        }
        stop
    }

    fn variable(&mut self, node: &Node, name: &str) -> Evaluated<Found<'v>> {
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            return Ok(Found::Computed(local.value.clone()));
        }
        let declared = self.variables.get(name);
        match (self.values.get(name), declared) {
            (Some(value), Some(type_)) if value::is_there(value, type_) => {
                Ok(Found::Given(value, type_))
            }
            _ => Err(self.missing(node)),
        }
    }

    fn missing(&self, node: &Node) -> Stop {
        Stop::Missing(path(node, &self.locals))
    }

    fn select(
        &mut self,
        node: &'v Node,
        of: &'v Node,
        field: &str,
        optional: bool,
    ) -> Evaluated<Found<'v>> {
        let (found, is_optional) = match self.find(of)? {
            Found::Computed(Value::Optional(None)) => {
                return Ok(Found::Computed(Value::Optional(None)));
            }
            Found::Computed(Value::Optional(Some(inner))) => {
                (field_of(Found::Computed((*inner).clone()), field)?, true)
            }
            found => (field_of(found, field)?, optional),
        };
        self.wrap(node, found, is_optional)
    }

    /// Returns what was found, or where nothing was; as an optional value if it is one.
    fn wrap(
        &mut self,
        node: &'v Node,
        found: Option<Found<'v>>,
        is_optional: bool,
    ) -> Evaluated<Found<'v>> {
        match found {
            Some(found) if !is_optional => Ok(found),
            None if !is_optional => Err(self.missing(node)),
            None => Ok(Found::Computed(Value::Optional(None))),
            Some(found) => {
                let value = self.computed(node, found)?;
                Ok(Found::Computed(Value::Optional(Some(Arc::new(value)))))
            }
        }
    }

    fn computed(&mut self, node: &Node, found: Found<'v>) -> Evaluated {
        match found {
            Found::Computed(value) => Ok(value),
            Found::Given(value, type_) => {
                let locals = &self.locals;
                value::read(value, type_, &mut self.budget, &|| path(node, locals))
            }
        }
    }

    fn has(&mut self, of: &'v Node, field: &str) -> Evaluated<bool> {
        let found = match self.find(of)? {
            Found::Computed(Value::Optional(None)) => return Ok(false),
            Found::Computed(Value::Optional(Some(inner))) => Found::Computed((*inner).clone()),
            found => found,
        };
        Ok(field_of(found, field)?.is_some())
    }

    fn index(
        &mut self,
        node: &'v Node,
        of: &'v Node,
        index: &'v Node,
        optional: bool,
    ) -> Evaluated<Found<'v>> {
        let (container, is_optional) = match self.find(of)? {
            Found::Computed(Value::Optional(None)) => {
                return Ok(Found::Computed(Value::Optional(None)));
            }
            Found::Computed(Value::Optional(Some(inner))) => {
                (Found::Computed((*inner).clone()), true)
            }
            found => (found, optional),
        };
        let index = self.value(index)?;
        let found = match (&container, &index) {
            (Found::Given(Json::Array(items), type_), _) => {
                let below = match type_ {
                    Type::List(below) => below,
                    other => *other,
                };
                let item = position(&index, is_optional)?.and_then(|at| items.get(at));
                item.map(|item| Found::Given(item, below))
            }
            (Found::Computed(Value::List(elements)), _) => {
                let element = position(&index, is_optional)?.and_then(|at| elements.get(at));
                element.map(|element| Found::Computed(element.clone()))
            }
            (_, Value::String(key)) => field_of(container, key)?,
            _ => {
                let message = format!("{} is not an index of this value", index.type_name());
                return Err(Stop::failed(message));
            }
        };
        self.wrap(node, found, is_optional)
    }

    fn map(&mut self, entries: &'v [(Node, Node)]) -> Evaluated {
        let mut map = BTreeMap::new();
        for (key, value) in entries {
            let (key, value) = (self.value(key)?, self.value(value)?);
            let Value::String(key) = key else {
                return Err(Stop::failed("the key of a map is not a string"));
            };
            map.insert(key, value);
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn condition(&mut self, node: &'v Node) -> Evaluated<bool> {
        match self.value(node)? {
            Value::Bool(value) => Ok(value),
            other => Err(Stop::failed(format!(
                "a condition is a bool, not {}",
                other.type_name()
            ))),
        }
    }

    /// Evaluates `||` if `decisive`, otherwise `&&`: a side with that value decides, even if the other one has none.
    fn logical(&mut self, sides: &'v [Node; 2], decisive: bool) -> Evaluated {
        let mut ended = None;
        for side in sides {
            match self.condition(side) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(stop) if stop.is_final() => return Err(stop),
                Err(stop) => ended = ended.or(Some(stop)),
            }
        }
        ended.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    /// Evaluates the other value only if there is none.
    fn or(&mut self, function: &str, arguments: &'v [Node]) -> Evaluated<Found<'v>> {
        let [optional, other] = arguments else {
            return Err(Stop::failed(
                "an optional value and another one are expected",
            ));
        };
        match self.value(optional)? {
            Value::Optional(Some(value)) if function == ".orValue" => {
                Ok(Found::Computed((*value).clone()))
            }
            Value::Optional(None) => self.find(other),
            value @ Value::Optional(_) => Ok(Found::Computed(value)),
            other => {
                let message = format!("{} is not an optional value", other.type_name());
                Err(Stop::failed(message))
            }
        }
    }

    fn search(
        &mut self,
        function: &str,
        Pattern(regex, length): &Pattern,
        arguments: &[Value],
    ) -> Evaluated {
        let Some(Value::String(text)) = arguments.first() else {
            return Err(Stop::failed("only a string can be searched"));
        };
        self.budget
            .charge((text.len() / 10 + 1).saturating_mul(length / 4 + 1))?;
        Ok(match (function, arguments.get(1)) {
            ("matches", _) => Value::Bool(regex.is_match(&**text)),
            ("find", _) => {
                let found = regex.find(&**text);
                found
                    .and_then(|found| text.get(found.range()))
                    .unwrap_or_default()
                    .into()
            }
            (_, limit) => {
                let limit = match limit {
                    Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                let mut found: Vec<Value> = Vec::new();
                for part in regex.find_iter(&**text).take(limit) {
                    // The search for the next match may read all that is left.
                    self.budget
                        .charge((text.len() - part.start()) / 200 + length / 4 + 1)?;
                    found.extend(text.get(part.range()).map(Value::from));
                }
                Value::list(found)
            }
        })
    }

    fn repeat(&mut self, of: &'v Loop) -> Evaluated {
        let range = self.value(&of.range)?;
        let path_of = path(&of.range, &self.locals);
        let (elements, is_map) = match range {
            Value::List(elements) => (elements, false),
            Value::Map(map) => {
                self.budget.charge(map.len())?;
                let keys = map.keys().map(|key| Value::String(Arc::clone(key)));
                (Arc::new(keys.collect()), true)
            }
            other => {
                let message = format!("{} is neither a list nor a map", other.type_name());
                return Err(Stop::failed(message));
            }
        };
        self.budget.loops.push((path_of.clone(), elements.len()));
        let depth = self.locals.len();
        let result = self.repeat_over(of, &elements, &path_of, is_map);
        // After an error, the local variable is still there.
        self.locals.truncate(depth);
        if !result.as_ref().is_err_and(Stop::is_final) {
            self.budget.loops.pop();
        }
        result
    }

    fn repeat_over(
        &mut self,
        of: &'v Loop,
        elements: &[Value],
        range: &str,
        is_map: bool,
    ) -> Evaluated {
        let decisive = of.kind == LoopKind::Exists;
        let mut collected = Vec::new();
        let mut count = 0_usize;
        let mut ended = None;
        for (at, element) in elements.iter().enumerate() {
            let path = if is_map {
                range.to_owned()
            } else {
                format!("{range}[{at}]")
            };
            self.budget.charge_text(path.len())?;
            self.locals.push(Local {
                name: &of.variable,
                value: element.clone(),
                path,
            });
            match of.kind {
                LoopKind::All | LoopKind::Exists => match self.condition(&of.body) {
                    Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                    Ok(_) => {}
                    Err(stop) if stop.is_final() => return Err(stop),
                    Err(stop) => ended = ended.or(Some(stop)),
                },
                LoopKind::ExistsOne => count += usize::from(self.condition(&of.body)?),
                LoopKind::Map => {
                    let is_kept = match &of.filter {
                        Some(filter) => self.condition(filter)?,
                        None => true,
                    };
                    if is_kept {
                        collected.push(self.value(&of.body)?);
                    }
                }
            }
            self.locals.pop();
        }
        match (of.kind, ended) {
            (_, Some(stop)) => Err(stop),
            (LoopKind::All | LoopKind::Exists, None) => Ok(Value::Bool(!decisive)),
            (LoopKind::ExistsOne, None) => Ok(Value::Bool(count == 1)),
            (LoopKind::Map, None) => Ok(Value::list(collected)),
        }
    }
}

/// Returns a field, if it is there.
fn field_of<'v>(found: Found<'v>, field: &str) -> Evaluated<Option<Found<'v>>> {
    match found {
        Found::Given(Json::Object(fields), type_) => {
            let below = match type_ {
                Type::Map(values) => values,
                Type::Object(object) => object.fields.get(field).unwrap_or(&Type::Dyn),
                other => other,
            };
            let value = fields
                .get(field)
                .filter(|value| value::is_there(value, below));
            Ok(value.map(|value| Found::Given(value, below)))
        }
        Found::Computed(Value::Map(map)) => Ok(map.get(field).cloned().map(Found::Computed)),
        _ => Err(Stop::failed(format!(
            "{field} is not a field of this value, which is no map"
        ))),
    }
}

/// Returns the position that an index is, if a list may have it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "it is exact"
)]
fn position(index: &Value, is_optional: bool) -> Evaluated<Option<usize>> {
    let number = match index {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).unwrap_or(i64::MAX),
        Value::Double(number) if (*number as i64) as f64 == *number => *number as i64,
        other => {
            let message = format!("{} is not an index of a list", other.type_name());
            return Err(Stop::failed(message));
        }
    };
    if number < 0 && !is_optional {
        return Err(Stop::failed(format!("there is no index {number}")));
    }
    Ok(usize::try_from(number).ok())
}

/// Returns the path of what a node finds, such as `objects.pods.items[3].status`.
fn path(node: &Node, locals: &[Local<'_>]) -> String {
    match node {
        Node::Variable(name) => {
            let local = locals.iter().rev().find(|local| local.name == name);
            local.map_or_else(|| name.clone(), |local| local.path.clone())
        }
        Node::Select { of, field, .. } => format!("{}.{field}", path(of, locals)),
        Node::Index { of, index, .. } => {
            let of = path(of, locals);
            match &**index {
                Node::Literal(Value::String(key)) => format!("{of}['{key}']"),
                Node::Literal(Value::Int(at)) => format!("{of}[{at}]"),
                _ => format!("{of}[...]"),
            }
        }
        Node::Loop(of) => format!("{}.{}(...)", path(&of.range, locals), of.name()),
        Node::Call {
            function,
            arguments,
        } if function.starts_with('.') => {
            let of = arguments.first().map(|of| path(of, locals));
            format!("{}{function}(...)", of.unwrap_or_default())
        }
        Node::Call { function, .. } if function.chars().any(char::is_alphanumeric) => {
            format!("{function}(...)")
        }
        _ => "(...)".to_owned(),
    }
}
