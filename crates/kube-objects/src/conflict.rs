//! Fields with other owners: fields that are left out of a forced apply, and the migration of
//! `managedFields` entries of earlier tools.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;
use super::drift::is_ours;
use crate::target::Target;

/// Prefixes of field managers with which people scale manually. Their changes are drift.
const MANUAL_SCALERS: &[&str] = &[
    "kubectl", "k9s", "Lens", "OpenLens", "Headlamp", "helm", "oc", "curl",
];

/// Field managers of earlier tools, whose `Update` entries become ours.
pub(super) const FORMER_MANAGERS: &[&str] = &[FIELD_MANAGER, "helm-operator", "manager"];

/// A rule for fields that are left to others if they have set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveOut {
    /// The objects.
    pub target: Target,
    /// JSON pointers; `*` matches any single element.
    pub paths: Vec<String>,
}

impl LeaveOut {
    /// Creates a rule for all objects of a kind.
    pub fn kind(group: &str, kind: &str, paths: &[&str]) -> Self {
        Self {
            target: Target {
                group: Some(group.to_owned()),
                kind: Some(kind.to_owned()),
                ..Target::default()
            },
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

    fn covers(&self, path: &[String]) -> bool {
        self.paths.iter().any(|pattern| is_prefix(pattern, path))
    }
}

/// Returns the rules for fields that certificate injectors set.
pub(crate) fn injected_fields() -> Vec<LeaveOut> {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    const BUNDLE: &[&str] = &["/webhooks/*/clientConfig/caBundle"];
    vec![
        LeaveOut::kind(ADMISSION, "MutatingWebhookConfiguration", BUNDLE),
        LeaveOut::kind(ADMISSION, "ValidatingWebhookConfiguration", BUNDLE),
        LeaveOut::kind(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            &["/spec/conversion/webhook/clientConfig/caBundle"],
        ),
        LeaveOut::kind("apiregistration.k8s.io", "APIService", &["/spec/caBundle"]),
    ]
}

/// Removes from `object` the fields that others own and that are left to them: those that an
/// autoscaler set through the subresource `scale`, unless the object is `unscaled`, and those of the
/// `rules`. Returns their JSON pointers.
///
/// A field that nobody else owns stays, because removing it from an apply would remove it from the
/// object.
pub(super) fn leave_out(
    object: &mut Value,
    live: &ObjectMeta,
    rules: &[&LeaveOut],
    unscaled: bool,
) -> Vec<String> {
    leave(object, None, live, rules, unscaled)
}

/// Sets the fields that others own and that are left to them to their values in `whole`, the existing
/// object with the metadata `live`, also where `object` lacks them: a field that is missing when an
/// object is replaced is removed or gets its default.
pub(super) fn keep(
    object: &mut Value,
    whole: &Value,
    live: &ObjectMeta,
    rules: &[&LeaveOut],
    unscaled: bool,
) {
    leave(object, Some(whole), live, rules, unscaled);
}

/// JSON pointer to the number of replicas of a scalable object.
pub(super) const REPLICAS: &str = "/spec/replicas";

/// Sets the number of replicas of an object whose manifest has none to that of the existing object.
/// The API server records no owner for a number that an autoscaler set where nobody has set one.
pub(super) fn keep_replicas(object: &mut Value, whole: &Value) {
    if let Some(replicas) = whole.pointer(REPLICAS)
        && let Some(Value::Object(spec)) = object.get_mut("spec")
    {
        spec.entry("replicas").or_insert_with(|| replicas.clone());
    }
}

/// Adds the finalizers of an existing object: their controllers have work to do before it may go. They stay as they
/// are, as who changes a list owns its items.
pub fn keep_finalizers(object: &mut Value, finalizers: &[String]) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let mut all: Vec<Value> = finalizers.iter().map(|name| json!(name)).collect();
    let own = metadata.get("finalizers").and_then(Value::as_array);
    let missing = own.into_iter().flatten().filter(|name| !all.contains(name));
    let missing: Vec<Value> = missing.cloned().collect();
    all.extend(missing);
    if !all.is_empty() {
        metadata.insert("finalizers".to_owned(), all.into());
    }
}

fn leave(
    object: &mut Value,
    whole: Option<&Value>,
    live: &ObjectMeta,
    rules: &[&LeaveOut],
    unscaled: bool,
) -> Vec<String> {
    let mut left = Vec::new();
    for entry in live
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| !is_ours(entry))
    {
        let Some(fields) = &entry.fields_v1 else {
            continue;
        };
        let autoscaled = !unscaled && is_autoscaler(entry);
        let mut walk = Walk {
            theirs: |path: &[String]| autoscaled || rules.iter().any(|rule| rule.covers(path)),
            path: Vec::new(),
            left: &mut left,
        };
        walk.map(object, &fields.0, whole);
    }
    left.sort();
    left.dedup();
    left
}

/// Gives an object that is created again the number of replicas that an autoscaler has set.
pub fn keep_scale(object: &mut Value, whole: &Value) {
    let metadata = whole.get("metadata").cloned().unwrap_or_default();
    if serde_json::from_value(metadata).is_ok_and(|metadata| is_autoscaled(&metadata)) {
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            spec.remove("replicas");
        }
        keep_replicas(object, whole);
    }
}

/// Returns whether an autoscaler has set fields of an object.
pub(super) fn is_autoscaled(live: &ObjectMeta) -> bool {
    live.managed_fields.iter().flatten().any(is_autoscaler)
}

fn is_autoscaler(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    let by_hand = |name: &&str| {
        manager
            .strip_prefix(*name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    entry.subresource.as_deref() == Some("scale") && !MANUAL_SCALERS.iter().any(by_hand)
}

/// Walks an object along the fields of a `managedFields` entry, and in parallel the existing object
/// if its values are to be kept.
struct Walk<'a, F> {
    theirs: F,
    path: Vec<String>,
    left: &'a mut Vec<String>,
}

impl<F: Fn(&[String]) -> bool> Walk<'_, F> {
    fn map(&mut self, object: &mut Value, fields: &Value, whole: Option<&Value>) {
        let (Some(map), Some(fields)) = (object.as_object_mut(), fields.as_object()) else {
            return;
        };
        for (element, below) in fields {
            let Some(name) = element.strip_prefix("f:") else {
                continue;
            };
            let present = whole.and_then(|whole| whole.get(name));
            self.path.push(name.to_owned());
            let is_null = map.get(name).is_some_and(Value::is_null);
            if is_leaf(below) || is_null {
                if self.is_theirs(below) {
                    self.leaf(map, name, present);
                }
            } else if let Some(child) = map.get_mut(name) {
                if child.is_array() {
                    self.list(child, below, present);
                } else {
                    self.map(child, below, present);
                }
            }
            self.path.pop();
        }
    }

    /// Returns whether a field below the path is left to others. A null instead of its parent would remove it.
    fn is_theirs(&mut self, fields: &Value) -> bool {
        let Some(fields) = fields.as_object().filter(|_| !is_leaf(fields)) else {
            return (self.theirs)(&self.path);
        };
        fields.iter().any(|(element, below)| {
            let Some(name) = element.strip_prefix("f:") else {
                return false;
            };
            self.path.push(name.to_owned());
            let is_theirs = self.is_theirs(below);
            self.path.pop();
            is_theirs
        })
    }

    /// Leaves the field at the path to others.
    fn leaf(&mut self, map: &mut Map<String, Value>, name: &str, present: Option<&Value>) {
        let before = map.remove(name);
        if let Some(present) = present {
            map.insert(name.to_owned(), present.clone());
        }
        if before.is_some() {
            self.left.push(pointer(&self.path));
        }
    }

    /// Walks the items of a keyed list: elements `k:{"name":"web"}`.
    fn list(&mut self, list: &mut Value, fields: &Value, whole: Option<&Value>) {
        let (Some(items), Some(fields)) = (list.as_array_mut(), fields.as_object()) else {
            return;
        };
        for (element, below) in fields {
            let Some(keys) = element.strip_prefix("k:") else {
                continue;
            };
            let Ok(keys) = serde_json::from_str::<Map<String, Value>>(keys) else {
                continue;
            };
            let found = items
                .iter_mut()
                .enumerate()
                .find(|(_, item)| has_keys(item, &keys));
            let Some((index, item)) = found else { continue };
            let present = whole
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .find(|item| has_keys(item, &keys));
            self.path.push(index.to_string());
            self.map(item, below, present);
            self.path.pop();
        }
    }
}

/// Returns whether an item has these keys. A key that is missing in the item may have been
/// defaulted.
fn has_keys(item: &Value, keys: &Map<String, Value>) -> bool {
    let mut present = keys
        .iter()
        .filter_map(|(key, value)| Some((item.get(key)?, value)));
    let some = keys.keys().any(|key| item.get(key).is_some());
    some && present.all(|(own, value)| own == value)
}

/// Returns whether the field itself is owned, not only fields below it.
fn is_leaf(below: &Value) -> bool {
    below
        .as_object()
        .is_none_or(|map| map.keys().all(|key| key == "."))
}

fn pointer(path: &[String]) -> String {
    path.iter().fold(String::new(), |mut text, part| {
        text.push('/');
        text.push_str(&part.replace('~', "~0").replace('/', "~1"));
        text
    })
}

fn is_prefix(pattern: &str, path: &[String]) -> bool {
    let mut path = path.iter();
    pattern.split('/').skip(1).all(|part| {
        let part = part.replace("~1", "/").replace("~0", "~");
        path.next().is_some_and(|own| part == "*" || part == *own)
    })
}

/// Returns the JSON patch that merges the `Update` entries of these managers into our `Apply`
/// entry, so that later applies remove dropped fields. `None` if there is no such entry. With
/// [`FORMER_MANAGERS`], an entry with Helm's ownership metadata counts, too: a Go operator's field
/// manager is the name of its program.
///
/// The server rejects the patch with 409 if the object has changed meanwhile.
pub(super) fn migration(live: &ObjectMeta, managers: &[&str]) -> Option<Value> {
    let entries = live.managed_fields.as_deref()?;
    let is_former = |entry: &ManagedFieldsEntry| {
        entry.operation.as_deref() == Some("Update")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && entry.manager.as_deref().is_some_and(|name| {
                managers.contains(&name)
                    || managers == FORMER_MANAGERS
                        && !name.starts_with("kubectl")
                        && is_helms(entry)
            })
    };
    let ours = entries.iter().find(|entry| is_ours(entry));
    let first = ours.or_else(|| entries.iter().find(|entry| is_former(entry)))?;
    if !entries.iter().any(is_former) {
        return None;
    }
    // In another API version, the same path may mean another field.
    let mut fields = json!({});
    for entry in entries
        .iter()
        .filter(|entry| is_ours(entry) || is_former(entry))
    {
        if let Some(own) = entry.fields_v1.as_ref()
            && entry.api_version == first.api_version
        {
            merge(&mut fields, &own.0);
        }
    }
    let mut merged = first.clone();
    merged.manager = Some(FIELD_MANAGER.to_owned());
    merged.operation = Some("Apply".to_owned());
    if let Some(own) = &mut merged.fields_v1 {
        own.0 = fields;
    }
    let mut migrated = vec![merged];
    migrated.extend(
        entries
            .iter()
            .filter(|entry| !is_ours(entry) && !is_former(entry))
            .cloned(),
    );
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": migrated},
        // Not a `test` operation, whose failure is a 422 instead of a 409.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live.resource_version},
    ]))
}

/// Returns whether an entry has the annotation that Helm sets on each object of a release.
fn is_helms(entry: &ManagedFieldsEntry) -> bool {
    let annotation = "/f:metadata/f:annotations/f:meta.helm.sh~1release-name";
    let fields = entry.fields_v1.as_ref();
    fields.is_some_and(|fields| fields.0.pointer(annotation).is_some())
}

fn merge(into: &mut Value, from: &Value) {
    let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else {
        return;
    };
    for (key, child) in from {
        merge(into.entry(key.clone()).or_insert_with(|| json!({})), child);
    }
}

#[cfg(test)]
mod tests {
    use object_key::ObjectKey;

    use super::*;

    fn live(entries: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"resourceVersion": "7", "managedFields": entries})).unwrap()
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource,
               "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn deployment() -> Value {
        json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [
            {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}}}})
    }

    #[test]
    fn replicas_set_by_an_autoscaler_are_left_out_and_manual_ones_are_not() {
        let scale = json!({"f:spec": {"f:replicas": {}}});
        for (manager, subresource, expected) in [
            ("kube-controller-manager", "scale", true),
            ("keda-operator", "scale", true),
            ("kubectl", "scale", false),
            ("kubectl-scale", "scale", false),
            ("k9s", "scale", false),
            ("kube-controller-manager", "", false),
            ("kubectl-edit", "", false),
        ] {
            let mut object = deployment();
            let meta = live(&json!([entry(manager, "Update", subresource, &scale)]));
            let left = leave_out(&mut object, &meta, &[], false);
            assert_eq!(!left.is_empty(), expected, "{manager} {subresource}");
            assert_eq!(object["spec"].get("replicas").is_none(), expected);
        }
    }

    #[test]
    fn an_object_that_lost_its_autoscaler_gets_its_replicas_and_one_that_is_replaced_keeps_them() {
        let scale = json!({"f:spec": {"f:replicas": {}}});
        let containers = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"b\"}": {"f:image": {}}}}}}});
        let meta = live(&json!([
            entry("kube-controller-manager", "Update", "scale", &scale),
            entry("image-updater", "Update", "", &containers),
        ]));
        let rule = LeaveOut::kind("apps", "Deployment", &["/spec/template"]);
        let mut object = deployment();
        assert!(leave_out(&mut object, &meta, &[], true).is_empty());
        assert_eq!(object, deployment());

        let whole = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [
            {"name": "b", "image": "b:9"}, {"name": "a", "image": "a:0"}]}}}});
        keep(&mut object, &whole, &meta, &[&rule], false);
        let mut kept = deployment();
        kept["spec"]["replicas"] = json!(5);
        kept["spec"]["template"]["spec"]["containers"][1]["image"] = json!("b:9");
        assert_eq!(object, kept);
        let mut without = deployment();
        without["spec"].as_object_mut().unwrap().remove("replicas");
        keep(&mut without, &whole, &meta, &[&rule], false);
        assert_eq!(without, kept, "a field that the chart does not set");
        keep(&mut object, &json!({}), &meta, &[], true);
        assert_eq!(object, kept, "nothing is left to others");
    }

    #[test]
    fn only_fields_that_somebody_else_owns_are_left_out() {
        let rule = LeaveOut::kind("apps", "Deployment", &["/spec/replicas", "/spec/template"]);
        let mut object = deployment();
        assert!(leave_out(&mut object, &live(&json!([])), &[&rule], false).is_empty());
        let own = entry("helm", "Apply", "", &json!({"f:spec": {"f:replicas": {}}}));
        assert!(leave_out(&mut object, &live(&json!([own])), &[&rule], false).is_empty());
        assert_eq!(object, deployment());

        let containers = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"b\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}});
        let theirs = entry("kustomize", "Apply", "", &containers);
        let left = leave_out(&mut object, &live(&json!([theirs])), &[&rule], false);
        let path = |name| format!("/spec/template/spec/containers/1/{name}");
        assert_eq!(left, ["image", "name"].map(path));
        let containers = &object["spec"]["template"]["spec"]["containers"];
        assert_eq!(containers[0]["image"], "a:1");
    }

    #[test]
    fn a_null_does_not_take_what_is_left_to_others() {
        let paths = ["/spec/strategy/type", "/spec/paused"];
        let rule = LeaveOut::kind("apps", "Deployment", &paths);
        let theirs = json!({"f:spec": {"f:strategy": {"f:type": {}, "f:rollingUpdate": {"f:maxSurge": {}}},
            "f:paused": {}, "f:template": {"f:spec": {"f:priority": {}}}}});
        let meta = live(&json!([entry("theirs", "Update", "", &theirs)]));
        let mut object = json!({"spec": {"strategy": null, "paused": null, "template": null}});
        let left = leave_out(&mut object, &meta, &[&rule], false);
        assert_eq!(left, ["/spec/paused", "/spec/strategy"]);
        assert_eq!(object, json!({"spec": {"template": null}}));
    }

    #[test]
    fn injected_certificates_are_left_out() {
        let rules = injected_fields();
        let config = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": "x"}});
        let key = ObjectKey::of(&config).unwrap();
        let rules: Vec<&LeaveOut> = rules
            .iter()
            .filter(|rule| rule.target.matches(&key, &config))
            .collect();
        assert_eq!(rules.len(), 1);
        let mut object = json!({"webhooks": [{"name": "w", "clientConfig": {"caBundle": "",
            "url": "u"}}]});
        let fields = json!({"f:webhooks": {"k:{\"name\":\"w\"}": {"f:clientConfig": {
            "f:caBundle": {}, "f:url": {}}}}});
        let meta = live(&json!([entry("cainjector", "Update", "", &fields)]));
        let expected = ["/webhooks/0/clientConfig/caBundle"];
        assert_eq!(leave_out(&mut object, &meta, &rules, false), expected);
        let expected = json!({"webhooks": [{"name": "w", "clientConfig": {"url": "u"}}]});
        assert_eq!(object, expected);
    }

    #[test]
    fn keys_with_dots_and_slashes_are_found() {
        let rule = LeaveOut {
            paths: vec!["/metadata/annotations/a.b~1c".to_owned()],
            ..LeaveOut::default()
        };
        let mut object = json!({"metadata": {"annotations": {"a.b/c": "1", "a": "2"}}});
        let fields = json!({"f:metadata": {"f:annotations": {"f:a.b/c": {}, "f:a": {}}}});
        let meta = live(&json!([entry("x", "Update", "", &fields)]));
        let left = leave_out(&mut object, &meta, &[&rule], false);
        assert_eq!(left, ["/metadata/annotations/a.b~1c"]);
        assert_eq!(object, json!({"metadata": {"annotations": {"a": "2"}}}));
    }

    #[test]
    fn a_default_that_the_server_filled_in_does_not_hide_an_item() {
        let rule = LeaveOut::kind("", "Service", &["/spec/ports/*/nodePort"]);
        let mut object = json!({"spec": {"ports": [{"port": 80, "nodePort": 1}]}});
        let fields = json!({"f:spec": {"f:ports": {
            "k:{\"port\":81,\"protocol\":\"TCP\"}": {"f:nodePort": {}},
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:nodePort": {}}}}});
        let meta = live(&json!([entry("x", "Update", "", &fields)]));
        let expected = ["/spec/ports/0/nodePort"];
        assert_eq!(leave_out(&mut object, &meta, &[&rule], false), expected);
    }

    #[test]
    fn former_update_entries_become_our_apply_entry() {
        let (a, b) = (json!({"f:a": {}}), json!({"f:b": {}}));
        let ours = json!({"f:data": {".": {}, "f:c": {}}});
        let live = live(&json!([
            entry("helm-operator", "Update", "", &json!({"f:data": a})),
            entry("kubectl", "Update", "", &json!({"f:data": b})),
            entry("helm", "Apply", "", &ours),
            entry("manager", "Update", "status", &json!({"f:status": {}})),
        ]));
        let patch = migration(&live, FORMER_MANAGERS).unwrap();
        let entries = patch[0]["value"].as_array().unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0]["manager"], "helm");
        assert_eq!(entries[0]["operation"], "Apply");
        let expected = json!({"f:data": {".": {}, "f:a": {}, "f:c": {}}});
        assert_eq!(entries[0]["fieldsV1"], expected);
        assert_eq!(entries[1]["manager"], "kubectl");
        assert_eq!(entries[2]["subresource"], "status");
        assert_eq!(patch[1]["value"], "7");
    }

    #[test]
    fn entry_with_the_metadata_of_helm_is_former_whatever_the_program_was_called() {
        let annotations = json!({"f:meta.helm.sh/release-name": {}});
        let fields = json!({"f:metadata": {"f:annotations": annotations}});
        for (manager, former) in [("web-operator", true), ("kubectl-annotate", false)] {
            let live = live(&json!([entry(manager, "Update", "", &fields)]));
            let migrated = migration(&live, FORMER_MANAGERS).is_some();
            assert_eq!(migrated, former, "{manager}");
            assert_eq!(migration(&live, &[FIELD_MANAGER]), None);
        }
    }

    #[test]
    fn an_object_that_was_only_created_gets_an_apply_entry() {
        let fields = json!({"f:data": {"f:a": {}}});
        let live = live(&json!([entry("helm", "Update", "", &fields)]));
        let patch = migration(&live, &[FIELD_MANAGER]).unwrap();
        assert_eq!(patch[0]["value"][0]["operation"], "Apply");
        assert_eq!(patch[0]["value"][0]["fieldsV1"], fields);
    }

    #[test]
    fn nothing_is_migrated_without_entries_of_earlier_tools() {
        for entries in [
            json!([]),
            json!([entry("helm", "Apply", "", &json!({}))]),
            json!([entry("kubectl", "Update", "", &json!({}))]),
            json!([entry("manager", "Update", "status", &json!({}))]),
        ] {
            assert_eq!(migration(&live(&entries), FORMER_MANAGERS), None);
        }
        let theirs = live(&json!([entry("manager", "Update", "", &json!({}))]));
        assert_eq!(migration(&theirs, &[FIELD_MANAGER]), None);
    }
}
