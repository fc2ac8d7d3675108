//! Versions and constraints, and the methods of a version.

use super::{Answer, STRING};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::semver::{Constraints, ParseVersionError, Version};
use crate::value::{Field, Method, Object, Str, Type, TypeInfo, Unsigned, Value};

/// Go's `semver.Version`.
const VERSION: Type = Type::new(&VERSION_INFO);
/// Go's `*semver.Version`.
const POINTER: Type = Type::new(&POINTER_INFO);

pub(super) static FUNCS: &[Func] = &[
    Func::value("semver", &[STRING], semver),
    Func::value("semverCompare", &[STRING, STRING], semver_compare),
];

static VERSION_INFO: TypeInfo = TypeInfo {
    methods: VERSION_METHODS,
    text: Some(|value| Str::from(shown(value))),
    encode: Some(|value| Value::from(shown(value))),
    ..TypeInfo::structure("semver.Version", VERSION_FIELDS)
};

/// The fields of Go's struct, visible only through some verbs of `printf`.
const VERSION_FIELDS: &[Field] = &[
    Field::new("major"),
    Field::new("minor"),
    Field::new("patch"),
    Field::new("pre"),
    Field::new("metadata"),
    Field::new("original"),
];

fn object(ty: Type, version: Version) -> Value {
    let number = |number| Value::Uint(Unsigned::Uint64, number);
    let fields = vec![
        number(version.major),
        number(version.minor),
        number(version.patch),
        Value::from(&*version.prerelease),
        Value::from(&*version.metadata),
        Value::from(&*version.original),
    ];
    Value::Object(Object::with_data(ty, fields, version))
}

static POINTER_INFO: TypeInfo = TypeInfo {
    methods: POINTER_METHODS,
    encode: Some(|value| Value::from(shown(value))),
    ..TypeInfo::pointer("*semver.Version", Type::new(&VERSION_INFO))
};

/// Parameter lists are statics, because they may refer to a type whose methods refer to them.
static POINTER_PARAM: [Type; 1] = [Type::new(&POINTER_INFO)];

/// The methods of a version itself.
static VERSION_METHODS: &[Method] = &[
    Method::new("IncMajor", &[], |_, version, _| {
        next(version, Version::next_major)
    }),
    Method::new("IncMinor", &[], |_, version, _| {
        next(version, Version::next_minor)
    }),
    Method::new("IncPatch", &[], |_, version, _| {
        next(version, Version::next_patch)
    }),
    Method::new("Major", &[], |_, version, _| {
        number(version, |version| version.major)
    }),
    Method::new("MarshalJSON", &[], |_, version, _| {
        Ok(Value::bytes(format!("\"{}\"", required(version)?)))
    }),
    Method::new("MarshalText", &[], |_, version, _| {
        Ok(Value::bytes(required(version)?.to_string()))
    }),
    Method::new("Metadata", &[], |_, version, _| {
        Ok(Value::from(&*required(version)?.metadata))
    }),
    Method::new("Minor", &[], |_, version, _| {
        number(version, |version| version.minor)
    }),
    Method::new("Patch", &[], |_, version, _| {
        number(version, |version| version.patch)
    }),
    Method::new("Prerelease", &[], |_, version, _| {
        Ok(Value::from(&*required(version)?.prerelease))
    }),
    Method::new("SetMetadata", &[STRING], |_, version, args| {
        let metadata = args.str(0).to_string_lossy().into_owned();
        next(version, |version| version.with_metadata(&metadata))
    }),
    Method::new("SetPrerelease", &[STRING], |_, version, args| {
        let prerelease = args.str(0).to_string_lossy().into_owned();
        next(version, |version| version.with_prerelease(&prerelease))
    }),
    Method::new("String", &[], |_, version, _| {
        Ok(Value::from(required(version)?.to_string()))
    }),
    Method::new("Value", &[], |_, version, _| {
        Ok(Value::from(required(version)?.to_string()))
    }),
];

/// The methods of a pointer to a version only.
static POINTER_METHODS: &[Method] = &[
    Method::new("Compare", &POINTER_PARAM, |_, version, args| {
        let order = required(version)?.compare(required(args.get(0))?);
        Ok(Value::Int(order as i64))
    }),
    Method::new("Equal", &POINTER_PARAM, |_, version, args| {
        let other = version_of(args.get(0));
        let equal = other.is_some_and(|other| {
            version_of(version).is_some_and(|version| version.compare(other).is_eq())
        });
        Ok(Value::Bool(equal))
    }),
    Method::new("GreaterThan", &POINTER_PARAM, |_, version, args| {
        compare(version, args, std::cmp::Ordering::is_gt)
    }),
    Method::new("GreaterThanEqual", &POINTER_PARAM, |_, version, args| {
        compare(version, args, std::cmp::Ordering::is_ge)
    }),
    Method::new("LessThan", &POINTER_PARAM, |_, version, args| {
        compare(version, args, std::cmp::Ordering::is_lt)
    }),
    Method::new("LessThanEqual", &POINTER_PARAM, |_, version, args| {
        compare(version, args, std::cmp::Ordering::is_le)
    }),
    Method::new("Original", &[], |_, version, _| {
        Ok(Value::from(&*required(version)?.original))
    }),
];

fn version_of(value: &Value) -> Option<&Version> {
    value.as_object()?.data()
}

/// Returns the text of a version, or an empty one for other values.
fn shown(value: &Value) -> String {
    let version = version_of(value);
    version.map(Version::to_string).unwrap_or_default()
}

fn required(value: &Value) -> Result<&Version, FuncError> {
    version_of(value).ok_or_else(|| FuncError::new(super::NIL_DEREFERENCE))
}

fn number(version: &Value, part: impl Fn(&Version) -> u64) -> Answer {
    Ok(Value::Uint(Unsigned::Uint64, part(required(version)?)))
}

fn next(
    version: &Value,
    change: impl Fn(&Version) -> Result<Version, ParseVersionError>,
) -> Answer {
    let changed = change(required(version)?).map_err(failed)?;
    Ok(object(VERSION, changed))
}

fn compare(version: &Value, args: &Args<'_>, holds: impl Fn(std::cmp::Ordering) -> bool) -> Answer {
    let order = required(version)?.compare(required(args.get(0))?);
    Ok(Value::Bool(holds(order)))
}

fn failed(error: impl std::error::Error) -> FuncError {
    FuncError::new(error.to_string())
}

fn semver(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let version = Version::new(args.str(0).as_bytes()).map_err(failed)?;
    Ok(object(POINTER, version))
}

fn semver_compare(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let constraints = Constraints::new(args.str(0).as_bytes()).map_err(failed)?;
    let version = Version::new(args.str(1).as_bytes()).map_err(failed)?;
    Ok(Value::Bool(constraints.check(&version)))
}
