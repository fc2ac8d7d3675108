//! `--name-template`: the name of the release as a template with Sprig's functions.

use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use go_template::{
    Args, Buffer, Call, Func, FuncError, Funcs, Limits, MissingKey, Session, Str, TemplateSet,
    Type, Value, sprig,
};

/// Name that Helm gives the template in errors.
const TEMPLATE: &str = "name-template";

/// Sprig's functions, with those that read the environment: unlike a chart's, this template is the
/// user's own.
static FUNCS: LazyLock<Arc<Funcs>> = LazyLock::new(|| {
    let environment = [
        Func::value("env", &[Type::STRING], env),
        Func::value("expandenv", &[Type::STRING], expandenv),
    ];
    Arc::new(Funcs::new().with(&sprig::FUNCS).with(&environment))
});

/// Returns the name that a template makes.
pub(super) fn render(template: &str) -> anyhow::Result<String> {
    let failed = || format!("--name-template {template:?}");
    let mut set = TemplateSet::new(TEMPLATE, Arc::clone(&FUNCS)).missing_key(MissingKey::Invalid);
    set.parse(TEMPLATE, template).with_context(failed)?;
    let mut name = Buffer::new();
    Session::new(Limits::default())
        .execute(&set, TEMPLATE, &Value::Nil, &mut name)
        .with_context(failed)?;
    Ok(String::from_utf8_lossy(&name).into_owned())
}

#[allow(clippy::unnecessary_wraps, reason = "the type of all functions")]
fn env(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(text(&variable(&args.str(0).to_string_lossy())))
}

#[allow(clippy::unnecessary_wraps, reason = "the type of all functions")]
fn expandenv(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(text(&expand(&args.str(0).to_string_lossy(), variable)))
}

fn text(text: &str) -> Value {
    Value::Str(Str::from(text))
}

fn variable(name: &str) -> String {
    let value = std::env::var_os(name).unwrap_or_default();
    value.to_string_lossy().into_owned()
}

/// Replaces `$NAME` and `${NAME}`. A `$` before anything else stays.
fn expand(text: &str, variable: impl Fn(&str) -> String) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let in_braces = after
            .strip_prefix('{')
            .and_then(|name| name.split_once('}'));
        let (name, after) = in_braces.unwrap_or_else(|| {
            let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
            after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len()))
        });
        if name.is_empty() {
            expanded.push('$');
        } else {
            expanded.push_str(&variable(name));
        }
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rendered_with_sprig_and_without_data() {
        assert_eq!(render(r#"web-{{ "A b" | kebabcase }}"#).unwrap(), "web-a-b");
        assert_eq!(render("plain").unwrap(), "plain");
        let home = std::env::var("HOME").unwrap_or_default();
        assert_eq!(render(r#"{{ env "HOME" }}"#).unwrap(), home);
        for (template, words) in [
            ("{{", "unclosed action"),
            ("{{ toYaml 1 }}", "function \"toYaml\" not defined"),
            ("{{ fail \"no\" }}", "no"),
        ] {
            let error = format!("{:#}", render(template).unwrap_err());
            assert!(error.contains(words) && error.contains(TEMPLATE), "{error}");
        }
    }

    #[test]
    fn variables_are_replaced_with_and_without_braces() {
        let variable = |name: &str| format!("<{name}>");
        for (text, expected) in [
            ("a-$B-${C}d$", "a-<B>-<C>d$"),
            ("$$x", "$<x>"),
            ("", ""),
            ("${x", "${x"),
        ] {
            assert_eq!(expand(text, variable), expected, "{text}");
        }
    }
}
