//! Fields of a spec of its own that nothing reads. Pure.

use go_yaml::tree::{self, Node};
use hybrid_operator::watches::Watch;
use serde_json::Value;

use super::{Finding, Severity};

/// Returns the findings in a watches file; `watches` are its entries, in order.
pub(crate) fn findings(file: &str, text: &[u8], watches: &[Watch]) -> Vec<Finding> {
    let root = tree::parse(text).ok();
    let entries = root.as_ref().and_then(Node::as_list).unwrap_or_default();
    let mut findings = Vec::new();
    for (watch, entry) in watches.iter().zip(entries) {
        for path in unread(watch) {
            findings.push(Finding {
                file: file.to_owned(),
                line: line_of(entry, &path),
                id: "unread-field",
                severity: Severity::Warning,
                message: format!(
                    "nothing reads spec.{} of {}, so that setting it has no effect",
                    path.join("."),
                    watch.gvk.kind
                ),
                help: "read it in map, or remove it from api.fields".to_owned(),
            });
        }
    }
    findings
}

/// Returns the fields of the spec, without those that have fields, that neither an expression nor a template reads.
fn unread(watch: &Watch) -> Vec<Vec<String>> {
    let Some(api) = &watch.api else {
        return Vec::new();
    };
    let outputs = watch
        .outputs
        .status
        .values()
        .chain(&watch.outputs.ready_when);
    let expressions = watch.map.values().chain(outputs);
    let mut read: Vec<Vec<String>> = watch.secrets.values().cloned().collect();
    for path in expressions.flat_map(|expression| expression.reads()) {
        if let Some((first, path)) = path.split_first()
            && first == "spec"
        {
            read.push(path.to_vec());
        }
    }
    let templates = templates(watch);
    let mut fields = Vec::new();
    collect(&api.schema, &mut Vec::new(), &mut fields);
    let is_read = |field: &Vec<String>| {
        let named = format!(".{}", field.join("."));
        read.iter()
            .any(|path| field.starts_with(path) || path.starts_with(field))
            || templates.iter().any(|text| text.contains(&named))
    };
    fields.retain(|field| !is_read(field));
    fields
}

/// Collects the paths of the fields of a schema that have no fields themselves.
fn collect(schema: &Value, path: &mut Vec<String>, fields: &mut Vec<Vec<String>>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        path.push(name.clone());
        let before = fields.len();
        collect(schema, path, fields);
        if fields.len() == before {
            fields.push(path.clone());
        }
        path.pop();
    }
}

/// Returns the texts of an entry that may be templates.
fn templates(watch: &Watch) -> Vec<String> {
    let names = watch.values_from.iter().map(|from| from.name.clone());
    let others = watch.depends_on.iter().map(|on| on.name.clone());
    let account = watch.service_account_name.iter().chain(&watch.release_name);
    let values = watch.values.iter().map(Value::to_string);
    let overrides = watch.override_values.values().cloned();
    names
        .chain(others)
        .chain(account.cloned())
        .chain(values)
        .chain(overrides)
        .collect()
}

/// Returns the line of a field in an entry; that of the entry if it is not found.
fn line_of(entry: &Node, path: &[String]) -> usize {
    let mut here = entry.clone();
    let mut line = here.line();
    for name in ["api", "fields"]
        .into_iter()
        .chain(path.iter().map(String::as_str))
    {
        let entries = here.merged().unwrap_or_default();
        let found = entries
            .into_iter()
            .find(|(key, _)| key.as_str() == Some(name));
        let Some((key, value)) = found.map(|(key, value)| (key.clone(), value.clone())) else {
            break;
        };
        (line, here) = (key.line(), value);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hybrid_operator::watches::parse;

    use super::*;

    #[test]
    fn fields_that_nothing_reads_are_found_with_their_lines() {
        let text = "\
- {group: a.com, version: v1, kind: Plain, chart: c}
- group: a.com
  version: v1
  kind: Cache
  chart: c
  api:
    fields:
      size: string
      zones: '[]string | optional'
      limits:
        memory: string
        cpu: string
      login: {secretRef: true}
      team: string
      shown: string
      rest: {a: string, b: string}
  map:
    a: spec.size
    b: spec.limits.memory
    c: spec.login
    d: spec.rest
  status: {shown: spec.shown}
  releaseName: 'r-{{ .Spec.team }}'
";
        let (entries, problems) = parse(text.as_bytes(), Path::new("."));
        assert_eq!(problems, []);
        let watches: Vec<Watch> = entries.into_iter().map(|entry| entry.watch).collect();
        let found = findings("watches.yaml", text.as_bytes(), &watches);
        let places: Vec<(usize, &str)> = found
            .iter()
            .map(|finding| (finding.line, finding.message.as_str()))
            .collect();
        assert_eq!(
            places,
            [
                (
                    12,
                    "nothing reads spec.limits.cpu of Cache, so that setting it has no effect"
                ),
                (
                    9,
                    "nothing reads spec.zones of Cache, so that setting it has no effect"
                ),
            ]
        );
    }
}
