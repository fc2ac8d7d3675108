//! Computes the values of a release from the custom resource and its entry in `watches.yaml`. No
//! I/O: the contents of references and the environment are arguments. Later sources take
//! precedence:
//!
//! ```text
//! spec, unless `api` is set < map (expressions) < values (templates) < valuesFrom < overrideValues
//! ```

mod environment;
mod expressions;
mod inputs;
mod mapping;
mod override_values;
mod values_from;

use helm_core::Values;
use serde_json::Value;

use crate::watches::Watch;

pub(crate) use environment::Environment;
pub(crate) use inputs::{Contents, Inputs, ValuesError};
pub(crate) use values_from::{Reference, sources};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Computed {
    /// Values for the chart, without its defaults.
    pub values: Values,
    /// Paths where `overrideValues` changed a value.
    pub overridden: Vec<String>,
}

/// Computes the values of one custom resource.
///
/// # Errors
/// If a template fails, a path cannot be set, or a reference is missing.
pub(crate) fn compute(watch: &Watch, inputs: &Inputs<'_>) -> Result<Computed, ValuesError> {
    let mut values = match inputs.object.get("spec") {
        Some(Value::Object(_)) if watch.api.is_some() => Values::new(),
        Some(Value::Object(spec)) => values_in(spec, watch),
        None | Some(Value::Null) => Values::new(),
        Some(Value::Array(_)) => return Err(ValuesError::NoMap("a list")),
        Some(_) => return Err(ValuesError::NoMap("a scalar")),
    };
    expressions::apply(watch, inputs, &mut values)?;
    if let Some(tree) = &watch.values {
        let mapped = mapping::evaluate(tree, inputs)?;
        values = helm_core::values::merge(values, mapped);
    }
    values_from::apply(watch, inputs, &mut values)?;
    let overridden = override_values::apply(watch, inputs, &mut values)?;
    Ok(Computed { values, overridden })
}

/// Returns the values in a spec: all but the patches.
fn values_in(spec: &Values, watch: &Watch) -> Values {
    let mut values = spec.clone();
    if let Some(from) = &watch.patches_from {
        from.remove_from(&mut values);
    }
    values
}

/// Evaluates the templates in a text of `watches.yaml` for a custom resource.
///
/// # Errors
/// If a template fails.
pub(crate) fn render_text(
    text: &str,
    object: &Value,
    env: &Environment,
    field: &str,
) -> Result<String, ValuesError> {
    let inputs = Inputs {
        object,
        env,
        references: &Contents::new(),
    };
    mapping::text(text, &inputs, field)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::GroupVersionKind;
    use serde_json::{Value, json};

    use super::{Computed, Environment, Inputs, Reference, ValuesError, compute};
    use crate::watches::{OverrideValuesType, PatchesFrom, ReferenceKind, ValuesFrom, Watch};

    fn watch() -> Watch {
        Watch::new(GroupVersionKind::gvk("g", "v1", "K"), "chart")
    }

    #[expect(clippy::needless_pass_by_value, reason = "literals read better")]
    fn computed(watch: &Watch, spec: Value) -> Result<Computed, ValuesError> {
        let object = json!({"metadata": {"name": "cr", "namespace": "ns"}, "spec": spec});
        let env = Environment::new([("IMAGE".to_owned(), "repo/img".to_owned())]);
        let secret = Reference {
            kind: ReferenceKind::Secret,
            namespace: "ns".into(),
            name: "s".into(),
        };
        let content = BTreeMap::from([
            ("values.yaml".to_owned(), "auth: {user: admin}\n".to_owned()),
            ("password".to_owned(), "a,b=c".to_owned()),
        ]);
        let references = BTreeMap::from([(secret, content)]);
        let inputs = Inputs {
            object: &object,
            env: &env,
            references: &references,
        };
        compute(watch, &inputs)
    }

    #[test]
    fn values_default_to_the_spec() {
        let spec = json!({"replicaCount": 2, "a": {"b": null}});
        let found = computed(&watch(), spec.clone()).unwrap();
        assert_eq!(Value::from(found.values), spec);
        assert!(computed(&watch(), Value::Null).unwrap().values.is_empty());
        let refused = computed(&watch(), json!([]));
        assert!(matches!(refused, Err(ValuesError::NoMap("a list"))));
    }

    #[test]
    fn patches_of_a_custom_resource_are_no_values() {
        let mut watch = watch();
        watch.patches_from = Some(PatchesFrom {
            path: ["own", "patches"].map(ToOwned::to_owned).to_vec(),
            allow: Vec::new(),
        });
        for (spec, expected) in [
            (json!({"a": 1, "own": {"patches": [1]}}), json!({"a": 1})),
            (
                json!({"own": {"patches": [], "b": 2}}),
                json!({"own": {"b": 2}}),
            ),
            (
                json!({"own": {}, "patches": 1}),
                json!({"own": {}, "patches": 1}),
            ),
            (json!({"own": 1}), json!({"own": 1})),
        ] {
            assert_eq!(
                Value::from(computed(&watch, spec).unwrap().values),
                expected
            );
        }
    }

    #[test]
    fn override_values_expand_the_environment_and_are_typed_by_default() {
        let mut watch = watch();
        let image = ("image.repository", "$IMAGE");
        watch.override_values = [image, ("debug", "true"), ("n", "3")]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into();
        let spec = json!({"image": {"tag": "1", "repository": "other"}});
        let found = computed(&watch, spec.clone()).unwrap();
        let image = json!({"tag": "1", "repository": "repo/img"});
        let expected = json!({"image": image, "debug": true, "n": 3});
        assert_eq!(Value::from(found.values), expected);
        assert_eq!(found.overridden, ["debug", "image.repository", "n"]);
        watch.override_values_type = OverrideValuesType::String;
        assert_eq!(computed(&watch, spec).unwrap().values["debug"], "true");
    }

    /// Returns the values that `overrideValues` with these texts gives for a spec. The variable `BASE`
    /// of the environment is `base`.
    fn overridden(texts: &[(&str, &str)], spec: &Value, base: &str) -> Result<Value, ValuesError> {
        let mut watch = watch();
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        watch.override_values = texts.iter().map(owned).collect();
        let inputs = Inputs {
            object: &json!({"metadata": {"name": "cr"}, "spec": spec}),
            env: &Environment::new([("BASE".to_owned(), base.to_owned())]),
            references: &BTreeMap::new(),
        };
        let mut values = compute(&watch, &inputs)?.values;
        values.remove("in");
        Ok(Value::Object(values))
    }

    /// Texts that would mean something to `--set`, templates, or YAML.
    const INSERTED: &[&str] = &[
        "a,b",
        "x,registry.host=evil",
        "dc=a,dc=b",
        "{a,b}",
        "{",
        "a}",
        "x[0]=y",
        "a.b=c",
        "back\\slash\\,",
        "null",
        "NULL",
        "{}",
        "[]",
        "a\nb: c\n- d",
        "say \"x\" and `y`",
        "{{ .Spec }}",
        "}}",
        "$BASE ${BASE}",
        "007",
        "1.10",
        " spaces ",
        "",
    ];

    #[test]
    fn text_that_an_action_or_a_variable_inserts_is_data() {
        for inserted in INSERTED {
            let spec = json!({"in": inserted});
            for text in [
                "{{ .Spec.in }}",
                "{{ print .Spec.in }}",
                "{{ with .Spec.in }}{{ . }}{{ end }}",
                "{{ .Env.BASE }}",
                "$BASE",
                "${BASE}",
                "{{ $BASE }}",
                "{{ \"$BASE\" }}",
                "{{ `$BASE` }}",
                "{{/* $BASE */}}{{ .Spec.in }}",
            ] {
                let texts = [("registry.host", "fixed"), ("note", text)];
                let found = overridden(&texts, &spec, inserted).unwrap();
                let expected = json!({"registry": {"host": "fixed"}, "note": inserted});
                assert_eq!(found, expected, "{text} with {inserted:?}");
            }
            for (text, expected) in [
                ("{a,{{ .Spec.in }},$BASE}", json!(["a", inserted, inserted])),
                ("{ {{- .Spec.in }},b}", json!([inserted, "b"])),
                ("{$BASE}", json!([inserted])),
                ("a\\,{{ .Spec.in }}", json!(format!("a,{inserted}"))),
                (
                    "{{ if .Spec }}a\\,{{ end }}$BASE",
                    json!(format!("a,{inserted}")),
                ),
                (
                    "{{ len .Spec }}{{ .Spec.in }}.",
                    json!(format!("1{inserted}.")),
                ),
                (
                    "{{ list \"$BASE\" | first }}!",
                    json!(format!("{inserted}!")),
                ),
            ] {
                let found = overridden(&[("note", text)], &spec, inserted).unwrap();
                assert_eq!(found, json!({"note": expected}), "{text} with {inserted:?}");
            }
        }
    }

    #[test]
    fn structures_that_an_action_prints_are_text() {
        let spec = json!({"in": {"map": {"a": [1, null]}, "list": ["a", "b"], "none": null}});
        for (text, expected) in [
            ("{{ toJson .Spec.in.map }}", json!("{\"a\":[1,null]}")),
            ("{{ toJson .Spec.in.none }}", json!("null")),
            ("{{ .Spec.in.list }}", json!("[a b]")),
            ("{{ .Spec.in.none }}", json!("<no value>")),
            ("{{ join \",\" .Spec.in.list }}", json!("a,b")),
            // The commas of the author make a list.
            (
                "{ {{- range .Spec.in.list }}{{ . }},{{ end }}c}",
                json!(["a", "b", "c"]),
            ),
            (
                "{{ if .Spec.in.none }}x{{ else }}null{{ end }}",
                json!(null),
            ),
            (
                "{{ if .Spec.in.none }}{a,b}{{ else }}{c}{{ end }}",
                json!(["c"]),
            ),
        ] {
            let found = overridden(&[("note", text)], &spec, "").unwrap();
            assert_eq!(found, json!({"note": expected}), "{text}");
        }
    }

    #[test]
    fn type_of_an_override_is_that_of_the_whole_text() {
        let spec = json!({"in": {"on": true, "size": 3, "text": "7", "zero": "0"}});
        for (text, expected) in [
            ("{{ .Spec.in.on }}", json!(true)),
            ("{{ .Spec.in.size }}", json!(3)),
            ("{{ .Spec.in.text }}", json!(7)),
            ("{{ .Spec.in.zero }}{{ .Spec.in.text }}", json!("07")),
            ("{{ .Spec.in.size }}$BASE", json!(35)),
            ("$BASE", json!(5)),
            ("v$BASE", json!("v5")),
            ("{{ add $BASE 1 }}", json!(6)),
            ("{{ if eq $BASE 5 }}true{{ end }}", json!(true)),
            ("null", json!(null)),
            ("{{ \"\" }}null", json!(null)),
        ] {
            let found = overridden(&[("note", text)], &spec, "5").unwrap();
            assert_eq!(found, json!({"note": expected}), "{text}");
        }
    }

    #[test]
    fn referenced_objects_are_values_files_or_single_values() {
        let mut watch = watch();
        let from = |key: &str, target: Option<&str>| ValuesFrom {
            kind: ReferenceKind::Secret,
            name: "s".to_owned(),
            namespace: None,
            key: key.to_owned(),
            target_path: target.map(ToOwned::to_owned),
            optional: false,
        };
        let password = from("password", Some("auth.password"));
        watch.values_from = vec![from("values.yaml", None), password];
        let found = computed(&watch, json!({"auth": {"user": "x"}})).unwrap();
        let expected = json!({"auth": {"user": "admin", "password": "a,b=c"}});
        assert_eq!(Value::from(found.values), expected);
        watch.values_from = vec![from("nope", None)];
        let refused = computed(&watch, json!({}));
        assert!(matches!(refused, Err(ValuesError::Missing { .. })));
    }

    #[test]
    fn templates_read_the_environment_of_the_operator() {
        let mut watch = watch();
        watch.values = Some(json!({
            "image": "{{ .Env.IMAGE }}:{{ .Spec.tag }}",
            "known": "{{ hasKey .Env \"IMAGE\" }}",
            "other": "{{ .Env.OTHER | default \"none\" }}",
        }));
        let found = computed(&watch, json!({"tag": "1"})).unwrap().values;
        let expected = json!({"tag": "1", "image": "repo/img:1", "known": true, "other": "none"});
        assert_eq!(Value::from(found), expected);
    }

    #[test]
    fn single_template_keeps_the_type_of_its_result() {
        let mut watch = watch();
        watch.values = Some(json!({
            "name": "{{ .Object.metadata.name }}-x",
            "size": "{{ .Spec.size }}",
            "list": ["{{ .Spec.tags }}", "plain"],
        }));
        let found = computed(&watch, json!({"size": 3, "tags": ["a"]})).unwrap();
        let expected = json!({"name": "cr-x", "size": 3, "tags": ["a"], "list": [["a"], "plain"]});
        assert_eq!(Value::from(found.values), expected);
    }
}
