//! `toToml`, `mustToToml` and `fromToml`, as `github.com/BurntSushi/toml` writes and reads TOML.

use bounded::{Budget, Buffer};
use go_template::go::strconv::format_float;
use go_template::sprig::{DURATION, TIME};
use go_template::{Args, Call, Func, FuncError, Kind, List, Map, Object, Str, Type, Value};

use super::toml_reader;

pub(crate) static FUNCS: &[Func] = &[
    Func::text("toToml", &[Type::ANY], to_toml),
    Func::text("mustToToml", &[Type::ANY], must_to_toml),
    Func::value("fromToml", &[Type::STRING], from_toml),
];

fn to_toml(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let start = out.len();
    if matches!(args.get(0), Value::Nil | Value::Invalid) {
        return must_to_toml(call, args, out);
    }
    let Err(error) = must_to_toml(call, args, out) else {
        return Ok(());
    };
    out.truncate(start);
    if error.is_limit() {
        return Err(error);
    }
    let message = error.to_string();
    // Go appends the error to the output.
    out.extend_from_slice(message.as_bytes());
    Ok(())
}

fn must_to_toml(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    let value = args.get(0);
    if matches!(value, Value::Nil | Value::Invalid) {
        return Err(FuncError::new(
            "reflect: call of reflect.Value.Type on zero Value",
        ));
    }
    let mut writer = TomlWriter {
        start: out.len(),
        out,
        budget: call.budget(),
    };
    writer.entry(&mut Vec::new(), value)?;
    Ok(writer.out.check()?)
}

fn from_toml(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(Value::Map(
        match toml_reader::read(args.str(0).as_bytes(), call.budget())? {
            Ok(map) => map,
            Err(message) => Map::from_entries(Type::MAP, [("Error", Value::from(message))]),
        },
    ))
}

/// The TOML form of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Scalar,
    Array,
    Table,
    ArrayOfTables,
}

struct TomlWriter<'o> {
    out: &'o mut Buffer,
    start: usize,
    budget: &'o Budget,
}

impl TomlWriter<'_> {
    /// Writes a value under a full key.
    fn entry(&mut self, key: &mut Vec<Str>, value: &Value) -> Result<(), FuncError> {
        if let (Value::Complex(_) | Value::Func(_), []) = (value, key.as_slice()) {
            let kind = value.kind().name();
            return Err(FuncError::new(format!(
                "unsupported type for key '': {kind}"
            )));
        }
        match self.shape(value)? {
            // Without a key, a nil slice is written like an empty one.
            None if key.is_empty() && matches!(value.kind(), Kind::Slice) => self.element(value),
            None => Ok(()),
            Some(Shape::Table) => self.nested(|writer| writer.table(key, value)),
            Some(Shape::ArrayOfTables) => self.nested(|writer| writer.tables(key, value)),
            Some(_) => self.line(key, value),
        }
    }

    fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), FuncError>,
    ) -> Result<(), FuncError> {
        self.out.check()?;
        let budget = self.budget;
        budget.descend(|| write(self))
    }

    /// Writes `key = value`, or only the value if there is no key.
    fn line(&mut self, key: &[Str], value: &Value) -> Result<(), FuncError> {
        let Some(name) = key.last() else {
            return self.element(value);
        };
        self.indent(key);
        self.name(name);
        self.text(" = ");
        self.element(value)?;
        self.newline();
        Ok(())
    }

    fn table(&mut self, key: &mut Vec<Str>, value: &Value) -> Result<(), FuncError> {
        // Top-level tables are separated by an empty line.
        if key.len() == 1 {
            self.newline();
        }
        if !key.is_empty() {
            self.indent(key);
            self.header("[", key, "]");
        }
        self.fields(key, &fields_of(value))
    }

    fn tables(&mut self, key: &mut Vec<Str>, value: &Value) -> Result<(), FuncError> {
        if key.is_empty() {
            return Err(FuncError::new(
                "toml: top-level values must be Go maps or structs",
            ));
        }
        for item in items_of(value) {
            if self.shape(&item)?.is_none() {
                continue;
            }
            self.newline();
            self.indent(key);
            self.header("[[", key, "]]");
            self.fields(key, &fields_of(&item))?;
        }
        Ok(())
    }

    /// Writes the fields of a table, with subtables last.
    fn fields(&mut self, key: &mut Vec<Str>, fields: &[(Str, Value)]) -> Result<(), FuncError> {
        let (direct, below) = self.split(fields)?;
        for (name, value) in direct.into_iter().chain(below) {
            self.budget.step(1)?;
            key.push(name.clone());
            self.entry(key, value)?;
            key.pop();
        }
        Ok(())
    }

    fn inline(&mut self, fields: &[(Str, Value)]) -> Result<(), FuncError> {
        let (direct, below) = self.split(fields)?;
        self.text("{");
        let (length, more) = (direct.len(), !below.is_empty());
        for (index, (name, value)) in direct.into_iter().enumerate() {
            self.pair(name, value, more || index + 1 < length)?;
        }
        let count = below.len();
        for (index, (name, value)) in below.into_iter().enumerate() {
            self.pair(name, value, index + 1 < count)?;
        }
        self.text("}");
        Ok(())
    }

    fn pair(&mut self, name: &Str, value: &Value, comma: bool) -> Result<(), FuncError> {
        if self.shape(value)?.is_none() {
            return Ok(());
        }
        self.name(name);
        self.text(" = ");
        self.element(value)?;
        if comma {
            self.text(", ");
        }
        Ok(())
    }

    /// Writes a value on one line.
    fn element(&mut self, value: &Value) -> Result<(), FuncError> {
        match value {
            Value::Bool(value) => self.text(if *value { "true" } else { "false" }),
            Value::Int(value) | Value::Int64(value) | Value::SmallInt(_, value) => {
                self.text(&value.to_string());
            }
            Value::Uint(_, value) => self.text(&value.to_string()),
            Value::Float(value) => self.float(*value),
            Value::Str(text) => self.quoted(text),
            Value::List(_) | Value::Bytes(_) => self.nested(|writer| writer.list(value))?,
            Value::NilOf(ty) if ty.kind() == Kind::Slice => self.text("[]"),
            Value::Map(_) => self.nested(|writer| writer.inline(&fields_of(value)))?,
            Value::Object(object) => self.object(value, object)?,
            other => {
                return Err(FuncError::new(format!(
                    "unexpected type: {}",
                    other.type_name()
                )));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value) -> Result<(), FuncError> {
        self.text("[");
        for (index, item) in items_of(value).iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            self.budget.step(1)?;
            self.out.check()?;
            self.element(item)?;
        }
        self.text("]");
        Ok(())
    }

    fn object(&mut self, value: &Value, object: &Object) -> Result<(), FuncError> {
        let ty = object.go_type();
        let encoded = ty.info().encode.map(|encode| encode(value));
        match (encoded, ty.info().text) {
            (Some(Value::Str(time)), Some(text)) if ty == TIME => {
                let shown = text(value);
                self.time(&time.to_string_lossy(), &shown.to_string_lossy());
            }
            (_, Some(text)) if ty == DURATION => self.quoted(&text(value)),
            (Some(Value::Str(text)), _) => self.quoted(&text),
            _ if !matches!(object.underlying(), Value::Invalid) => {
                self.element(object.underlying())?;
            }
            _ => self.nested(|writer| writer.inline(&fields_of(value)))?,
        }
        Ok(())
    }

    /// Writes an RFC 3339 time; `shown` names the parts that the TOML source had.
    fn time(&mut self, time: &str, shown: &str) {
        let local = time.strip_suffix('Z').unwrap_or(time);
        let (date, clock) = local.split_once('T').unwrap_or((local, ""));
        self.text(match shown.rsplit(' ').next() {
            Some("datetime-local") => local,
            Some("date-local") => date,
            Some("time-local") => clock,
            _ => time,
        });
    }

    fn float(&mut self, value: f64) {
        if value.is_nan() {
            return self.text(if value.is_sign_negative() {
                "-nan"
            } else {
                "nan"
            });
        }
        if value.is_infinite() {
            return self.text(if value > 0.0 { "inf" } else { "-inf" });
        }
        let mut text = Buffer::new();
        format_float(&mut text, value, b'g', None, 64);
        self.out.extend_from_slice(&text);
        if !text.iter().any(|byte| matches!(byte, b'e' | b'.')) {
            self.text(".0");
        }
    }

    fn quoted(&mut self, text: &Str) {
        self.out.push(b'"');
        for byte in text.as_bytes() {
            match byte {
                b'"' => self.text("\\\""),
                b'\\' => self.text("\\\\"),
                0x08 => self.text("\\b"),
                b'\t' => self.text("\\t"),
                b'\n' => self.text("\\n"),
                0x0c => self.text("\\f"),
                b'\r' => self.text("\\r"),
                0..=0x1f | 0x7f => self.text(&format!("\\u{byte:04x}")),
                byte => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }

    fn name(&mut self, name: &Str) {
        let bare = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !name.is_empty() && name.as_bytes().iter().all(bare) {
            self.out.extend_from_slice(name.as_bytes());
        } else {
            self.quoted(name);
        }
    }

    fn header(&mut self, open: &str, key: &[Str], close: &str) {
        self.text(open);
        for (index, name) in key.iter().enumerate() {
            if index > 0 {
                self.text(".");
            }
            self.name(name);
        }
        self.text(close);
        self.newline();
    }

    fn indent(&mut self, key: &[Str]) {
        self.text(&"  ".repeat(key.len().saturating_sub(1)));
    }

    fn newline(&mut self) {
        if self.out.len() > self.start {
            self.out.push(b'\n');
        }
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

impl TomlWriter<'_> {
    /// Returns the TOML form of a value, or `None` for nil.
    fn shape(&self, value: &Value) -> Result<Option<Shape>, FuncError> {
        Ok(Some(match value {
            Value::Nil | Value::Invalid | Value::NilOf(_) => return Ok(None),
            Value::List(list) => {
                if self.budget.descend(|| self.is_table_array(list))? {
                    Shape::ArrayOfTables
                } else {
                    Shape::Array
                }
            }
            Value::Map(_) => Shape::Table,
            Value::Complex(_) | Value::Func(_) => {
                let kind = value.kind().name();
                return Err(FuncError::new(format!("unsupported type: {kind}")));
            }
            Value::Object(object)
                if !is_text(value, object)
                    && object.go_type() != DURATION
                    && matches!(object.underlying(), Value::Invalid) =>
            {
                Shape::Table
            }
            _ => Shape::Scalar,
        }))
    }

    fn is_table_array(&self, list: &List) -> Result<bool, FuncError> {
        let mut all = !list.is_empty();
        for item in list {
            self.budget.step(1)?;
            match self.shape(&item)? {
                None => {
                    return Err(FuncError::new("toml: cannot encode array with nil element"));
                }
                Some(shape) => all &= shape == Shape::Table,
            }
        }
        Ok(all)
    }

    /// Splits the fields into plain ones and subtables.
    fn split<'f>(&self, fields: &'f [(Str, Value)]) -> Result<(Fields<'f>, Fields<'f>), FuncError> {
        let (mut direct, mut below) = (Vec::new(), Vec::new());
        for (name, value) in fields {
            match self.shape(value)? {
                Some(Shape::Table | Shape::ArrayOfTables) => below.push((name, value)),
                _ => direct.push((name, value)),
            }
        }
        Ok((direct, below))
    }
}

/// Returns whether Go has a `MarshalText` for the value.
fn is_text(value: &Value, object: &Object) -> bool {
    let encode = object.go_type().info().encode;
    encode.is_some_and(|encode| matches!(encode(value), Value::Str(_)))
}

type Fields<'f> = Vec<(&'f Str, &'f Value)>;

fn fields_of(value: &Value) -> Vec<(Str, Value)> {
    match value {
        Value::Map(map) => map.entries(),
        Value::Object(object) => {
            let ty = object.go_type();
            let pointee = if ty.kind() == Kind::Ptr {
                ty.elem()
            } else {
                ty
            };
            let fields = pointee.info().fields.iter().zip(object.fields());
            fields
                .filter(|(field, _)| field.name.starts_with(char::is_uppercase))
                .map(|(field, value)| (Str::from(field.name), value.clone()))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn items_of(value: &Value) -> Vec<Value> {
    match value {
        Value::List(list) => list.iter().collect(),
        Value::Bytes(bytes) => bytes
            .as_bytes()
            .iter()
            .map(|byte| Value::Int(i64::from(*byte)))
            .collect(),
        _ => Vec::new(),
    }
}
