//! The checker and the evaluation agree with kube-apiserver's cel-go for generated expressions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first error"
)]
#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first error"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use object_cel::{Expression, Outcome, Type, Variables};
use serde::Deserialize;
use serde_json::{Value, json};

const EXPRESSIONS: usize = 10_000;

/// What may be refused although cel-go accepts it: a part of the message, and the highest number of such expressions.
const CONSERVATIVE: &[(&str, usize)] = &[
    ("the pattern must be a literal", 40),
    ("format needs a literal", 60),
    ("a key is a string", 70),
    ("the result cannot be of type", 40),
    ("is not supported in this form", 180),
    ("int or string", 20),
    ("duration cannot take int", 20),
    ("not a regular expression", 20),
    ("of a format cannot take", 20),
    ("levels of nesting", 5),
    ("loops within each other", 5),
];

/// Failures of cel-go where there is a result: it evaluates parts that are constant even if nothing depends on them, and
/// does not compare its lists with other values.
const STRICTER: &[&str] = &["type conversion error", "no such overload", "overflow"];

/// The highest number of those failures.
const MOST_STRICTER: usize = 20;

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "zero": {"type": "integer"}, "d": {"type": "number"}, "b": {"type": "boolean"},
        "s": {"type": "string"}, "bytes": {"type": "string", "format": "byte"},
        "time": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true},
        "ints": {"type": "array", "items": {"type": "integer"}},
        "names": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "class-name": {"type": "string"}, "namespace": {"type": "string"},
        "status": {"type": "object", "properties": {"ready": {"type": "integer"}, "phase": {"type": "string"}}},
        "items": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "port": {"type": "integer"}, "on": {"type": "boolean"},
        }}},
    }})
}

fn values() -> BTreeMap<String, Value> {
    let this = json!({
        "i": 7, "zero": 0, "d": 2.5, "b": true, "s": "a ä,b", "bytes": "YWJj", "time": "2026-01-31T12:34:56.5Z",
        "span": "1h30m", "port": "http", "ints": [3, 1, 2, 1], "names": ["b", "a", ""],
        "labels": {"app": "redis", "a.b/c": "x"}, "counts": {"a": 1, "b": 2}, "class-name": "fast", "namespace": "prod",
        "status": {"phase": "Ready"},
        "items": [{"name": "x", "port": 80, "on": true}, {"name": "y", "on": false}, {"port": 443}],
    });
    let free = json!({"i": 4, "s": "free", "list": [1, "x", 2.5, null], "map": {"k": {"v": 1}}, "none": null});
    [("self".to_owned(), this), ("free".to_owned(), free)].into()
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default, rename = "type")]
    type_: String,
    value: Value,
    #[serde(default)]
    refused: String,
    #[serde(default)]
    failed: String,
}

/// Forms of expressions by their types.
struct Grammar(Vec<(&'static str, Vec<&'static str>)>);

impl Grammar {
    fn read() -> Self {
        let sections = include_str!("cel-go/grammar.txt").split("\n= ").skip(1);
        Self(
            sections
                .map(|section| section.split_once('\n').unwrap())
                .map(|(name, forms)| (name, forms.lines().collect()))
                .collect(),
        )
    }

    fn forms(&self, type_: &str) -> Option<&[&'static str]> {
        self.0
            .iter()
            .find(|(name, _)| *name == type_)
            .map(|(_, forms)| forms.as_slice())
    }

    /// Returns the start and the end of the first place for another expression, and its type.
    fn place<'f>(&self, form: &'f str) -> Option<(usize, usize, &'f str)> {
        form.match_indices('{').find_map(|(start, _)| {
            let end = start + form[start..].find('}')?;
            let name = &form[start + 1..end];
            self.forms(name).map(|_| (start, end + 1, name))
        })
    }
}

struct Generator {
    random: fastrand::Rng,
    grammar: Grammar,
}

impl Generator {
    /// Returns an expression of a type, with one of another type in some places.
    fn expression(&mut self, type_: &str, depth: usize, wrong: f64) -> String {
        let count = self.grammar.0.len() - 1;
        let is_wrong = self.random.f64() < wrong;
        let other = if is_wrong {
            self.grammar.0[self.random.usize(..count)].0
        } else {
            type_
        };
        let mut forms = self.grammar.forms(other).unwrap().to_vec();
        if depth == 0 {
            forms.retain(|form| self.grammar.place(form).is_none());
        }
        let mut rest = forms[self.random.usize(..forms.len())];
        let mut text = String::new();
        while let Some((start, end, name)) = self.grammar.place(rest) {
            text.push_str(&rest[..start]);
            let inner = self.expression(name, depth.saturating_sub(1), wrong);
            let is_simple = inner
                .chars()
                .all(|c| c.is_alphanumeric() || "._'[]".contains(c));
            let brackets = if is_simple { ["", ""] } else { ["(", ")"] };
            text.extend([brackets[0], &inner, brackets[1]]);
            rest = &rest[end..];
        }
        text + rest
    }

    fn next(&mut self) -> String {
        let count = self.grammar.0.len() - 1;
        let type_ = self.grammar.0[self.random.usize(..count)].0;
        let depth = self.random.usize(..5);
        let wrong = [0.0, 0.0, 0.1, 0.3][self.random.usize(..4)];
        let text = self.expression(type_, depth, wrong);
        if self.random.u8(..4) > 0 {
            return text;
        }
        let mistakes = self.grammar.forms("mistakes").unwrap();
        let mistake = mistakes[self.random.usize(..mistakes.len())];
        let (right, wrong) = mistake.split_once(" -> ").unwrap();
        text.replacen(right, wrong, 1)
    }
}

/// Builds the program, unless Go is missing.
fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel-go");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cel-go");
    let mut go = Command::new("go");
    // The flags of the tests' other programs, whose packages are compiled already.
    go.args([
        "build",
        "-trimpath",
        "-gcflags=all=-dwarf=false",
        "-ldflags=-s -w",
        "-o",
    ])
    .arg(&path)
    .arg(".");
    let built = go.current_dir(source).output().ok()?;
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Some(path)
}

fn ask(program: &Path, expressions: &[String]) -> Vec<Answer> {
    let values = values();
    let first = json!({"schema": schema(), "self": values["self"], "free": values["free"]});
    let lines = expressions.iter().map(|text| json!(text).to_string());
    let input: Vec<String> = std::iter::once(first.to_string()).chain(lines).collect();
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = input.join("\n");
    let writer = thread::spawn(move || writeln!(stdin, "{text}").unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the name of a type as the program writes it.
fn name(type_: &Type) -> String {
    match type_ {
        Type::IntOrString => "dyn".to_owned(),
        Type::Object(_) => "object".to_owned(),
        Type::List(elements) => format!("list({})", name(elements)),
        Type::Map(values) => format!("map(string, {})", name(values)),
        other => other.to_string().to_lowercase(),
    }
}

/// Returns the name of a type of the program, where the name of an object does not matter.
fn their_name(type_: &str) -> String {
    let type_ = type_.replace("map(dyn, ", "map(string, ");
    let mut text = String::new();
    let mut rest = type_.as_str();
    while let Some((before, after)) = rest.split_once("selfType") {
        text.push_str(before);
        text.push_str("object");
        rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || ".@".contains(c));
    }
    text + rest
}

/// Whether values are the same, where 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            // Numbers of JSON are read with an error of one in the last place.
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-15
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Returns a list in an order of its own.
fn sorted(value: &Value) -> Value {
    let mut sorted = value.clone();
    if let Some(list) = sorted.as_array_mut() {
        list.sort_by_key(ToString::to_string);
    }
    sorted
}

/// Returns how the results of an expression differ, and the class of conservative refusals that it is in.
fn compare(
    text: &str,
    ours: &Result<Expression, object_cel::ExpressionError>,
    theirs: &Answer,
) -> Result<Option<usize>, String> {
    let expression = match (ours, theirs.refused.is_empty()) {
        (Err(_), false) => return Ok(None),
        (Err(error), true) => {
            let class = CONSERVATIVE
                .iter()
                .position(|(part, _)| error.message.contains(part));
            return class
                .map(Some)
                .ok_or_else(|| format!("refused: {error}; their type is {}", theirs.type_));
        }
        (Ok(_), false) => return Err(format!("accepted, but they say {}", theirs.refused)),
        (Ok(expression), true) => expression,
    };
    let (ours, their_type) = (name(expression.result()), their_name(&theirs.type_));
    if ours != their_type {
        return Err(format!("our type is {ours}, theirs is {their_type}"));
    }
    match (expression.evaluate(&values()), theirs.failed.is_empty()) {
        (Ok(Outcome::Value(ours)), true) if same(&ours, &theirs.value) => Ok(None),
        // Maps have no order in cel-go.
        (Ok(Outcome::Value(ours)), true)
            if ["labels", "counts", "free"]
                .iter()
                .any(|map| text.contains(map))
                && same(&sorted(&ours), &sorted(&theirs.value)) =>
        {
            Ok(None)
        }
        // It does not evaluate what is looked for in an empty list.
        (Ok(Outcome::Missing(_)) | Err(_), true) if text.contains("in []") => {
            Ok(Some(CONSERVATIVE.len()))
        }
        (Ok(Outcome::Missing(_)) | Err(_), false) => Ok(None),
        // The elements of a value of unknown type may be lists.
        (Err(error), true) if error.to_string().contains("of a format cannot take") => {
            Ok(Some(CONSERVATIVE.len()))
        }
        (Ok(Outcome::Value(_)), false)
            if STRICTER.iter().any(|part| theirs.failed.contains(part)) =>
        {
            Ok(Some(CONSERVATIVE.len()))
        }
        (ours, _) => Err(format!(
            "ours is {ours:?}, theirs is {} {}",
            theirs.value, theirs.failed
        )),
    }
}

#[test]
fn generated_expressions_have_the_types_and_results_of_cel_go() {
    let Some(program) = program() else {
        eprintln!(
            "SKIPPED (1): generated_expressions_have_the_types_and_results_of_cel_go: Go is not installed"
        );
        return;
    };
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut generator = Generator {
        random: fastrand::Rng::with_seed(seed),
        grammar: Grammar::read(),
    };
    let mut distinct = BTreeSet::new();
    while distinct.len() < EXPRESSIONS {
        distinct.insert(generator.next());
    }
    let expressions: Vec<String> = distinct.into_iter().collect();
    let answers = ask(&program, &expressions);
    assert_eq!(answers.len(), expressions.len());
    let variables = Variables::default()
        .with("self", Type::of_schema(&schema()).unwrap())
        .with("free", Type::Dyn);
    let mut counts = vec![0; CONSERVATIVE.len() + 1];
    let mut accepted = 0;
    let mut differences = Vec::new();
    for (text, theirs) in expressions.iter().zip(&answers) {
        let ours = Expression::parse(text, &variables);
        accepted += usize::from(ours.is_ok());
        match compare(text, &ours, theirs) {
            Ok(None) => {}
            Ok(Some(class)) => counts[class] += 1,
            Err(difference) => differences.push(format!("{text}\n    {difference}")),
        }
    }
    eprintln!("{accepted} of {EXPRESSIONS} are accepted; refused although cel-go accepts them:");
    for ((class, most), count) in CONSERVATIVE.iter().zip(&counts) {
        eprintln!("{count:4} {class}");
        assert!(count <= most, "{class}");
    }
    let stricter = counts[CONSERVATIVE.len()];
    eprintln!("{stricter} have a result although cel-go fails");
    assert!(stricter <= MOST_STRICTER);
    differences.sort_by_key(String::len);
    let shown: Vec<_> = differences.iter().take(60).cloned().collect();
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        shown.join("\n")
    );
    assert!(
        (EXPRESSIONS / 3..EXPRESSIONS * 4 / 5).contains(&accepted),
        "{accepted}"
    );
}
