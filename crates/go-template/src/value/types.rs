//! Go's types as far as templates can observe them: kinds, names, elements, fields and methods.

use std::fmt;

use super::{Name, Str, Value};
use crate::FuncError;
use crate::func::{Args, Call};

macro_rules! kinds {
    ($($variant:ident = $name:literal),*) => {
        /// The kinds of package `reflect`, in its order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is the Go kind of that name")]
        pub enum Kind {
            $($variant),*
        }

        impl Kind {
            /// Returns the name that Go and `kindOf` print.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }
    };
}

kinds!(
    Invalid = "invalid",
    Bool = "bool",
    Int = "int",
    Int8 = "int8",
    Int16 = "int16",
    Int32 = "int32",
    Int64 = "int64",
    Uint = "uint",
    Uint8 = "uint8",
    Uint16 = "uint16",
    Uint32 = "uint32",
    Uint64 = "uint64",
    Uintptr = "uintptr",
    Float32 = "float32",
    Float64 = "float64",
    Complex128 = "complex128",
    Func = "func",
    Interface = "interface",
    Map = "map",
    Ptr = "ptr",
    Slice = "slice",
    String = "string",
    Struct = "struct"
);

impl Kind {
    /// Returns whether the kind is a signed integer.
    pub fn is_int(self) -> bool {
        (Self::Int..=Self::Int64).contains(&self)
    }

    /// Returns whether the kind is an unsigned integer.
    pub fn is_uint(self) -> bool {
        (Self::Uint..=Self::Uintptr).contains(&self)
    }

    /// Returns whether a value of the kind can be nil.
    pub fn can_be_nil(self) -> bool {
        matches!(
            self,
            Self::Func | Self::Interface | Self::Map | Self::Ptr | Self::Slice
        )
    }
}

/// The implementation of a method of a Go type: receives the receiver, then the arguments.
pub type MethodFn = fn(&mut Call<'_>, &Value, &mut Args<'_>) -> Result<Value, FuncError>;

/// A method of a Go type.
#[derive(Debug)]
pub struct Method {
    /// The name, as in `.Files.Get`.
    pub name: &'static str,
    /// The types of the fixed parameters, without the receiver.
    pub params: &'static [Type],
    /// The element type of a variadic last parameter.
    pub variadic: Option<Type>,
    /// The implementation. Arguments are checked against the parameters before, as in Go.
    pub run: MethodFn,
}

impl Method {
    /// Creates a method without a variadic parameter.
    pub const fn new(name: &'static str, params: &'static [Type], run: MethodFn) -> Self {
        Self {
            name,
            params,
            variadic: None,
            run,
        }
    }
}

/// A field of a Go struct.
#[derive(Debug)]
pub struct Field {
    /// The name; it is exported if it begins with an upper-case letter.
    pub name: &'static str,
    /// The JSON tag (also used for YAML), if any: a key, and `,omitempty` if encoders omit an empty
    /// field.
    pub json: Option<&'static str>,
}

impl Field {
    /// Creates a field without a JSON tag.
    pub const fn new(name: &'static str) -> Self {
        Self { name, json: None }
    }

    /// Returns the JSON key for `value`, or `None` if encoders omit the field.
    pub fn json_key(&self, value: &Value) -> Option<&'static str> {
        let tag = self.json.unwrap_or(self.name);
        match tag.strip_suffix(",omitempty") {
            Some(_) if value.is_nil() || value.length() == Some(0) => None,
            Some(key) => Some(key),
            None => Some(tag),
        }
    }
}

/// Description of a Go type. It is declared as a `static`, because types are identical if they have
/// the same `TypeInfo`.
///
/// ```
/// use go_template::{Kind, Type, TypeInfo};
/// static VALUES: TypeInfo = TypeInfo { named: true, ..TypeInfo::map("common.Values", Type::ANY) };
/// const TYPE: Type = Type::new(&VALUES);
/// assert!(TYPE.assignable_to(Type::MAP));
/// assert_eq!((TYPE.name(), TYPE.kind()), ("common.Values", Kind::Map));
/// ```
#[derive(Debug)]
pub struct TypeInfo {
    /// Name that `%T` prints, such as `map[string]interface {}` or `common.Values`.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The element type of a slice, map or pointer.
    pub elem: Option<Type>,
    /// Whether the type was declared with a name (`type Values map[string]any`).
    pub named: bool,
    /// The fields of a struct, in order.
    pub fields: &'static [Field],
    /// The methods of the type, and those of a pointer to it.
    pub methods: &'static [Method],
    /// The result of `Error` or `String`, if the type has one of them.
    pub text: Option<fn(&Value) -> Str>,
    /// The result of `GoString`, which `%#v` prints, if the type has it.
    pub go_text: Option<fn(&Value) -> Str>,
    /// Whether `text` is `Error`, not `String`.
    pub is_error: bool,
    /// The result of `String` if only a pointer to the type has that method: used only where an
    /// action prints a field reached through a pointer.
    pub pointer_text: Option<fn(&Value) -> Str>,
    /// Value that encoders (JSON, YAML) write instead, for types with `MarshalJSON`.
    pub encode: Option<fn(&Value) -> Value>,
}

impl TypeInfo {
    /// Creates a type with only a name and kind; the base for struct update syntax.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            elem: None,
            named: false,
            fields: &[],
            methods: &[],
            text: None,
            is_error: false,
            pointer_text: None,
            go_text: None,
            encode: None,
        }
    }

    /// Creates a map from strings to `elem`.
    pub const fn map(name: &'static str, elem: Type) -> Self {
        Self {
            elem: Some(elem),
            ..Self::new(name, Kind::Map)
        }
    }

    /// Creates a slice of `elem`.
    pub const fn slice(name: &'static str, elem: Type) -> Self {
        Self {
            elem: Some(elem),
            ..Self::new(name, Kind::Slice)
        }
    }

    /// Creates a pointer to `elem`.
    pub const fn pointer(name: &'static str, elem: Type) -> Self {
        Self {
            elem: Some(elem),
            ..Self::new(name, Kind::Ptr)
        }
    }

    /// Creates a declared struct.
    pub const fn structure(name: &'static str, fields: &'static [Field]) -> Self {
        Self {
            fields,
            named: true,
            ..Self::new(name, Kind::Struct)
        }
    }
}

/// A Go type: a handle to its `TypeInfo`.
#[derive(Clone, Copy)]
pub struct Type(&'static TypeInfo);

macro_rules! predeclared {
    ($($(#[$doc:meta])* $name:ident = $info:expr;)*) => {
        mod predeclared {
            use super::*;
            $(pub(super) static $name: TypeInfo = $info;)*
        }
        impl Type {
            $($(#[$doc])* pub const $name: Self = Self(&predeclared::$name);)*
        }
    };
}

predeclared! {
    /// `interface {}`, to which every value is assignable.
    ANY = TypeInfo::new("interface {}", Kind::Interface);
    /// `error`.
    ERROR = TypeInfo { named: true, ..TypeInfo::new("error", Kind::Interface) };
    /// `reflect.Value`: as a parameter it accepts every value, including [`Value::Invalid`].
    REFLECT = TypeInfo { named: true, ..TypeInfo::new("reflect.Value", Kind::Struct) };
    /// `bool`.
    BOOL = TypeInfo { named: true, ..TypeInfo::new("bool", Kind::Bool) };
    /// `int`.
    INT = TypeInfo { named: true, ..TypeInfo::new("int", Kind::Int) };
    /// `int8`.
    INT8 = TypeInfo { named: true, ..TypeInfo::new("int8", Kind::Int8) };
    /// `int16`.
    INT16 = TypeInfo { named: true, ..TypeInfo::new("int16", Kind::Int16) };
    /// `int32`, which is also `rune`.
    INT32 = TypeInfo { named: true, ..TypeInfo::new("int32", Kind::Int32) };
    /// `int64`.
    INT64 = TypeInfo { named: true, ..TypeInfo::new("int64", Kind::Int64) };
    /// `uint`.
    UINT = TypeInfo { named: true, ..TypeInfo::new("uint", Kind::Uint) };
    /// `uint8`, which is also `byte`.
    UINT8 = TypeInfo { named: true, ..TypeInfo::new("uint8", Kind::Uint8) };
    /// `uint16`.
    UINT16 = TypeInfo { named: true, ..TypeInfo::new("uint16", Kind::Uint16) };
    /// `uint32`.
    UINT32 = TypeInfo { named: true, ..TypeInfo::new("uint32", Kind::Uint32) };
    /// `uint64`.
    UINT64 = TypeInfo { named: true, ..TypeInfo::new("uint64", Kind::Uint64) };
    /// `float64`.
    FLOAT64 = TypeInfo { named: true, ..TypeInfo::new("float64", Kind::Float64) };
    /// `complex128`.
    COMPLEX128 = TypeInfo { named: true, ..TypeInfo::new("complex128", Kind::Complex128) };
    /// `string`.
    STRING = TypeInfo { named: true, ..TypeInfo::new("string", Kind::String) };
    /// Functions in values.
    FUNC = TypeInfo::new("func", Kind::Func);
    /// `map[string]interface {}`.
    MAP = TypeInfo::map("map[string]interface {}", Type::ANY);
    /// `map[string]string`.
    STRING_MAP = TypeInfo::map("map[string]string", Type::STRING);
    /// `[]interface {}`.
    LIST = TypeInfo::slice("[]interface {}", Type::ANY);
    /// `[]string`.
    STRINGS = TypeInfo::slice("[]string", Type::STRING);
    /// `[]int`.
    INTS = TypeInfo::slice("[]int", Type::INT);
    /// `[]uint8`, which is also `[]byte`.
    BYTES = TypeInfo::slice("[]uint8", Type::UINT8);
    /// `[]map[string]interface {}`.
    MAPS = TypeInfo::slice("[]map[string]interface {}", Type::MAP);
    /// `[][]interface {}`.
    LISTS = TypeInfo::slice("[][]interface {}", Type::LIST);
}

impl Type {
    /// Returns the type described by `info`.
    pub const fn new(info: &'static TypeInfo) -> Self {
        Self(info)
    }

    /// Returns the description of the type.
    pub const fn info(self) -> &'static TypeInfo {
        self.0
    }

    /// Returns what `%T` prints.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the kind.
    pub const fn kind(self) -> Kind {
        self.0.kind
    }

    /// Returns the element type of a slice, map or pointer, or `interface {}` for other types.
    #[must_use]
    pub fn elem(self) -> Self {
        self.0.elem.unwrap_or(Self::ANY)
    }

    /// Returns the method `name` of the type or of its pointee.
    pub fn method(self, name: &str) -> Option<&'static Method> {
        let find = |info: &'static TypeInfo| info.methods.iter().find(|m| m.name == name);
        find(self.0).or_else(|| match self.kind() {
            Kind::Ptr => find(self.elem().0),
            _ => None,
        })
    }

    /// Returns whether the type itself has the method `name`.
    #[inline]
    pub(crate) fn has_method(self, name: &Name) -> bool {
        let methods = self.0.methods;
        name.is_exported() && !methods.is_empty() && is_among(methods, name.key().as_bytes())
    }

    /// Returns the position of the struct field `name`, following a pointer.
    pub fn field(self, name: &str) -> Option<usize> {
        self.structure()
            .fields
            .iter()
            .position(|field| field.name == name)
    }

    /// Returns the struct itself, for a struct or a pointer to one.
    pub(crate) fn structure(self) -> &'static TypeInfo {
        match self.kind() {
            Kind::Ptr => self.elem().0,
            _ => self.0,
        }
    }

    /// Returns whether a value of this type is assignable to `target` by Go's rules: the same type,
    /// an interface, or the same underlying type if one of them is unnamed.
    pub fn assignable_to(self, target: Self) -> bool {
        if self == target || target == Self::ANY || target == Self::REFLECT {
            return true;
        }
        if target == Self::ERROR {
            return self.0.is_error;
        }
        let composite = matches!(self.kind(), Kind::Map | Kind::Slice);
        composite
            && self.kind() == target.kind()
            && !(self.0.named && target.0.named)
            && self.elem() == target.elem()
    }
}

fn is_among(methods: &[Method], name: &[u8]) -> bool {
    methods.iter().any(|method| {
        let method = method.name.as_bytes();
        method.first() == name.first() && method == name
    })
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Type {}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}
