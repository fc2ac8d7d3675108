//! Taking over a release that somebody else made: a Go operator, or a person with `helm install`.
//!
//! Its records become ours, and where its objects already are what the custom resource says, there
//! is no new revision: no Pod restarts because the operator was exchanged.

use helm_core::manifest::diff::same_meaning;
use helm_core::manifest::{ManifestObject, parse_objects};
use helm_core::release::{Revision, Status as ReleaseStatus};
use serde_json::Value;

use super::HelmReconciler;
use super::desired::Desired;
use super::execute::{Done, Refused};
use super::observe::Facts;
use super::status::Status;
use crate::controller::ReconcileError;
use crate::release::RecordMeta;
use std::time::Duration;

impl HelmReconciler {
    /// Stores as Helm does what helm-operator-plugins has stored in chunks: the newest deployed
    /// record, as the next revision, since its index has the name of its own. The chunks are left
    /// to garbage collection, which deletes them with the custom resource.
    pub(super) async fn bring_over(
        &self,
        facts: &Facts,
    ) -> Result<Option<Revision>, ReconcileError> {
        if !super::finalizer::is_legacy(&facts.resource) {
            return Ok(None);
        }
        let chunked = self.store.chunked(&facts.namespace, &facts.name).await?;
        let Some(newest) = chunked.last() else {
            return Ok(None);
        };
        let is_deployed = |meta: &&RecordMeta| meta.status == ReleaseStatus::Deployed;
        let meta = chunked.iter().rev().find(is_deployed).unwrap_or(newest);
        let mut record = self.store.load(meta).await?;
        record.revision = newest.revision.next();
        self.store.create(&record, &self.tags(facts, None)).await?;
        Ok(Some(record.revision))
    }

    /// Makes the records of a release ours.
    pub(super) async fn adopt(
        &self,
        facts: &Facts,
        desired: &Desired,
        status: &mut Status,
        revision: Revision,
    ) -> Result<Done, ReconcileError> {
        let history = self.store.history(&facts.namespace, &facts.name);
        let Some(stored) = self.load(&history, revision).await? else {
            return Ok(Done::Again(Duration::ZERO));
        };
        let theirs = stored
            .release
            .chart
            .as_ref()
            .and_then(|chart| chart.name_and_version());
        let own = self.chart.chart().name();
        if let Some((name, _)) = theirs.filter(|(name, _)| *name != own) {
            let message = format!(
                "the release {}/{} is one of the chart {name}, and this is {own}; it is left alone",
                facts.namespace, facts.name
            );
            status.irreconcilable("ErrorGettingReleaseState", &Refused(message));
            return Ok(Done::Settled);
        }
        let rendered = self
            .render(
                facts,
                &desired.coalesced,
                revision,
                revision != Revision::FIRST,
            )
            .await
            .map_err(|error| super::status::chain(&error))?
            .rendered;
        let before = bare(&parse_objects(&stored.release.manifest).unwrap_or_default());
        let wanted = bare(&rendered.objects().unwrap_or_default());
        let same = same_meaning(&before, &wanted, &facts.namespace);
        if !facts.finalizer {
            self.add_finalizer(facts).await?;
        }
        // Owner references go from every record first: garbage collection would delete them.
        for meta in history.iter().filter(|meta| meta.revision != revision) {
            self.store.adopt(meta, &self.tags(facts, None)).await?;
        }
        let digest = same.then(|| desired.digest.clone());
        let tags = self.tags(facts, digest);
        self.store.adopt(&stored.meta, &tags).await?;
        let note = format!(
            "took over revision {revision} of the release {}",
            facts.name
        );
        self.event(facts, false, "ReleaseAdopted", "Adopt", note)
            .await;
        Ok(Done::Again(Duration::ZERO))
    }
}

/// The objects without the ownership that the Go operators write into a manifest.
fn bare(objects: &[ManifestObject]) -> Vec<ManifestObject> {
    let documents: Vec<String> = objects
        .iter()
        .map(|object| {
            let mut object = object.object().clone();
            strip(&mut object);
            object.to_string()
        })
        .collect();
    // Every JSON text is a YAML document.
    parse_objects(&documents.join("\n---\n")).unwrap_or_default()
}

fn strip(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("ownerReferences");
    for (field, prefixes) in [
        ("annotations", &["operator-sdk/primary-resource"][..]),
        ("labels", &["helm.sdk.operatorframework.io/"][..]),
    ] {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.retain(|key, _| !prefixes.iter().any(|prefix| key.starts_with(prefix)));
            if map.is_empty() {
                metadata.remove(field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::diff::same_meaning;
    use helm_core::manifest::parse_objects;

    use super::bare;

    #[test]
    fn ownership_in_a_manifest_does_not_count() {
        let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  ownerReferences: [{uid: u}]\n  annotations: {operator-sdk/primary-resource: ns/cr}\n  labels: {helm.sdk.operatorframework.io/chart: c}\ndata: {k: v}\n";
        let ours = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n";
        let (theirs, ours) = (parse_objects(theirs).unwrap(), parse_objects(ours).unwrap());
        assert!(!same_meaning(&theirs, &ours, "ns"));
        assert!(same_meaning(&bare(&theirs), &bare(&ours), "ns"));
    }
}
