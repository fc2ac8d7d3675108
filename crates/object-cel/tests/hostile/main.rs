//! Hostile expressions and values: no panic, no overflow of the stack, and no long evaluation.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first error"
)]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use object_cel::{Expression, Outcome, Type, Variables};
use serde_json::{Value, json};

/// Less than a thread of an operator has.
const STACK: usize = 1024 * 1024;

fn variables() -> Variables {
    Variables::default()
        .with("a", Type::Dyn)
        .with("n", Type::list(Type::Int))
        .with("s", Type::list(Type::String))
        .with("m", Type::map(Type::String))
}

fn values(length: i64) -> BTreeMap<String, Value> {
    let map: serde_json::Map<_, _> = (0..length).map(|i| (format!("k{i}"), json!("v"))).collect();
    [
        ("a".to_owned(), json!({"b": [1, 2.5, "x", null, {"c": -1}]})),
        ("n".to_owned(), (0..length).collect::<Vec<_>>().into()),
        (
            "s".to_owned(),
            (0..length)
                .map(|i| format!("value {i}"))
                .collect::<Vec<_>>()
                .into(),
        ),
        ("m".to_owned(), map.into()),
    ]
    .into()
}

/// Parses and evaluates, and fails if either takes long.
fn try_out(source: &str, values: &BTreeMap<String, Value>) -> Option<Result<Outcome, String>> {
    let start = Instant::now();
    let expression = Expression::parse(source, &variables());
    let outcome = expression.ok().map(|expression| {
        expression
            .evaluate(values)
            .map_err(|error| error.to_string())
    });
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}: {source}",
        start.elapsed()
    );
    outcome
}

fn with_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(test)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn generated_texts_neither_panic_nor_take_long() {
    let mut tokens: Vec<&str> = include_str!("tokens.txt").lines().collect();
    tokens.extend(["\n", "\t", "\u{0}"]);
    with_small_stack(move || {
        let mut random = fastrand::Rng::with_seed(1);
        let values = values(20);
        let mut accepted = 0;
        for _ in 0..4_000 {
            let length = random.usize(1..12);
            let source: String = (0..length)
                .map(|_| tokens[random.usize(..tokens.len())])
                .collect();
            accepted += usize::from(try_out(&source, &values).is_some());
        }
        for _ in 0..20 {
            let mut source: String = (0..2000)
                .map(|_| tokens[random.usize(..tokens.len())])
                .collect();
            while source.len() > 4096 {
                source.pop();
            }
            try_out(&source, &values);
        }
        assert!(accepted > 100, "{accepted}");
    });
}

#[test]
fn nesting_and_length_are_limited() {
    with_small_stack(|| {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("!(", ")"),
            ("-(", ")"),
            ("{'a': ", "}"),
            ("true ? 1 : ", ""),
            ("a[", "]"),
            ("size(", ")"),
            ("[1].map(x, ", ")"),
            ("", " + 1"),
            ("", ".b"),
            ("", "[0]"),
            ("", ".size()"),
            ("", ".?b"),
            ("", " && true"),
            ("", " == 1"),
            ("1 in ", ""),
            ("", " ? 1 : 2"),
            ("(true || ", ")"),
            ("has(", ".b)"),
            ("dyn(1 + ", ")"),
            ("[1].map(x, 'a' + ", ")"),
            ("!!", ""),
            ("-", ""),
            ("!", ""),
            ("a?", ""),
            ("f(a.b[c](d){", ""),
        ] {
            for count in [1, 5, 15, 30, 33, 60, 2000] {
                let source = format!("{}1{}", open.repeat(count), close.repeat(count));
                try_out(&source, &values(1));
                if count == 33 && (open, close) != ("", " && true") {
                    assert!(
                        Expression::parse(&source, &variables()).is_err(),
                        "{source}"
                    );
                }
            }
        }
        let conditions = vec!["n.size() > 0"; 250].join(" && ");
        assert!(Expression::parse(&conditions, &variables()).is_ok());
        let error = Expression::parse(&" ".repeat(4097), &variables()).unwrap_err();
        assert_eq!(error.message, "an expression has at most 4096 bytes");
        let four = "n.map(a, n.map(b, n.map(c, n.map(d, 1))))";
        let error = Expression::parse(four, &variables()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "1:30: more than 3 loops within each other"
        );
    });
}

#[test]
fn evaluation_is_limited() {
    for (source, length) in [
        ("n.map(a, n.map(b, n.map(c, a + b + c)))", 1000),
        (
            "s.map(x, s.map(y, x + y).join('')).join('').size() > 0",
            3000,
        ),
        ("s.all(x, x in s)", 5000),
        ("s.distinct().size()", 5000),
        ("s.join(',').replace('', s.join(',')).size()", 3000),
        (
            "n.map(i, n).map(l, n.map(i, l)) == n.map(i, n).map(l, n.map(i, l))",
            300,
        ),
        (
            "[n, n].map(l, [l, l]).map(l, [l, l, l]).map(l, n.map(i, l)).map(l, n.map(i, l)).flatten(9).size()",
            300,
        ),
        (
            "s.map(x, x.matches('(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x'))",
            50_000,
        ),
        ("s.join('').findAll('v.*z|v').size()", 50_000),
        ("lists.range(9223372036854775807).size()", 1),
        ("m.all(k, m.all(l, m[k] == m[l]))", 2000),
        ("sets.equivalent(s, s)", 5000),
        ("n.map(i, string(n.size()) + s.join('')).size()", 2000),
    ] {
        let error = try_out(source, &values(length)).unwrap().unwrap_err();
        assert!(
            error.starts_with("more than 1000000 steps"),
            "{source}: {error}"
        );
    }
    let error = try_out("s.map(a, [1, 2].map(b, n.size() + b))", &values(2000))
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        "more than 1000000 steps for s, which has 2000 elements"
    );
    let error = try_out("s.distinct().size()", &values(3000))
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        "more than 1000000 steps for s, which has 3000 elements"
    );
    let sum = try_out(
        "n.map(i, i * 2).filter(i, i % 3 == 0).sum()",
        &values(20_000),
    )
    .unwrap();
    assert_eq!(sum, Ok(Outcome::Value(json!(133_326_666))));
}

#[test]
fn results_are_limited() {
    let error = try_out("s", &values(10_000)).unwrap().unwrap_err();
    assert_eq!(error, "the result has more than 65536 bytes of JSON");
    let error = try_out(
        "[n, n, n].map(l, [l, l, l]).map(l, n.map(i, l))",
        &values(300),
    )
    .unwrap()
    .unwrap_err();
    assert_eq!(error, "the result has more than 65536 bytes of JSON");
    assert!(try_out("s", &values(3000)).unwrap().is_ok());
}

#[test]
fn deep_values_are_refused() {
    with_small_stack(|| {
        let deep = |levels| {
            let value = (0..levels).fold(json!(1), |value, _| json!([value]));
            [("a".to_owned(), value)].into()
        };
        let error = try_out("a == a", &deep(300)).unwrap().unwrap_err();
        assert!(error.ends_with("has more than 100 levels"), "{error}");
        let nested = format!("{}a{}", "[".repeat(30), "]".repeat(30));
        assert!(try_out(&nested, &deep(100)).unwrap().is_ok());
        let loops = "[1].map(x, [2].map(y, [3].map(z, [[[[[[[[a]]]]]]]].flatten(999) == [a])))";
        assert!(try_out(loops, &deep(100)).unwrap().is_ok());
    });
}

#[test]
fn functions_take_any_argument_of_unknown_type() {
    let functions: Vec<&str> = include_str!("functions.txt").lines().collect();
    let arguments: Vec<&str> = include_str!("arguments.txt").lines().collect();
    let mut random = fastrand::Rng::with_seed(2);
    let mut pick = || arguments[random.usize(..arguments.len())];
    let mut successes = 0;
    for function in functions {
        for _ in 0..40 {
            let source = function
                .replace('X', pick())
                .replace('Y', pick())
                .replace('Z', pick());
            let outcome = try_out(&source, &BTreeMap::new());
            successes += usize::from(outcome.is_some_and(|outcome| outcome.is_ok()));
        }
    }
    assert!(successes > 500, "{successes}");
}
