//! `retry`, `reconcile`, `force`, `pause`, `resume`, `adopt`: requests to the operator, each an annotation of custom
//! resources.
//!
//! ```text
//! Verb -> Request (annotation, value, when it is handled) -> patch of each custom resource -> wait
//! ```

mod request;
mod wait;

use std::io::Write;
use std::time::Duration;

use clap::Subcommand;
use hybrid_operator::native::AnyObject;
use hybrid_operator::watches;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::target::SelectionArgs;
use super::{UsageError, ask};
use crate::cluster::{Attempt, Cluster, Kind, Kinds, Served};
use crate::output::with_progress;
use request::Request;

/// Finalizers of custom resources whose charts an operator has installed.
const FINALIZERS: [&str; 2] = [
    "helm.sdk.operatorframework.io/uninstall-release",
    "uninstall-helm-release",
];

/// The verbs. Each changes one annotation, which its help names.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Try a stalled release again: its failed attempts are forgotten (`reset-at`).
    #[command(after_help = "\
Examples:
  hybrid-operator retry shop/main --wait

  # All custom resources of a kind in a namespace
  hybrid-operator retry shop --namespace prod --yes")]
    Retry(Args),
    /// Reconcile now, instead of after the pause or the period (`reconcile-at`).
    #[command(after_help = "\
Examples:
  hybrid-operator reconcile shop/main --wait
  hybrid-operator reconcile shop -l team=web --all-namespaces --yes")]
    Reconcile(Args),
    /// Deploy a new revision, even if nothing has changed (`force-at`).
    #[command(after_help = "\
Examples:
  hybrid-operator force shop/main --wait")]
    Force(Args),
    /// Leave releases alone until they are resumed (`paused`).
    #[command(after_help = "\
Examples:
  hybrid-operator pause shop/main --wait
  hybrid-operator pause shop --all-namespaces --yes")]
    Pause(Args),
    /// Manage paused releases again (`paused`).
    #[command(after_help = "\
Examples:
  hybrid-operator resume shop/main
  hybrid-operator resume shop --all-namespaces --yes")]
    Resume(Args),
    /// Take over a release of the same name and chart that somebody installed with Helm (`adopt-release`).
    #[command(after_help = "\
Examples:
  hybrid-operator adopt shop/market --wait

  # From another operator, by the operator of this name
  hybrid-operator adopt shop/market --by shop-operator")]
    Adopt(AdoptArgs),
}

/// Arguments of the verbs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Wait until the operator has handled the request
    #[arg(long)]
    wait: bool,

    /// Longest time to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = watches::parse_duration)]
    timeout: Duration,

    /// Do not ask before several custom resources are changed
    #[arg(short, long)]
    yes: bool,

    /// Only print the kubectl commands that do the same
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `adopt`.
#[derive(Debug, clap::Args)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    args: Args,

    /// Name of the operator that takes the release over from another operator
    #[arg(long, value_name = "OPERATOR")]
    by: Option<String>,
}

/// A custom resource that is to be changed.
struct Target {
    kind: Kind,
    served: Served,
    resource: DynamicObject,
    request: Request,
}

impl Verb {
    fn args(&self) -> &Args {
        match self {
            Self::Retry(args)
            | Self::Reconcile(args)
            | Self::Force(args)
            | Self::Pause(args)
            | Self::Resume(args) => args,
            Self::Adopt(adopt) => &adopt.args,
        }
    }
}

pub(crate) fn run(verb: &Verb, out: &mut dyn Write) -> anyhow::Result<()> {
    let args = verb.args();
    let selection = &args.selection;
    let one = selection.one()?;
    if selection.target.is_none() && selection.selector.is_none() {
        let message = "name what is meant: KIND/NAME, a kind, or labels with --selector";
        return Err(UsageError(message.to_owned()).into());
    }
    let kinds = selection.place.kinds()?;
    selection.place.cluster.run(async |cluster| {
        let targets = with_progress(
            "listing custom resources",
            find(verb, &cluster, &kinds, one),
        );
        let targets = targets.await?;
        if args.dry_run {
            for target in &targets {
                writeln!(out, "{}", target.kubectl())?;
            }
            return Ok(());
        }
        cluster.announce();
        if let [_, _, ..] = targets.as_slice()
            && !args.yes
        {
            confirm(&targets, out)?;
        }
        for target in &targets {
            target.apply(&cluster).await?;
            target.warn();
            writeln!(out, "{}", target.kubectl())?;
        }
        out.flush()?;
        if args.wait {
            wait::until_handled(&cluster, &targets, args.timeout, out).await?;
        }
        Ok(())
    })
}

/// Finds the custom resources that are meant. None is an error.
async fn find(
    verb: &Verb,
    cluster: &Cluster,
    kinds: &Kinds,
    one: Option<&str>,
) -> anyhow::Result<Vec<Target>> {
    let selection = &verb.args().selection;
    let found = if let Some(text) = one {
        let named = cluster.named(kinds, text, selection.place.namespace());
        vec![named.await?]
    } else {
        let listed = selection.kinds(cluster, kinds).await?;
        selection.list(cluster, listed).await?.0
    };
    if found.is_empty() {
        anyhow::bail!(
            "no custom resource was found; look at 'hybrid-operator status', elsewhere with --all-namespaces"
        );
    }
    let mut targets = Vec::new();
    for (kind, resource) in found {
        targets.push(Target {
            served: cluster.served(&kind.gvk).await?,
            request: Request::of(verb, &kind),
            kind,
            resource,
        });
    }
    Ok(targets)
}

fn confirm(targets: &[Target], out: &mut dyn Write) -> anyhow::Result<()> {
    for target in targets {
        writeln!(out, "{}", target.name())?;
    }
    let question = format!("Change these {} custom resources?", targets.len());
    ask::confirm(&question, "nothing was changed", out)
}

impl Target {
    /// Formats as `Kind namespace/name`.
    fn name(&self) -> String {
        self.kind.name_of(&self.resource)
    }

    /// Returns the command of kubectl that does the same.
    fn kubectl(&self) -> String {
        let namespace = self.resource.namespace();
        let place = namespace.map_or_else(String::new, |name| format!(" --namespace {name}"));
        let (name, text) = (self.resource.name_any(), self.served.text());
        let change = self.request.kubectl();
        format!("kubectl annotate{place} {text}/{name} {change}")
    }

    /// Changes the annotation, unless another custom resource has the name now.
    async fn apply(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let patch = json!({"metadata": {
            "uid": self.resource.uid(),
            "annotations": {&self.request.annotation: self.request.value},
        }});
        let (namespace, name) = (self.resource.namespace(), self.resource.name_any());
        let api: Api<AnyObject> = cluster.api(&self.served, namespace.as_deref());
        let params = PatchParams::default();
        let patched = api.patch(&name, &params, &Patch::Merge(patch)).await;
        patched.map_err(|error| {
            let attempt = Attempt::new("patch", &self.served.text());
            cluster.explain(error, &attempt.on(namespace.as_deref(), Some(&name)))
        })?;
        Ok(())
    }

    /// Says that nobody may read the annotation: only operators with a chart for the kind do.
    fn warn(&self) {
        let finalizers = self.resource.finalizers();
        let is_held = finalizers
            .iter()
            .any(|own| FINALIZERS.contains(&own.as_str()));
        if !is_held {
            crate::print_message(&format!(
                "warning: no operator has installed a chart for {}; a controller written in code has its own annotations",
                self.name()
            ));
        }
    }
}
