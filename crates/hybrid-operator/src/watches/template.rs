//! The templates in a watches file: their functions, and a check of their syntax.

use std::sync::{Arc, LazyLock};

use go_template::{Funcs, TemplateSet};

use super::expand::expand;

/// Functions of Go templates and Sprig, as in the Go operators.
pub(crate) static FUNCS: LazyLock<Arc<Funcs>> =
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

/// Checks a text of `overrideValues`. The values of environment variables are not known here: each
/// counts as a number, and as a name after a dot.
pub(super) fn check_expanded(text: &str, field: &str) -> Result<(), String> {
    if !text.contains("{{") {
        return Ok(());
    }
    let number = |_: &str| Some("1".to_owned());
    check(&expand(&text.replace(".$", ".a$"), &number), field).map_err(|message| {
        if text.contains('$') {
            format!("{message}; `$NAME` is an environment variable here, not one of the template")
        } else {
            message
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{check, check_expanded};

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
    fn environment_variables_of_override_values_may_stand_in_templates() {
        for text in [
            "$IMAGE:{{ .Spec.tag }}",
            "{{ \"$HOST\" | upper }}",
            "{{ $FUNC .Spec.a }}",
            "{{ .Spec.$FIELD }}",
            "{{ index .Spec \"${FIELD}\" }}",
        ] {
            assert_eq!(check_expanded(text, "overrideValues.a"), Ok(()), "{text}");
        }
        let wrong = check_expanded("{{ $x := .Spec.a }}{{ $x }}", "overrideValues.a");
        let message = wrong.unwrap_err();
        assert!(
            message.contains("`$NAME` is an environment variable"),
            "{message}"
        );
        assert!(check_expanded("{{ upperr $A }}", "overrideValues.a").is_err());
    }
}
