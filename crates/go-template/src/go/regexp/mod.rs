//! Go's `regexp` on top of `regex-automata`: RE2 patterns in Go's syntax, with Go's results.
//!
//! The `regex` crate has a different syntax: it rejects `\Qa\E`, `a{,2}`, `[[]` and `\123`, which
//! Go accepts; it accepts `a**`, `x{1001}` and `(?x)`, which Go rejects; `[a&&b]` and `\d` have
//! other meanings. Patterns are therefore parsed here and passed to the automata as an expression
//! tree.
//!
//! Go decodes every byte that is not UTF-8 as U+FFFD. Texts with such bytes are searched in a copy
//! with U+FFFD in their place, and offsets are mapped back.

mod cache;
mod class;
mod error;
mod escape;
mod parse;
mod replace;
mod rune_set;
mod search;
mod unicode_class;

use regex_automata::meta;

use crate::go::strconv::{can_backquote, quoted};

pub use cache::cached;
pub use error::{Error, ErrorCode};

/// Maximum memory for the automaton of a pattern, in bytes.
const MAX_PROGRAM: usize = 48 << 20;
/// Maximum memory for the cached states of a search, in bytes.
const MAX_STATES: usize = 512 << 10;

/// A pattern with more groups may be nested so deeply that compiling it takes much stack.
const SHALLOW: usize = 16;

/// A compiled regular expression.
///
/// ```
/// use go_template::go::regexp::Regexp;
/// use go_template::{Budget, Buffer, Limits};
/// let re = Regexp::new(b"a(x*)b")?;
/// let budget = Budget::new(Limits::default());
/// let mut out = Buffer::new();
/// re.replace_all(b"-ab-axxb-", b"${1}W", &mut out, &budget).ok();
/// assert_eq!(&*out, b"-W-xxW-");
/// # Ok::<(), go_template::go::regexp::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Regexp {
    automaton: meta::Regex,
    /// The names of the groups, starting with group 1.
    names: Vec<Option<Vec<u8>>>,
    has_pattern: bool,
    size: u64,
}

impl Regexp {
    /// Compiles a pattern, like Go's `regexp.Compile`.
    ///
    /// # Errors
    /// If the pattern is not a regular expression of Go, or takes too much memory.
    pub fn new(pattern: &[u8]) -> Result<Self, Error> {
        // The compiler recurses into groups, which Go's parser limits to 1,000 levels.
        let groups = memchr::memchr_iter(b'(', pattern).count();
        if groups > SHALLOW {
            bounded::grow_for_drop(|| Self::compile(pattern))
        } else {
            bounded::grow(|| Self::compile(pattern))
        }
    }

    fn compile(pattern: &[u8]) -> Result<Self, Error> {
        let parsed = parse::parse(pattern)?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_PROGRAM))
            .hybrid_cache_capacity(MAX_STATES);
        let automaton = meta::Builder::new()
            .configure(config)
            .build_from_hir(&parsed.hir)
            .map_err(|_| Error::new(ErrorCode::Large, pattern))?;
        Ok(Self {
            automaton,
            names: parsed.names,
            has_pattern: !pattern.is_empty(),
            size: parsed.size,
        })
    }

    /// Returns its memory use without the cache of searches, in bytes.
    pub fn memory(&self) -> usize {
        self.automaton.memory_usage()
    }

    /// Returns an upper bound of the work of searching `length` bytes, in units of about 100 ns; it
    /// grows with the text and the pattern.
    pub fn cost(&self, length: usize) -> u64 {
        (length as u64).saturating_mul(self.size) / 64
    }
}

/// Go's `regexp.QuoteMeta`: escapes all metacharacters.
pub fn quote_meta(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &c in text {
        if br"\.+*?()|[]{}^$".contains(&c) {
            out.push(b'\\');
        }
        out.push(c);
    }
    out
}

/// Returns the message of Go's `regexp.MustCompile` for an invalid pattern.
pub fn must_compile_message(pattern: &[u8], error: &Error) -> String {
    let shown = if can_backquote(pattern) {
        format!("`{}`", String::from_utf8_lossy(pattern))
    } else {
        quoted(pattern)
    };
    format!("regexp: Compile({shown}): {error}")
}

#[cfg(test)]
mod tests {
    use bounded::{Budget, BudgetError, Buffer, Limits};

    use super::*;

    fn budget() -> Budget {
        Budget::new(Limits::default())
    }

    fn message(pattern: &str) -> String {
        match Regexp::new(pattern.as_bytes()) {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_match_go() {
        let cases = [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("|*", "missing argument to repetition operator: `*`"),
            ("x{1001}", "invalid repeat count: `{1001}`"),
            ("x{2,1}", "invalid repeat count: `{2,1}`"),
            ("(x{100}){11}", "invalid repeat count: `{11}`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[a", "missing closing ]: `[a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (
                r"\p{Old_Italic}",
                r"invalid character class range: `\p{Old_Italic}`",
            ),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("(?x)", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?P<n-1>a)", "invalid named capture: `(?P<n-1>`"),
        ];
        for (pattern, want) in cases {
            assert_eq!(message(pattern), format!("error parsing regexp: {want}"));
        }
        let error = Regexp::new(b"a\xFFb").unwrap_err();
        assert_eq!(
            (error.code, error.expr),
            (ErrorCode::InvalidUtf8, b"\xFFb".to_vec())
        );
        let error = Regexp::new(b"`(").unwrap_err();
        assert_eq!(
            must_compile_message(b"`(", &error),
            "regexp: Compile(\"`(\"): error parsing regexp: missing closing ): ``(`"
        );
    }

    #[test]
    fn syntax_that_only_go_supports_is_accepted() {
        for pattern in [
            r"\Qa.b\E", r"\Q(", "a{,2}", "[[]", r"\123", "[a&&b]", "[]a]", "a{01}", r"\_",
        ] {
            assert_eq!(message(pattern), "ok", "{pattern}");
        }
        let find = |pattern: &str, text: &'static str| {
            Regexp::new(pattern.as_bytes())
                .unwrap()
                .find(text.as_bytes(), &budget())
                .unwrap()
        };
        assert_eq!(find(r"\d", "\u{663}"), None);
        assert_eq!(find("[a&&b]", "&"), Some(&b"&"[..]));
        assert_eq!(find("(?i)k", "\u{212A}"), Some("\u{212A}".as_bytes()));
        assert_eq!(find("(?U)a+", "aaa"), Some(&b"a"[..]));
        assert_eq!(find(r"\Qa.b\E+", "a.bbb"), Some(&b"a.bbb"[..]));
        assert_eq!(find(r"\s", "\u{B}"), None);
        assert_eq!(find(r"\x{E9}", "\u{E9}"), Some("\u{E9}".as_bytes()));
    }

    #[test]
    fn invalid_utf8_matches_replacement_runes() {
        let re = Regexp::new(".".as_bytes()).unwrap();
        let all = re.find_all(b"a\xE4\xB8\xC3\xA9", -1, &budget()).unwrap();
        assert_eq!(all.unwrap(), [&b"a"[..], b"\xE4", b"\xB8", b"\xC3\xA9"]);
        let re = Regexp::new("\u{FFFD}+".as_bytes()).unwrap();
        let found = re.find(b"x\xFF\xFEy", &budget()).unwrap();
        assert_eq!(found, Some(&b"\xFF\xFE"[..]));
    }

    #[test]
    fn replacements_expand_groups_as_in_go() {
        let cases = [
            ("a(x*)b", "-ab-axxb-", "$1W", "---"),
            ("a(x*)b", "-ab-axxb-", "${1}W", "-W-xxW-"),
            ("(?P<n>a)", "banana", "<$n>", "b<a>n<a>n<a>"),
            ("a*", "baac", "X", "XbXcX"),
            ("", "ab", "-", "-a-b-"),
            ("a", "a", "$$ $ ${ $9 $", "$ $ ${  $"),
            ("\u{e9}*", "\u{e9}\u{e9}a", "_", "_a_"),
        ];
        for (pattern, text, template, want) in cases {
            let mut out = Buffer::new();
            let re = Regexp::new(pattern.as_bytes()).unwrap();
            re.replace_all(text.as_bytes(), template.as_bytes(), &mut out, &budget())
                .unwrap();
            let replaced = String::from_utf8(out.into_vec()).unwrap();
            assert_eq!(replaced, want, "{pattern} {template}");
        }
        let re = Regexp::new(b"a").unwrap();
        let short = Budget::new(Limits {
            string: 50,
            ..Limits::default()
        });
        let replaced = re.replace_all_literal(&[b'a'; 20], b"xxx", &mut Buffer::new(), &short);
        assert_eq!(replaced, Err(BudgetError::String { limit: 50 }));
    }

    #[test]
    fn splits_and_finds_are_limited() {
        let re = Regexp::new(b"a*").unwrap();
        let split = |limit| {
            re.split(b"abaabaccadaaae", limit, &budget())
                .unwrap()
                .map(|pieces| pieces.len())
        };
        assert_eq!((split(5), split(0), split(-1)), (Some(5), None, Some(7)));
        let first = re.find_all(b"baac", 2, &budget()).unwrap();
        assert_eq!(first.unwrap(), [&b""[..], b"aa"]);
        let other = Regexp::new(b"z").unwrap();
        assert_eq!(other.find_all(b"a", -1, &budget()).unwrap(), None);
        assert_eq!(re.split(b"", -1, &budget()).unwrap(), Some(vec![&b""[..]]));
    }

    #[test]
    fn hostile_patterns_are_rejected_or_cheap() {
        let deep = "(".repeat(900) + "a" + &")".repeat(900);
        assert_eq!(message(&deep), "ok");
        let deeper = "(".repeat(1100) + "a" + &")".repeat(1100);
        assert!(message(&deeper).contains("expression nests too deeply"));
        let deepest = "(?:".repeat(200_000) + "a" + &")*".repeat(200_000);
        assert!(message(&deepest).contains("nests too deeply"));
        assert!(message(&r"\pL".repeat(50_000)).contains("expression too large"));
        assert!(message(&"((a{10}){10}){10}".repeat(20_000)).contains("too large"));
        assert_eq!(message(&"x".repeat(100_000)), "ok");
    }

    #[test]
    fn compiled_patterns_are_cached() {
        let get = |pattern: &str| cached(pattern.as_bytes(), &budget()).unwrap().unwrap();
        let first = get("kept?");
        assert!(std::rc::Rc::ptr_eq(&first, &get("kept?")));
        for number in 0..100 {
            get(&format!("x{number}"));
        }
        assert!(!std::rc::Rc::ptr_eq(&first, &get("kept?")));
        assert!(cached(b"(", &budget()).unwrap().is_err());
    }
}
