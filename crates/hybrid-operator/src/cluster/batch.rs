//! Applying many objects: kind after kind, those of one kind at the same time.

use futures::StreamExt;
use helm_core::manifest::ObjectKey;
use serde_json::Value;

use super::Cluster;
use super::apply::{Applied, Apply, apply};
use super::failure::ApplyError;

/// What [`apply_all`] has done.
#[derive(Debug, Default)]
pub struct AppliedAll {
    /// The objects that were applied.
    pub applied: Vec<Applied>,
    /// The objects that were refused.
    pub failed: Vec<(ObjectKey, ApplyError)>,
    /// The objects that were not tried, since an earlier kind had failed.
    pub skipped: Vec<ObjectKey>,
}

/// Applies objects in the given order, those of one kind at the same time, at most `concurrency`
/// of them. A failure ends it after the kind in which it happens.
pub async fn apply_all(
    cluster: &Cluster,
    requests: Vec<Apply<'_>>,
    concurrency: usize,
) -> AppliedAll {
    let kind_of = |request: &Apply<'_>| {
        let field = |name| {
            request
                .object
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (field("apiVersion").to_owned(), field("kind").to_owned())
    };
    let mut done = AppliedAll::default();
    let mut rest = requests.into_iter().peekable();
    while let Some(first) = rest.next() {
        let kind = kind_of(&first);
        let mut group = vec![first];
        while let Some(next) = rest.next_if(|next| kind_of(next) == kind) {
            group.push(next);
        }
        if !done.failed.is_empty() {
            done.skipped.extend(
                group
                    .iter()
                    .filter_map(|request| ObjectKey::of(&request.object)),
            );
            continue;
        }
        let results: Vec<_> = futures::stream::iter(group)
            .map(|request| async move {
                let key = ObjectKey::of(&request.object);
                (key, apply(cluster, request).await)
            })
            .buffered(concurrency.max(1))
            .collect()
            .await;
        for (key, result) in results {
            match (result, key) {
                (Ok(applied), _) => done.applied.push(applied),
                (Err(error), key) => {
                    let key = key.unwrap_or_else(|| nameless(&kind));
                    done.failed.push((key, error));
                }
            }
        }
    }
    done
}

fn nameless((api_version, kind): &(String, String)) -> ObjectKey {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ObjectKey {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.clone(),
        namespace: None,
        name: String::new(),
    }
}
