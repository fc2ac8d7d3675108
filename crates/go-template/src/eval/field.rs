//! Fields, map entries and methods.

use super::{Eval, Result};
use crate::code::{Base, Fields};
use crate::set::MissingKey;
use crate::value::{Kind, Map, Name, Type, Value};

impl Eval<'_> {
    /// A chain of fields, of which the last may be a method with arguments.
    pub(super) fn fields(
        &mut self,
        fields: &Fields,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value> {
        self.at = fields.at;
        let Some((first, rest)) = fields.names.split_first() else {
            return Ok(Value::Invalid);
        };
        let has_args = piped.is_some() || !fields.args.is_empty();
        if has_args {
            return self.fields_with_args(fields, dot, piped);
        }
        // The usual case touches nothing but maps.
        let mut value = match &fields.base {
            Base::Dot => self.first_field(dot, first, fields.is_element)?,
            Base::Slot(slot) => {
                let receiver = self.session.slots.get(self.base + slot);
                let found = receiver
                    .and_then(plain_map)
                    .and_then(|map| map.get_name(first));
                if let Some(value) = found {
                    value
                } else {
                    let receiver = self.slot(*slot);
                    self.field(&receiver, first, fields.is_element)?
                }
            }
            Base::Expr(expr) => {
                let receiver = self.command(expr, dot, None)?;
                self.first_field(&receiver, first, false)?
            }
        };
        for name in rest {
            value = match plain_map(&value) {
                Some(map) => match map.get_name(name) {
                    Some(found) => found,
                    None => self.missing(map.go_type(), name)?,
                },
                None => self.field(&value, name, true)?,
            };
        }
        Ok(value)
    }

    #[inline]
    fn first_field(&mut self, receiver: &Value, name: &Name, boxed: bool) -> Result<Value> {
        match plain_map(receiver).and_then(|map| map.get_name(name)) {
            Some(value) => Ok(value),
            None => self.field(receiver, name, boxed),
        }
    }

    #[cold]
    fn fields_with_args(
        &mut self,
        fields: &Fields,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value> {
        let mut receiver = match &fields.base {
            Base::Dot => dot.clone(),
            Base::Slot(slot) => self.slot(*slot),
            Base::Expr(expr) => self.command(expr, dot, None)?,
        };
        let Some((last, before)) = fields.names.split_last() else {
            return Ok(receiver);
        };
        for (index, name) in before.iter().enumerate() {
            receiver = self.field(&receiver, name, fields.is_element || index > 0)?;
        }
        let boxed = fields.is_element || !before.is_empty();
        if let Some(method) = method_of(&receiver, last) {
            return self.method(method, &receiver, fields.at, &fields.args, dot, piped);
        }
        let name = last.key();
        match &receiver {
            Value::Map(_) => Err(self.fail(format!("{name} is not a method but has arguments"))),
            Value::NilOf(ty) if ty.kind() == Kind::Map => {
                Err(self.fail(format!("{name} is not a method but has arguments")))
            }
            Value::Object(object) if object.field(&name.to_string_lossy()).is_some() => {
                let message = "has arguments but cannot be invoked as function";
                Err(self.fail(format!("{name} {message}")))
            }
            _ => self.field(&receiver, last, boxed),
        }
    }

    /// The field, entry or method `name` of `receiver`. `boxed` says that the receiver came out
    /// of a map, which only messages tell.
    pub(super) fn field(&mut self, receiver: &Value, name: &Name, boxed: bool) -> Result<Value> {
        let field = name.key();
        match receiver {
            Value::Invalid => {
                return match self.set.missing() {
                    MissingKey::Error => {
                        let field = crate::go::strconv::quote(field.as_bytes());
                        let field = String::from_utf8_lossy(&field);
                        Err(self.fail(format!("nil data; no entry for key {field}")))
                    }
                    MissingKey::Invalid | MissingKey::Zero => Ok(Value::Invalid),
                };
            }
            Value::Nil => {
                return Err(self.fail(format!("nil pointer evaluating interface {{}}.{field}")));
            }
            _ => {}
        }
        if let Some(method) = method_of(receiver, name) {
            return self.method(method, receiver, self.at, &[], &Value::Invalid, None);
        }
        match receiver {
            Value::Map(map) => match map.get_name(name) {
                Some(value) => return Ok(value),
                None => return self.missing(map.go_type(), name),
            },
            Value::NilOf(ty) if ty.kind() == Kind::Map => return self.missing(*ty, name),
            // A struct without the field is the greater mistake.
            Value::NilOf(ty)
                if ty.kind() == Kind::Ptr
                    && (ty.elem().kind() != Kind::Struct
                        || ty.field(&field.to_string_lossy()).is_some()) =>
            {
                return Err(self.fail(format!("nil pointer evaluating {ty}.{field}")));
            }
            Value::Object(object) => {
                if let Some(value) = object.field(&field.to_string_lossy()) {
                    let exported = field.to_string_lossy().starts_with(char::is_uppercase);
                    if exported {
                        return Ok(value);
                    }
                    let ty = object.go_type();
                    return Err(self.fail(format!(
                        "{field} is an unexported field of struct type {ty}"
                    )));
                }
            }
            _ => {}
        }
        let ty = if boxed {
            Type::ANY.name()
        } else {
            receiver.type_name()
        };
        Err(self.fail(format!("can't evaluate field {field} in type {ty}")))
    }

    /// What a map of type `ty` gives for a key that it does not have.
    fn missing(&mut self, ty: Type, name: &Name) -> Result<Value> {
        match self.set.missing() {
            MissingKey::Invalid => Ok(Value::Invalid),
            MissingKey::Zero => Ok(Value::zero(ty.elem())),
            MissingKey::Error => {
                let key = crate::go::strconv::quote(name.key().as_bytes());
                let key = String::from_utf8_lossy(&key);
                Err(self.fail(format!("map has no entry for key {key}")))
            }
        }
    }
}

/// The map, if it has no methods that would hide its entries.
#[inline]
fn plain_map(value: &Value) -> Option<&Map> {
    match value {
        Value::Map(map) if map.go_type().info().methods.is_empty() => Some(map),
        _ => None,
    }
}

fn method_of(receiver: &Value, name: &Name) -> Option<&'static crate::value::Method> {
    let ty = receiver.go_type()?;
    if ty.info().methods.is_empty() && ty.kind() != Kind::Ptr {
        return None;
    }
    ty.method(name.key().to_str()?)
}
