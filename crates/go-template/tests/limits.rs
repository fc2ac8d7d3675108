//! Hostile templates fail with an error that names the exceeded limit, and none overflows the
//! stack.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use go_template::{BudgetError, Buffer, Funcs, Limits, Map, Session, TemplateSet, Value, sprig};

fn render(text: &str, limits: Limits) -> Result<Vec<u8>, Option<BudgetError>> {
    let mut set = TemplateSet::new("set", Arc::new(Funcs::new().with(&sprig::FUNCS)));
    set.parse("main", text).map_err(|_| None)?;
    let mut out = Buffer::new();
    let data = Value::Map(Map::new());
    match Session::new(limits).execute(&set, "main", &data, &mut out) {
        Ok(()) => Ok(out.into_vec()),
        Err(error) => Err(error.budget().cloned()),
    }
}

fn limited(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

fn over(text: &str, limits: Limits) -> BudgetError {
    render(text, limits).unwrap_err().unwrap()
}

#[test]
fn memory_of_a_regular_expression_is_limited() {
    let limits = limited(|to| to.regex = 20_000);
    for text in [
        "{{ regexMatch `(\\pL{1,30}){1,30}` `x` }}",
        "{{ regexFind `(\\pL{1,30}){1,30}` `x` }}",
        "{{ regexReplaceAll `(\\pL{1,30}){1,30}` `x` `y` }}",
    ] {
        let error = over(text, limits.clone());
        assert_eq!(error, BudgetError::Regex { limit: 20_000 }, "{text}");
        assert_eq!(
            error.to_string(),
            "the regular expression takes more than 20000 bytes of memory (limit `regex`)"
        );
    }
    assert_eq!(render("{{ regexFind `a+` `baa` }}", limits).unwrap(), b"aa");
}

#[test]
fn oversized_regular_expression_is_an_invalid_pattern() {
    let text = "{{ mustRegexFind `((\\pL{1,1000}){1,1}\\pL{1000}){1}` `x` }}";
    assert_eq!(render(text, Limits::default()), Err(None));
}

#[test]
fn private_keys_are_counted_and_the_clock_is_checked_before_each() {
    let limits = limited(|to| to.keys = 2);
    let keys = "{{ range 3 }}{{ genPrivateKey `ecdsa` }}{{ end }}";
    assert_eq!(over(keys, limits.clone()), BudgetError::Keys { limit: 2 });
    let keys = "{{ range 2 }}{{ genPrivateKey `ed25519` }}{{ end }}";
    assert!(render(keys, limits).is_ok());
    let key = "{{ genPrivateKey `rsa` }}";
    let limit = Duration::ZERO;
    let error = over(key, limited(|to| to.time = Some(limit)));
    assert_eq!(error, BudgetError::Time { limit });
    let limit = 5_000_000;
    let error = over(key, limited(|to| to.steps = limit));
    assert_eq!(error, BudgetError::Steps { limit });
}

#[test]
fn deeply_nested_texts_do_not_overflow_the_stack() {
    let many = 200_000;
    for (open, close) in [
        ("{{ (", ""),
        ("{{ if 1 }}", "{{ end }}"),
        ("{{ with 1 }}{{ else }}", "{{ end }}"),
        ("{{ range 1 }}", "{{ end }}"),
        ("{{ if 1 }}{{ else if 2 }}", ""),
    ] {
        let text = format!("{}{}", open.repeat(many), close.repeat(many));
        assert!(render(&text, Limits::default()).is_err(), "{open}");
    }
    let parentheses = format!("{{{{ {}1{} }}}}", "(".repeat(many), ")".repeat(many));
    assert!(render(&parentheses, Limits::default()).is_err());
    let links = "{{ else if 1 }}".repeat(many);
    let chain = format!("{{{{ if 1 }}}}{links}{{{{ end }}}}");
    let _ = render(&chain, Limits::default());
    let pipe = format!("{{{{ 1{} }}}}", " | print".repeat(many));
    let _ = render(&pipe, Limits::default());
}
