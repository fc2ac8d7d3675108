//! Computes what the operator deploys for a custom resource, with the objects, lookups and
//! capabilities of a cluster. Changes nothing.

use host::HashSet;
use std::sync::Arc;
use std::time::Duration;

use helm_core::RenderError;
use helm_core::engine::{LookupAnswer, Snapshot};
use kube::Client;
use kube_objects::read::{self, ReadError};
use kube_objects::{ApiError, Cluster, DiscoveryError, Scope};

use helm_release::engine::DesiredError;
use helm_release::preview::{LOOKUP_ROUNDS, VisibleObjects, capabilities, kind_of, read_key};

use super::offline::{Preview, PreviewError, PreviewInput, finish, prepare};
use super::references::{data_of, key_of, references_of};
use crate::values::Contents;

/// Computes what the operator deploys for a custom resource: as [`offline`](super::offline()), but
/// `valuesFrom` and `lookup` read the cluster, whose capabilities the templates see.
///
/// Needs `get` on the objects that `valuesFrom` and the templates name, and `list` where they list.
///
/// # Errors
/// As `offline`, and if a request fails.
pub async fn in_cluster(
    input: &PreviewInput<'_>,
    client: &Client,
) -> Result<Preview, PreviewError> {
    let cluster = Cluster::new(client.clone());
    let capabilities = capabilities(&cluster, Duration::MAX).await;
    let capabilities = capabilities.map_err(DesiredError::Capabilities)?;
    let contents = referenced(input, &cluster).await?;
    let mut snapshot = Snapshot::default();
    let mut cluster_scoped = HashSet::default();
    for _ in 0..LOOKUP_ROUNDS {
        let prepared = prepare(input, &contents)?;
        let trusted = input.watch.policy.lookup_is_trusted;
        let scopes = Arc::new(cluster_scoped.clone());
        let objects = VisibleObjects::new(snapshot.clone(), prepared.namespace(), trusted, scopes);
        let keys = match finish(input, prepared, &capabilities, &objects) {
            Err(PreviewError::Render(RenderError::NeedsLookup(keys))) => keys,
            result => return result,
        };
        for key in keys {
            if let Ok(kind) = cluster.resolve(&kind_of(&key)).await
                && kind.scope == Scope::Cluster
            {
                cluster_scoped.insert(key.clone());
            }
            let answer = match read_key(&cluster, &key).await {
                Ok(Some(found)) => LookupAnswer::Found(found),
                Ok(None) | Err(ReadError::Discovery(DiscoveryError::UnknownKind { .. })) => {
                    LookupAnswer::Absent
                }
                Err(ReadError::Api(error)) if ApiError::is_not_found(&error) => {
                    LookupAnswer::Absent
                }
                Err(source) => {
                    let key = key.to_string();
                    return Err(DesiredError::Lookup { key, source }.into());
                }
            };
            snapshot.insert(key, answer);
        }
    }
    Err(DesiredError::TooManyLookups.into())
}

/// Reads the objects of `valuesFrom`, with the last values of optional ones that are gone.
async fn referenced(input: &PreviewInput<'_>, cluster: &Cluster) -> Result<Contents, PreviewError> {
    let references = references_of(input.watch, input.object).map_err(DesiredError::from)?;
    let last = input.latest.and_then(|record| record.values_from.as_ref());
    let mut contents = Contents::new();
    for (from, reference) in references {
        if !contents.contains_key(&reference) {
            let key = key_of(&reference);
            let object = read::get(cluster, &key).await;
            let object = object.map_err(|source| {
                let key = key.to_string();
                DesiredError::Reference { key, source }
            })?;
            if let Some(object) = object {
                let data = data_of(reference.kind, &object);
                contents.insert(reference.clone(), data);
            }
        }
        let known = last.and_then(|last| last.get(&reference.to_string())?.get(&from.key));
        if let Some(known) = known.filter(|_| from.optional) {
            let data = contents.entry(reference).or_default();
            data.entry(from.key.clone())
                .or_insert_with(|| known.clone());
        }
    }
    Ok(contents)
}
