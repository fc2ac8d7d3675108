//! Conversions between Go's values and types of Rust.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use go_template::{BudgetError, ConvertError, Map, Type, Value, fmt, from_value, to_value};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Shape {
    Point,
    Circle(f64),
    Line(i8, i8),
    Box { wide: u32, high: u32 },
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct All {
    flag: bool,
    text: String,
    letter: char,
    count: i64,
    large: u64,
    share: f64,
    some: Option<u8>,
    none: Option<u8>,
    unit: (),
    shapes: Vec<Shape>,
    ports: BTreeMap<u16, String>,
}

fn all() -> All {
    All {
        flag: true,
        text: "a".to_owned(),
        letter: 'é',
        count: -3,
        large: u64::MAX,
        share: 0.5,
        some: Some(1),
        none: None,
        unit: (),
        shapes: vec![
            Shape::Point,
            Shape::Circle(1.5),
            Shape::Line(1, -1),
            Shape::Box { wide: 2, high: 3 },
        ],
        ports: BTreeMap::from([(80, "http".to_owned())]),
    }
}

fn go_syntax(value: &Value) -> String {
    let budget = go_template::Budget::new(go_template::Limits::default());
    let mut out = go_template::Buffer::new();
    fmt::sprintf(b"%#v", std::slice::from_ref(value), &budget, &mut out).unwrap();
    String::from_utf8(out.into_vec()).unwrap()
}

#[test]
fn types_of_rust_have_the_nearest_type_of_go() {
    assert_eq!(
        go_syntax(&to_value(&all()).unwrap()),
        "map[string]interface {}{\"count\":-3, \"flag\":true, \"large\":0xffffffffffffffff, \
         \"letter\":\"é\", \"none\":interface {}(nil), \"ports\":map[string]interface {}{\"80\":\"http\"}, \
         \"shapes\":[]interface {}{\"point\", map[string]interface {}{\"circle\":1.5}, \
         map[string]interface {}{\"line\":[]interface {}{1, -1}}, \
         map[string]interface {}{\"box\":map[string]interface {}{\"high\":3, \"wide\":2}}}, \
         \"share\":0.5, \"some\":1, \"text\":\"a\", \"unit\":interface {}(nil)}"
    );
}

#[test]
fn conversion_there_and_back_returns_the_same() {
    let original = json!({"a": [1, 2.5, null, true], "b": {"c": "d"}, "e": []});
    let value = to_value(&original).unwrap();
    assert_eq!(from_value::<serde_json::Value>(&value).unwrap(), original);
    let mut typed = all();
    // The key of a map is a string in Go.
    typed.ports.clear();
    let value = to_value(&typed).unwrap();
    assert_eq!(from_value::<All>(&value).unwrap(), typed);
}

#[test]
fn values_of_go_convert_where_the_meaning_is_clear() {
    assert_eq!(from_value::<u16>(&Value::Float(80.0)), Ok(80));
    assert_eq!(from_value::<Vec<u8>>(&Value::NilOf(Type::LIST)), Ok(vec![]));
    let bytes = from_value::<Vec<u8>>(&Value::bytes("ab"));
    assert_eq!(bytes, Ok(b"ab".to_vec()));
    assert_eq!(from_value::<Option<bool>>(&Value::Invalid), Ok(None));
    assert_eq!(from_value::<Shape>(&"point".into()), Ok(Shape::Point));
}

#[test]
fn what_has_no_counterpart_is_an_error_that_names_the_reason() {
    let not_u16 = |value| from_value::<u16>(&value).unwrap_err().to_string();
    assert_eq!(not_u16(Value::Float(0.5)), "the value is a float, not u16");
    assert_eq!(
        not_u16(Value::Int(-1)),
        "the value is an integer that is not u16"
    );
    let secret = from_value::<Shape>(&"hunter2".into()).unwrap_err();
    let expected = "the value is not one of point, circle, line, box";
    assert_eq!(secret.to_string(), expected);
    let key = to_value(&BTreeMap::from([(vec![1], 2)])).unwrap_err();
    assert_eq!(key, ConvertError::Key);
    let large = to_value(&u128::MAX).unwrap_err();
    assert_eq!(large, ConvertError::Integer(u128::MAX.to_string()));
    let own = Map::new();
    own.insert("own", Value::Map(own.clone()));
    let endless = from_value::<serde_json::Value>(&Value::Map(own.clone())).unwrap_err();
    let nesting = BudgetError::Nesting { limit: 1_000 };
    assert_eq!(endless, ConvertError::Nesting(nesting));
    own.clear();
}
