//! Properties that hold for every input: no panic, no endless run, and values behave alike however
//! they were created.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use go_template::{
    Budget, BudgetError, Buffer, Funcs, Limits, List, Map, Session, Str, TemplateSet, Tree,
    TreeMap, Type, Value, fmt,
};
use proptest::prelude::*;

static FUNCS: LazyLock<Arc<Funcs>> = LazyLock::new(|| Arc::new(Funcs::new()));

fn limits() -> Limits {
    Limits {
        depth: 50,
        steps: 20_000,
        output: 1 << 16,
        string: 1 << 16,
        range: 1_000,
        nesting: 50,
        time: Some(Duration::from_secs(5)),
        ..Limits::default()
    }
}

/// Parses and executes; errors are fine.
fn run(text: &[u8], data: &Value) {
    let mut set = TemplateSet::new("set", Arc::clone(&FUNCS));
    let Ok(template) = set.parse("main", text) else {
        return;
    };
    let mut out = Buffer::new();
    let result = Session::new(limits()).execute_template(&set, &template, data, &mut out);
    if let Err(error) = result {
        // Formatting the errors must not fail either.
        let _ = (
            error.to_string(),
            error.report().to_string(),
            error.frames(),
        );
    }
}

/// Fragments of templates, so that most combinations parse.
const PIECES: &[&str] = &[
    "{{", "}}", "{{- ", " -}}", "(", ")", " ", "|", ".", "$", "$x", ":=", "=", ",", "\n", "if ",
    "else ", "end", "range ", "with ", "define ", "block ", "break", "continue", "nil", "true",
    "1", "-5", "0x1p4", "1i", "'a'", "\"s\"", "`r`", ".a", ".b.c", ".l", "and ", "or ", "not ",
    "eq ", "lt ", "len ", "index ", "slice ", "print ", "printf ", "html ", "js ", "call ", "/*",
    "*/", "{{end}}", "{{.a}}", "text", "é", "\u{0}",
];

/// Longer ones.
const LONG_PIECES: &[&str] = &[
    "template ",
    "\"%[2]*d%v\"",
    "{{range .l}}",
    "{{if .a}}",
    "{{with .b}}",
];

fn template() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select([PIECES, LONG_PIECES].concat()), 0..40)
            .prop_map(|pieces| pieces.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Nil),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        any::<f64>().prop_map(Tree::Float),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Tree::Str(bytes.into())),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::from),
            prop::collection::vec(("[a-d]{1,2}".prop_map(Str::from), inner), 0..12)
                .prop_map(|entries| Tree::from(TreeMap::new(Type::MAP, entries))),
        ]
    })
}

/// Returns the same value with its own maps and lists instead of a tree.
fn rebuild(tree: &Tree) -> Value {
    match tree {
        Tree::List(list) => {
            let items = list.items().iter().map(rebuild).collect();
            Value::List(List::new(list.go_type(), items))
        }
        Tree::Map(tree) => {
            let map = Map::new();
            for (key, value) in tree.iter() {
                map.insert(key.clone(), rebuild(value));
            }
            Value::Map(map)
        }
        leaf => Value::from(leaf),
    }
}

fn printed(format: &str, value: &Value) -> Result<Vec<u8>, BudgetError> {
    let mut out = Buffer::new();
    let args = std::slice::from_ref(value);
    let budget = Budget::new(Limits::default());
    fmt::sprintf(format.as_bytes(), args, &budget, &mut out)?;
    Ok(out.into_vec())
}

proptest! {
    #[test]
    fn no_template_panics(text in template(), data in tree()) {
        run(&text, &Value::from(&data));
    }

    #[test]
    fn no_format_panics(
        format in "[%#+ 0-9.*\\[\\]vTtbcdoOqxXUeEfFgGspwé]{0,24}",
        values in prop::collection::vec(tree(), 0..4),
    ) {
        let values: Vec<_> = values.iter().map(Value::from).collect();
        let _ = fmt::sprintf(format.as_bytes(), &values, &Budget::new(limits()), &mut Buffer::new());
    }

    #[test]
    fn value_over_a_tree_prints_like_an_owned_value(tree in tree()) {
        let (over, own) = (Value::from(&tree), rebuild(&tree));
        for format in ["%v", "%#v", "%+v", "%q", "%x", "%T"] {
            prop_assert_eq!(printed(format, &over), printed(format, &own));
        }
    }

    #[test]
    fn writing_to_a_value_does_not_change_its_tree(tree in tree(), key in "[a-d]{1,2}") {
        let before = printed("%#v", &Value::from(&tree));
        if let Value::Map(map) = Value::from(&tree) {
            for (_, value) in map.entries() {
                if let Value::Map(inner) = value {
                    inner.insert(key.as_str(), Value::Int(1));
                    inner.remove("a");
                }
            }
            map.insert(key.as_str(), Value::Nil);
            prop_assert!(matches!(map.get(&key), Some(Value::Nil)));
            map.remove(&key);
            prop_assert!(!map.contains_key(&key));
        }
        prop_assert_eq!(before, printed("%#v", &Value::from(&tree)));
    }

    #[test]
    fn strings_slice_and_compare_like_bytes(
        a in prop::collection::vec(any::<u8>(), 0..60),
        b in prop::collection::vec(any::<u8>(), 0..60),
        start in 0_usize..70,
        end in 0_usize..70,
    ) {
        let (left, right) = (Str::from(a.as_slice()), Str::from(b.as_slice()));
        prop_assert_eq!(left == right, a == b);
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        let cut = a.get(start..end.min(a.len())).unwrap_or_default();
        let slice = left.slice(start, end);
        prop_assert_eq!(slice.as_bytes(), cut);
    }

    #[test]
    fn maps_contain_the_inserted_entries(
        entries in prop::collection::btree_map("[a-z]{1,3}", any::<i64>(), 0..60),
        gone in prop::collection::vec("[a-z]{1,3}", 0..20),
    ) {
        let map: Map = entries.iter().map(|(key, value)| (key.as_str(), Value::Int(*value))).collect();
        let mut entries = entries;
        for key in gone {
            prop_assert_eq!(map.remove(&key).is_some(), entries.remove(&key).is_some());
        }
        let kept: Vec<_> = map.iter().map(|(key, _)| key.to_string()).collect();
        prop_assert_eq!(kept, entries.keys().cloned().collect::<Vec<_>>());
    }
}
