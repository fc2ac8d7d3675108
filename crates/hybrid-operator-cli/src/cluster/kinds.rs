//! Kinds of custom resources: those of a project, or those that operators serve in a cluster.
//!
//! ```text
//! in a project:  entries of the watches file, and native kinds of PROJECT
//! elsewhere:     the category in discovery; then for each release record
//!                    the kind whose identity with the release's name is in the record's label,
//!                    else the owner of the release's first object
//! ```

use std::collections::HashSet;

use anyhow::{Context as _, bail};
use helm_core::manifest::parse_objects;
use hybrid_operator::helm::{RecordInfo, Records, Storage};
use hybrid_operator::helm_release::kube_objects::ownership::{CrIdentity, OwnerHint, owner_of};
use hybrid_operator::native::CATEGORY;
use hybrid_operator::watches::{self, Watch};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::{Resource as _, ResourceExt as _};

use super::served::ServedKind;
use super::{Attempt, Cluster};
use crate::project::plural;

/// A kind of custom resources.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) gvk: GroupVersionKind,
    /// Entry of the watches file, if there is one.
    pub(crate) watch: Option<Watch>,
}

impl From<Watch> for Kind {
    fn from(watch: Watch) -> Self {
        Self {
            gvk: watch.gvk.clone(),
            watch: Some(watch),
        }
    }
}

impl From<GroupVersionKind> for Kind {
    fn from(gvk: GroupVersionKind) -> Self {
        Self { gvk, watch: None }
    }
}

impl Kind {
    /// Returns the label selector of its entry, together with a further one.
    pub(crate) fn selector(&self, further: Option<&str>) -> Option<String> {
        let own = self
            .watch
            .as_ref()
            .and_then(|watch| watch.selector.as_ref());
        let own = own.map(ToString::to_string);
        let both: Vec<String> = own
            .into_iter()
            .chain(further.map(ToOwned::to_owned))
            .collect();
        Some(both.join(",")).filter(|both| !both.is_empty())
    }

    /// Formats a custom resource as `Kind namespace/name`.
    pub(crate) fn name_of(&self, resource: &DynamicObject) -> String {
        let (kind, name) = (&self.gvk.kind, resource.name_any());
        match resource.namespace() {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    }

    /// Returns `Kind.group`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.gvk.kind, self.gvk.group)
    }

    fn is_called(&self, name: &str, group: Option<&str>) -> bool {
        (self.gvk.kind.to_lowercase() == name || plural(&self.gvk.kind) == name)
            && group.is_none_or(|group| group == self.gvk.group)
    }
}

/// Origin of the kinds.
#[derive(Debug, Clone)]
pub(crate) enum Kinds {
    /// Kinds of the watches file that a flag names. There are no others.
    File(Vec<Kind>),
    /// Kinds of the project of the current directory. One of them is shown even if it is another project's.
    Project(Vec<Kind>),
    /// Kinds that operators serve in the cluster.
    Cluster,
}

/// Kinds whose custom resources are listed, and what kept others from being found.
pub(crate) struct Listed {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) problems: Vec<anyhow::Error>,
}

impl Kinds {
    /// Returns the kinds of which custom resources are listed, in a namespace or in all.
    pub(crate) async fn list(
        &self,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> anyhow::Result<Listed> {
        match self {
            Self::File(kinds) | Self::Project(kinds) => Ok(Listed {
                kinds: kinds.clone(),
                problems: Vec::new(),
            }),
            Self::Cluster => in_use(cluster, namespace).await,
        }
    }

    /// Finds a kind by its name, `kind.group`, plural, or in a cluster also a short name, regardless of case.
    pub(crate) async fn find(&self, cluster: &Cluster, text: &str) -> anyhow::Result<Kind> {
        match self {
            Self::File(kinds) => kind_of(kinds, text),
            Self::Project(kinds) => match kind_of(kinds, text) {
                Ok(kind) => Ok(kind),
                Err(error) => served(cluster, text).await.or(Err(error)),
            },
            Self::Cluster => served(cluster, text).await,
        }
    }
}

/// Splits `kind.group`, in lower case.
fn split(text: &str) -> (String, Option<String>) {
    let wanted = text.to_lowercase();
    match wanted.split_once('.') {
        Some((kind, group)) => (kind.to_owned(), Some(group.to_owned())),
        None => (wanted, None),
    }
}

/// Finds a kind of a project by its name, `kind.group`, or plural, regardless of case.
fn kind_of(kinds: &[Kind], text: &str) -> anyhow::Result<Kind> {
    let (name, group) = split(text);
    let found: Vec<&Kind> = kinds
        .iter()
        .filter(|kind| kind.is_called(&name, group.as_deref()))
        .collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.gvk.kind.as_str()).collect();
            match watches::nearest(text, &names) {
                Some(near) => bail!("the watches file has no kind {text:?}; did you mean {near}?"),
                None => bail!(
                    "the watches file has no kind {text:?}; its kinds are {}",
                    names.join(", ")
                ),
            }
        }
        several => Err(ambiguous(text, several.iter().map(|kind| kind.full_name()))),
    }
}

fn ambiguous(text: &str, names: impl Iterator<Item = String>) -> anyhow::Error {
    let names: Vec<String> = names.collect();
    anyhow::anyhow!("{text:?} is ambiguous; write one of {}", names.join(", "))
}

/// Finds a kind among those that the API server serves. A kind of this framework comes before others of the name.
async fn served(cluster: &Cluster, text: &str) -> anyhow::Result<Kind> {
    let all = cluster.served_kinds().await?;
    let (name, group) = split(text);
    let found: Vec<&ServedKind> = all
        .iter()
        .filter(|kind| kind.is_called(&name, group.as_deref()))
        .collect();
    let marked: Vec<&ServedKind> = found
        .iter()
        .copied()
        .filter(|kind| kind.is_marked)
        .collect();
    match (marked.as_slice(), found.as_slice()) {
        ([one], _) | (_, [one]) => Ok(one.gvk.clone().into()),
        (_, []) => {
            let names: Vec<&str> = all.iter().map(|kind| kind.gvk.kind.as_str()).collect();
            match watches::nearest(text, &names) {
                Some(near) => bail!(
                    "{} serves no kind of custom resources {text:?}; did you mean {near}?",
                    cluster.server
                ),
                None => bail!(
                    "{} serves no kind of custom resources {text:?}; 'kubectl api-resources' lists all kinds, and \
                     --context chooses another cluster",
                    cluster.server
                ),
            }
        }
        (_, several) => {
            let names = several
                .iter()
                .map(|kind| Kind::from(kind.gvk.clone()).full_name());
            Err(ambiguous(text, names))
        }
    }
}

/// Returns the kinds that operators serve in a cluster, sorted: those with the category, and those with releases.
async fn in_use(cluster: &Cluster, namespace: Option<&str>) -> anyhow::Result<Listed> {
    let served = cluster.served_kinds().await?;
    let marked = served.iter().filter(|kind| kind.is_marked);
    let mut kinds: Vec<Kind> = marked.map(|kind| kind.gvk.clone().into()).collect();
    let mut problems = Vec::new();
    let records = Records::new(cluster.client.clone(), Storage::Secrets);
    match records.all(namespace).await {
        Ok(mut all) => {
            // The newest record of each release.
            all.retain(RecordInfo::has_owner);
            all.sort_by_key(|record| std::cmp::Reverse(record.revision()));
            all.sort_by(|a, b| place(a).cmp(&place(b)));
            all.dedup_by(|a, b| place(a) == place(b));
            problems
                .extend(add_owners(cluster, namespace, &records, all, served, &mut kinds).await);
        }
        Err(error) => {
            let attempt = Attempt::new("list", "secrets").on(namespace, None);
            problems.push(anyhow::Error::new(error).context(format!(
                "cannot {}, so that only kinds whose definition has the category {CATEGORY} are found",
                attempt.text()
            )));
        }
    }
    if kinds.is_empty() {
        let place = namespace.map_or("the cluster".to_owned(), |name| format!("namespace {name}"));
        let why = problems.pop().unwrap_or_else(|| {
            anyhow::anyhow!(
                "no kind of the cluster has the category {CATEGORY}, and no release in {place} belongs to a custom \
                 resource; look elsewhere with --namespace, --all-namespaces or --context, or name kinds with \
                 --watches-file"
            )
        });
        return Err(why);
    }
    kinds.sort_by_key(Kind::full_name);
    Ok(Listed { kinds, problems })
}

fn place(record: &RecordInfo) -> (&str, &str) {
    (record.namespace(), record.name().as_ref())
}

/// Adds the kinds of the custom resources that records belong to. Returns what kept it from finding some.
async fn add_owners(
    cluster: &Cluster,
    namespace: Option<&str>,
    reader: &Records,
    mut records: Vec<RecordInfo>,
    served: &[ServedKind],
    kinds: &mut Vec<Kind>,
) -> Option<anyhow::Error> {
    let mut candidates: Vec<&ServedKind> = served.iter().collect();
    records.retain(|record| {
        let found = candidates
            .iter()
            .position(|kind| is_named_alike(record, kind));
        let Some(index) = found else {
            return true;
        };
        // The next release is probably one of the same kind.
        candidates.swap(0, index);
        if let Some(kind) = candidates.first() {
            add(kinds, kind);
        }
        false
    });
    if !records.is_empty() {
        for kind in kinds.iter() {
            leave_out(cluster, &kind.gvk, namespace, &mut records).await;
        }
    }
    let mut first = None;
    let mut count = 0_usize;
    while let Some(record) = records.pop() {
        match owner(cluster, reader, &record).await {
            Ok(owner) => {
                let is_owner = |kind: &&ServedKind| {
                    let names = (kind.gvk.group.as_str(), kind.gvk.kind.as_str());
                    owner
                        .as_ref()
                        .is_some_and(|owner| names == (owner.group.as_str(), owner.kind.as_str()))
                };
                if let Some(kind) = served.iter().find(is_owner) {
                    add(kinds, kind);
                    leave_out(cluster, &kind.gvk, namespace, &mut records).await;
                }
            }
            Err(error) => {
                count += 1;
                first.get_or_insert(error);
            }
        }
    }
    first.map(|error| error.context(format!("the kinds of {count} releases are not known")))
}

fn add(kinds: &mut Vec<Kind>, found: &ServedKind) {
    let is_found =
        |kind: &Kind| kind.gvk.group == found.gvk.group && kind.gvk.kind == found.gvk.kind;
    if !kinds.iter().any(is_found) {
        kinds.push(found.gvk.clone().into());
    }
}

/// Returns whether a release belongs to a custom resource of a kind, and has its name, which is the default.
fn is_named_alike(record: &RecordInfo, kind: &ServedKind) -> bool {
    let gvk = &kind.gvk;
    let namespace = kind.namespaced.then(|| record.namespace());
    let name = record.name().as_ref();
    // Two kinds with custom resources of one name: the second release is called NAME-KIND.
    let suffix = format!("-{}", gvk.kind.to_lowercase());
    let mut names = [Some(name), name.strip_suffix(&suffix)]
        .into_iter()
        .flatten();
    names
        .any(|name| record.owner() == Some(&CrIdentity::of(&gvk.group, &gvk.kind, namespace, name)))
}

/// Leaves out the records of the custom resources of a kind, as far as these can be listed.
async fn leave_out(
    cluster: &Cluster,
    gvk: &GroupVersionKind,
    namespace: Option<&str>,
    records: &mut Vec<RecordInfo>,
) {
    let Ok(objects) = cluster.list(gvk, namespace, None).await else {
        return;
    };
    let (mut identities, mut uids) = (HashSet::new(), HashSet::new());
    for object in objects {
        let namespace = object.metadata.namespace.as_deref();
        identities.insert(CrIdentity::of(
            &gvk.group,
            &gvk.kind,
            namespace,
            &object.name_any(),
        ));
        uids.extend(object.metadata.uid);
    }
    records.retain(|record| {
        let is_labelled = record.owner().is_some_and(|own| identities.contains(own));
        let is_referenced = record.owner_uids().iter().any(|uid| uids.contains(uid));
        !(is_labelled || is_referenced)
    });
}

/// Returns the custom resource that the first object of a release names, if there is one.
async fn owner(
    cluster: &Cluster,
    reader: &Records,
    record: &RecordInfo,
) -> anyhow::Result<Option<OwnerHint>> {
    let content = reader.load(record).await;
    let content =
        content.with_context(|| format!("release {}/{}", record.namespace(), record.name()))?;
    for object in parse_objects(&content.manifest)? {
        let key = object.key();
        let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
        let namespace = key.namespace.as_deref().unwrap_or(&content.namespace);
        let found = cluster.get(&gvk, Some(namespace), &key.name).await?;
        if let Some(owner) = found.and_then(|object| owner_of(object.meta())) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use hybrid_operator::watches::Watch;
    use kube::core::GroupVersionKind;

    use super::{Kind, kind_of};

    #[test]
    fn kinds_are_found_by_kind_plural_and_group() {
        let kind = |group: &str, kind: &str| {
            Kind::from(Watch::new(
                GroupVersionKind::gvk(group, "v1", kind),
                "chart",
            ))
        };
        let kinds = [
            kind("a.example.com", "Memcached"),
            kind("a.example.com", "Shop"),
            kind("b.example.com", "Shop"),
        ];
        let found = |text: &str| match kind_of(&kinds, text) {
            Ok(kind) => kind.full_name(),
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
}
