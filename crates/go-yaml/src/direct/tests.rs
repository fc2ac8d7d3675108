//! Compares the direct reader with the tree reader.

use proptest::prelude::*;
use serde_json::Value;

use super::{is_printable, read, simple_text};
use crate::Selection;

/// Returns the result of the tree reader.
fn reference(text: &str) -> Result<Value, String> {
    crate::tree::parse(text.as_bytes())
        .and_then(|node| crate::from_node(&node))
        .map_err(|error| error.to_string())
}

/// Returns the result of the direct reader, unless it declines the text.
fn direct(text: &str) -> Option<Value> {
    selected(text, Selection::Whole)
}

/// Returns what the direct reader reads of a part, unless it declines the text.
fn selected(text: &str, part: Selection) -> Option<Value> {
    let text = simple_text(text.as_bytes())?;
    let limits = bounded::Budget::new(bounded::Limits::NESTING_ONLY);
    let tape = read(&text, part, &limits)?;
    Some(serde::Deserialize::deserialize(tape.root()).unwrap())
}

/// A part whose keys are among [`PIECES`].
const PART: Selection = Selection::Fields(&[
    ("A", Selection::Whole),
    (
        "b",
        Selection::Fields(&[
            ("a", Selection::Whole),
            ("key", Selection::Fields(&[("l", Selection::Whole)])),
        ]),
    ),
    ("f", Selection::Fields(&[])),
    ("true", Selection::Whole),
]);

/// Removes what is not in a part.
fn cut(value: Value, part: Selection) -> Value {
    match (part, value) {
        (Selection::Fields(_), Value::Array(_)) => Value::Array(Vec::new()),
        (Selection::Fields(_), Value::Object(fields)) => {
            let fields = fields.into_iter().filter_map(|(key, value)| {
                let below = part.below(&key)?;
                Some((key, cut(value, below)))
            });
            Value::Object(fields.collect())
        }
        (_, value) => value,
    }
}

/// Returns whether the direct reader declines the text or reads what the tree reader reads, and the same of a part.
fn agrees(text: &str) -> bool {
    let whole = direct(text);
    let part = whole.clone().map(|whole| cut(whole, PART));
    selected(text, PART) == part && whole.is_none_or(|whole| reference(text) == Ok(whole))
}

#[test]
fn only_the_selected_part_is_read_and_all_is_checked() {
    let text = "a: [1, {x: z}]\nb:\n- 1\nB: {key: {l: 2, m: 3}, z: [4]}\nf: x\nother: |\n  text\n";
    let expected = serde_json::json!({
        "a": [1, {"x": "z"}], "b": [], "B": {"key": {"l": 2}}, "f": "x",
    });
    assert_eq!(selected(text, PART), Some(expected));
    for wrong in [
        "c: d: e\n",
        "c: .inf\n",
        "c: {~: 1}\n",
        "c: 'd\n",
        "c: [1\n",
    ] {
        assert_eq!(selected(&format!("a: 1\n{wrong}"), PART), None, "{wrong}");
    }
}

#[test]
fn common_documents_are_accepted() {
    for text in [
        "",
        "# only a comment\n",
        "---\n# c\na: 1\n",
        "a: 1\nb:\n- x\n-   y: 1\n    z: [1, 'b', \"c\\n\\u0041\"]\n-\n- - 1\n  - 2\nc:\n",
        "a:\n  b: |\n    one\n      two\n\n    three\n  c: >-\n    folded\n    text\n\n    more\nd: 'it''s'\n",
        "a: {b: c, \"d\":1, e: [], f: {}, g:}\nh: [\n  1, # one\n  2,\n]\n",
        "text: of several\n  words\n\n  and lines # with a comment\nb: \"x\n   y  \\\"z\\\"\n\n   w \"\n",
        "a: http://example.com:80/#x\nb: -1.5e3\nc: ~\nyes: no\n010: 0x1F\n? \n"
            .trim_end_matches("? \n"),
        "a: |2-\n    kept\n\n  x\n\nb: |+\n  x\n\n\nc: >\n\n  x\n   y\n  z\n\n",
        "first: 1\n---\nsecond: 2\n",
        "- a: 1\n  b: 2\n- c: 3\n",
        "{\"json\": [1, 2.5, null, true, \"\\u003ca\\u003e\"],\n \"more\": {}}\n",
        "a: 1\nb: 2\na: 3\n",
        "a: |\r\n  b\r\n\r\n  c\r\nd: \"e\r\n f\"\r\n",
        "umlaut: äöü\nkana: \"かな\"\n",
    ] {
        let value = direct(text);
        assert!(value.is_some(), "declined: {text}");
        assert_eq!(value.ok_or_else(String::new), reference(text), "{text}");
    }
}

#[test]
fn unsupported_documents_are_declined() {
    for text in [
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "%YAML 1.1\n---\na: 1\n",
        "? a\n: b\n",
        "a: b: c\n",
        "a:\n\tb: 1\n",
        "a: 1\n b: 2\n",
        "a: 'x\n",
        "a: \"\\q\"\n",
        "a: [1, 2\n",
        "<<: {a: 1}\n",
        "a: .inf\n",
        "~: 1\n",
        "a: 1\rb: 2\r",
        "a: 1\n...\n",
        "\u{feff}a: 1\n",
        "a: @b\n",
    ] {
        assert!(direct(text).is_none(), "{text:?}");
    }
}

#[test]
fn only_printable_characters_line_feeds_and_tabs_are_printable() {
    for byte in 0..=u8::MAX {
        let expected = matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        for length in 1..20 {
            for at in 0..length {
                for around in *b" \n\tz~" {
                    let mut text = vec![around; length];
                    text[at] = byte;
                    assert_eq!(is_printable(&text), expected, "{text:?}");
                }
            }
        }
    }
}

/// Fragments from which most of YAML, and much invalid text, can be composed.
const PIECES: &[&str] = &[
    "a", "b", "key", "1", "-1", "0x1f", "1.5", "yes", "null", "~", "<<", ".inf", ":", ": ", ":\n",
    "- ", "-\n", "-", " ", "  ", "    ", "\n", "\n\n", "\n  ", "\n    ", "# c", " # c\n", "'",
    "''", "\"", "\\n", "\\", "\\\"", "[", "]", "{", "}", "[x:]", "{x:}", "[?a=b", "b?", "::",
    ":8080", ", ", ",", "|", ">", "|-\n", ">+\n", "|2\n", "? ", "?", "&x ", "*x", "!t ", "%", "@",
    "---", "---\n", "...\n", "\t", "\r\n", "ä", "\u{2028}", "\u{feff}", "a: b", "a: 1\n", "- x\n",
    "  c: d\n", "j: 'k'\n", "=", "0",
];

/// Longer ones.
const LONG_PIECES: &[&str] = &[
    "e: |\n  text\n",
    "f: [1, 2]\n",
    "g: {h: i}\n",
    "l: \"m\"\n",
    "2001-01-01",
    "word word",
];

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select([PIECES, LONG_PIECES].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn direct_reader_agrees_with_the_tree_reader(
        pieces in prop::collection::vec(piece(), 0..24),
    ) {
        let text = pieces.concat();
        prop_assert!(agrees(&text), "{text:?}: {:?}, not {:?}", direct(&text), reference(&text));
    }

    #[test]
    fn direct_reader_agrees_for_lines_at_any_indentation(
        lines in prop::collection::vec(
            (0..5_usize, prop::collection::vec(piece(), 1..4)),
            0..12,
        ),
    ) {
        let lines = lines.iter().map(|(indent, pieces)| {
            format!("{}{}\n", " ".repeat(*indent), pieces.concat())
        });
        let text: String = lines.collect();
        prop_assert!(agrees(&text), "{text:?}: {:?}, not {:?}", direct(&text), reference(&text));
    }
}
