//! Fields, map entries and methods.

use super::{Eval, Result};
use crate::code::{Base, Fields, Span};
use crate::go::strconv::quoted;
use crate::set::MissingKey;
use crate::value::{Followed, Kind, Name, Type, Value};

impl Eval<'_> {
    /// Evaluates a chain of fields; the last may be a method with arguments.
    pub(super) fn fields(
        &mut self,
        fields: &Fields,
        dot: &Value,
        piped: Option<&mut Value>,
        to: &mut Value,
    ) -> Result<()> {
        self.at = fields.at;
        let names = fields.names.of(&self.code.names);
        let Some((first, rest)) = names.split_first() else {
            return Ok(());
        };
        if piped.is_some() || !fields.args.is_empty() {
            return self.fields_with_args(fields, dot, piped, to);
        }
        let mut computed = Value::Invalid;
        let followed = match fields.base {
            Base::Dot => follow(dot, names, to),
            Base::Slot(slot) => follow(self.slot(slot), names, to),
            Base::Expr(base) => {
                self.base(base, dot, &mut computed)?;
                follow(&computed, names, to)
            }
        };
        match followed {
            Followed::Found => return Ok(()),
            Followed::Missing(ty) => {
                if let Some(last) = names.last() {
                    to.put(self.missing(ty, last)?);
                }
                return Ok(());
            }
            Followed::Unknown => {}
        }
        match fields.base {
            Base::Dot => self.entry(dot, first, fields.is_element, to)?,
            Base::Slot(slot) => {
                let receiver = self.slot(slot).clone();
                self.entry(&receiver, first, fields.is_element, to)?;
            }
            Base::Expr(_) => self.entry(&computed, first, false, to)?,
        }
        for name in rest {
            let receiver = std::mem::take(to);
            self.entry(&receiver, name, true, to)?;
        }
        Ok(())
    }

    fn base(&mut self, base: Span, dot: &Value, to: &mut Value) -> Result<()> {
        match base.of(&self.code.exprs) {
            [base, ..] => self.command(base, dot, None, to),
            [] => Ok(()),
        }
    }

    /// Evaluates a field of `receiver`, which usually is a map entry.
    #[inline]
    fn entry(&mut self, receiver: &Value, name: &Name, boxed: bool, to: &mut Value) -> Result<()> {
        if let Value::Map(map) = receiver
            && !map.go_type().has_method(name)
            && map.find(name, to)
        {
            return Ok(());
        }
        self.field(receiver, name, boxed, to)
    }

    #[cold]
    fn fields_with_args(
        &mut self,
        fields: &Fields,
        dot: &Value,
        piped: Option<&mut Value>,
        to: &mut Value,
    ) -> Result<()> {
        let mut receiver = match fields.base {
            Base::Dot => dot.clone(),
            Base::Slot(slot) => self.slot(slot).clone(),
            Base::Expr(base) => {
                self.base(base, dot, to)?;
                std::mem::take(to)
            }
        };
        let Some((last, before)) = fields.names.of(&self.code.names).split_last() else {
            return Ok(());
        };
        for (index, name) in before.iter().enumerate() {
            self.field(&receiver, name, fields.is_element || index > 0, to)?;
            receiver = std::mem::take(to);
        }
        let boxed = fields.is_element || !before.is_empty();
        if let Some(method) = method_of(&receiver, last) {
            let args = fields.args.of(&self.code.args);
            *to = self.method(method, &receiver, fields.at, args, dot, piped)?;
            return Ok(());
        }
        let name = last.key();
        match &receiver {
            map if map.kind() == Kind::Map => {
                Err(self.fail(format!("{name} is not a method but has arguments")))
            }
            Value::Object(object) if object.field(&name.to_string_lossy()).is_some() => {
                let message = "has arguments but cannot be invoked as function";
                Err(self.fail(format!("{name} {message}")))
            }
            _ => self.field(&receiver, last, boxed, to),
        }
    }

    /// Evaluates the field, entry or method `name` of `receiver`. `boxed` means that the receiver
    /// came from a map, which affects messages only.
    #[cold]
    fn field(&mut self, receiver: &Value, name: &Name, boxed: bool, to: &mut Value) -> Result<()> {
        let field = name.key();
        match receiver {
            Value::Invalid => {
                return match self.set.missing() {
                    MissingKey::Error => {
                        let field = quoted(field.as_bytes());
                        Err(self.fail(format!("nil data; no entry for key {field}")))
                    }
                    MissingKey::Invalid | MissingKey::Zero => {
                        *to = Value::Invalid;
                        Ok(())
                    }
                };
            }
            Value::Nil => {
                return Err(self.fail(format!("nil pointer evaluating interface {{}}.{field}")));
            }
            _ => {}
        }
        if let Some(method) = method_of(receiver, name) {
            *to = self.method(method, receiver, self.at, &[], &Value::Invalid, None)?;
            return Ok(());
        }
        match receiver {
            Value::Map(map) => {
                if !map.find(name, to) {
                    *to = self.missing(map.go_type(), name)?;
                }
                return Ok(());
            }
            Value::NilOf(ty) if ty.kind() == Kind::Map => {
                *to = self.missing(*ty, name)?;
                return Ok(());
            }
            // The missing field of the struct takes precedence.
            Value::NilOf(ty)
                if ty.kind() == Kind::Ptr
                    && (ty.elem().kind() != Kind::Struct
                        || ty.field(&field.to_string_lossy()).is_some()) =>
            {
                return Err(self.fail(format!("nil pointer evaluating {ty}.{field}")));
            }
            Value::Object(object) => {
                if let Some(value) = object.field(&field.to_string_lossy()) {
                    if field.to_string_lossy().starts_with(char::is_uppercase) {
                        *to = value;
                        return Ok(());
                    }
                    let ty = object.go_type();
                    let message = format!("{field} is an unexported field of struct type {ty}");
                    return Err(self.fail(message));
                }
            }
            _ => {}
        }
        let own = receiver.type_name();
        let ty = if boxed { Type::ANY.name() } else { own };
        Err(self.fail(format!("can't evaluate field {field} in type {ty}")))
    }

    /// Returns the value of a missing key in a map of type `ty`.
    fn missing(&mut self, ty: Type, name: &Name) -> Result<Value> {
        match self.set.missing() {
            MissingKey::Invalid => Ok(Value::Invalid),
            MissingKey::Zero => Ok(Value::zero(ty.elem())),
            MissingKey::Error => {
                let key = quoted(name.key().as_bytes());
                Err(self.fail(format!("map has no entry for key {key}")))
            }
        }
    }
}

/// Follows names from `receiver` through maps.
#[inline]
fn follow(receiver: &Value, names: &[Name], to: &mut Value) -> Followed {
    match receiver {
        Value::Map(map) => map.follow(names, to),
        _ => Followed::Unknown,
    }
}

fn method_of(receiver: &Value, name: &Name) -> Option<&'static crate::value::Method> {
    let ty = receiver.go_type()?;
    if ty.info().methods.is_empty() && ty.kind() != Kind::Ptr {
        return None;
    }
    ty.method(name.key().to_str()?)
}
