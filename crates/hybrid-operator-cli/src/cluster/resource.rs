//! `KIND/NAME` on the command line.

use anyhow::{Context as _, bail};
use hybrid_operator::helm::{RecordInfo, Records, Storage};
use hybrid_operator::watches::Watch;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Cluster, Kind, Kinds};
use crate::command::UsageError;

/// A custom resource of the cluster, with its release.
pub(crate) struct Selected {
    pub(crate) kind: Kind,
    pub(crate) resource: DynamicObject,
    /// Revisions of its release, oldest first.
    pub(crate) history: Vec<RecordInfo>,
    pub(crate) records: Records,
}

/// Splits `KIND/NAME`.
pub(crate) fn parse(text: &str) -> anyhow::Result<(&str, &str)> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind, name))
        }
        _ => Err(UsageError(format!(
            "{text:?} does not name a custom resource; write KIND/NAME, such as shop/main"
        ))
        .into()),
    }
}

/// Returns a condition of a custom resource.
pub(crate) fn condition<'o>(object: &'o DynamicObject, type_: &str) -> Option<&'o Value> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let mut conditions = conditions.iter();
    conditions.find(|condition| condition.get("type").and_then(Value::as_str) == Some(type_))
}

impl Cluster {
    /// Reads the custom resource that `text`, `KIND/NAME`, names.
    pub(crate) async fn named(
        &self,
        kinds: &Kinds,
        text: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<(Kind, DynamicObject)> {
        let (given, name) = parse(text)?;
        let found = kinds.find(self, given).await?;
        let gvk = &found.gvk;
        let namespace = namespace.unwrap_or(&self.namespace);
        let read = self.get(gvk, Some(namespace), name).await?;
        let Some(mut resource) = read else {
            let kind = &gvk.kind;
            if self.served(gvk).await?.namespaced {
                bail!(
                    "{kind} {name} does not exist in namespace {namespace}; choose another with \
                     --namespace"
                );
            }
            bail!("{kind} {name} does not exist");
        };
        // Of what a client sends back or shows, these are noise.
        resource.metadata.managed_fields = None;
        Ok((found, resource))
    }
}

impl Selected {
    /// Reads the custom resource that `text`, `KIND/NAME`, names, and lists its records.
    pub(crate) async fn read(
        cluster: &Cluster,
        kinds: &Kinds,
        text: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let (kind, resource) = cluster.named(kinds, text, namespace).await?;
        let records = Records::new(cluster.client.clone(), Storage::Secrets);
        let history = Self::history(&records, &kind.gvk, kind.watch.as_ref(), &resource).await?;
        Ok(Self {
            kind,
            resource,
            history,
            records,
        })
    }

    /// Lists the records of a custom resource. A cluster-scoped one has its release in the namespace
    /// of the watches file, or else in any.
    pub(crate) async fn history(
        records: &Records,
        gvk: &GroupVersionKind,
        watch: Option<&Watch>,
        resource: &DynamicObject,
    ) -> anyhow::Result<Vec<RecordInfo>> {
        let own = resource.metadata.namespace.as_deref();
        let namespace = own.or_else(|| watch?.release_namespace.as_deref());
        let listed = records.of(gvk, resource, namespace).await;
        listed.context(
            "cannot read the release records; they are Secrets, on which the verbs \"get\" and \
                 \"list\" are needed",
        )
    }

    /// Formats as `Kind namespace/name`.
    pub(crate) fn name(&self) -> String {
        self.kind.name_of(&self.resource)
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
    use super::parse;

    #[test]
    fn a_name_needs_its_kind() {
        assert_eq!(parse("shop/main").unwrap(), ("shop", "main"));
        for text in ["shop", "/main", "shop/", "a/b/c"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
