//! Package fmt over [`Value`]: `Sprint`, `Sprintln`, `Sprintf` with every verb and flag.
//!
//! All functions append to a buffer, and fail with a [`BudgetError`] if a value is nested too
//! deeply (it may contain itself) or the text gets too long. After an error the appended text is
//! unspecified.
//!
//! ```
//! use go_template::{Budget, Buffer, Limits, Value, fmt};
//! let budget = Budget::new(Limits::default());
//! let mut out = Buffer::new();
//! let args = [Value::from("a"), Value::from(1e6), Value::Nil];
//! fmt::sprintf(b"%5s|%v|%d", &args, &budget, &mut out)?;
//! assert_eq!(&*out, b"    a|1e+06|%!d(<nil>)");
//! # Ok::<(), go_template::BudgetError>(())
//! ```

mod float;
mod integer;
mod print;
mod text;
mod verb;

use crate::go::strconv::{format_float, push_int, push_uint};
use crate::value::{Kind, Value};
use bounded::{Budget, BudgetError, Buffer};

/// Appends `args`, with spaces between arguments if neither is a string (`fmt.Sprint`).
///
/// # Errors
/// An exceeded limit, such as that of the nesting.
pub fn sprint(args: &[Value], budget: &Budget, out: &mut Buffer) -> Result<(), BudgetError> {
    let is_string = |arg: &Value| arg.kind() == Kind::String;
    spaced(args, is_string, out, |arg, out| {
        print_value(arg, budget, out)
    })
}

/// Prints `args`, with spaces between arguments if neither is a string.
fn spaced(
    args: &[Value],
    is_string: impl Fn(&Value) -> bool,
    out: &mut Buffer,
    print: impl Fn(&Value, &mut Buffer) -> Result<(), BudgetError>,
) -> Result<(), BudgetError> {
    let mut after_string = true;
    for arg in args {
        let is_string = is_string(arg);
        if !is_string && !after_string {
            out.push(b' ');
        }
        print(arg, out)?;
        after_string = is_string;
    }
    Ok(())
}

/// Appends `args` with spaces between them and a newline (`fmt.Sprintln`).
///
/// # Errors
/// An exceeded limit, such as that of the nesting.
pub fn sprintln(args: &[Value], budget: &Budget, out: &mut Buffer) -> Result<(), BudgetError> {
    for (index, arg) in args.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        print_value(arg, budget, out)?;
    }
    out.push(b'\n');
    Ok(())
}

/// Appends `args` formatted by `format` (`fmt.Sprintf`).
///
/// # Errors
/// An exceeded limit, such as that of the nesting.
pub fn sprintf(
    format: &[u8],
    args: &[Value],
    budget: &Budget,
    out: &mut Buffer,
) -> Result<(), BudgetError> {
    Printer::new(budget, out).printf(format, args)
}

/// Appends a value in its default format (`%v`).
///
/// # Errors
/// An exceeded limit, such as that of the nesting.
#[inline]
pub fn print_value(value: &Value, budget: &Budget, out: &mut Buffer) -> Result<(), BudgetError> {
    match value {
        Value::Str(text) => out.extend_from_slice(text.as_bytes()),
        Value::Int(value) | Value::Int64(value) => push_int(out, *value),
        Value::Uint(_, value) => push_uint(out, *value),
        Value::Float(value) => format_float(out, *value, b'g', None, 64),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        _ => return Printer::new(budget, out).print_arg(value, 'v'),
    }
    Ok(())
}

/// Appends a value as an action prints it: a missing value is `<no value>`, and a pointer prints
/// its target.
pub(crate) fn print_action(
    value: &Value,
    budget: &Budget,
    out: &mut Buffer,
) -> Result<(), BudgetError> {
    match value {
        Value::Invalid => {
            out.extend_from_slice(b"<no value>");
            Ok(())
        }
        Value::Object(_) => Printer::new(budget, out).print_indirect(value),
        _ => print_value(value, budget, out),
    }
}

/// Appends `args` like [`sprint`], but each as an action prints it; used by `html`, `js` and
/// `urlquery`.
pub(crate) fn sprint_actions(
    args: &[Value],
    budget: &Budget,
    out: &mut Buffer,
) -> Result<(), BudgetError> {
    // A missing value counts as the string "<no value>" here.
    let is_string =
        |arg: &Value| arg.kind() == Kind::String || matches!(arg, Value::Invalid | Value::Nil);
    spaced(args, is_string, out, |arg, out| match arg {
        Value::Nil => print_action(&Value::Invalid, budget, out),
        _ => print_action(arg, budget, out),
    })
}

/// The flags of a verb.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate flag of the format"
)]
#[derive(Clone, Copy, Default)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    /// `%+v`: the names of fields.
    plus_v: bool,
    /// `%#v`: Go syntax.
    sharp_v: bool,
}

/// Appends formatted values to a buffer.
struct Printer<'p> {
    out: &'p mut Buffer,
    flags: Flags,
    budget: &'p Budget,
    /// Start of this printer's output.
    start: usize,
    /// Whether a bad verb is being reported, in which case methods are not called.
    is_erroring: bool,
}

impl<'p> Printer<'p> {
    fn new(budget: &'p Budget, out: &'p mut Buffer) -> Self {
        let start = out.len();
        Self {
            out,
            flags: Flags::default(),
            budget,
            start,
            is_erroring: false,
        }
    }

    /// Checks that the text is not too long.
    fn check_length(&self) -> Result<(), BudgetError> {
        self.out.check()?;
        let limit = self.budget.limits().string;
        if self.out.len() - self.start > limit {
            return Err(BudgetError::String { limit });
        }
        Ok(())
    }

    fn padding(&mut self, count: usize) {
        // Zeros pad on the left only.
        let is_zero = self.flags.zero && !self.flags.minus;
        let byte = if is_zero { b'0' } else { b' ' };
        self.out.resize(self.out.len() + count, byte);
    }

    /// Appends `text`, padded to the width in runes.
    fn pad(&mut self, text: &[u8]) {
        let Some(width) = self.flags.width else {
            self.out.extend_from_slice(text);
            return;
        };
        let missing = width.saturating_sub(crate::go::utf8::rune_count(text));
        if self.flags.minus {
            self.out.extend_from_slice(text);
            self.padding(missing);
        } else {
            self.padding(missing);
            self.out.extend_from_slice(text);
        }
    }

    /// Like [`Printer::pad`], but never with zeros.
    fn pad_with_spaces(&mut self, text: &[u8]) {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(text);
        self.flags.zero = zero;
    }
}

#[cfg(test)]
mod tests {
    use bounded::Limits;

    use super::*;
    use crate::{List, Map, Object, Type, TypeInfo};

    fn budget() -> Budget {
        Budget::new(Limits::default())
    }

    fn printf(format: &str, args: &[Value]) -> String {
        let mut out = Buffer::new();
        sprintf(format.as_bytes(), args, &budget(), &mut out).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn strings_and_lists_are_spaced_as_in_go() {
        let args = [1, 2].map(Value::Int);
        let mut out = Buffer::new();
        sprint(&args, &budget(), &mut out).unwrap();
        let args = ["a".into(), "b".into(), Value::Int(1)];
        sprint(&args, &budget(), &mut out).unwrap();
        assert_eq!(&*out, b"1 2ab1");
    }

    #[test]
    fn map_that_contains_itself_is_an_error() {
        let map = Map::new();
        map.insert("self", Value::Map(map.clone()));
        let value = Value::Map(map.clone());
        let result = print_value(&value, &budget(), &mut Buffer::new());
        let limit = Limits::default().nesting;
        assert_eq!(result, Err(BudgetError::Nesting { limit }));
        map.clear();
    }

    #[test]
    fn shared_parts_do_not_expand_without_limit() {
        let mut value = Value::list(Vec::new());
        for _ in 0..64 {
            value = Value::list(vec![value.clone(), value]);
        }
        let limits = Limits {
            string: 1 << 20,
            ..Limits::default()
        };
        let result = print_value(&value, &Budget::new(limits), &mut Buffer::new());
        assert_eq!(result, Err(BudgetError::String { limit: 1 << 20 }));
    }

    #[test]
    fn go_syntax_names_types() {
        let list = Value::list(vec!["a".into(), Value::Int(1), Value::Nil]);
        let syntax = |value| printf("%#v", &[value]);
        assert_eq!(syntax(list), "[]interface {}{\"a\", 1, interface {}(nil)}");
        assert_eq!(
            syntax(Value::NilOf(Type::MAP)),
            "map[string]interface {}(nil)"
        );
        assert_eq!(syntax(Value::bytes("ab")), "[]byte{0x61, 0x62}");
        let strings = Value::List(List::strings(["a"]));
        assert_eq!(
            printf("%#v %+q", &[strings.clone(), strings]),
            "[]string{\"a\"} [\"a\"]"
        );
    }

    #[test]
    fn scalars_of_declared_types_print_with_their_text_method() {
        static DURATION: TypeInfo = TypeInfo {
            named: true,
            text: Some(|_| "1m0s".into()),
            ..TypeInfo::new("time.Duration", Kind::Int64)
        };
        let ty = Type::new(&DURATION);
        let minute = Value::Object(Object::scalar(ty, Value::Int64(60)));
        let printed = printf("%v %d %t %T", &vec![minute; 4]);
        assert_eq!(printed, "1m0s 60 %!t(time.Duration=60) time.Duration");
    }
}
