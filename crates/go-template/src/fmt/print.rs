//! Printing of values of every kind, including nested ones.

use super::Printer;
use super::integer::Integer;
use crate::go::utf8::push_rune;
use crate::value::{Kind, List, Map, Object, Str, Type, TypeInfo, Value};
use bounded::BudgetError;

impl Printer<'_> {
    /// Formats an argument.
    pub(super) fn print_arg(&mut self, value: &Value, verb: char) -> Result<(), BudgetError> {
        if value.go_type().is_none() {
            match verb {
                'T' | 'v' => self.pad(b"<nil>"),
                _ => self.bad_verb(None, verb)?,
            }
            return Ok(());
        }
        match verb {
            'T' => {
                self.string(value.type_name().as_bytes(), 's');
                return Ok(());
            }
            'p' => return self.pointer(value, 'p'),
            _ => {}
        }
        let done = match value {
            Value::Bytes(bytes) => self.byte_slice(bytes.as_bytes(), verb, "[]byte"),
            _ => self.methods(value, verb)?,
        };
        if done {
            Ok(())
        } else {
            self.print(value, verb, 0)
        }
    }

    /// Prints a value as an action does: the target of a pointer, with the methods of the pointer
    /// if Go could take the address.
    pub(super) fn print_indirect(&mut self, value: &Value) -> Result<(), BudgetError> {
        let Value::Object(object) = value else {
            return self.print_arg(value, 'v');
        };
        let ty = object.go_type();
        if ty.kind() == Kind::Ptr {
            if self.methods(value, 'v')? {
                return Ok(());
            }
            return self.structure(object, ty.structure(), 'v', 0);
        }
        if object.is_addressable()
            && ty.info().text.is_none()
            && let Some(text) = ty.info().pointer_text
        {
            let text = text(value);
            self.string(text.as_bytes(), 'v');
            return Ok(());
        }
        self.print_arg(value, 'v')
    }

    /// Prints with `Error` or `String`, if the type has such a method and the verb is a text verb.
    fn methods(&mut self, value: &Value, verb: char) -> Result<bool, BudgetError> {
        if self.is_erroring {
            return Ok(false);
        }
        if verb == 'w' {
            // Error wrapping is not supported here.
            self.bad_verb(Some(value), verb)?;
            return Ok(true);
        }
        let go_text = value.go_type().and_then(|ty| ty.info().go_text);
        if let (true, Some(text), Value::Object(_)) = (self.flags.sharp_v, go_text, value) {
            self.pad(self.cut(text(value).as_bytes()));
            return Ok(true);
        }
        if self.flags.sharp_v || !matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') {
            return Ok(false);
        }
        let Some(text) = value.go_type().and_then(text_of) else {
            return Ok(false);
        };
        if let Value::NilOf(_) = value {
            // Methods of nil pointers panic; fmt prints this instead.
            self.out.extend_from_slice(b"<nil>");
            return Ok(true);
        }
        let text = text(value);
        self.string(text.as_bytes(), verb);
        Ok(true)
    }

    /// Reports a verb that does not apply to the value.
    fn bad_verb(&mut self, value: Option<&Value>, verb: char) -> Result<(), BudgetError> {
        self.is_erroring = true;
        self.out.extend_from_slice(b"%!");
        push_rune(self.out, verb);
        self.out.push(b'(');
        match value.filter(|value| value.go_type().is_some()) {
            Some(value) => {
                self.out.extend_from_slice(value.type_name().as_bytes());
                self.out.push(b'=');
                self.print_arg(value, 'v')?;
            }
            None => self.out.extend_from_slice(b"<nil>"),
        }
        self.out.push(b')');
        self.is_erroring = false;
        Ok(())
    }

    /// Prints a nested value.
    fn nested(&mut self, value: &Value, verb: char, depth: usize) -> Result<(), BudgetError> {
        self.check_length()?;
        if let Value::Invalid | Value::Nil = value {
            let nil: &[u8] = if self.flags.sharp_v {
                b"interface {}(nil)"
            } else {
                b"<nil>"
            };
            self.out.extend_from_slice(nil);
            return Ok(());
        }
        if self.methods(value, verb)? {
            return Ok(());
        }
        if value.is_container() {
            let budget = self.budget;
            return budget.descend(|| self.print(value, verb, depth));
        }
        self.print(value, verb, depth)
    }

    /// Prints a value without calling its methods.
    fn print(&mut self, value: &Value, verb: char, depth: usize) -> Result<(), BudgetError> {
        let fits = match value {
            Value::Invalid | Value::Nil => {
                self.out.extend_from_slice(b"<invalid reflect.Value>");
                true
            }
            Value::Complex(number) => self.complex(**number, verb),
            Value::Bytes(bytes) => return self.bytes(bytes, verb, depth),
            Value::List(list) => return self.list(list, verb, depth),
            Value::Map(map) => return self.map(map, verb, depth),
            Value::NilOf(ty) => return self.nil(*ty, verb),
            Value::Func(_) => return self.pointer(value, verb),
            Value::Object(object) => return self.object(object, verb, depth),
            scalar => self.scalar(scalar, verb),
        };
        if fits {
            Ok(())
        } else {
            self.bad_verb(Some(value), verb)
        }
    }

    /// Prints a bool, an integer, a float or a string; returns `false` if the verb does not apply.
    fn scalar(&mut self, value: &Value, verb: char) -> bool {
        match value {
            Value::Bool(truth) if matches!(verb, 't' | 'v') => {
                self.pad(if *truth { b"true" } else { b"false" });
                true
            }
            Value::Int(number) | Value::Int64(number) | Value::SmallInt(_, number) => {
                self.integer(Integer::signed(*number), verb)
            }
            Value::Uint(_, number) => self.integer(Integer::unsigned(*number), verb),
            Value::Float(number) => self.float(*number, verb),
            Value::Str(text) => self.string(text.as_bytes(), verb),
            _ => false,
        }
    }

    fn object(&mut self, object: &Object, verb: char, depth: usize) -> Result<(), BudgetError> {
        let ty = object.go_type();
        match ty.kind() {
            Kind::Struct => self.structure(object, ty.info(), verb, depth),
            Kind::Ptr if depth == 0 && ty.elem().kind() == Kind::Struct => {
                self.out.push(b'&');
                self.structure(object, ty.structure(), verb, depth + 1)
            }
            Kind::Ptr | Kind::Func => self.pointer(&Value::Object(object.clone()), verb),
            _ => {
                // A scalar prints like its kind; if the verb does not apply, its type is named.
                if self.scalar(object.underlying(), verb) {
                    return Ok(());
                }
                self.bad_verb(Some(&Value::Object(object.clone())), verb)
            }
        }
    }

    fn structure(
        &mut self,
        object: &Object,
        info: &TypeInfo,
        verb: char,
        depth: usize,
    ) -> Result<(), BudgetError> {
        if self.flags.sharp_v {
            self.out.extend_from_slice(info.name.as_bytes());
        }
        self.out.push(b'{');
        for (index, (field, value)) in info.fields.iter().zip(object.fields()).enumerate() {
            if index > 0 {
                self.separator();
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.out.extend_from_slice(field.name.as_bytes());
                self.out.push(b':');
            }
            self.nested(value, verb, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    pub(super) fn separator(&mut self) {
        let separator: &[u8] = if self.flags.sharp_v { b", " } else { b" " };
        self.out.extend_from_slice(separator);
    }

    fn bytes(&mut self, bytes: &Str, verb: char, depth: usize) -> Result<(), BudgetError> {
        if matches!(verb, 's' | 'q' | 'x' | 'X') || depth > 0 && matches!(verb, 'v' | 'd') {
            self.byte_slice(bytes.as_bytes(), verb, Type::BYTES.name());
            return Ok(());
        }
        self.out.push(b'[');
        for (index, byte) in bytes.as_bytes().iter().enumerate() {
            if index > 0 {
                self.out.push(b' ');
            }
            self.nested(&Value::byte(*byte), verb, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn list(&mut self, list: &List, verb: char, depth: usize) -> Result<(), BudgetError> {
        let [open, close] = if self.flags.sharp_v { *b"{}" } else { *b"[]" };
        if self.flags.sharp_v {
            self.out.extend_from_slice(list.go_type().name().as_bytes());
        }
        self.out.push(open);
        for (index, item) in list.iter().enumerate() {
            if index > 0 {
                self.separator();
            }
            self.nested(&item, verb, depth + 1)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn map(&mut self, map: &Map, verb: char, depth: usize) -> Result<(), BudgetError> {
        if self.flags.sharp_v {
            self.out.extend_from_slice(map.go_type().name().as_bytes());
            self.out.push(b'{');
        } else {
            self.out.extend_from_slice(b"map[");
        }
        for (index, (key, value)) in map.iter().enumerate() {
            if index > 0 {
                self.separator();
            }
            self.nested(&Value::Str(key), verb, depth + 1)?;
            self.out.push(b':');
            self.nested(&value, verb, depth + 1)?;
        }
        self.out.push(if self.flags.sharp_v { b'}' } else { b']' });
        Ok(())
    }

    fn nil(&mut self, ty: Type, verb: char) -> Result<(), BudgetError> {
        match ty.kind() {
            Kind::Map | Kind::Slice if self.flags.sharp_v => {
                self.out.extend_from_slice(ty.name().as_bytes());
                self.out.extend_from_slice(b"(nil)");
            }
            Kind::Map => self.out.extend_from_slice(b"map[]"),
            Kind::Slice => {
                if ty.elem().kind() == Kind::Uint8 && matches!(verb, 's' | 'q' | 'x' | 'X') {
                    self.byte_slice(b"", verb, ty.name());
                } else {
                    self.out.extend_from_slice(b"[]");
                }
            }
            _ => return self.pointer(&Value::NilOf(ty), verb),
        }
        Ok(())
    }

    /// Prints the address of a value's target.
    fn pointer(&mut self, value: &Value, verb: char) -> Result<(), BudgetError> {
        let address = match value {
            Value::NilOf(_) => 0,
            Value::Map(map) => map.address(),
            Value::List(list) => list.address(),
            Value::Bytes(bytes) => bytes.as_bytes().as_ptr().addr(),
            Value::Func(func) => std::rc::Rc::as_ptr(func).addr(),
            Value::Object(object) if object.go_type().kind() == Kind::Ptr => object.address(),
            _ => return self.bad_verb(Some(value), verb),
        } as u64;
        match verb {
            'v' if self.flags.sharp_v => {
                self.out.push(b'(');
                self.out.extend_from_slice(value.type_name().as_bytes());
                self.out.extend_from_slice(b")(");
                if address == 0 {
                    self.out.extend_from_slice(b"nil");
                } else {
                    self.hex(address, true);
                }
                self.out.push(b')');
            }
            'v' if address == 0 => self.pad(b"<nil>"),
            'v' | 'p' => self.hex(address, !self.flags.sharp),
            'b' | 'o' | 'd' | 'x' | 'X' => {
                self.integer(Integer::unsigned(address), verb);
            }
            _ => return self.bad_verb(Some(value), verb),
        }
        Ok(())
    }
}

/// Returns `Error` or `String` of a type; a pointer also has those of its target.
fn text_of(ty: Type) -> Option<fn(&Value) -> Str> {
    let own = ty.info().text;
    match ty.kind() {
        Kind::Ptr => {
            let target = ty.elem().info();
            own.or(target.text).or(target.pointer_text)
        }
        _ => own,
    }
}
