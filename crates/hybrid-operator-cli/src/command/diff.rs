//! `diff`: what would change, in the cluster or between two revisions of the repository, and what others have changed
//! in the cluster.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use helm_core::manifest::parse_objects;
use helm_core::release::{Release as Record, ReleaseName, Status};
use hybrid_operator::helm::{self, Preview, PreviewInput, RecordInfo, Records, Storage};
use hybrid_operator::watches::{ReleasePolicy, Watch};
use kube::api::DynamicObject;

use super::UsageError;
use super::preview_flags::PreviewFlags;
use super::target::kinds;
use crate::ToDo;
use crate::cluster::{Cluster, ClusterArgs, Selected, parse};
use crate::files::entries_of;
use crate::output::{ColorArgs, with_progress};
use crate::preview::difference::{self, ObjectDifference};
use crate::preview::print::{self, ReleaseDifference, Summary};
use crate::preview::revision::Revision;
use crate::preview::{self, Bindings, Namespace, Request, Resource, Source};

mod live;

/// Remark on a release in chunks.
const CHUNKED: &str = "helm-operator-plugins has stored it in chunks; it becomes the next revision in Helm's format, which \
                       that operator does not read if you go back";

/// Directory of the samples of a project.
const SAMPLES: &str = "config/samples";

const EXAMPLES: &str = "\
Examples:
  # What applying this custom resource would change in the cluster
  hybrid-operator diff web.yaml

  # The same, as the API server would store it, with its defaults and webhooks
  hybrid-operator diff web.yaml --live

  # What others have changed in the objects of a release, so that a repair would change it back; needs no project
  hybrid-operator diff shop/main

  # What a branch changes, as a comment for a pull request; needs no cluster
  hybrid-operator diff --base origin/main --format markdown

Exit code: 3 with differences, 0 without.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// For terminals
    Text,
    /// For comments of pull requests
    Markdown,
}

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files with custom resources, `-` for standard input, or kind and name of one in the cluster, such as `shop/main`.
    /// With --base, the samples in config/samples of both revisions are compared by default
    #[arg(value_name = "FILE | KIND/NAME", required_unless_present = "base")]
    files: Vec<String>,

    /// Compare with this revision of the git repository, without a cluster
    #[arg(long, value_name = "REVISION", conflicts_with_all = ["live", "kubeconfig", "context"])]
    base: Option<String>,

    /// Compare with the objects of the cluster, through a server-side apply that stores nothing,
    /// instead of with the manifest of the release
    #[arg(long)]
    live: bool,

    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    format: DiffFormat,

    #[command(flatten)]
    flags: PreviewFlags,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    color: ColorArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let differences = match (&args.base, args.files.as_slice()) {
        (Some(base), _) => between_revisions(args, base)?,
        (None, [target]) if is_target(target) => vec![of_release(args, target)?],
        (None, _) => with_cluster(args)?,
    };
    let text = match args.format {
        DiffFormat::Text => print::text(&differences, args.color.paint()),
        DiffFormat::Markdown => print::markdown(&differences),
    };
    out.write_all(text.as_bytes())?;
    if Summary::of(&differences).is_empty() {
        Ok(())
    } else {
        Err(ToDo::Printed.into())
    }
}

/// Returns whether an argument names a custom resource, not a file.
fn is_target(text: &str) -> bool {
    let path = Path::new(text);
    let has_end = |end: &&str| path.extension().is_some_and(|known| known == *end);
    let is_name = text.split('/').filter(|part| !part.is_empty()).count() == 2;
    is_name && !["yaml", "yml", "json"].iter().any(has_end) && !path.exists()
}

/// Compares the objects of the deployed revision with those of the cluster.
fn of_release(args: &Args, target: &str) -> anyhow::Result<ReleaseDifference> {
    parse(target)?;
    let kinds = kinds(&args.flags.source)?;
    args.cluster.run(async |cluster| {
        let namespace = args.flags.given_namespace();
        let selected = Selected::read(&cluster, &kinds, target, namespace).await?;
        let mut history = selected.history.iter().rev();
        let deployed = history.find(|record| record.status() == Status::Deployed);
        let deployed = deployed.with_context(|| {
            let name = selected.name();
            format!("{name} has no deployed revision; see 'hybrid-operator history {target}'")
        })?;
        let record = selected.records.load(deployed).await;
        let record = record.context("cannot read a release record")?;
        let objects = parse_objects(&record.manifest);
        let objects = objects.context("cannot read the manifest of the release")?;
        let objects = preview::deployed(objects, &[])?;
        let comparing = live::compare(&cluster, &objects, &objects, &record.namespace);
        Ok(ReleaseDifference {
            title: format!(
                "{} (release {}/{}, revision {})",
                selected.name(),
                record.namespace,
                record.name,
                record.revision
            ),
            objects: with_progress("comparing with the cluster", comparing).await?,
            ..ReleaseDifference::default()
        })
    })
}

fn with_cluster(args: &Args) -> anyhow::Result<Vec<ReleaseDifference>> {
    if args.flags.has_capabilities() {
        let message = "--kube-version and --api-versions are for --base; the diff with a cluster uses \
                       those of the cluster";
        return Err(UsageError(message.to_owned()).into());
    }
    let mut bindings = args.flags.open(None)?;
    args.cluster.run(async |cluster| {
        let namespace = match args.flags.given_namespace() {
            Some(given) => Namespace::Given(given.to_owned()),
            None => Namespace::Default(cluster.namespace.clone()),
        };
        let request = Request::read(&args.files, args.flags.from(), &bindings, &namespace)?;
        if !request.objects.is_empty() {
            bail!(
                "{} is given as a file, but the diff with a cluster reads Secrets and ConfigMaps \
                 from the cluster; apply it there, or leave it out",
                request
                    .objects
                    .iter()
                    .map(name_of)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        let mut differences = Vec::new();
        for mut resource in request.resources {
            // Unlike the project, the cluster knows for sure which kinds have a namespace.
            let watch = bindings.bind(&resource)?.watch;
            if !cluster.served(&watch.gvk).await?.namespaced {
                resource.set_namespace(None);
            } else if resource.namespace().is_none() {
                resource.set_namespace(Some(&cluster.namespace));
            }
            let work = Box::pin(with_release(args.live, &cluster, &mut bindings, &resource));
            differences.push(with_progress("comparing with the cluster", work).await?);
        }
        Ok(differences)
    })
}

fn name_of(object: &serde_json::Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(serde_json::Value::as_str);
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    format!("{} {}", kind.unwrap_or_default(), name.unwrap_or_default())
}

/// Compares what the operator would deploy for a custom resource with its release.
///
/// With `live`, the objects of the cluster count, not those that the release has recorded.
pub(super) async fn with_release(
    live: bool,
    cluster: &Cluster,
    bindings: &mut Bindings,
    resource: &Resource,
) -> anyhow::Result<ReleaseDifference> {
    let values_in_errors = bindings.shows_values_in_errors();
    let bound = bindings.bind(resource)?;
    preview::warn_selector(bound.watch, resource);
    let gvk = &bound.watch.gvk;
    let existing = cluster
        .get(gvk, resource.namespace(), resource.name())
        .await?;
    let history = match &existing {
        Some(existing) => History::read(cluster, bound.watch, existing).await?,
        None => History::default(),
    };
    let own = std::env::var("POD_NAMESPACE").ok();
    let input = PreviewInput {
        watch: bound.watch,
        chart: bound.chart,
        object: &resource.object,
        operator_namespace: own.as_deref(),
        latest: history.latest.as_ref(),
        values_in_errors,
    };
    let explain = |error| preview::explain(error, resource, &bound, values_in_errors);
    let found = helm::in_cluster(&input, &cluster.client)
        .await
        .map_err(explain)?;
    let mut title = format!("{resource} (release {}/{})", found.namespace, found.name);
    let Some(deployed) = &history.deployed else {
        let new = compared(&found, bound.watch)?;
        title.push_str(", not deployed yet");
        return Ok(ReleaseDifference {
            title,
            objects: difference::compare(&[], &new, &found.namespace)?,
            ..ReleaseDifference::default()
        });
    };
    // Without a new revision, what was rendered for the recorded one stays.
    let same = history.digest.is_some() && history.digest == found.digest;
    let mut objects = preview::deployed(
        parse_objects(&deployed.manifest).context("cannot read the manifest of the release")?,
        &preview::hooks_run(&deployed.hooks, bound.watch),
    )?;
    if same && !live {
        return Ok(ReleaseDifference {
            title,
            ..ReleaseDifference::default()
        });
    }
    let new = if same {
        objects.clone()
    } else {
        compared(&found, bound.watch)?
    };
    let effects = effects(&objects, &new, &found.namespace, &bound.watch.policy);
    let differences: Vec<ObjectDifference> = if live {
        objects.retain(|object| !object.hook);
        live::compare(cluster, &objects, &new, &found.namespace).await?
    } else if history.digest.is_none() {
        difference::compare_with_foreign(&objects, &new, &found.namespace)?
    } else {
        difference::compare(&objects, &new, &found.namespace)?
    };
    let note = if history.is_chunked {
        Some(CHUNKED)
    } else {
        // The operator adopts somebody else's revision with equal objects as it is.
        (!same && history.digest.is_some() && differences.is_empty())
            .then_some("the inputs differ, so that a new revision with equal objects is deployed")
    };
    Ok(ReleaseDifference {
        title,
        objects: differences,
        effects,
        note: note.map(str::to_owned),
        is_converted: history.is_chunked,
    })
}

/// Returns the objects and hooks of a preview that an operator with this entry deploys.
fn compared(preview: &Preview, watch: &Watch) -> anyhow::Result<Vec<preview::Deployed>> {
    let objects = preview.rendered.objects();
    let objects = objects.context("cannot read the rendered objects")?;
    preview::deployed(
        objects,
        &preview::hooks_run(preview.rendered.hooks(), watch),
    )
}

/// Returns what an upgrade does, in the words of the warnings of `admission`.
fn effects(
    old: &[preview::Deployed],
    new: &[preview::Deployed],
    namespace: &str,
    policy: &ReleasePolicy,
) -> Vec<String> {
    let [old, new] = [old, new].map(|all| {
        let objects = all.iter().filter(|deployed| !deployed.hook);
        let objects = objects.map(|deployed| deployed.object.clone());
        objects.collect::<Vec<_>>()
    });
    helm::effects(&old, &new, namespace, policy)
}

/// The records of a release that matter for a comparison.
#[derive(Default)]
struct History {
    latest: Option<Record>,
    deployed: Option<Record>,
    digest: Option<String>,
    /// Whether helm-operator-plugins stored them in chunks.
    is_chunked: bool,
}

impl History {
    async fn read(
        cluster: &Cluster,
        watch: &Watch,
        resource: &DynamicObject,
    ) -> anyhow::Result<Self> {
        let records = Records::new(cluster.client.clone(), Storage::Secrets);
        let mut history = Selected::history(&records, &watch.gvk, Some(watch), resource).await?;
        let is_chunked = history.is_empty();
        if is_chunked && let Some((namespace, name)) = place_of_chunks(resource) {
            let listed = records.chunked(namespace, &name).await;
            history = listed.context("cannot read the release records in chunks")?;
        }
        let Some(latest) = history.last() else {
            return Ok(Self::default());
        };
        let deployed = history
            .iter()
            .rev()
            .find(|record| record.status() == Status::Deployed);
        let load = async |info| {
            records
                .load(info)
                .await
                .context("cannot read a release record")
        };
        Ok(Self {
            latest: Some(load(latest).await?),
            deployed: match deployed {
                Some(deployed) => Some(load(deployed).await?),
                None => None,
            },
            digest: deployed.and_then(RecordInfo::digest),
            is_chunked,
        })
    }
}

/// Returns where helm-operator-plugins keeps the release of a custom resource.
fn place_of_chunks(resource: &DynamicObject) -> Option<(&str, ReleaseName)> {
    let metadata = &resource.metadata;
    let name = metadata.name.as_ref()?.parse().ok()?;
    Some((metadata.namespace.as_deref()?, name))
}

/// Compares what two revisions of the repository deploy.
fn between_revisions(args: &Args, base: &str) -> anyhow::Result<Vec<ReleaseDifference>> {
    if args.files.iter().any(|file| file == "-") {
        let message = "--base cannot read standard input, which is needed twice; give a file";
        return Err(UsageError(message.to_owned()).into());
    }
    let source = args.flags.source.find(Path::new("."))?;
    preview::note_about_code(&source.root);
    let revision = Revision::extract(&source.root, base)?;
    let watches_file = revision.path(&source.root, &source.watches_file)?;
    let (flags, files) = (&args.flags, &args.files);
    let after = Side::read(flags, files, source.clone(), &source.root, false)?;
    let before = if watches_file.is_file() {
        let root = revision.root().to_owned();
        Side::read(flags, files, Source::new(watches_file, &root), &root, true)
            .with_context(|| format!("revision {base} ({})", revision.commit))?
    } else {
        Side::default()
    };
    between(&before, &after)
}

/// Compares the releases of two states of a project.
pub(super) fn between(before: &Side, after: &Side) -> anyhow::Result<Vec<ReleaseDifference>> {
    let mut differences = Vec::new();
    for release in &after.releases {
        let earlier = before.releases.iter().find(|old| old.name == release.name);
        let old = earlier.map_or(&[][..], |old| &old.objects);
        differences.push(ReleaseDifference {
            title: release.name.clone(),
            objects: difference::compare(old, &release.objects, &release.namespace)?,
            effects: effects(old, &release.objects, &release.namespace, &release.policy),
            ..ReleaseDifference::default()
        });
    }
    for gone in &before.releases {
        if !after
            .releases
            .iter()
            .any(|release| release.name == gone.name)
        {
            differences.push(ReleaseDifference {
                title: gone.name.clone(),
                objects: difference::compare(&gone.objects, &[], &gone.namespace)?,
                ..ReleaseDifference::default()
            });
        }
    }
    Ok(differences)
}

/// Releases that one state of a project deploys.
#[derive(Default)]
pub(super) struct Side {
    releases: Vec<Release>,
}

struct Release {
    /// The custom resource.
    name: String,
    namespace: String,
    objects: Vec<preview::Deployed>,
    /// Options of the entry.
    policy: ReleasePolicy,
}

impl Side {
    /// Renders the samples of the project of the current directory.
    pub(super) fn of_samples() -> anyhow::Result<Self> {
        let flags = PreviewFlags::default();
        let source = flags.source.find(Path::new("."))?;
        let root = source.root.clone();
        Self::read(&flags, &[], source, &root, false)
    }

    fn read(
        flags: &PreviewFlags,
        files: &[String],
        source: Source,
        root: &Path,
        is_base: bool,
    ) -> anyhow::Result<Self> {
        let mut bindings = flags.open(Some(source))?;
        let samples = files.is_empty();
        let files = if samples {
            samples_of(root)?
        } else {
            files.to_vec()
        };
        if files.is_empty() {
            return Ok(Self::default());
        }
        let mut request = flags.read(&files, &bindings)?;
        // Samples of native controllers have no chart, and the base has none for a new kind.
        if samples || is_base {
            request.resources.retain(|resource| bindings.has(resource));
        }
        let capabilities = flags.capabilities()?;
        let mut releases = Vec::new();
        for resource in &request.resources {
            let objects = &request.objects;
            let found = preview::offline(&mut bindings, resource, objects, &capabilities)?;
            let watch = bindings.bind(resource)?.watch;
            releases.push(Release {
                name: resource.to_string(),
                namespace: found.namespace.clone(),
                objects: compared(&found, watch)?,
                policy: watch.policy.clone(),
            });
        }
        Ok(Self { releases })
    }
}

/// Returns the samples of a project, sorted.
fn samples_of(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = entries_of(&root.join(SAMPLES))?;
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let extension = file.extension().unwrap_or_default();
        (extension == "yaml" || extension == "yml") && !name.starts_with("kustomization.")
    });
    Ok(files
        .iter()
        .map(|file| file.display().to_string())
        .collect())
}
