//! Growth of the volumes of a StatefulSet. Kubernetes does not let `volumeClaimTemplates` change
//! (kubernetes#68737): the claims are patched, and the set is deleted without its Pods and created again.
//!
//! Every step can be repeated: claims only grow, and a set that is gone is created from the manifest. Nothing is
//! changed before it is known that all claims can grow.

use std::collections::BTreeMap;

use helm_core::manifest::ObjectKey;
use http::Method;
use kube::core::GroupVersionKind;
use kube_objects::apply::{ApplyError, keep_scale};
use kube_objects::read::{self, ReadError};
use kube_objects::request::{self, Call};
use kube_objects::{ApiError, Cluster, FIELD_MANAGER};
use serde_json::{Value, json};

use super::context::ActionContext;
use super::error::ActionError;
use crate::policy::MUTABLE_OF_STATEFUL_SETS;

/// The kind whose volumes grow.
pub(super) const KIND: &str = "StatefulSet";

const SIZE: &str = "/spec/resources/requests/storage";

/// Compares a StatefulSet with `wanted`, and keeps the templates in it that are to become smaller as large as they are.
/// Returns `None` if something else differs that cannot be changed.
pub(super) async fn compare(
    context: &ActionContext<'_>,
    key: &ObjectKey,
    wanted: &mut Value,
) -> Result<Option<Templates>, ActionError> {
    let Some(live) = read::get(context.cluster, key).await? else {
        return Err(ApplyError::Contended {
            key: Box::new(key.clone()),
        }
        .into());
    };
    let Some(templates) = Templates::of(&live, wanted) else {
        return Ok(None);
    };
    templates.keep_larger(wanted);
    if templates.grow() {
        keep_scale(wanted, &live);
    }
    Ok(Some(templates))
}

/// Sizes of the templates of a StatefulSet that differ from those of its manifest.
pub(super) struct Templates {
    /// New sizes of those that become larger, by name.
    larger: BTreeMap<String, Quantity>,
    /// Sizes of those that would become smaller, and the sizes that are wanted.
    smaller: BTreeMap<String, (Quantity, Quantity)>,
}

impl Templates {
    /// Compares a StatefulSet with its manifest. Returns `None` if it differs in something else that cannot be changed.
    pub(super) fn of(live: &Value, wanted: &Value) -> Option<Self> {
        let (live, wanted) = (live.get("spec")?, wanted.get("spec")?.as_object()?);
        let mut templates = Self {
            larger: BTreeMap::new(),
            smaller: BTreeMap::new(),
        };
        for (name, wanted) in wanted {
            let live = live.get(name).unwrap_or(&Value::Null);
            if name == "volumeClaimTemplates" {
                templates.compare(live.as_array()?, wanted.as_array()?)?;
            } else if !MUTABLE_OF_STATEFUL_SETS.contains(&name.as_str()) && !covers(live, wanted) {
                return None;
            }
        }
        Some(templates)
    }

    fn compare(&mut self, live: &[Value], wanted: &[Value]) -> Option<()> {
        if live.len() != wanted.len() {
            return None;
        }
        for wanted in wanted {
            let name = name_of(wanted);
            let live = live.iter().find(|live| name_of(live) == name)?;
            let (size, asked) = (Quantity::at(live)?, Quantity::at(wanted)?);
            let mut rest = wanted.clone();
            *rest.pointer_mut(SIZE)? = live.pointer(SIZE)?.clone();
            if !covers(live, &rest) {
                return None;
            }
            if asked.bytes > size.bytes {
                self.larger.insert(name.to_owned(), asked);
            } else if asked.bytes < size.bytes {
                self.smaller.insert(name.to_owned(), (size, asked));
            }
        }
        Some(())
    }

    /// Returns whether a template becomes larger.
    pub(super) fn grow(&self) -> bool {
        !self.larger.is_empty()
    }

    fn keep_larger(&self, wanted: &mut Value) {
        let templates = wanted.pointer_mut("/spec/volumeClaimTemplates");
        let templates = templates
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for template in templates {
            if let Some((size, _)) = self.smaller.get(name_of(template)).cloned()
                && let Some(asked) = template.pointer_mut(SIZE)
            {
                *asked = size.text.into();
            }
        }
    }

    /// Lets the claims of the StatefulSet grow to the sizes of its templates.
    pub(super) async fn grow_claims(
        &self,
        cluster: &Cluster,
        set: &ObjectKey,
    ) -> Result<(), ActionError> {
        let claims = self.claims(cluster, set).await?;
        check_classes(cluster, set, &claims).await?;
        for claim in &claims {
            claim.grow(cluster).await?;
        }
        Ok(())
    }

    /// Returns a remark about sizes that stay larger than the manifest says.
    pub(super) fn remark(&self, key: &ObjectKey) -> Option<String> {
        let kept = self.smaller.iter().map(|(name, (size, asked))| {
            format!(
                "volumes of {name} stay at {} and do not become {}",
                size.text, asked.text
            )
        });
        let kept: Vec<String> = kept.collect();
        (!kept.is_empty())
            .then(|| format!("{key}: {}, because volumes cannot shrink", kept.join(", ")))
    }

    /// Returns the claims of a StatefulSet that are smaller than their templates become.
    async fn claims(&self, cluster: &Cluster, set: &ObjectKey) -> Result<Vec<Claim>, ActionError> {
        let gvk = GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim");
        let mut list = read::list(cluster, &gvk, set.namespace.as_deref()).await?;
        let items = list.get_mut("items").map(Value::take).unwrap_or_default();
        let items = items.as_array().cloned().unwrap_or_default();
        let of = |claim: Value| {
            let name = name_of(&claim).to_owned();
            let (template, number) = name.rsplit_once('-')?;
            let template = template.strip_suffix(&format!("-{}", set.name))?;
            let wanted = self.larger.get(template)?;
            let is_of_set = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let is_smaller = Quantity::at(&claim).is_none_or(|size| size.bytes < wanted.bytes);
            (is_of_set && is_smaller).then(|| Claim {
                object: claim,
                size: wanted.text.clone(),
            })
        };
        Ok(items.into_iter().filter_map(of).collect())
    }
}

/// A claim that grows.
struct Claim {
    object: Value,
    size: String,
}

impl Claim {
    async fn grow(&self, cluster: &Cluster) -> Result<(), ActionError> {
        let metadata = |name: &str| self.object.get("metadata")?.get(name)?.as_str();
        let (namespace, name) = (metadata("namespace"), name_of(&self.object));
        let gvk = GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim");
        let kind = cluster.resolve(&gvk).await.map_err(ReadError::from)?;
        let patch = json!({
            "metadata": {"uid": metadata("uid"), "resourceVersion": metadata("resourceVersion")},
            "spec": {"resources": {"requests": {"storage": self.size}}},
        });
        let uri = request::path(&kind, namespace, Some(name)).map_err(ApiError::from);
        let call = Call::with_body(
            Method::PATCH,
            format!(
                "{}?fieldManager={FIELD_MANAGER}",
                uri.map_err(ReadError::from)?
            ),
            request::METADATA_ONLY,
            request::MERGE_PATCH,
            patch.to_string().into_bytes(),
        );
        let target = request::target("patch", &kind, namespace, Some(name));
        let answer = request::call(cluster.client(), target, call).await;
        answer.map_err(ReadError::from)?;
        tracing::info!(
            claim = name,
            namespace,
            size = self.size,
            "let a volume grow"
        );
        Ok(())
    }
}

/// Checks that the storage classes of all claims let volumes grow, and that all claims have volumes.
async fn check_classes(
    cluster: &Cluster,
    set: &ObjectKey,
    claims: &[Claim],
) -> Result<(), ActionError> {
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    for claim in claims {
        let name = name_of(&claim.object);
        let refuse = |why: &str, is_transient| ActionError::Volumes {
            key: Box::new(set.clone()),
            message: format!("volume claim {name} cannot grow to {}: {why}", claim.size),
            is_transient,
        };
        let text = |pointer| claim.object.pointer(pointer).and_then(Value::as_str);
        if text("/status/phase") != Some("Bound") {
            return Err(refuse("it has no volume yet", true));
        }
        let class = text("/spec/storageClassName").filter(|class| !class.is_empty());
        let Some(class) = class else {
            return Err(refuse("it has no storage class", false));
        };
        let allows = match known.get(class) {
            Some(allows) => *allows,
            None => allows_expansion(cluster, class).await?,
        };
        known.insert(class.to_owned(), allows);
        if !allows {
            let why = format!("storage class {class} does not have allowVolumeExpansion: true");
            return Err(refuse(&why, false));
        }
    }
    Ok(())
}

async fn allows_expansion(cluster: &Cluster, class: &str) -> Result<bool, ActionError> {
    let key = ObjectKey {
        group: "storage.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "StorageClass".to_owned(),
        namespace: None,
        name: class.to_owned(),
    };
    let found = read::get(cluster, &key).await?;
    Ok(found.is_some_and(|found| found.get("allowVolumeExpansion") == Some(&json!(true))))
}

fn name_of(object: &Value) -> &str {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default()
}

/// Returns whether an object in the cluster has everything that a manifest asks for; it has defaults, too.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| covers(live.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| covers(live, wanted))
        }
        // An empty map may be left out.
        (Value::Null, Value::Object(wanted)) => {
            wanted.values().all(|wanted| covers(&Value::Null, wanted))
        }
        _ => live == wanted,
    }
}

/// A quantity of storage, such as `10Gi`.
#[derive(Debug, Clone, PartialEq)]
struct Quantity {
    text: String,
    bytes: f64,
}

impl Quantity {
    /// Returns the size of a claim or a template.
    fn at(object: &Value) -> Option<Self> {
        let text = match object.pointer(SIZE)? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        const UNITS: &[(&str, f64)] = &[
            ("Ki", 1024.0),
            ("Mi", 1_048_576.0),
            ("Gi", 1_073_741_824.0),
            ("Ti", 1_099_511_627_776.0),
            ("Pi", 1_125_899_906_842_624.0),
            ("Ei", 1_152_921_504_606_846_976.0),
            ("m", 1e-3),
            ("k", 1e3),
            ("M", 1e6),
            ("G", 1e9),
            ("T", 1e12),
            ("P", 1e15),
            ("E", 1e18),
        ];
        let unit = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
        // Without a unit, there may be an exponent.
        let (number, factor) = unit.unwrap_or((text, &1.0));
        let number: f64 = number
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())?;
        Some(Self {
            text: text.to_owned(),
            bytes: number * factor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(sizes: &[(&str, &str)], more: &Value) -> Value {
        let templates: Vec<Value> = sizes
            .iter()
            .map(|(name, size)| {
                json!({"metadata": {"name": name}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
                }})
            })
            .collect();
        let mut set = json!({"spec": {"serviceName": "db", "replicas": 1, "volumeClaimTemplates": templates}});
        json_patch::merge(&mut set, more);
        set
    }

    #[test]
    fn quantities_are_compared_by_their_bytes() {
        for (smaller, larger) in [
            ("1023Mi", "1Gi"),
            ("1G", "1Gi"),
            ("1e9", "1000000001"),
            ("0.5Ti", "513Gi"),
            ("999m", "1"),
            ("1k", "1Ki"),
        ] {
            let [a, b] = [smaller, larger].map(|text| Quantity::parse(text).unwrap().bytes);
            assert!(a < b, "{smaller} {larger}");
        }
        let equal = ["1Gi", "1024Mi", "1073741824", "1.0Gi"];
        let bytes = equal.map(|text| Quantity::parse(text).unwrap().bytes);
        assert!(
            bytes
                .iter()
                .all(|bytes| (bytes - 1_073_741_824.0).abs() < 0.5)
        );
        for wrong in ["", "Gi", "1GiB", "inf", "nan", "1 Gi"] {
            assert_eq!(Quantity::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_sizes_may_differ_and_defaults_do_not_count() {
        let defaults =
            json!({"spec": {"podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10}});
        let live = set(&[("data", "1Gi"), ("log", "2Gi")], &defaults);
        let compare = |wanted: &Value| {
            let templates = Templates::of(&live, wanted)?;
            let smaller: Vec<String> = templates.smaller.keys().cloned().collect();
            let larger: Vec<String> = templates.larger.keys().cloned().collect();
            Some((larger.concat(), smaller.concat()))
        };
        let none = json!({});
        let found = |larger: &str, smaller: &str| Some((larger.to_owned(), smaller.to_owned()));
        assert_eq!(
            compare(&set(&[("data", "1024Mi"), ("log", "2Gi")], &none)),
            found("", "")
        );
        assert_eq!(
            compare(&set(&[("data", "3Gi"), ("log", "1Gi")], &none)),
            found("data", "log")
        );
        let scaled = json!({"spec": {"replicas": 3, "template": {"a": 1}}});
        assert_eq!(
            compare(&set(&[("log", "3Gi"), ("data", "1Gi")], &scaled)),
            found("log", "")
        );
        for other in [
            set(&[("data", "2Gi")], &none),
            set(&[("data", "2Gi"), ("logs", "2Gi")], &none),
            set(
                &[("data", "2Gi"), ("log", "2Gi")],
                &json!({"spec": {"serviceName": "other"}}),
            ),
            set(&[("data", "2Gi"), ("log", "a lot")], &none),
        ] {
            assert_eq!(compare(&other), None, "{other}");
        }
    }

    #[test]
    fn templates_that_would_shrink_stay_and_are_named() {
        let live = set(&[("data", "2Gi")], &json!({}));
        let mut wanted = set(&[("data", "1Gi")], &json!({}));
        let templates = Templates::of(&live, &wanted).unwrap();
        templates.keep_larger(&mut wanted);
        assert_eq!(wanted, live);
        let key = ObjectKey {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: KIND.to_owned(),
            namespace: Some("a".to_owned()),
            name: "db".to_owned(),
        };
        let remark = templates.remark(&key).unwrap();
        assert!(remark.ends_with(
            "volumes of data stay at 2Gi and do not become 1Gi, because volumes cannot shrink"
        ));
        assert!(!templates.grow());
    }
}
