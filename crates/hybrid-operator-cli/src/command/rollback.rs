//! `rollback KIND/NAME [REVISION]`: sets the spec of a custom resource back to the values of a
//! revision, so that the operator upgrades to them.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context as _, bail};
use helm_core::release::{Release as Record, Status};
use helm_core::values::Values;
use hybrid_operator::helm::RecordInfo;
use hybrid_operator::native::AnyObject;
use hybrid_operator::watches::Watch;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Map, Value};
use similar::TextDiff;

use super::ask;
use super::target::TargetArgs;
use crate::cluster::{Attempt, Cluster, Selected};
use crate::output::ColorArgs;

const ABOUT: &str = "\
Set the spec of a custom resource back to the values of a revision.

The operator derives releases from custom resources, so that a rollback of the release itself would be \
undone by the next reconcile. This command therefore changes the custom resource: its spec becomes the \
values of the revision, and the operator upgrades the release to them, as a new revision. If the custom \
resource comes from a git repository, revert it there instead.

Refused are revisions of another chart version, and kinds whose values do not come from the spec alone \
(`values` and `valuesFrom` in the watches file). Patches of the custom resource (`patchesFrom`) stay as they are.";

const EXAMPLES: &str = "\
Examples:
  # To the revision that was deployed before the current one
  hybrid-operator rollback shop/main

  # To revision 3, without a question
  hybrid-operator rollback shop/main 3 --yes";

/// Words of the API server about a JSON patch whose test fails.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// Arguments of `rollback`.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// Revision to return to [default: the one that was deployed before the newest]
    revision: Option<u32>,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    /// Only show what would change
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    color: ColorArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    args.target.run(async |cluster, selected| {
        let latest = selected.revision(None)?;
        let number = match args.revision {
            Some(number) => number,
            None => previous(&selected.history, &selected.name())?,
        };
        let wanted = selected.revision(Some(number))?;
        let load = async |info| {
            let record = selected.records.load(info).await;
            record.context("cannot read a release record")
        };
        let (latest, wanted) = (load(latest).await?, load(wanted).await?);
        let name = selected.name();
        let before = selected.resource.data.get("spec");
        let before = before.cloned().unwrap_or_else(|| Value::Object(Map::new()));
        check_chart(&name, &latest, &wanted)?;
        let after = if let Some(watch) = &selected.kind.watch {
            spec_of(watch, &name, &before, &wanted)?
        } else {
            check_values(&selected, &before, &wanted).await?;
            Value::Object(wanted.config.clone())
        };
        if before == after {
            writeln!(
                out,
                "{name} already has the values of revision {number}; nothing to do"
            )?;
            return Ok(());
        }
        print_change(&before, &after, args.color.paint(), out)?;
        if args.dry_run {
            return Ok(());
        }
        warn_about_git(&selected);
        cluster.announce();
        if !args.yes {
            let question = format!("Set the spec of {name} to the values of revision {number}?");
            ask::confirm(&question, &format!("{name} was not changed"), out)?;
        }
        apply(&cluster, &selected, after).await?;
        writeln!(
            out,
            "{name}: the spec has the values of revision {number} again; the operator upgrades the \
             release to them"
        )?;
        Ok(())
    })
}

/// Returns the newest revision before the latest one that was deployed.
fn previous(history: &[RecordInfo], name: &str) -> anyhow::Result<u32> {
    let mut earlier = history.iter().rev().skip(1);
    let found =
        earlier.find(|record| matches!(record.status(), Status::Superseded | Status::Deployed));
    match found {
        Some(record) => Ok(record.revision().0),
        None => bail!("{name} has no earlier revision that was deployed; see 'history'"),
    }
}

/// Returns the spec from which the operator computes the values of a revision.
fn spec_of(watch: &Watch, name: &str, current: &Value, wanted: &Record) -> anyhow::Result<Value> {
    let revision = wanted.revision;
    for (field, used) in [
        ("values", watch.values.is_some()),
        ("valuesFrom", !watch.values_from.is_empty()),
        ("api", watch.api.is_some()),
        ("map", !watch.map.is_empty()),
    ] {
        if used {
            bail!(
                "the values of {name} come not only from its spec, but also from {field} in the \
                 watches file, so that those of revision {revision} are no spec; edit the custom \
                 resource, with 'get values --revision {revision}' as a guide"
            );
        }
    }
    let mut spec = wanted.config.clone();
    restore_overridden(&mut spec, current, &watch.override_values)?;
    if let Some(from) = &watch.patches_from {
        // They are no values, and stay as they are.
        let path: Vec<&str> = from.path.iter().map(String::as_str).collect();
        restore(&mut spec, current, &path);
    }
    Ok(Value::Object(spec))
}

/// Refuses a revision of another chart.
fn check_chart(name: &str, latest: &Record, wanted: &Record) -> anyhow::Result<()> {
    let chart = |record: &Record| {
        let chart = record
            .chart
            .as_ref()
            .and_then(|chart| chart.name_and_version());
        chart.map_or_else(String::new, |(name, version)| format!("{name}-{version}"))
    };
    let (theirs, ours) = (chart(wanted), chart(latest));
    if theirs != ours {
        bail!(
            "revision {} of {name} was made by the chart {theirs}, but the operator runs \
             {ours}; run the operator with that chart again, and all its releases return to it",
            wanted.revision
        );
    }
    Ok(())
}

/// Refuses where no watches file says how values are computed, unless the present spec is the values of one of the
/// revisions: they then come from the spec alone.
async fn check_values(selected: &Selected, spec: &Value, wanted: &Record) -> anyhow::Result<()> {
    for info in selected.history.iter().rev() {
        let record = selected.records.load(info).await;
        let record = record.context("cannot read a release record")?;
        if spec.as_object() == Some(&record.config) {
            return Ok(());
        }
    }
    bail!(
        "the spec of {} is not the values of any revision: the operator computes them from more than the spec, or has \
         not reconciled it; give its watches file with --watches-file, or edit the custom resource, with 'get values \
         --revision {}' as a guide",
        selected.name(),
        wanted.revision
    )
}

/// Replaces what `overrideValues` has set by what the spec has there now.
fn restore_overridden(
    spec: &mut Values,
    current: &Value,
    overridden: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    for path in overridden.keys() {
        if path.contains(['[', '\\', '{', ',']) {
            bail!(
                "overrideValues of the watches file sets {path}, which cannot be told from the spec; \
                 edit the custom resource instead"
            );
        }
        let parts: Vec<&str> = path.split('.').collect();
        restore(spec, current, &parts);
    }
    Ok(())
}

/// Replaces what is at a path by what the spec has there now.
fn restore(spec: &mut Values, current: &Value, path: &[&str]) {
    let now = path.iter().try_fold(current, |value, part| value.get(part));
    match now {
        Some(now) => set(spec, path, now.clone()),
        None => remove(spec, path),
    }
}

fn set(map: &mut Values, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            map.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => {
            let inner = map
                .entry(*first)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Some(inner) = inner.as_object_mut() {
                set(inner, rest, value);
            }
        }
    }
}

/// Removes a value, and the maps that become empty by it.
fn remove(map: &mut Values, path: &[&str]) {
    match path {
        [] => {}
        [last] => {
            map.remove(*last);
        }
        [first, rest @ ..] => {
            if let Some(inner) = map.get_mut(*first).and_then(Value::as_object_mut) {
                remove(inner, rest);
                if inner.is_empty() {
                    map.remove(*first);
                }
            }
        }
    }
}

fn print_change(
    before: &Value,
    after: &Value,
    paint: crate::output::Paint,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let before = go_yaml::to_string(before).context("cannot write the spec as YAML")?;
    let after = go_yaml::to_string(after).context("cannot write the spec as YAML")?;
    let diff = TextDiff::from_lines(&before, &after);
    let unified = diff
        .unified_diff()
        .header("spec now", "spec then")
        .to_string();
    for line in unified.lines() {
        let color = match line.as_bytes().first() {
            Some(b'+') => anstyle::AnsiColor::Green,
            Some(b'-') => anstyle::AnsiColor::Red,
            _ => {
                writeln!(out, "{line}")?;
                continue;
            }
        };
        writeln!(out, "{}", paint.colored(color, line))?;
    }
    Ok(())
}

/// Warns if a tool writes the custom resource from a repository, and would undo the change.
fn warn_about_git(selected: &Selected) {
    let tools = [
        ("argocd.argoproj.io/tracking-id", "Argo CD"),
        ("argocd.argoproj.io/instance", "Argo CD"),
        ("kustomize.toolkit.fluxcd.io/name", "Flux"),
        ("helm.toolkit.fluxcd.io/name", "Flux"),
    ];
    let (labels, annotations) = (selected.resource.labels(), selected.resource.annotations());
    let tool = tools
        .iter()
        .find(|(key, _)| labels.contains_key(*key) || annotations.contains_key(*key));
    if let Some((_, tool)) = tool {
        crate::print_message(&format!(
            "warning: {tool} manages {}, and will undo this; revert its repository instead",
            selected.name()
        ));
    }
}

/// Replaces the spec unless it has changed since it was read: its generation then differs. A change of the status does
/// not matter.
async fn apply(cluster: &Cluster, selected: &Selected, spec: Value) -> anyhow::Result<()> {
    let kind = cluster.served(&selected.kind.gvk).await?;
    let (namespace, name) = (selected.resource.namespace(), selected.resource.name_any());
    let metadata = &selected.resource.metadata;
    let unchanged = |field: &str, value: Value| {
        let path = PointerBuf::from_tokens(["metadata", field]);
        PatchOperation::Test(TestOperation { path, value })
    };
    let patch = json_patch::Patch(vec![
        unchanged("uid", metadata.uid.clone().into()),
        unchanged("generation", metadata.generation.into()),
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["spec"]),
            value: spec,
        }),
    ]);
    let api: Api<AnyObject> = cluster.api(&kind, namespace.as_deref());
    let patched = api
        .patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await;
    match patched {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.message.contains(TEST_FAILED) => bail!(
            "{} has been changed meanwhile; look at the new difference and run the command again",
            selected.name()
        ),
        Err(error) => {
            let attempt = Attempt::new("patch", &kind.text()).on(namespace.as_deref(), Some(&name));
            Err(cluster.explain(error, &attempt))
        }
    }
}

#[cfg(test)]
mod tests {
    use helm_core::release::{Release, ReleaseChart, Revision};
    use hybrid_operator::watches::PatchesFrom;
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn record(revision: u32, version: &str, config: Value) -> Record {
        let mut record = Release::new("web".parse().unwrap(), "n", Revision(revision));
        record.config = serde_json::from_value(config).unwrap();
        let metadata = json!({"name": "shop", "version": version, "apiVersion": "v2"});
        record.chart = Some(ReleaseChart {
            metadata: Some(serde_json::from_value(metadata).unwrap()),
            ..ReleaseChart::default()
        });
        record
    }

    fn watch() -> Watch {
        Watch::new(GroupVersionKind::gvk("g", "v1", "Shop"), "chart")
    }

    #[test]
    fn the_spec_becomes_the_values_of_the_revision() {
        let mut watch = watch();
        let overridden = [("image.tag", "x"), ("debug", "true")];
        watch.override_values = overridden.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let values = |a: u8| json!({"a": a, "image": {"tag": "x"}, "debug": true});
        let wanted = record(1, "1.0.0", values(1));
        let current = json!({"a": 2, "debug": false});
        let spec = spec_of(&watch, "Shop web", &current, &wanted);
        assert_eq!(spec.unwrap(), json!({"a": 1, "debug": false}));
    }

    #[test]
    fn patches_of_the_custom_resource_stay_as_they_are() {
        let mut watch = watch();
        watch.patches_from = Some(PatchesFrom {
            path: vec!["own".to_owned(), "patches".to_owned()],
            allow: Vec::new(),
        });
        let wanted = record(1, "1.0.0", json!({"a": 1}));
        let patches = json!({"patches": [{"patch": []}]});
        let current = json!({"a": 2, "own": patches});
        let spec = spec_of(&watch, "Shop web", &current, &wanted).unwrap();
        assert_eq!(spec, json!({"a": 1, "own": patches}));
    }

    #[test]
    fn what_is_not_the_spec_alone_is_refused() {
        let (wanted, latest) = (record(1, "1.0.0", json!({})), record(2, "1.1.0", json!({})));
        let expected = "revision 1 of Shop web was made by the chart shop-1.0.0, but the operator runs \
                        shop-1.1.0; run the operator with that chart again, and all its releases return to it";
        let refused = check_chart("Shop web", &latest, &wanted).unwrap_err();
        assert_eq!(refused.to_string(), expected);
        let mut mapped = watch();
        mapped.values = Some(json!({"a": "{{ .Spec.b }}"}));
        let refused = spec_of(&mapped, "Shop web", &json!({}), &wanted).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("but also from values in the watches file")
        );
    }
}
