//! Candidates for `KIND/NAME`: kinds of the project or of the cluster, and names from the cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use clap_complete::engine::CompletionCandidate;
use kube::ResourceExt;

use crate::cluster::{Cluster, Kind, Kinds};
use crate::command::target::PlaceArgs;

/// Longest wait for the cluster after somebody has pressed a key.
const DEADLINE: Duration = Duration::from_secs(2);

/// Location of custom resources, as far as the words of the command line tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets(Vec<OsString>);

/// Flags that say where custom resources are, with a value each.
const FLAGS: &[&str] = &[
    "--namespace",
    "--watches-file",
    "--kubeconfig",
    "--context",
    "--kube-context",
];
const SHORT: &str = "-n";

#[derive(Debug, Parser)]
struct Place {
    #[command(flatten)]
    place: PlaceArgs,
}

impl Targets {
    /// Finds the flags among the words. The other words may be incomplete or wrong.
    pub(super) fn of(words: &[OsString]) -> Self {
        let mut flags = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let is_short = text.starts_with(SHORT) && text != SHORT;
            let has_value = FLAGS.iter().any(|flag| {
                let rest = text.strip_prefix(flag);
                rest.is_some_and(|rest| rest.starts_with('='))
            });
            if is_short || has_value {
                flags.push(word.clone());
            } else if (text == SHORT || FLAGS.contains(&text.as_ref()))
                && let Some(value) = words.next()
            {
                flags.extend([word.clone(), value.clone()]);
            }
        }
        Self(flags)
    }

    /// Returns the candidates for a word; none if something is missing or takes too long.
    pub(super) fn candidates(&self, current: &str) -> Vec<CompletionCandidate> {
        let arguments = [OsString::from("complete")].into_iter();
        let Ok(Place { place }) = Place::try_parse_from(arguments.chain(self.0.clone())) else {
            return Vec::new();
        };
        let Ok(known) = place.kinds() else {
            return Vec::new();
        };
        let current = current.to_owned();
        let values = match (known, current.split_once('/')) {
            (Kinds::File(known) | Kinds::Project(known), None) => kinds(&known, &current),
            (Kinds::Cluster, None) => within(DEADLINE, move || {
                let listed = place.cluster.run(async |cluster| {
                    let namespace = place.namespace().unwrap_or(&cluster.namespace);
                    Kinds::Cluster.list(&cluster, Some(namespace)).await
                });
                listed.map_or_else(|_| Vec::new(), |listed| kinds(&listed.kinds, &current))
            }),
            (known, Some((kind, name))) => {
                let (kind, name) = (kind.to_owned(), name.to_owned());
                within(DEADLINE, move || {
                    names(&place, &known, &kind, &name).unwrap_or_default()
                })
            }
        };
        values.into_iter().map(CompletionCandidate::new).collect()
    }
}

/// Returns the kinds whose name begins with `prefix`, each as `kind/`. A kind of several groups is
/// given as `kind.group/`.
fn kinds(known: &[Kind], prefix: &str) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for kind in known {
        let of_kind = groups.entry(kind.gvk.kind.to_lowercase()).or_default();
        if !of_kind.contains(&kind.gvk.group.as_str()) {
            of_kind.push(&kind.gvk.group);
        }
    }
    let all = groups
        .iter()
        .flat_map(|(kind, groups)| match groups.as_slice() {
            [_] => vec![format!("{kind}/")],
            several => {
                let full = several.iter().map(|group| format!("{kind}.{group}/"));
                full.collect()
            }
        });
    let prefix = prefix.to_lowercase();
    all.filter(|text| text.starts_with(&prefix)).collect()
}

/// Returns the custom resources whose name begins with `prefix`, each as `KIND/NAME`.
fn names(
    place: &PlaceArgs,
    known: &Kinds,
    kind: &str,
    prefix: &str,
) -> anyhow::Result<Vec<String>> {
    place.cluster.run(async |cluster: Cluster| {
        let namespace = place.namespace().unwrap_or(&cluster.namespace);
        let found = known.find(&cluster, kind).await?;
        let selector = found.selector(None);
        let listed = cluster.list(&found.gvk, Some(namespace), selector.as_deref());
        let mut names: Vec<String> = listed.await?.iter().map(ResourceExt::name_any).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        Ok(names.iter().map(|name| format!("{kind}/{name}")).collect())
    })
}

/// Runs `work` on a thread that is left behind if it takes too long: the program ends then.
fn within<T: Default + Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Nobody receives it after the deadline.
        let _ = sender.send(work());
    });
    receiver.recv_timeout(deadline).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn kinds_of_several_groups_are_completed_with_their_group() {
        let kind = |group: &str, kind: &str| Kind::from(GroupVersionKind::gvk(group, "v1", kind));
        let known = [
            kind("a.io", "Shop"),
            kind("b.io", "Shop"),
            kind("a.io", "Memcached"),
        ];
        let all = ["memcached/", "shop.a.io/", "shop.b.io/"];
        assert_eq!(kinds(&known, ""), all);
        assert_eq!(kinds(&known, "Mem"), ["memcached/"]);
        assert!(kinds(&known, "x").is_empty());
    }

    #[test]
    fn flags_are_found_between_incomplete_words() {
        let of = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            Targets::of(&words).0
        };
        let words = "status --unknown -n a shop/ --context=c --kubeconfig k";
        assert_eq!(of(words), ["-n", "a", "--context=c", "--kubeconfig", "k"]);
        assert_eq!(of("get -nprod --namespace"), ["-nprod"]);
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_not_waited_for() {
        let (_sender, receiver) = mpsc::channel::<u8>();
        let found: Vec<u8> = within(Duration::from_millis(1), move || {
            receiver.recv().into_iter().collect()
        });
        assert!(found.is_empty());
    }
}
