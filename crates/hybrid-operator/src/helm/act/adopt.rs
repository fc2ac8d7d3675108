//! Adopts a release that a Go operator or `helm install` created.
//!
//! Its records get this operator's labels. If its chart and configuration equal the desired ones,
//! or its objects already match the custom resource, no new revision is created: replacing the
//! operator neither restarts Pods nor generates new random passwords.

use helm_core::manifest::diff::same_meaning;
use helm_core::manifest::{ManifestObject, parse_objects};
use helm_core::release::{Release, Revision};
use serde_json::Value;

use super::super::desired::same_inputs;
use super::super::events::Notice;
use super::super::render::{RenderTarget, render};
use super::super::report::Report;
use super::{ActContext, ActError};
use crate::action::log::{Details, Done};
use crate::release::InputsDigest;

pub(super) async fn run(context: &ActContext<'_>, revision: Revision) -> Result<Report, ActError> {
    let stored = context.load(revision).await?;
    let digest = digest_of(context, &stored.release).await;
    if !context.add_finalizer().await? {
        return Ok(Report::gone());
    }
    // Remove the owner references of all older records first: garbage collection would delete them.
    let store = &context.access.store;
    let history = context.observation.history.iter();
    for meta in history.filter(|meta| meta.revision != revision) {
        store.adopt(meta, &context.tags(None, None)).await?;
    }
    let same = digest.is_some();
    store
        .adopt(&stored.meta, &context.tags(digest, None))
        .await?;
    let name = &context.subject.name;
    Done {
        primary: &context.subject.primary,
        release: name,
        revision,
        began: Some(context.subject.now),
        details: Details::default(),
    }
    .log(if same {
        "adopted the release as it is"
    } else {
        "adopted the release; its inputs differ, so an upgrade follows"
    });
    let note = format!("adopted revision {revision} of release {name}");
    context
        .notices
        .add(Notice::normal("ReleaseAdopted", "Adopt", note));
    Ok(Report::replan())
}

/// Returns the digest of the desired inputs if a record written by someone else is equivalent to
/// them.
pub(super) async fn digest_of(context: &ActContext<'_>, record: &Release) -> Option<InputsDigest> {
    let inputs = &context.desired()?.inputs;
    let same = same_inputs(context.setup, inputs, record) || same_objects(context, record).await;
    same.then(|| inputs.digest.clone())
}

/// Returns whether the chart renders equivalent objects; `false` if it does not render.
async fn same_objects(context: &ActContext<'_>, record: &Release) -> bool {
    let Some(desired) = context.desired() else {
        return false;
    };
    let revision = record.revision;
    let target = RenderTarget {
        revision,
        upgrade: revision != Revision::FIRST,
    };
    let (setup, subject) = (context.setup, context.subject);
    let coalesced = &desired.inputs.coalesced;
    let Ok(render) = render(setup, context.access, subject, coalesced, target).await else {
        return false;
    };
    let namespace = &subject.namespace;
    let before = parse_objects(&record.manifest).unwrap_or_default();
    let wanted = render.rendered.objects().unwrap_or_default();
    same_meaning(
        &without_ownership(&before, namespace),
        &without_ownership(&wanted, namespace),
        namespace,
    )
}

/// Returns the objects without what the Go operators add to a manifest: ownership metadata and the
/// release namespace.
fn without_ownership(objects: &[ManifestObject], namespace: &str) -> Vec<ManifestObject> {
    let documents: Vec<String> = objects
        .iter()
        .map(|object| {
            let mut object = object.object().clone();
            strip(&mut object, namespace);
            object.to_string()
        })
        .collect();
    // JSON is valid YAML.
    parse_objects(&documents.join("\n---\n")).unwrap_or_default()
}

fn strip(object: &mut Value, namespace: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("ownerReferences");
    if metadata.get("namespace").and_then(Value::as_str) == Some(namespace) {
        metadata.remove("namespace");
    }
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

    use super::without_ownership;

    #[test]
    fn ownership_and_release_namespace_are_ignored_when_comparing_manifests() {
        let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: ns\n  ownerReferences: [{uid: u}]\n  annotations: {operator-sdk/primary-resource: ns/cr}\n  labels: {helm.sdk.operatorframework.io/chart: c}\ndata: {k: v}\n";
        let ours = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n";
        let (theirs, ours) = (parse_objects(theirs).unwrap(), parse_objects(ours).unwrap());
        assert!(!same_meaning(&theirs, &ours, "ns"));
        assert!(same_meaning(
            &without_ownership(&theirs, "ns"),
            &without_ownership(&ours, "ns"),
            "ns"
        ));
        assert!(!same_meaning(
            &without_ownership(&theirs, "other"),
            &without_ownership(&ours, "other"),
            "other"
        ));
    }
}
