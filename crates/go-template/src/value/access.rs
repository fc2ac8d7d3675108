//! Properties of every value: type, kind, length, and views as specific Go types.

use super::{Kind, List, Map, Object, Str, Type, Value};

impl Value {
    /// Returns the Go type, as `%T` prints it, or `None` for [`Value::Invalid`] and [`Value::Nil`].
    pub fn go_type(&self) -> Option<Type> {
        Some(match self {
            Self::Invalid | Self::Nil => return None,
            Self::NilOf(ty) => *ty,
            Self::Bool(_) => Type::BOOL,
            Self::Int(_) => Type::INT,
            Self::Int64(_) => Type::INT64,
            Self::SmallInt(kind, _) => kind.go_type(),
            Self::Uint(kind, _) => kind.go_type(),
            Self::Float(_) => Type::FLOAT64,
            Self::Complex(_) => Type::COMPLEX128,
            Self::Str(_) => Type::STRING,
            Self::Bytes(_) => Type::BYTES,
            Self::List(list) => list.go_type(),
            Self::Map(map) => map.go_type(),
            Self::Object(object) => object.go_type(),
            Self::Func(_) => Type::FUNC,
        })
    }

    /// Returns the kind, like `reflect.ValueOf(value).Kind()`: [`Kind::Invalid`] for missing
    /// values.
    pub fn kind(&self) -> Kind {
        self.go_type().map_or(Kind::Invalid, Type::kind)
    }

    /// Returns what `%T` and `typeOf` print: `<nil>` for missing values.
    pub fn type_name(&self) -> &'static str {
        self.go_type().map_or("<nil>", Type::name)
    }

    /// Returns whether the value is missing, or a nil map, slice, pointer or function.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Invalid | Self::Nil | Self::NilOf(_))
    }

    /// Returns the length of a string, slice or map, or `None` for everything else.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Str(text) => Some(text.len()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            Self::NilOf(ty) if matches!(ty.kind(), Kind::Map | Kind::Slice) => Some(0),
            Self::Object(object) => object.underlying().length(),
            _ => None,
        }
    }

    /// Returns the string, if the value is of kind string.
    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Self::Str(text) => Some(text),
            Self::Object(object) => object.underlying().as_str(),
            _ => None,
        }
    }

    /// Returns the map, if the value is of kind map and not nil.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the slice, if the value is of kind slice: a nil slice is an empty list, bytes are a
    /// list of `uint8`.
    pub fn as_list(&self) -> Option<List> {
        match self {
            Self::List(list) => Some(list.clone()),
            Self::Bytes(bytes) => {
                let items = bytes.as_bytes().iter().copied().map(Self::byte);
                Some(List::new(Type::BYTES, items.collect()))
            }
            Self::NilOf(ty) if ty.kind() == Kind::Slice => Some(List::new(*ty, Vec::new())),
            _ => None,
        }
    }

    /// Returns the object, for structs, pointers to them, and named scalars.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the zero value of a type, as Go returns for a missing map entry.
    pub fn zero(ty: Type) -> Self {
        match ty.kind() {
            _ if ty.info().named && !is_predeclared(ty) => Self::zero_of_declared(ty),
            Kind::Bool => Self::Bool(false),
            Kind::Float32 | Kind::Float64 => Self::Float(0.0),
            Kind::Complex128 => Self::Complex(std::rc::Rc::new((0.0, 0.0))),
            Kind::String => Self::Str(Str::EMPTY),
            Kind::Map | Kind::Slice | Kind::Ptr | Kind::Func => Self::NilOf(ty),
            Kind::Interface => Self::Nil,
            Kind::Struct | Kind::Invalid => Self::Invalid,
            integer => Self::Int(0).convert_integer(predeclared(integer)),
        }
    }

    fn zero_of_declared(ty: Type) -> Self {
        match ty.kind() {
            kind if kind.can_be_nil() => Self::NilOf(ty),
            Kind::Struct => {
                let fields = ty.info().fields.iter().map(|_| Self::Nil).collect();
                Self::Object(Object::structure(ty, fields))
            }
            kind => Self::Object(Object::scalar(ty, Self::zero(predeclared(kind)))),
        }
    }
}

fn is_predeclared(ty: Type) -> bool {
    ty == predeclared(ty.kind()) || ty == Type::ERROR || ty == Type::REFLECT
}

/// Returns the predeclared type of a scalar kind.
pub(crate) fn predeclared(kind: Kind) -> Type {
    match kind {
        Kind::Bool => Type::BOOL,
        Kind::Int => Type::INT,
        Kind::Int8 => Type::INT8,
        Kind::Int16 => Type::INT16,
        Kind::Int32 => Type::INT32,
        Kind::Int64 => Type::INT64,
        Kind::Uint | Kind::Uintptr => Type::UINT,
        Kind::Uint8 => Type::UINT8,
        Kind::Uint16 => Type::UINT16,
        Kind::Uint32 => Type::UINT32,
        Kind::Uint64 => Type::UINT64,
        Kind::Float32 | Kind::Float64 => Type::FLOAT64,
        Kind::Complex128 => Type::COMPLEX128,
        Kind::String => Type::STRING,
        _ => Type::ANY,
    }
}
