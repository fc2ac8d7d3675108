//! Turns the objects of a manifest into the text of a template. Pure.

use serde_json::{Map, Value, json};

use super::manifests::Manifest;
use super::{Context, OperatorChartError, bindings, deployment, kind, marks, object_name, yaml};

const NAME_LABEL: &str = "app.kubernetes.io/name";
const OPERATOR_LABEL: &str = "control-plane";

/// Returns the template of a file; empty if nothing of it is in the chart.
pub(super) fn template(file: &Manifest, context: &Context) -> Result<String, OperatorChartError> {
    let mut text = String::new();
    for object in &file.objects {
        let Some(one) = object_template(object, file, context)? else {
            continue;
        };
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&one);
    }
    Ok(text)
}

/// Returns the template of an object; `None` if a chart does not have it.
fn object_template(
    object: &Value,
    file: &Manifest,
    context: &Context,
) -> Result<Option<String>, OperatorChartError> {
    let text = match kind(object) {
        // Helm creates the namespace of a release.
        "Namespace" => return Ok(None),
        "ClusterRoleBinding" => bindings::template(object, &file.path, context)?,
        _ if deployment::is_manager(object) => deployment::template(object, &file.path, context)?,
        _ => plain(object, &file.path, context)?,
    };
    let condition = condition(object, &file.path);
    let condition =
        condition.map(|values| format!("{{{{- if {values} }}}}\n{text}{{{{- end }}}}\n"));
    Ok(Some(condition.unwrap_or(text)))
}

/// Returns an object whose names, namespace and labels are those of the release.
pub(super) fn plain(
    object: &Value,
    file: &str,
    context: &Context,
) -> Result<String, OperatorChartError> {
    let mut object = object.clone();
    localise(&mut object, context);
    Ok(context.marks.template(&yaml(file, &object)?))
}

/// Returns the values under which an object is installed.
fn condition(object: &Value, file: &str) -> Option<&'static str> {
    let is_user_role = ["_admin_role.yaml", "_editor_role.yaml", "_viewer_role.yaml"]
        .iter()
        .any(|end| file.ends_with(end));
    match kind(object) {
        "CustomResourceDefinition" => Some(".Values.crds.install"),
        "ServiceAccount" => Some(".Values.serviceAccount.create"),
        "ClusterRole" if is_user_role => Some("and .Values.rbac.create .Values.rbac.userRoles"),
        "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
            Some(".Values.rbac.create")
        }
        "ServiceMonitor" => Some(".Values.metrics.serviceMonitor.enabled"),
        "PrometheusRule" => Some(".Values.metrics.alerts.enabled"),
        "NetworkPolicy" => Some(".Values.networkPolicy.enabled"),
        _ => None,
    }
}

/// Replaces the names, namespaces and labels of an object.
pub(super) fn localise(object: &mut Value, context: &Context) {
    let name = object_name(object).to_owned();
    let kind = kind(object).to_owned();
    select_by_release(object, context.project);
    references(object, context);
    let Some(metadata) = field(object, "metadata") else {
        return;
    };
    let name = match kind.as_str() {
        // Their names follow from their kinds.
        "CustomResourceDefinition" => name,
        "ServiceAccount" => marks::ACCOUNT.to_owned(),
        _ => format!("{}-{name}", marks::PREFIX),
    };
    metadata.insert("name".to_owned(), name.into());
    if metadata.contains_key("namespace") {
        metadata.insert("namespace".to_owned(), marks::NAMESPACE.into());
    }
    match kind.as_str() {
        "CustomResourceDefinition" => {
            let present = metadata.remove("annotations");
            let mut annotations = present.filter(Value::is_object).unwrap_or(json!({}));
            if let Some(fields) = annotations.as_object_mut() {
                fields.insert(marks::KEEP.to_owned(), "".into());
            }
            metadata.insert("annotations".to_owned(), annotations);
        }
        "ServiceAccount" => {
            let of_values = marks::with("serviceAccount.annotations");
            metadata.insert("annotations".to_owned(), of_values.into());
        }
        _ => {}
    }
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        for (label, value) in [
            (NAME_LABEL, context.project),
            ("app.kubernetes.io/instance", marks::RELEASE),
            ("app.kubernetes.io/managed-by", marks::MANAGED_BY),
            ("helm.sh/chart", marks::CHART),
        ] {
            labels.insert(label.to_owned(), value.into());
        }
    }
}

/// Returns a field that is a map.
pub(super) fn field<'v>(object: &'v mut Value, name: &str) -> Option<&'v mut Map<String, Value>> {
    object.get_mut(name)?.as_object_mut()
}

/// Adds the release to labels and selectors of the operator's Pods, so that a namespace can have several.
fn select_by_release(value: &mut Value, project: &str) {
    match value {
        Value::Object(fields) => {
            let is_operator = fields.contains_key(OPERATOR_LABEL)
                && fields.get(NAME_LABEL).and_then(Value::as_str) == Some(project);
            if is_operator {
                let label = "app.kubernetes.io/instance".to_owned();
                fields.insert(label, marks::RELEASE.into());
            }
            for value in fields.values_mut() {
                select_by_release(value, project);
            }
        }
        Value::Array(items) => {
            for item in items {
                select_by_release(item, project);
            }
        }
        _ => {}
    }
}

/// Replaces the references of bindings to roles and to the operator's account.
fn references(object: &mut Value, context: &Context) {
    let is_own = |role: &str, kind: &str| kind == "Role" || context.roles.contains_key(role);
    if let Some(role) = field(object, "roleRef") {
        let text = |name: &str| role.get(name).and_then(Value::as_str).unwrap_or_default();
        let (name, kind) = (text("name"), text("kind"));
        if is_own(name, kind) {
            let name = format!("{}-{name}", marks::PREFIX);
            role.insert("name".to_owned(), name.into());
        }
    }
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        let is_account = subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount");
        if let Some(fields) = subject.as_object_mut().filter(|_| is_account) {
            fields.insert("name".to_owned(), marks::ACCOUNT.into());
            fields.insert("namespace".to_owned(), marks::NAMESPACE.into());
        }
    }
}
