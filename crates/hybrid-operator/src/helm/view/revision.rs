//! Manifests of revisions, and their differences, without the content of Secrets. Reads records: one request for each
//! that is not in memory.

use std::time::Duration;

use helm_core::manifest::{ManifestError, ManifestObject, ObjectIdentity, parse_objects};
use helm_core::release::Release as Record;
use helm_release::release::StoreError;
use operator_runtime::controller::Key;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::View;
use crate::helm::hide_secrets;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Longest time to search for the shortest difference of an object.
const DIFF_WITHIN: Duration = Duration::from_millis(200);

/// Error of showing a revision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RevisionError {
    #[error("there is no revision {0} any more")]
    Missing(u32),
    #[error("cannot read the record of revision {revision}")]
    Read {
        revision: u32,
        #[source]
        source: StoreError,
    },
    #[error("the manifest of revision {revision} is malformed")]
    Manifest {
        revision: u32,
        #[source]
        source: ManifestError,
    },
}

/// Chart of a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownChart {
    revision: u32,
    chart: String,
    app_version: String,
}

/// An object of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ShownObject {
    object: String,
    hook: bool,
    yaml: String,
}

/// An object that differs between two manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ShownDifference {
    object: String,
    hook: bool,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    /// The changed lines in the unified format, without file names.
    hunks: String,
}

/// An object or hook of a record.
struct Deployed {
    object: ManifestObject,
    hook: bool,
}

impl View {
    /// Returns the charts of the newest revisions, at most `most`.
    pub(crate) async fn charts(
        &self,
        key: &Key,
        most: usize,
    ) -> Result<Vec<ShownChart>, RevisionError> {
        let mut charts = Vec::new();
        for meta in self.history(key).iter().rev().take(most) {
            let record = self.load(key, meta.revision.0).await?;
            let chart = record
                .chart
                .as_ref()
                .and_then(|chart| chart.metadata.as_ref());
            charts.push(ShownChart {
                revision: meta.revision.0,
                chart: chart
                    .map(|it| format!("{}-{}", it.name, it.version))
                    .unwrap_or_default(),
                app_version: chart.map(|it| it.app_version.clone()).unwrap_or_default(),
            });
        }
        Ok(charts)
    }

    /// Returns the objects and hooks of a revision.
    pub(crate) async fn manifest(
        &self,
        key: &Key,
        revision: u32,
    ) -> Result<Vec<ShownObject>, RevisionError> {
        let record = self.load(key, revision).await?;
        let objects = deployed(&record)?.into_iter();
        let shown = objects.map(|Deployed { object, hook }| {
            let mut value = object.object().clone();
            hide_secrets(Some(&mut value), None);
            ShownObject {
                object: object.key().to_string(),
                hook,
                yaml: yaml(&value),
            }
        });
        Ok(shown.collect())
    }

    /// Returns how the objects and hooks of two revisions differ.
    pub(crate) async fn difference(
        &self,
        key: &Key,
        from: u32,
        to: u32,
    ) -> Result<Vec<ShownDifference>, RevisionError> {
        let (old, new) = (self.load(key, from).await?, self.load(key, to).await?);
        Ok(differences(
            &deployed(&old)?,
            &deployed(&new)?,
            &new.namespace,
        ))
    }

    async fn load(&self, key: &Key, revision: u32) -> Result<Record, RevisionError> {
        let history = self.history(key);
        let mut history = history.iter();
        let found = history.find(|meta| meta.revision.0 == revision);
        let (Some(meta), Some(releases)) = (found, self.releases()) else {
            return Err(RevisionError::Missing(revision));
        };
        let record = releases.store.load(meta).await;
        record.map_err(|source| RevisionError::Read { revision, source })
    }
}

fn deployed(record: &Record) -> Result<Vec<Deployed>, RevisionError> {
    let revision = record.revision.0;
    let parse = |text: &str| {
        let parsed = parse_objects(text);
        parsed.map_err(|source| RevisionError::Manifest { revision, source })
    };
    let is = |hook| move |object| Deployed { object, hook };
    let mut all: Vec<Deployed> = parse(&record.manifest)?
        .into_iter()
        .map(is(false))
        .collect();
    for hook in &record.hooks {
        all.extend(parse(&hook.manifest)?.into_iter().map(is(true)));
    }
    Ok(all)
}

/// Compares objects: first the new ones in their order, then those that are gone.
fn differences(old: &[Deployed], new: &[Deployed], namespace: &str) -> Vec<ShownDifference> {
    let identity = |one: &Deployed| {
        let identity = ObjectIdentity::of(one.object.key(), namespace, &|_| false);
        (one.hook, format!("{identity:?}"))
    };
    let find = |all: &[Deployed], wanted: &Deployed| {
        let wanted = identity(wanted);
        all.iter().position(|one| identity(one) == wanted)
    };
    let object =
        |all: &[Deployed], index: usize| all.get(index).map(|it| it.object.object().clone());
    let mut found = Vec::new();
    for after in new {
        let before = find(old, after).and_then(|index| object(old, index));
        found.extend(difference(
            after,
            before,
            Some(after.object.object().clone()),
        ));
    }
    for before in old.iter().filter(|before| find(new, before).is_none()) {
        found.extend(difference(
            before,
            Some(before.object.object().clone()),
            None,
        ));
    }
    found
}

fn difference(
    named: &Deployed,
    mut before: Option<Value>,
    mut after: Option<Value>,
) -> Option<ShownDifference> {
    if before == after {
        return None;
    }
    hide_secrets(before.as_mut(), after.as_mut());
    let change = match (&before, &after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    };
    let [before, after] = [before, after].map(|side| side.as_ref().map(yaml).unwrap_or_default());
    Some(ShownDifference {
        object: named.object.key().to_string(),
        hook: named.hook,
        change,
        hunks: hunks(&before, &after),
    })
}

fn hunks(before: &str, after: &str) -> String {
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_WITHIN).diff_lines(before, after);
    let mut unified = diff.unified_diff();
    let unified = unified.context_radius(CONTEXT).missing_newline_hint(false);
    unified.iter_hunks().map(|hunk| hunk.to_string()).collect()
}

fn yaml(object: &Value) -> String {
    // A JSON value can always be written.
    go_yaml::to_string(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::parse_objects;

    use super::{Deployed, differences};

    fn objects(manifest: &str) -> Vec<Deployed> {
        let objects = parse_objects(manifest).unwrap().into_iter();
        let deployed = objects.map(|object| Deployed {
            object,
            hook: false,
        });
        deployed.collect()
    }

    #[test]
    fn revisions_are_compared_without_the_content_of_secrets() {
        let old = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gone}\n---\n\
                   apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: first}\n---\n\
                   apiVersion: v1\nkind: Service\nmetadata: {name: same}\n";
        let new = "apiVersion: v1\nkind: Service\nmetadata: {name: same}\n---\n\
                   apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: prod}\nstringData: {p: second}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '2'}\n---\n\
                   apiVersion: v1\nkind: Secret\nmetadata: {name: new}\ndata: {p: aHVzaA==}\n";
        let found = differences(&objects(old), &objects(new), "prod");
        let shown: Vec<_> = found
            .iter()
            .map(|it| (it.object.as_str(), it.change))
            .collect();
        let expected = [
            ("Secret prod/s", "changed"),
            ("ConfigMap a", "changed"),
            ("Secret new", "added"),
            ("ConfigMap gone", "removed"),
        ];
        assert_eq!(shown, expected);
        let hunks: String = found.iter().map(|it| it.hunks.as_str()).collect();
        for part in [
            "-  p: '*** (before)'",
            "+  p: '*** (after)'",
            "-  x: \"1\"",
            "+  x: \"2\"",
        ] {
            assert!(hunks.contains(part), "{part} is not in {hunks}");
        }
        for secret in ["first", "second", "aHVzaA"] {
            assert!(!hunks.contains(secret), "{secret} is in {hunks}");
        }
        assert_eq!(differences(&objects(old), &objects(old), "prod"), []);
    }
}
