//! Types of the kinds that a chart defines in `crds/`.

use helm_core::chart::Chart;
use kube_objects::target::Target;
use object_cel::Type;
use serde_json::Value;

/// The kinds that a chart defines, with their types.
pub(super) struct Definitions(Vec<Definition>);

struct Definition {
    group: String,
    version: String,
    kind: String,
    type_: Type,
}

/// Reads the definitions of a chart. What cannot be read is left out: it is reported when it is applied.
pub(super) fn of_chart(chart: &Chart) -> Definitions {
    let mut found = Vec::new();
    for file in chart.crds() {
        let text = String::from_utf8_lossy(file.file().data());
        for document in helm_core::manifest::split(&text) {
            let crd: Value = go_yaml::from_str(document).unwrap_or_default();
            add(&crd, &mut found);
        }
    }
    Definitions(found)
}

fn add(crd: &Value, found: &mut Vec<Definition>) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    let group = text(crd.pointer("/spec/group"));
    let (Some(group), Some(kind)) = (group, text(crd.pointer("/spec/names/kind"))) else {
        return;
    };
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    for version in versions.into_iter().flatten() {
        let schema = version.pointer("/schema/openAPIV3Schema");
        let type_ = schema.and_then(|schema| Type::of_schema(schema).ok());
        if let (Some(version), Some(type_)) = (text(version.get("name")), type_) {
            found.push(Definition {
                group: group.clone(),
                version,
                kind: kind.clone(),
                type_,
            });
        }
    }
}

impl Definitions {
    /// Returns the type of the objects that a target selects, if only one version of one kind fits.
    pub(super) fn type_of(&self, target: &Target) -> Option<Type> {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let mut fitting = self.0.iter().filter(|defined| {
            is(&target.group, &defined.group)
                && is(&target.version, &defined.version)
                && is(&target.kind, &defined.kind)
        });
        let first = fitting.next().filter(|_| fitting.next().is_none());
        first.map(|defined| defined.type_.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helm_core::chart::{Chart, File};

    use crate::watches::parse;

    const CRD: &str = "\
spec:
  group: example.com
  names: {kind: Widget}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, properties: {phase: {type: string}, nodes: {type: integer}}}
";

    #[test]
    fn expressions_are_checked_against_the_kinds_that_the_chart_defines() {
        let files = [
            File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
            File::new("crds/widget.yaml", CRD),
        ];
        let chart = Chart::from_files(files).unwrap();
        let outputs = |expression: &str| {
            let text = format!(
                "- {{group: g.com, version: v1, kind: A, chart: c, objects: {{w: {{kind: Widget}}}}, status: {{a: {expression}}}}}"
            );
            let (mut entries, problems) = parse(text.as_bytes(), Path::new(""));
            assert_eq!(problems, []);
            entries.remove(0).watch.of_chart(&chart)
        };
        let watch = outputs("objects.w.status.nodes").unwrap();
        assert_eq!(watch.outputs.status["a"].result().to_string(), "int");
        let error = outputs("objects.w.status.phases").unwrap_err();
        assert!(
            error.field == "status.a"
                && error.message.starts_with("1:18: ")
                && error.message.contains("phase"),
            "{error:?}"
        );
    }
}
