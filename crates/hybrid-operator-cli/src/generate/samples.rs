//! Samples: a custom resource with the chart's defaults, and their comments.

use std::fmt::Write as _;

use anyhow::Context as _;
use helm_core::chart::Chart;
use helm_core::{CompiledChart, Values};
use hybrid_operator::watches::Api;
use serde_json::{Value, json};

use super::ChartApi;

/// Returns the file name of a sample, such as `cache_v1alpha1_memcached.yaml`.
pub(crate) fn file_name(group: &str, version: &str, kind: &str) -> String {
    // As kubebuilder does: the group without the domain.
    let group = group.split('.').next().unwrap_or(group);
    format!("{group}_{version}_{kind}.yaml").to_ascii_lowercase()
}

/// Returns a sample of a kind, with which the chart sees what it sees without values. So it has no nulls of maps: Helm
/// drops them from a chart's defaults, while a null of a custom resource removes the default of a dependency.
pub(crate) fn sample(api: &ChartApi) -> anyhow::Result<String> {
    let head = written(api, &head(api))?;
    let mut values = Value::Object(api.chart.values().clone());
    let seen = seen_values(api.chart);
    fill_nulls(&mut values, &seen);
    if values.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(format!("{head}spec: {{}}\n"));
    }
    let note = format!(
        "  # The defaults of the chart, from {}/values.yaml.\n",
        api.directory.trim_end_matches('/')
    );
    let file = api.chart.values_file();
    let text = file.and_then(|file| std::str::from_utf8(file.data()).ok());
    if let Some(text) = text {
        let text = without_nulls(text, &seen);
        let sample = format!("{head}spec:\n{note}{}", indented(&text));
        if means(&sample, &values) {
            return Ok(sample);
        }
    }
    // A file of several documents, or with directives.
    let values = written(api, &values)?;
    Ok(format!("{head}spec:\n{note}{}", indented(&values)))
}

/// Returns a sample of a kind whose spec is not the chart's values: its defaults, and an example of what is required.
pub(crate) fn sample_of_spec(api: &ChartApi, spec: &Api) -> anyhow::Result<String> {
    let mut optional = Vec::new();
    let mut object = head(api);
    if let Value::Object(fields) = &mut object {
        let spec = example(&spec.schema, &spec.defaults, "", &mut optional);
        fields.insert("spec".to_owned(), spec);
    }
    let mut text = written(api, &object)?;
    if !optional.is_empty() {
        let _ = writeln!(text, "  # Optional: {}", optional.join(", "));
    }
    Ok(text)
}

/// Returns a value of a schema, without what may be left out and has no default. The names of that are added to
/// `optional`.
fn example(schema: &Value, default: &Value, path: &str, optional: &mut Vec<String>) -> Value {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return placeholder(schema);
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let mut fields = serde_json::Map::new();
    for (name, schema) in properties {
        let known = default.get(name).unwrap_or(&Value::Null);
        let path = format!("{path}{name}");
        let has_fields = schema.get("properties").is_some();
        if !known.is_null() && !has_fields {
            fields.insert(name.clone(), known.clone());
        } else if is_required(name) || !known.is_null() {
            let value = example(schema, known, &format!("{path}."), optional);
            fields.insert(name.clone(), value);
        } else {
            optional.push(path);
        }
    }
    Value::Object(fields)
}

/// Returns a value of the type that a schema has.
fn placeholder(schema: &Value) -> Value {
    let first = schema.pointer("/enum/0").or_else(|| schema.get("minimum"));
    let type_ = schema.get("type").and_then(Value::as_str);
    match (first, type_) {
        (Some(value), _) => value.clone(),
        (None, Some("integer" | "number")) => 1.into(),
        (None, Some("boolean")) => false.into(),
        (None, Some("array")) => json!([]),
        (None, Some("string")) => "text".into(),
        (None, _) => json!({}),
    }
}

/// Returns the beginning of a sample.
fn head(api: &ChartApi) -> Value {
    json!({
        "apiVersion": format!("{}/{}", api.group, api.version).trim_start_matches('/'),
        "kind": api.kind,
        "metadata": {"name": format!("{}-sample", api.kind.to_ascii_lowercase())},
    })
}

fn written(api: &ChartApi, value: &Value) -> anyhow::Result<String> {
    go_yaml::to_string(value).with_context(|| format!("cannot write a sample of {}", api.kind))
}

/// Returns the values that a chart sees if none are given.
fn seen_values(chart: &Chart) -> Value {
    let compiled = CompiledChart::compile(chart).ok();
    let seen = compiled.and_then(|chart| chart.coalesce_unchecked(Values::default()).ok());
    seen.map_or(Value::Null, |seen| Value::Object(seen.values().clone()))
}

/// Replaces the nulls of nested maps by what the chart sees there, or removes them; lists are unchanged, as in Helm.
fn fill_nulls(value: &mut Value, seen: &Value) {
    let Value::Object(map) = value else { return };
    for (key, value) in map.iter_mut() {
        match seen.get(key) {
            Some(seen) if value.is_null() => *value = seen.clone(),
            seen => fill_nulls(value, seen.unwrap_or(&Value::Null)),
        }
    }
    map.retain(|_, value| !value.is_null());
}

/// Gives the keys of a values file that have no value those that the chart sees, or makes comments of them.
fn without_nulls(text: &str, seen: &Value) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for number in 0..lines.len() {
        let Some(line) = lines.get(number).filter(|line| has_no_value(line)) else {
            continue;
        };
        // A line that only looks like a key belongs to a text.
        let mut marked = lines.clone();
        if let Some(marked) = marked.get_mut(number) {
            *marked = with_value(line, MARK);
        }
        let Some(path) = path_of_mark(&marked) else {
            continue;
        };
        let value = path.iter().try_fold(seen, |value, key| value.get(key));
        let depth = indent(line);
        let mut changed = line.clone();
        match value.filter(|value| !value.is_null()) {
            Some(value) => changed = with_value(line, &whole(value).to_string()),
            None => changed.insert_str(depth, "# "),
        }
        let is_comment = !is_text(&changed);
        if let Some(line) = lines.get_mut(number) {
            *line = changed;
        }
        // Without its last key, a map would be null.
        let mut above = lines.iter().take(number);
        let parent = above.rposition(|line| is_text(line) && indent(line) < depth);
        let mut below = lines.iter().skip(parent.map_or(0, |parent| parent + 1));
        let next = below.find(|line| is_text(line));
        if let Some(parent) =
            parent.filter(|_| is_comment && next.is_none_or(|next| indent(next) < depth))
            && let Some(parent) = lines.get_mut(parent).filter(|parent| has_no_value(parent))
        {
            *parent = with_value(parent, "{}");
        }
    }
    lines.join("\n")
}

/// A text that no values file has.
const MARK: &str = "\"\\u0001\"";

/// Returns the keys that lead to the mark, unless it is in a list.
fn path_of_mark(lines: &[String]) -> Option<Vec<String>> {
    fn find(value: &Value) -> Option<Vec<String>> {
        match value {
            Value::String(text) if text == "\u{1}" => Some(Vec::new()),
            Value::Object(map) => map.iter().find_map(|(key, value)| {
                let mut path = find(value)?;
                path.insert(0, key.clone());
                Some(path)
            }),
            _ => None,
        }
    }
    find(&go_yaml::from_str(&lines.join("\n")).ok()?)
}

/// Returns a value with integers in place of whole numbers, all of which are floats in charts.
fn whole(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            let whole = text.strip_suffix(".0").and_then(|text| text.parse().ok());
            whole.map_or_else(|| value.clone(), |whole: i64| whole.into())
        }
        Value::Array(list) => list.iter().map(whole).collect(),
        Value::Object(map) => {
            let map = map.iter();
            map.map(|(key, value)| (key.clone(), whole(value)))
                .collect()
        }
        other => other.clone(),
    }
}

/// Returns the line of a key without a value, with a value.
fn with_value(line: &str, value: &str) -> String {
    let (text, comment) = line.split_at(line.find(" #").unwrap_or(line.len()));
    let key = text.rsplit_once(':').map_or(text, |(key, _)| key);
    format!("{key}: {value}{comment}")
}

/// Returns whether a line looks like a key without a value.
fn has_no_value(line: &str) -> bool {
    let text = line.split_once(" #").map_or(line, |(text, _)| text).trim();
    let value = text.rsplit_once(':').map(|(_, value)| value.trim());
    is_text(text) && matches!(value, Some("" | "~" | "null" | "Null" | "NULL"))
}

/// Returns whether a line is more than a comment.
fn is_text(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Indents a YAML file, so that it can stand below a key.
fn indented(text: &str) -> String {
    let mut indented = String::with_capacity(text.len() * 2);
    let lines = text.lines().map(str::trim_end);
    for line in lines.skip_while(|line| line.is_empty() || *line == "---") {
        if !line.is_empty() {
            indented.push_str("  ");
            indented.push_str(line);
        }
        indented.push('\n');
    }
    let end = indented.trim_end().len();
    indented.truncate(end);
    indented.push('\n');
    indented
}

/// Returns whether the `spec` of a sample has these values.
fn means(sample: &str, values: &Value) -> bool {
    let Ok(sample) = go_yaml::from_str::<Value>(sample) else {
        return false;
    };
    sample
        .get("spec")
        .is_some_and(|spec| is_equal(spec, values))
}

/// Compares values; a values file has only floats.
fn is_equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let has =
                |(key, one): (&String, &Value)| two.get(key).is_some_and(|two| is_equal(one, two));
            one.len() == two.len() && one.iter().all(has)
        }
        (one, two) => one == two,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helm_core::chart::File;
    use hybrid_operator::watches;

    use super::*;

    fn chart(files: &[(&str, &str)]) -> Chart {
        let metadata = ("Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}");
        let files = files.iter().chain([&metadata]);
        Chart::from_files(files.map(|(name, text)| File::new(*name, text))).unwrap()
    }

    fn of(values: &str) -> String {
        let chart = chart(&[("values.yaml", values)]);
        sample(&of_chart(&chart)).unwrap()
    }

    fn of_chart(chart: &Chart) -> ChartApi<'_> {
        ChartApi {
            group: "shop.example.com",
            version: "v1",
            kind: "Web",
            plural: "webs",
            namespaced: true,
            chart,
            directory: "helm-charts/web",
        }
    }

    const HEAD: &str =
        "apiVersion: shop.example.com/v1\nkind: Web\nmetadata:\n  name: web-sample\n";

    #[test]
    fn a_spec_of_its_own_has_its_defaults_and_what_is_required() {
        let file = "- {group: a.com, version: v1, kind: A, chart: b, api: {fields: {
            size: 'string | enum=small,large', count: 'integer | minimum=3', name: string, host: 'string | optional',
            limits: {memory: 'string | default=128Mi', cpu: 'string | optional'}, login: {secretRef: true},
            more: {zones: '[]string | optional'}}}}";
        let (entries, problems) = watches::parse(file.as_bytes(), Path::new("."));
        assert_eq!(problems, []);
        let spec = entries[0].watch.api.as_ref().unwrap();
        let chart = chart(&[("values.yaml", "never: shown")]);
        let expected = format!(
            "{HEAD}spec:\n  count: 3\n  limits:\n    memory: 128Mi\n  login:\n    key: text\n    name: text\n  name: text\n  \
             size: small\n  # Optional: host, limits.cpu, more\n"
        );
        assert_eq!(sample_of_spec(&of_chart(&chart), spec).unwrap(), expected);
    }

    #[test]
    fn comments_of_the_values_are_kept() {
        let text = "---\n# Size.\nreplicas: 3\n\nscript: |\n  a\n   b\n\n  c\nempty: {}\n\n";
        let expected = format!(
            "{HEAD}spec:\n  # The defaults of the chart, from helm-charts/web/values.yaml.\n  # Size.\n  \
                 replicas: 3\n\n  script: |\n    a\n     b\n\n    c\n  empty: {{}}\n"
        );
        assert_eq!(of(text), expected);
    }

    #[test]
    fn nulls_are_comments_where_they_are_keys_of_maps() {
        let sample = of(
            "a: # Size.\nb:\n  c: ~\n  d: null # Colour.\ne:\n  # Nothing.\n  f:\n  g: 1\ntext: |\n  x:\n\
                         list:\n- y:\n  z: 1\nh:\n  i:\n    j:\n",
        );
        let (_, spec) = sample.split_once("values.yaml.\n").unwrap();
        let expected = "  # a: # Size.\n  b: {}\n    # c: ~\n    # d: null # Colour.\n  e:\n    # Nothing.\n    # f:\n    g: 1\n  \
                        text: |\n    x:\n  list:\n  - y:\n    z: 1\n  h:\n    i: {}\n      # j:\n";
        assert_eq!(spec, expected);
        let folded = of("# One.\na: {b: null, c: {d: null}}\n");
        assert!(folded.ends_with("  a:\n    c: {}\n"), "{folded}");
        assert_eq!(of("a:\n"), format!("{HEAD}spec: {{}}\n"));
    }

    #[test]
    fn a_sample_gives_the_values_of_no_values_at_all() {
        let own = "size: 1\nsub:\n  limit: # Most.\n  deep:\n    x: ~\n  ports: ~\nown:\n  size:\n";
        let metadata = "{apiVersion: v2, name: sub, version: 1.0.0}";
        let below = "{limit: 5, deep: {x: 1}, ports: [{port: 80}]}";
        let chart = chart(&[
            ("values.yaml", own),
            ("charts/sub/Chart.yaml", metadata),
            ("charts/sub/values.yaml", below),
        ]);
        let values = |text: &str| {
            let compiled = helm_core::CompiledChart::compile(&chart).unwrap();
            let object = helm_core::values::read(text.as_bytes()).unwrap();
            let given = object.get("spec").and_then(Value::as_object).cloned();
            compiled.coalesce(given.unwrap_or_default()).unwrap()
        };
        let sample = sample(&of_chart(&chart)).unwrap();
        let spec = "  size: 1\n  sub:\n    limit: 5 # Most.\n    deep:\n      x: 1\n    \
                    ports: [{\"port\":80}]\n  own: {}\n    # size:\n";
        assert!(sample.ends_with(spec), "{sample}");
        assert_eq!(values(&sample).values(), values("spec: {}").values());
    }

    #[test]
    fn a_values_file_of_several_documents_is_merged() {
        let sample = of("a: 1\n---\nb: {c: x}\n");
        assert!(sample.ends_with("  a: 1\n  b:\n    c: x\n"), "{sample}");
    }

    #[test]
    fn a_chart_without_values_has_an_empty_spec() {
        assert_eq!(of("# Nothing.\n"), format!("{HEAD}spec: {{}}\n"));
    }

    #[test]
    fn the_file_is_named_as_kubebuilder_does() {
        let name = file_name("cache.example.com", "v1alpha1", "Memcached");
        assert_eq!(name, "cache_v1alpha1_memcached.yaml");
    }
}
