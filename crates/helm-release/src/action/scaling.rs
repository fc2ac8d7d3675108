//! Objects of a release that an autoscaler of the release scales.
//!
//! An autoscaler names the object that it scales in `spec.scaleTargetRef`: `HorizontalPodAutoscaler`,
//! KEDA's `ScaledObject` and others do. The number of replicas that it has set is left to it. Once the
//! release has no autoscaler for an object any more, the chart's number counts again, although the
//! autoscaler still owns the field: nobody takes the ownership from a field manager that is gone.

use host::HashSet;

use helm_core::manifest::{ManifestObject, ObjectKey};
use serde_json::Value;

/// Namespace, kind and name of a scaled object.
type Scaled<'m> = (&'m str, &'m str, &'m str);

/// The objects that autoscalers of a revision, and of the revisions before it, scale.
#[derive(Default)]
pub(super) struct Autoscalers<'m> {
    now: HashSet<Scaled<'m>>,
    before: HashSet<Scaled<'m>>,
}

impl<'m> Autoscalers<'m> {
    /// Finds the autoscalers of these objects, and of those of the revisions `before`.
    pub(super) fn of(
        wanted: &'m [ManifestObject],
        before: impl IntoIterator<Item = &'m ManifestObject>,
        namespace: &'m str,
    ) -> Self {
        Self {
            now: scaled(wanted, namespace),
            before: scaled(before, namespace),
        }
    }

    /// Returns whether an object has lost its autoscaler.
    pub(super) fn has_gone(&self, key: &ObjectKey, namespace: &str) -> bool {
        let namespace = key.namespace.as_deref().unwrap_or(namespace);
        let scaled = (namespace, key.kind.as_str(), key.name.as_str());
        self.before.contains(&scaled) && !self.now.contains(&scaled)
    }
}

fn scaled<'m>(
    objects: impl IntoIterator<Item = &'m ManifestObject>,
    namespace: &'m str,
) -> HashSet<Scaled<'m>> {
    let scaled = objects.into_iter().filter_map(|object| {
        let target = object.object().pointer("/spec/scaleTargetRef")?;
        let text = |field| target.get(field).and_then(Value::as_str);
        let namespace = object.key().namespace.as_deref().unwrap_or(namespace);
        // KEDA's default kind.
        Some((
            namespace,
            text("kind").unwrap_or("Deployment"),
            text("name")?,
        ))
    });
    scaled.collect()
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::parse_objects;

    use super::*;

    const AUTOSCALERS: &str = "\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec: {scaleTargetRef: {kind: StatefulSet, name: web}}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: b, namespace: other}
spec: {scaleTargetRef: {name: worker}}
";

    #[test]
    fn object_whose_autoscaler_is_in_the_revision_before_alone_has_lost_it() {
        let autoscalers = parse_objects(AUTOSCALERS).unwrap();
        let key = |kind: &str, namespace: Option<&str>, name: &str| ObjectKey {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        };
        for (kind, namespace, name, gone) in [
            ("StatefulSet", None, "web", true),
            ("StatefulSet", Some("ns"), "web", true),
            ("StatefulSet", Some("other"), "web", false),
            ("Deployment", None, "web", false),
            ("Deployment", Some("other"), "worker", true),
            ("Deployment", None, "worker", false),
        ] {
            let key = key(kind, namespace, name);
            let lost = Autoscalers::of(&[], &autoscalers, "ns").has_gone(&key, "ns");
            let kept = Autoscalers::of(&autoscalers, &autoscalers, "ns").has_gone(&key, "ns");
            let new = Autoscalers::of(&autoscalers, &[], "ns").has_gone(&key, "ns");
            assert_eq!((lost, kept, new), (gone, false, false), "{key}");
        }
    }
}
