//! Kinds of custom resources that the API server serves, by the names that people give them.

use helm_core::manifest::api_versions::is_built_in;
use hybrid_operator::native::CATEGORY;
use kube::core::GroupVersionKind;
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};

use super::{Attempt, Cluster};

/// A kind of custom resources that the API server serves, in its preferred version.
#[derive(Debug, Clone)]
pub(crate) struct ServedKind {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) namespaced: bool,
    /// Whether its definition has the category of this framework.
    pub(crate) is_marked: bool,
    /// Kind, plural, singular and short names, in lower case.
    names: Vec<String>,
}

impl ServedKind {
    /// Returns whether people mean this kind by `name`, or by `name.group`.
    pub(super) fn is_called(&self, name: &str, group: Option<&str>) -> bool {
        self.names.iter().any(|own| own == name)
            && group.is_none_or(|group| group == self.gvk.group)
    }

    fn of(group: &str, version: &str, resource: &APIResourceDiscovery) -> Option<Self> {
        let kind = resource.response_kind.as_ref()?.kind.clone()?;
        if !resource.verbs.iter().any(|verb| verb == "list") {
            return None;
        }
        let mut names = resource.short_names.clone();
        names.extend(resource.resource.clone());
        names.extend(resource.singular_resource.clone());
        names.push(kind.to_lowercase());
        Some(Self {
            gvk: GroupVersionKind::gvk(group, version, &kind),
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            is_marked: resource.categories.iter().any(|own| own == CATEGORY),
            names,
        })
    }
}

/// Returns whether a group can be one of custom resources: neither Kubernetes' own nor one of its metrics servers.
fn is_custom(group: &str) -> bool {
    !is_built_in(group) && !group.ends_with("metrics.k8s.io")
}

fn kinds_of(list: &APIGroupDiscoveryList) -> Vec<ServedKind> {
    let mut kinds: Vec<ServedKind> = Vec::new();
    for group in &list.items {
        let metadata = group.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.as_deref());
        let Some(name) = name.filter(|name| is_custom(name)) else {
            continue;
        };
        // The preferred version comes first.
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            for resource in &version.resources {
                let found = ServedKind::of(name, number, resource);
                let is_known = |found: &ServedKind| {
                    let same = |kind: &ServedKind| {
                        kind.gvk.kind == found.gvk.kind && kind.gvk.group == found.gvk.group
                    };
                    kinds.iter().any(same)
                };
                kinds.extend(found.filter(|found| !is_known(found)));
            }
        }
    }
    kinds
}

impl Cluster {
    /// Returns the kinds of custom resources that the API server serves. Asks it once.
    pub(crate) async fn served_kinds(&self) -> anyhow::Result<&[ServedKind]> {
        let read = async || {
            let list = self.client.list_api_groups_aggregated().await;
            let attempt = Attempt::new("get", "the API groups");
            list.map(|list| kinds_of(&list))
                .map_err(|error| self.explain(error, &attempt))
        };
        Ok(self.served.get_or_try_init(read).await?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn custom_kinds_are_known_by_all_their_names_in_the_preferred_version() {
        let resource = |kind: &str, categories: &[&str]| {
            json!({"resource": format!("{}s", kind.to_lowercase()), "responseKind": {"kind": kind},
                "scope": "Namespaced", "singularResource": kind.to_lowercase(), "verbs": ["get", "list"],
                "shortNames": ["sh"], "categories": categories})
        };
        let mut mall = resource("Mall", &[]);
        mall["shortNames"] = json!([]);
        let list = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [resource("Deployment", &["all"])]}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [
                {"version": "v1", "resources": [resource("PodMetric", &[])]}]},
            {"metadata": {"name": "charts.helm.k8s.io"}, "versions": [
                {"version": "v1", "resources": [mall]}]},
            {"metadata": {"name": "a.example.com"}, "versions": [
                {"version": "v2", "resources": [resource("Shop", &[CATEGORY])]},
                {"version": "v1", "resources": [resource("Shop", &[CATEGORY])]}]},
            {"metadata": {"name": "b.example.com"}, "versions": [
                {"version": "v1", "resources": [resource("Shop", &[])]}]}]});
        let kinds = kinds_of(&serde_json::from_value(list).unwrap());
        let called = |name: &str, group: Option<&str>| {
            let called = kinds.iter().filter(|kind| kind.is_called(name, group));
            let names = called.map(|kind| {
                let gvk = &kind.gvk;
                (gvk.group.clone(), gvk.version.clone(), kind.is_marked)
            });
            names.collect::<Vec<_>>()
        };
        let first = ("a.example.com".to_owned(), "v2".to_owned(), true);
        let second = ("b.example.com".to_owned(), "v1".to_owned(), false);
        for name in ["shop", "shops", "sh"] {
            assert_eq!(
                called(name, None),
                [first.clone(), second.clone()],
                "{name}"
            );
        }
        assert_eq!(called("shop", Some("b.example.com")), [second]);
        assert!(called("deployment", None).is_empty());
        assert!(called("podmetrics", None).is_empty());
        assert_eq!(called("mall", None).len(), 1);
    }
}
