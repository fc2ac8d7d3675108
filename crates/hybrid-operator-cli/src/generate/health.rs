//! Health of custom resources, as expressions for the programs that deploy them from git.

use std::collections::BTreeMap;
use std::fmt;

use hybrid_operator::watches::Watch;

/// Judges an object for Argo CD, in Lua without its standard libraries. The variable `obj` has the object.
const ARGOCD: &str = include_str!("health/argocd.lua");
/// Judges an object for Flux, in CEL. The variables are the fields of the object.
const FLUX: &str = include_str!("health/flux.yaml");

/// Kinds by group and name, each with one of its versions.
pub(crate) struct Kinds<'a>(BTreeMap<(&'a str, &'a str), String>);

impl<'a> Kinds<'a> {
    /// Returns the kinds of these entries. Neither program distinguishes versions.
    pub(crate) fn of(watches: impl IntoIterator<Item = &'a Watch>) -> Self {
        let mut kinds = BTreeMap::new();
        for gvk in watches.into_iter().map(|watch| &watch.gvk) {
            let group_kind = (gvk.group.as_str(), gvk.kind.as_str());
            kinds.entry(group_kind).or_insert_with(|| gvk.api_version());
        }
        Self(kinds)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what the ConfigMap `argocd-cm` needs to have.
    ///
    /// Each kind has a key, so that nothing is said of other kinds of its group, and that a patch leaves the checks
    /// of others alone. The same check is written once.
    pub(crate) fn for_argocd(&self) -> String {
        let mut check = format!("&health |\n{}", indented(ARGOCD, 4));
        let keys = self.0.keys().map(|(group, kind)| {
            let kind = format!("{group}_{kind}");
            let kind = kind.trim_start_matches('_');
            let check = std::mem::replace(&mut check, "*health\n".to_owned());
            format!("  resource.customizations.health.{kind}: {check}")
        });
        let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\ndata:\n";
        std::iter::once(head.to_owned()).chain(keys).collect()
    }

    /// Returns what the `spec` of a `Kustomization` or `HelmRelease` of Flux needs to have.
    pub(crate) fn for_flux(&self) -> String {
        let check = indented(FLUX, 2);
        let items = self.0.iter().map(|((_, kind), api_version)| {
            format!("- apiVersion: {api_version}\n  kind: {kind}\n{check}")
        });
        std::iter::once("healthCheckExprs:\n".to_owned())
            .chain(items)
            .collect()
    }
}

impl fmt::Display for Kinds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.keys().map(|(_, kind)| *kind).collect();
        f.write_str(&names.join(", "))
    }
}

/// Indents each line of a text.
fn indented(text: &str, by: usize) -> String {
    let lines = text.lines().map(|line| format!("{:by$}{line}\n", ""));
    lines.collect()
}
