//! `Object`: structs, pointers to them, and named scalars with methods, provided by the host.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use bounded::memory::Held;

use super::deep_drop;
use super::{Kind, Type, Value};

/// A value of a declared Go type other than a map or slice: a struct (`time.Time`), a pointer to a
/// struct (`*semver.Version`), or a scalar with methods (`time.Duration`).
///
/// Its type defines its fields, methods and formatting. In addition to the fields it can carry any
/// Rust data, which its methods access through [`Object::data`].
///
/// Maps and slices of declared types are plain [`Value::Map`] and [`Value::List`] whose type has
/// methods.
///
/// ```
/// use go_template::{Field, Object, Type, TypeInfo, Value};
/// static CERTIFICATE: TypeInfo = TypeInfo::structure(
///     "sprig.certificate",
///     &[Field::new("Cert"), Field::new("Key")],
/// );
/// let fields = vec![Value::from("c"), Value::from("k")];
/// let certificate = Object::structure(Type::new(&CERTIFICATE), fields);
/// assert_eq!(certificate.field("Key").and_then(|key| key.as_str().cloned()), Some("k".into()));
/// ```
#[derive(Clone)]
pub struct Object {
    content: Rc<ObjectInner>,
    addressable: bool,
}

struct ObjectInner {
    ty: Type,
    underlying: Value,
    fields: Vec<Value>,
    data: Option<Box<dyn Any>>,
    _held: Held,
}

/// The memory of an object with its data, roughly.
const MEMORY: usize = 256;

impl Object {
    fn build(ty: Type, underlying: Value, fields: Vec<Value>, data: Option<Box<dyn Any>>) -> Self {
        Self {
            content: Rc::new(ObjectInner {
                ty,
                underlying,
                fields,
                data,
                _held: Held::new(MEMORY),
            }),
            addressable: false,
        }
    }

    /// Creates a struct, or a pointer to one, with its fields in the order of the type.
    pub fn structure(ty: Type, fields: Vec<Value>) -> Self {
        Self::build(ty, Value::Invalid, fields, None)
    }

    /// Creates a struct, or a pointer to one, that carries `data` and has no visible fields.
    pub fn opaque<T: 'static>(ty: Type, data: T) -> Self {
        Self::build(ty, Value::Invalid, Vec::new(), Some(Box::new(data)))
    }

    /// Creates a struct, or a pointer to one, that has fields and carries `data`.
    pub fn with_data<T: 'static>(ty: Type, fields: Vec<Value>, data: T) -> Self {
        Self::build(ty, Value::Invalid, fields, Some(Box::new(data)))
    }

    /// Creates a scalar of a declared type, such as a `time.Duration` from its `int64`.
    pub fn scalar(ty: Type, underlying: Value) -> Self {
        Self::build(ty, underlying, Vec::new(), None)
    }

    /// Returns the Go type.
    pub fn go_type(&self) -> Type {
        self.content.ty
    }

    /// Returns the value of a named scalar, or [`Value::Invalid`] for structs and pointers.
    pub fn underlying(&self) -> &Value {
        &self.content.underlying
    }

    /// Returns the fields in the order of the type.
    pub fn fields(&self) -> &[Value] {
        &self.content.fields
    }

    /// Returns the field `name`, exported or not.
    pub fn field(&self, name: &str) -> Option<Value> {
        let position = self.content.ty.field(name)?;
        let mut value = self.content.fields.get(position)?.clone();
        if let Value::Object(object) = &mut value {
            object.addressable = self.addressable || self.content.ty.kind() == Kind::Ptr;
        }
        Some(value)
    }

    /// Returns the data that the value was created with.
    pub fn data<T: 'static>(&self) -> Option<&T> {
        self.content.data.as_ref()?.downcast_ref()
    }

    /// Returns whether both are handles to the same value.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.content, &other.content)
    }

    /// Returns whether Go could take the value's address, so that methods of the pointer are used
    /// when it is printed.
    pub(crate) fn is_addressable(&self) -> bool {
        self.addressable
    }

    /// Makes the value unaddressable, as when Go copies it into an interface.
    pub(crate) fn forget_address(&mut self) {
        self.addressable = false;
    }

    /// Returns the number of handles.
    pub(super) fn handles(&self) -> usize {
        Rc::strong_count(&self.content)
    }

    /// Returns the address, for `%p`.
    pub(crate) fn address(&self) -> usize {
        Rc::as_ptr(&self.content).addr()
    }
}

impl Drop for ObjectInner {
    fn drop(&mut self) {
        let count = self.fields.len();
        if self.fields.iter().any(|field| field.has_at_most(count)) {
            deep_drop::drop_deep(std::mem::take(&mut self.fields).into_iter());
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.content.ty)
    }
}
