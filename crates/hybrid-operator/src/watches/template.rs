//! The templates in a watches file: their functions, and a check of their syntax.

use std::sync::{Arc, LazyLock};

use go_template::{Buffer, Funcs, Limits, ParseError, RenderError, Session, TemplateSet, Value};
use helm_core::values::{SetText, Values, set_one};

use super::expand::expand;

/// Functions of Go templates and Sprig, as in the Go operators.
static FUNCS: LazyLock<Arc<Funcs>> =
    LazyLock::new(|| Arc::new(Funcs::new().with(&go_template::sprig::FUNCS)));

/// Checks a text that may contain templates: they must parse, and the functions must exist.
pub(super) fn check(text: &str, field: &str) -> Result<(), String> {
    if !text.contains("{{") {
        return Ok(());
    }
    TemplateSet::new(field, Arc::clone(&FUNCS))
        .parse_detached(field, text)
        .map(drop)
        .map_err(|error| {
            format!(
                "invalid template, line {}: {}; the functions are those of Go templates and Sprig",
                error.location().line,
                error.message()
            )
        })
}

/// Checks a text of `overrideValues`: its templates, or, if it has none, that it is one value. The
/// contents of environment variables are not known here, but change neither.
pub(super) fn check_override(text: &str, field: &str) -> Result<(), String> {
    let template = expand(text, &|_| Some("a".to_owned()));
    check(&template, field).map_err(|message| {
        if text.contains('$') {
            format!("{message}; `$NAME` is an environment variable here, not one of the template")
        } else {
            message
        }
    })?;
    if text.contains("{{") {
        return Ok(());
    }
    let value = render(field, &template, &Value::Nil).map_err(|_| "cannot be evaluated")?;
    set_one("value", &value, true, &mut Values::new()).map_err(|error| error.to_string())
}

/// An error of [`render`].
pub(crate) enum Failure {
    Parse(Box<ParseError>),
    Render(Box<RenderError>),
    /// The result is not UTF-8.
    NotText,
}

/// Executes a text as a template with `data` as dot. What its actions print is data in the result.
pub(crate) fn render(name: &str, text: &str, data: &Value) -> Result<SetText, Failure> {
    let mut set = TemplateSet::new(name, Arc::clone(&FUNCS));
    set.parse(name, text)
        .map_err(|error| Failure::Parse(Box::new(error)))?;
    let mut out = Buffer::new();
    let mut session = Session::new(Limits::default()).noting_printed();
    session
        .execute(&set, name, data, &mut out)
        .map_err(|error| Failure::Render(Box::new(error)))?;
    Ok(SetText {
        text: String::from_utf8(out.into_vec()).map_err(|_| Failure::NotText)?,
        data: session.printed().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::{check, check_override};

    #[test]
    fn templates_must_parse_and_know_their_functions() {
        for (text, wanted) in [
            ("plain {", None),
            ("{{ .Object.metadata.name | upper }}-x", None),
            ("{{ range $i, $v := .Spec.list }}{{ $v }}{{ end }}", None),
            ("{{ .Spec.a", Some("line 1: unclosed action")),
            (
                "a\n{{ if }}x{{ end }}",
                Some("line 2: missing value for if"),
            ),
            (
                "{{ .Spec.a | upperr }}",
                Some("function \"upperr\" not defined"),
            ),
            (
                "{{ include \"x\" . }}",
                Some("function \"include\" not defined"),
            ),
            ("{{ $x }}", Some("undefined variable \"$x\"")),
        ] {
            let found = check(text, "values.a");
            match wanted {
                None => assert_eq!(found, Ok(()), "{text}"),
                Some(part) => assert!(found.as_ref().unwrap_err().contains(part), "{found:?}"),
            }
        }
    }

    #[test]
    fn text_of_an_override_is_one_value() {
        for text in ["", "{a,b}", "a\\,b", "{$A,b}", "$A,", "a=b", "null", "$A$B"] {
            assert_eq!(check_override(text, "overrideValues.a"), Ok(()), "{text}");
        }
        for text in ["a,b", "a,b=c", "$A,b=$C", "{a}b", "{a"] {
            assert!(check_override(text, "overrideValues.a").is_err(), "{text}");
        }
    }

    #[test]
    fn environment_variables_of_override_values_may_stand_in_templates() {
        for text in [
            "$IMAGE:{{ .Spec.tag }}",
            "{{ \"$HOST\" | upper }}",
            "{{ default $TAG .Spec.a }}",
            "{{ if eq $MODE `x` }}a{{ end }}",
            "{{ .Spec.$FIELD }}",
            "{{ index .Spec \"${FIELD}\" }}",
        ] {
            assert_eq!(check_override(text, "overrideValues.a"), Ok(()), "{text}");
        }
        let wrong = check_override("{{ $x := .Spec.a }}{{ $x }}", "overrideValues.a");
        let message = wrong.unwrap_err();
        let expected = "`$NAME` is an environment variable";
        assert!(message.contains(expected), "{message}");
        assert!(check_override("{{ upperr $A }}", "overrideValues.a").is_err());
    }
}
