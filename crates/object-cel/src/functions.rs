//! The operators and functions that expressions may use, with their types.
//!
//! They are those of Kubernetes 1.36, without
//! - `url`, `isURL` and `getHost` etc., which `kube-cel` reads with other rules than Kubernetes does,
//! - `asInteger` and `isInteger` of quantities, with which `kube-cel` answers otherwise for `1.5Gi`,
//! - `type`, the time zones of `getHours` etc., `semver` with a second argument, `duration` of an integer,
//! - the macros with two variables, `sortBy`, `optMap` and `optFlatMap`,
//! - `format` objects, JSON patches and the authorizer, which have no use here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::types::{Library, Type, nearest};
use crate::unify::{Mapping, replace};

/// Names, the types of arguments, and the type of the result. A name with a point is that of a method. `T` stands for
/// each of the types at the end of the line, `A` for any type, and `key` for a string, or for any type if the type of the
/// map is not known.
const TABLE: &str = "
!_ : bool -> bool
_?_:_ : bool A A -> A
_==_ _!=_ : A A -> bool
_+_ : T T -> T for bytes double duration int string uint
_+_ : duration timestamp -> timestamp
_+_ : timestamp duration -> timestamp
_+_ : list<A> list<A> -> list<A>
_-_ : T T -> T for double duration int uint
_-_ : timestamp duration -> timestamp
_-_ : timestamp timestamp -> duration
_*_ _/_ : T T -> T for double int uint
_%_ : T T -> T for int uint
-_ : T -> T for double int
_<_ _<=_ _>_ _>=_ : bool bool -> bool
_<_ _<=_ _>_ _>=_ : int T -> bool for int double uint
_<_ _<=_ _>_ _>=_ : uint T -> bool for uint double int
_<_ _<=_ _>_ _>=_ : double T -> bool for double int uint
_<_ _<=_ _>_ _>=_ : T T -> bool for string bytes timestamp duration
@in : A list<A> -> bool
@in : string map<A> -> bool
_[_] : list<A> int -> A
_[_] : map<A> key -> A
_[_] : optional<list<A>> int -> optional<A>
_[_] : optional<map<A>> key -> optional<A>
_[?_] : list<A> int -> optional<A>
_[?_] : optional<list<A>> int -> optional<A>
_[?_] : map<A> key -> optional<A>
_[?_] : optional<map<A>> key -> optional<A>
size .size : T -> int for bytes list<A> map<A> string
dyn : A -> dyn
bool : T -> bool for bool string
bytes : T -> bytes for bytes string
double : T -> double for double int string uint
duration : T -> duration for duration string
int : T -> int for int double duration string timestamp uint
string : T -> string for string bool bytes double duration int timestamp uint ip cidr
timestamp : T -> timestamp for timestamp int string
uint : T -> uint for uint double int string
.contains .endsWith .startsWith : string string -> bool
matches .matches : string string -> bool
.find : string string -> string
.findAll : string string -> list<string>
.findAll : string string int -> list<string>
.getFullYear .getMonth .getDayOfYear .getDayOfMonth .getDate .getDayOfWeek : timestamp -> int
.getHours .getMinutes .getSeconds .getMilliseconds : T -> int for timestamp duration
.charAt : string int -> string
.indexOf .lastIndexOf : string string -> int
.indexOf .lastIndexOf : string string int -> int
.indexOf .lastIndexOf : list<A> A -> int
.lowerAscii .upperAscii .trim : string -> string
.replace : string string string -> string
.replace : string string string int -> string
.split : string string -> list<string>
.split : string string int -> list<string>
.substring : string int -> string
.substring : string int int -> string
.format : string list<dyn> -> string
.join : list<string> -> string
.join : list<string> string -> string
strings.quote : string -> string
.isSorted : list<T> -> bool for int uint double bool duration timestamp string bytes
.sum : list<T> -> T for int uint double duration
.min .max : list<T> -> T for int uint double bool duration timestamp string bytes
.slice : list<A> int int -> list<A>
.flatten : list<list<A>> -> list<A>
.flatten : list<dyn> int -> list<dyn>
.sort : list<T> -> list<T> for int uint double bool duration timestamp string bytes
.distinct .reverse : list<A> -> list<A>
lists.range : int -> list<int>
sets.contains sets.equivalent sets.intersects : list<A> list<A> -> bool
optional.none : -> optional<A>
optional.of optional.ofNonZeroValue : A -> optional<A>
.value : optional<A> -> A
.hasValue : optional<A> -> bool
.or : optional<A> optional<A> -> optional<A>
.orValue : optional<A> A -> A
quantity : string -> quantity
isQuantity isIP isCIDR isSemver ip.isCanonical : string -> bool
sign : quantity -> int
.isGreaterThan .isLessThan : T T -> bool for quantity semver
.compareTo : T T -> int for quantity semver
.asApproximateFloat : quantity -> double
.add .sub : quantity T -> quantity for quantity int
ip : string -> ip
.ip : cidr -> ip
.family : ip -> int
.isUnspecified .isLoopback .isLinkLocalMulticast .isLinkLocalUnicast .isGlobalUnicast : ip -> bool
cidr : string -> cidr
.containsIP : cidr T -> bool for string ip
.containsCIDR : cidr T -> bool for string cidr
.prefixLength : cidr -> int
.masked : cidr -> cidr
semver : string -> semver
.major .minor .patch : semver -> int
";

/// Functions and macros of Kubernetes that are not in the table.
const UNSUPPORTED: &str = "
type url isURL getScheme getHost getHostname getPort getEscapedPath getQuery asInteger isInteger sortBy optMap optFlatMap
all exists exists_one existsOne transformList transformMap transformMapEntry first last unwrap unwrapOpt format.named
validate jsonpatch.escapeKey authorizer
";

/// Whether a function or a macro exists in Kubernetes and not here.
pub(crate) fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.split_whitespace().any(|known| known == name)
}

struct Overload {
    arguments: Vec<Type>,
    result: Type,
}

static FUNCTIONS: LazyLock<BTreeMap<&str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&str, Vec<Overload>> = BTreeMap::new();
    for line in TABLE.lines() {
        let Some((names, types)) = line.split_once(" : ") else {
            continue;
        };
        let (types, variants) = types.split_once(" for ").unwrap_or((types, "A"));
        let (arguments, result) = types.split_once("-> ").unwrap_or(("", types));
        for name in names.split(' ') {
            let overloads = functions.entry(name).or_default();
            overloads.extend(variants.split(' ').map(|variant| {
                Overload {
                    arguments: arguments
                        .split_whitespace()
                        .map(|name| named(name, variant))
                        .collect(),
                    result: named(result, variant),
                }
            }));
        }
    }
    functions
});

/// Returns the type with a name in the table.
fn named(name: &str, variant: &str) -> Type {
    let within = name.strip_suffix('>').and_then(|name| name.split_once('<'));
    match (within, name) {
        (Some(("list", inner)), _) => Type::list(named(inner, variant)),
        (Some(("map", inner)), _) => Type::map(named(inner, variant)),
        (Some((_, inner)), _) => Type::optional(named(inner, variant)),
        (None, "A") => Type::Parameter(0),
        (None, "T") => named(variant, "A"),
        (None, "bool") => Type::Bool,
        (None, "int") => Type::Int,
        (None, "uint") => Type::Uint,
        (None, "double") => Type::Double,
        (None, "string" | "key") => Type::String,
        (None, "bytes") => Type::Bytes,
        (None, "duration") => Type::Duration,
        (None, "timestamp") => Type::Timestamp,
        (None, "quantity") => Type::Library(Library::Quantity),
        (None, "ip") => Type::Library(Library::Ip),
        (None, "cidr") => Type::Library(Library::Cidr),
        (None, "semver") => Type::Library(Library::Semver),
        (None, _) => Type::Dyn,
    }
}

/// Returns the name of a function in the table, where that of a method begins with a point.
pub(crate) fn function(name: &str) -> Option<&'static str> {
    FUNCTIONS.get_key_value(name).map(|(name, _)| *name)
}

/// Returns the name of a function that `name` was probably meant to be.
pub(crate) fn nearest_function(name: &str) -> Option<&'static str> {
    let names = FUNCTIONS
        .keys()
        .filter(|known| known.chars().any(char::is_alphabetic));
    nearest(name, names.copied())
}

/// Returns the type of the result for arguments of these types. It is [`Type::Dyn`] if several functions with the name
/// take them, with different results.
pub(crate) fn result(name: &str, arguments: &[Type], mapping: &mut Mapping) -> Option<Type> {
    let mut found: Option<Type> = None;
    for overload in FUNCTIONS.get(name)? {
        if overload.arguments.len() != arguments.len() {
            continue;
        }
        let own = mapping.fresh(1);
        // The keys of a map of unknown type may be of any type.
        let is_map = |wanted: &Type| match wanted {
            Type::Optional(inner) => matches!(**inner, Type::Map(_)),
            wanted => matches!(wanted, Type::Map(_)),
        };
        let is_unknown = |given: &Type| match mapping.resolve(given) {
            Type::Optional(inner) => *inner == Type::Dyn,
            given => given == Type::Dyn,
        };
        let is_any_key = name.starts_with("_[")
            && overload.arguments.first().is_some_and(is_map)
            && arguments.first().is_some_and(is_unknown);
        let instance = |type_: &Type| replace(type_, &|_| Some(Type::Parameter(own)));
        let mut wanted: Vec<Type> = overload.arguments.iter().map(instance).collect();
        if let (true, Some(key)) = (is_any_key, wanted.get_mut(1)) {
            *key = Type::Dyn;
        }
        let pairs: Vec<(&Type, &Type)> = arguments.iter().zip(&wanted).collect();
        if !mapping.all_accept(&pairs) {
            continue;
        }
        let result = mapping.resolve(&instance(&overload.result));
        found = Some(match found {
            Some(other) if other != result => Type::Dyn,
            _ => result,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_read_completely() {
        let lines = TABLE.lines().filter(|line| !line.is_empty());
        assert!(
            lines
                .clone()
                .all(|line| line.contains(" : ") && line.contains("-> "))
        );
        let overloads: usize = FUNCTIONS.values().map(Vec::len).sum();
        assert_eq!((FUNCTIONS.len(), overloads), (107, 268));
        assert_eq!(FUNCTIONS["optional.none"][0].arguments, []);
        assert_eq!(
            FUNCTIONS[".flatten"][0].arguments,
            [Type::list(Type::list(Type::Parameter(0)))]
        );
    }
}
