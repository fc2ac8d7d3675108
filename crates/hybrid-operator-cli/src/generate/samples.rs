//! Samples: a custom resource with the chart's defaults, and their comments.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::ChartApi;

/// Returns the file name of a sample, such as `cache_v1alpha1_memcached.yaml`.
pub(crate) fn file_name(group: &str, version: &str, kind: &str) -> String {
    // As kubebuilder does: the group without the domain.
    let group = group.split('.').next().unwrap_or(group);
    format!("{group}_{version}_{kind}.yaml").to_ascii_lowercase()
}

/// Returns a sample of a kind.
pub(crate) fn sample(api: &ChartApi) -> anyhow::Result<String> {
    let head = json!({
        "apiVersion": format!("{}/{}", api.group, api.version).trim_start_matches('/'),
        "kind": api.kind,
        "metadata": {"name": format!("{}-sample", api.kind.to_ascii_lowercase())},
    });
    let head = go_yaml::to_string(&head)
        .with_context(|| format!("cannot write a sample of {}", api.kind))?;
    let values = Value::Object(api.chart.values().clone());
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
        let sample = format!("{head}spec:\n{note}{}", indented(text));
        if means(&sample, &values) {
            return Ok(sample);
        }
    }
    // A file of several documents, or with directives.
    let values = go_yaml::to_string(&values)
        .with_context(|| format!("cannot write a sample of {}", api.kind))?;
    Ok(format!("{head}spec:\n{note}{}", indented(&values)))
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
    use helm_core::chart::{Chart, File};

    use super::*;

    fn of(values: &str) -> String {
        let chart = Chart::from_files([
            File::new("Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}"),
            File::new("values.yaml", values),
        ])
        .unwrap();
        sample(&ChartApi {
            group: "shop.example.com",
            version: "v1",
            kind: "Web",
            plural: "webs",
            namespaced: true,
            chart: &chart,
            directory: "helm-charts/web",
        })
        .unwrap()
    }

    const HEAD: &str =
        "apiVersion: shop.example.com/v1\nkind: Web\nmetadata:\n  name: web-sample\n";

    #[test]
    fn comments_of_the_values_are_kept() {
        let text = "---\n# Size.\nreplicas: 3\n\nscript: |\n  a\n   b\n\n  c\nempty:\n\n";
        assert_eq!(
            of(text),
            format!(
                "{HEAD}spec:\n  # The defaults of the chart, from helm-charts/web/values.yaml.\n  # Size.\n  \
                 replicas: 3\n\n  script: |\n    a\n     b\n\n    c\n  empty:\n"
            )
        );
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
        assert_eq!(
            file_name("cache.example.com", "v1alpha1", "Memcached"),
            "cache_v1alpha1_memcached.yaml"
        );
    }
}
