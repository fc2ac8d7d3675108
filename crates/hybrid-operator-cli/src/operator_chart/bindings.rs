//! Bindings of cluster roles: in the whole cluster, or with `watchNamespaces` in each of these namespaces.
//! Rules for resources that are in no namespace are always bound in the whole cluster. Pure.

use serde_json::{Value, json};

use super::{Context, OperatorChartError, marks, object_name, objects, text_at};

/// Returns the template of a `ClusterRoleBinding`.
pub(super) fn template(
    binding: &Value,
    file: &str,
    context: &Context,
) -> Result<String, OperatorChartError> {
    let everywhere = objects::plain(binding, file, context)?;
    let role = context.roles.get(text_at(binding, "/roleRef/name"));
    let Some(role) = role else {
        return Ok(everywhere);
    };
    let rules = role.get("rules").and_then(Value::as_array);
    let rules = rules.map(Vec::as_slice).unwrap_or_default();
    let (cluster, namespaced) = split(rules, context);
    if namespaced.is_empty() {
        return Ok(everywhere);
    }
    let mut local = binding.clone();
    set(&mut local, "/kind", "RoleBinding");
    objects::localise(&mut local, context);
    if let Some(metadata) = objects::field(&mut local, "metadata") {
        metadata.insert("namespace".to_owned(), marks::WATCHED.into());
    }
    let local = context.marks.template(&super::yaml(file, &local)?);
    let mut text = format!(
        "{{{{- if .Values.watchNamespaces }}}}\n{{{{- range .Values.watchNamespaces }}}}\n---\n{local}{{{{- end }}}}\n"
    );
    if !cluster.is_empty() {
        let name = format!("{}-cluster", object_name(role));
        let mut part = role.clone();
        set(&mut part, "/metadata/name", &name);
        if let Some(fields) = part.as_object_mut() {
            fields.insert("rules".to_owned(), cluster.into());
        }
        let mut bound = binding.clone();
        let of_part = format!("{}-cluster", object_name(binding));
        set(&mut bound, "/metadata/name", &of_part);
        objects::localise(&mut bound, context);
        set(
            &mut bound,
            "/roleRef/name",
            &format!("{}-{name}", marks::PREFIX),
        );
        text.push_str("---\n");
        text.push_str(&objects::plain(&part, file, context)?);
        text.push_str("---\n");
        text.push_str(&context.marks.template(&super::yaml(file, &bound)?));
    }
    text.push_str("{{- else }}\n");
    text.push_str(&everywhere);
    text.push_str("{{- end }}\n");
    Ok(text)
}

fn set(object: &mut Value, pointer: &str, text: &str) {
    if let Some(value) = object.pointer_mut(pointer) {
        *value = text.into();
    }
}

/// Returns the rules for resources in no namespace, and those for all others.
fn split(rules: &[Value], context: &Context) -> (Vec<Value>, Vec<Value>) {
    let (mut cluster, mut namespaced) = (Vec::new(), Vec::new());
    for rule in rules {
        if rule.get("nonResourceURLs").is_some() {
            cluster.push(rule.clone());
            continue;
        }
        let words = |field: &str| {
            let list = rule.get(field).and_then(Value::as_array);
            let words = list.into_iter().flatten().filter_map(Value::as_str);
            words.map(ToOwned::to_owned).collect::<Vec<String>>()
        };
        let groups = words("apiGroups");
        let (of_cluster, others): (Vec<_>, Vec<_>) =
            words("resources").into_iter().partition(|resource| {
                let plural = resource.split('/').next().unwrap_or_default();
                let is_known = |group: &String| context.kinds.is_cluster_scoped(group, plural);
                groups.iter().any(is_known)
            });
        for (resources, target) in [(of_cluster, &mut cluster), (others, &mut namespaced)] {
            if !resources.is_empty() {
                let mut part = rule.clone();
                if let Some(fields) = part.as_object_mut() {
                    fields.insert("resources".to_owned(), resources.into());
                }
                target.push(part);
            }
        }
    }
    (cluster, namespaced)
}

/// Returns the role for the key with which release records are proven, in the operator's namespace. With
/// `watchNamespaces`, no other role may reach it.
pub(super) fn record_key_role(context: &Context) -> Result<String, OperatorChartError> {
    let name = "release-record-key";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": "system"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "system"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "any", "namespace": "system"}],
    });
    let file = "rbac/record_key_role.yaml";
    let role = objects::plain(&role, file, context)?;
    let binding = objects::plain(&binding, file, context)?;
    Ok(format!(
        "{{{{- if and .Values.rbac.create .Values.watchNamespaces }}}}\n{role}---\n{binding}{{{{- end }}}}\n"
    ))
}
