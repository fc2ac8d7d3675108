use super::super::tests::errors;
use super::super::{File, Schema};
use crate::rows::rows;

#[test]
fn multiples_are_computed_exactly() {
    for [is_fine, value, schema] in rows(
        r##"
        true  | 0.3                    | {"multipleOf":0.1}
        false | 0.35                   | {"multipleOf":0.1}
        true  | 1e20                   | {"multipleOf":0.01}
        true  | 4.35e-5                | {"multipleOf":1e-7}
        false | 1e5                    | {"multipleOf":3}
        true  | {"a":0.7}              | {"properties":{"a":{"anyOf":[{"multipleOf":0.1}]}}}
        // Divisors are taken as written.
        false | 18446744073709551616.0 | {"multipleOf":18446744073709551617}
        true  | 18446744073709551616.0 | {"multipleOf":18446744073709552000}
        false | 0.3                    | {"multipleOf":0.30000000000000001}
        false | [9007199254740994, 9007199254740993] | {"items":{"multipleOf":3}}
        true  | [9007199254740993, 9007199254740992.0] | {"prefixItems":[{"multipleOf":3}, true]}
        // Numbers of values files are floats, those of `--set` are not.
        false | 9007199254740992.0     | {"multipleOf":3}
        true  | 9007199254740993       | {"multipleOf":3}
        false | 9007199254740993       | {"multipleOf":2}
        false | 9007199254740992.0     | {"multipleOf":9007199254740993}
        true  | 1e30                   | {"multipleOf":5}
        false | 1e30                   | {"multipleOf":7}
        false | -1e300                 | {"multipleOf":7}
        false | 1e22                   | {"multipleOf":0.3}
        true  | 1e45                   | {"multipleOf":1e40}
        true  | 12345678901234567168.0 | {"multipleOf":10}
        false | [7, 1e30]              | {"items":{"allOf":[{"multipleOf":7}]}}
        false | {"a":1e30}             | {"additionalProperties":{"multipleOf":7}}
        false | {"b":1e30}             | {"$ref":"#/$defs/a","$defs":{"a":{"properties":{"b":{"multipleOf":7}}}}}
        "##,
    ) {
        let found = errors(schema, value).is_ok().to_string();
        assert_eq!(found, is_fine, "{schema} {value}");
    }
}

#[test]
fn keywords_that_depend_on_a_multiple_have_the_exact_result() {
    for [is_fine, value, schema] in rows(
        r##"
        true  | 0.3                    | {"oneOf":[{"multipleOf":0.1},{"type":"string"}]}
        false | 0.3                    | {"oneOf":[{"type":"number"},{"multipleOf":0.1}]}
        true  | 1e30                   | {"oneOf":[{"type":"number"},{"multipleOf":7}]}
        false | 1e30                   | {"anyOf":[{"multipleOf":7},{"type":"string"}]}
        false | 0.3                    | {"not":{"multipleOf":0.1}}
        true  | 1e30                   | {"not":{"multipleOf":7}}
        false | 0.3                    | {"if":{"multipleOf":0.1},"then":{"minimum":5}}
        true  | [0.3]                  | {"contains":{"multipleOf":0.1}}
        false | [0.3, 0.7]             | {"contains":{"multipleOf":0.1},"maxContains":1}
        true  | {"a":{"multipleOf":0.1},"b":0.3} | {"properties":{"a":{"const":{"multipleOf":0.1}},"b":{"multipleOf":0.1}}}
        true  | {"const":0.3}          | {"properties":{"const":{"multipleOf":0.1}}}
        true  | 0.3                    | {"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://example.com/a","$ref":"#/definitions/a","multipleOf":7,"definitions":{"a":{"multipleOf":0.1}}}
        false | 0.3                    | {"$schema":"http://json-schema.org/draft-04/schema#","not":{"multipleOf":0.1}}
        "##,
    ) {
        let found = errors(schema, value).is_ok().to_string();
        assert_eq!(found, is_fine, "{schema} {value}");
    }
}

#[test]
fn exact_multiples_do_not_change_other_errors() {
    let with = |divisor: &str, value: &str| {
        let schema = r#"{"properties":{
            "a":{"allOf":[{"minimum":1e31}],"multipleOf":DIVISOR},
            "b":{"allOf":[{"multipleOf":DIVISOR},{"multipleOf":DIVISOR}]},
            "c":{"anyOf":[{"multipleOf":DIVISOR},{"type":"string"}]}}}"#;
        let values = r#"{"a":VALUE,"b":VALUE,"c":VALUE}"#;
        let schema = schema.replace("DIVISOR", divisor);
        errors(&schema, &values.replace("VALUE", value)).unwrap_err()
    };
    let mut exact: Vec<_> = with("7", "1e30").lines().map(str::to_owned).collect();
    // For these, floats are right.
    let simple = with("7", "1");
    let mut simple: Vec<_> = simple.lines().collect();
    exact.sort_unstable();
    simple.sort_unstable();
    assert_eq!(exact, simple);
    assert_eq!(
        exact,
        [
            "- at '/a': is not a multiple of 7",
            "- at '/a': must be >= 1e+31",
            "- at '/b': allOf failed",
            "- at '/b': is not a multiple of 7",
            "- at '/b': is not a multiple of 7",
            "- at '/c': anyOf failed",
            "- at '/c': is not a multiple of 7",
            "- at '/c': want string, but got number",
        ]
    );
}

#[test]
fn the_rule_of_an_exact_multiple_is_its_schema() {
    let schema = r#"{"items":{"not":true},"allOf":[{"properties":{"a%":{"multipleOf":0.1}}}]}"#;
    for value in ["0.35", "1e-30"] {
        let values = format!(r#"{{"a%":{value},"b":0.3}}"#);
        let schema = Schema::new(File::new("values.schema.json", schema));
        let found = schema
            .check(serde_json::from_str(&values).unwrap(), &[])
            .unwrap_err();
        let rules: Vec<_> = found.iter().map(|found| found.rule.join("/")).collect();
        assert_eq!(rules, ["allOf/0/properties/a%"], "{value}");
    }
}

#[test]
fn multiples_of_too_many_numbers_are_refused() {
    let divisors: Vec<_> = (1..=500)
        .map(|n| format!(r#"{{"multipleOf":{n}}}"#))
        .collect();
    let schema = format!(
        r#"{{"$defs":{{"a":{{"anyOf":[{}]}}}}}}"#,
        divisors.join(",")
    );
    let values = |count: usize| format!("{:?}", (0..count).collect::<Vec<_>>());
    assert_eq!(errors(&schema, &values(400)), Ok(()));
    let error = errors(&schema, &values(401)).unwrap_err();
    assert!(error.contains("500 multipleOf for 401 numbers"), "{error}");

    let schema = r#"{"items":{"multipleOf":7}}"#;
    let values = |count: i32| {
        let numbers: Vec<_> = (1..=count).map(|n| format!("{n}e30")).collect();
        format!("[{}]", numbers.join(","))
    };
    assert!(errors(schema, &values(1000)).unwrap_err().contains("'/0'"));
    let error = errors(schema, &values(20_000)).unwrap_err();
    assert!(error.contains("more than can be checked"), "{error}");
}
