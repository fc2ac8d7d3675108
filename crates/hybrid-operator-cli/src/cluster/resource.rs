//! `KIND/NAME` on the command line.

use anyhow::{Context as _, bail};
use hybrid_operator::helm::{RecordInfo, Records, Storage};
use hybrid_operator::watches::{self, Watch};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::Cluster;
use crate::project::plural;

/// A custom resource of the cluster, with its release.
pub(crate) struct Selected {
    pub(crate) watch: Watch,
    pub(crate) resource: DynamicObject,
    /// Revisions of its release, oldest first.
    pub(crate) history: Vec<RecordInfo>,
    pub(crate) records: Records,
}

/// Splits `KIND/NAME`.
fn parse(text: &str) -> anyhow::Result<(&str, &str)> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind, name))
        }
        _ => bail!("{text:?} does not name a custom resource; write KIND/NAME, such as shop/main"),
    }
}

/// Finds the entry of a kind by its name, `kind.group`, or plural, regardless of case.
pub(crate) fn watch_of<'w>(watches: &'w [Watch], kind: &str) -> anyhow::Result<&'w Watch> {
    let wanted = kind.to_lowercase();
    let (wanted, group) = match wanted.split_once('.') {
        Some((kind, group)) => (kind, Some(group)),
        None => (wanted.as_str(), None),
    };
    let found: Vec<&Watch> = watches
        .iter()
        .filter(|watch| {
            let name = watch.gvk.kind.to_lowercase();
            let plural = plural(&watch.gvk.kind);
            (name == wanted || plural == wanted)
                && group.is_none_or(|group| group == watch.gvk.group)
        })
        .collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let kinds: Vec<&str> = watches.iter().map(|w| w.gvk.kind.as_str()).collect();
            match watches::nearest(kind, &kinds) {
                Some(near) => bail!("the watches file has no kind {kind:?}; did you mean {near}?"),
                None => bail!(
                    "the watches file has no kind {kind:?}; its kinds are {}",
                    kinds.join(", ")
                ),
            }
        }
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|watch| format!("{}.{}", watch.gvk.kind, watch.gvk.group))
                .collect();
            bail!("{kind:?} is ambiguous; write one of {}", names.join(", "))
        }
    }
}

impl Selected {
    /// Reads the custom resource that `text`, `KIND/NAME`, names, and lists its records.
    pub(crate) async fn read(
        cluster: &Cluster,
        watches: &[Watch],
        text: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let (given, name) = parse(text)?;
        let watch = watch_of(watches, given)?.clone();
        let namespace = namespace.unwrap_or(&cluster.namespace);
        let found = cluster.get(&watch.gvk, Some(namespace), name).await?;
        let Some(mut resource) = found else {
            let kind = &watch.gvk.kind;
            if cluster.served(&watch.gvk).await?.namespaced {
                bail!(
                    "{kind} {name} does not exist in namespace {namespace}; choose another with \
                     --namespace"
                );
            }
            bail!("{kind} {name} does not exist");
        };
        // Of what a client sends back or shows, these are noise.
        resource.metadata.managed_fields = None;
        let records = Records::new(cluster.client.clone(), Storage::Secrets);
        let history = Self::history(&records, &watch, &resource).await?;
        Ok(Self {
            watch,
            resource,
            history,
            records,
        })
    }

    /// Lists the records of a custom resource. A cluster-scoped one has its release in the namespace
    /// of the watches file, or else in any.
    pub(crate) async fn history(
        records: &Records,
        watch: &Watch,
        resource: &DynamicObject,
    ) -> anyhow::Result<Vec<RecordInfo>> {
        let own = resource.metadata.namespace.as_deref();
        let namespace = own.or(watch.release_namespace.as_deref());
        let listed = records.of(&watch.gvk, resource, namespace).await;
        listed.context(
            "cannot read the release records; they are Secrets, on which the verbs \"get\" and \
                 \"list\" are needed",
        )
    }

    /// Formats as `Kind namespace/name`.
    pub(crate) fn name(&self) -> String {
        let name = self.resource.name_any();
        match self.resource.namespace() {
            Some(namespace) => format!("{} {namespace}/{name}", self.watch.gvk.kind),
            None => format!("{} {name}", self.watch.gvk.kind),
        }
    }

    /// Returns a revision, or the newest one.
    pub(crate) fn revision(&self, number: Option<u32>) -> anyhow::Result<&RecordInfo> {
        let Some(latest) = self.history.last() else {
            bail!("{} has no release yet; {}", self.name(), self.why_not());
        };
        let Some(number) = number else {
            return Ok(latest);
        };
        let mut history = self.history.iter();
        let found = history.find(|record| record.revision().0 == number);
        found.with_context(|| {
            let known = self
                .history
                .iter()
                .map(|record| record.revision().to_string());
            let known: Vec<String> = known.collect();
            format!(
                "{} has no revision {number}; it has {}",
                self.name(),
                known.join(", ")
            )
        })
    }

    /// Says why there is no release, as far as the status tells.
    fn why_not(&self) -> String {
        let conditions = self.resource.data.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array);
        let problem = conditions.into_iter().flatten().find(|condition| {
            let is = |field: &str, text: &str| {
                condition.get(field).and_then(Value::as_str) == Some(text)
            };
            is("status", "True")
                && (is("type", "Irreconcilable")
                    || is("type", "ReleaseFailed")
                    || is("type", "Paused"))
        });
        let text = |condition: &Value, field: &str| {
            let text = condition.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        match problem {
            Some(condition) => format!(
                "its condition {} says {}: {}",
                text(condition, "type"),
                text(condition, "reason"),
                text(condition, "message")
            ),
            None if conditions.is_none() => {
                "the operator has not seen it: does it run, and watch this namespace?".to_owned()
            }
            None => "see its conditions with 'hybrid-operator status'".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hybrid_operator::watches::Watch;
    use kube::core::GroupVersionKind;

    use super::{parse, watch_of};

    #[test]
    fn kinds_are_found_by_kind_plural_and_group() {
        let watch =
            |group: &str, kind: &str| Watch::new(GroupVersionKind::gvk(group, "v1", kind), "chart");
        let watches = [
            watch("a.example.com", "Memcached"),
            watch("a.example.com", "Shop"),
            watch("b.example.com", "Shop"),
        ];
        let found = |kind: &str| match watch_of(&watches, kind) {
            Ok(watch) => format!("{}.{}", watch.gvk.kind, watch.gvk.group),
            Err(error) => error.to_string(),
        };
        for kind in [
            "memcached",
            "Memcached",
            "memcacheds",
            "memcached.a.example.com",
        ] {
            assert_eq!(found(kind), "Memcached.a.example.com", "{kind}");
        }
        assert_eq!(found("shops.b.example.com"), "Shop.b.example.com");
        let expected = "\"shop\" is ambiguous; write one of Shop.a.example.com, Shop.b.example.com";
        assert_eq!(found("shop"), expected);
        let expected = "the watches file has no kind \"memcahed\"; did you mean Memcached?";
        assert_eq!(found("memcahed"), expected);
        let pod = found("pod");
        let known = "its kinds are Memcached, Shop, Shop";
        assert!(pod.ends_with(known), "{pod}");
    }

    #[test]
    fn a_name_needs_its_kind() {
        assert_eq!(parse("shop/main").unwrap(), ("shop", "main"));
        for text in ["shop", "/main", "shop/", "a/b/c"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
