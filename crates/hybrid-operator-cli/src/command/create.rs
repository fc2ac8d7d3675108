//! `hybrid-operator create`: adds kinds and webhooks to the project of the current directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgAction, Subcommand};

use super::UsageError;
use super::ask::answer;
use super::chart_flags::{AccessFlags, Found};
use super::charts::documents::{self, Documents};
use crate::project::Project;
use crate::scaffold::names;
use crate::scaffold::{self, ChartSource, Draft, Kind, Plugin, Webhook, draft_of};

/// Group and version of a chart's kind if no flag gives them, as in operator-sdk.
const CHART_GROUP: &str = "charts";
const CHART_VERSION: &str = "v1alpha1";

/// Arguments of `create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a kind that a chart or a controller in Rust serves.
    Api(Box<ApiArgs>),
    /// Add webhooks of a native kind.
    Webhook(Box<WebhookArgs>),
}

const API_EXAMPLES: &str = "\
Examples:
  # A chart that you have; the kind is named after it
  hybrid-operator create api --helm-chart ./podinfo-6.9.1.tgz

  # A chart of a registry or a repository, which is copied into helm-charts/
  hybrid-operator create api --helm-chart oci://ghcr.io/stefanprodan/charts/podinfo
  hybrid-operator create api --helm-chart podinfo --helm-chart-version '^6' \\
    --helm-chart-repo https://stefanprodan.github.io/podinfo

  # A new chart
  hybrid-operator create api --group apps --version v1alpha1 --kind Shop

  # A controller in Rust
  hybrid-operator create api --group apps --version v1alpha1 --kind Order --native

  # Another version of it
  hybrid-operator create api --group apps --version v1beta1 --kind Order --native";

#[derive(Debug, clap::Args)]
#[command(after_help = API_EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
struct ApiArgs {
    #[command(flatten)]
    kind: KindFlags,

    #[command(flatten)]
    shape: ShapeFlags,

    #[command(flatten)]
    chart: ChartFlags,

    /// Serve the kind by a controller in Rust; the only choice in projects without charts
    #[arg(long)]
    native: bool,

    /// Write the type of a native kind
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args(0..=1), require_equals(true), default_value = "true", default_missing_value = "true")]
    resource: bool,

    /// Write the controller of a native kind [default: unless another version has it]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args(0..=1), require_equals(true), default_missing_value = "true")]
    controller: Option<bool>,

    /// Overwrite files that have other content, and delete those that the chart of --helm-chart does not have
    #[arg(long)]
    force: bool,
}

const WEBHOOK_EXAMPLES: &str = "\
Examples:
  hybrid-operator create webhook --group apps --version v1alpha1 --kind Order \\
    --defaulting --programmatic-validation

  # Between v1alpha1 and all other versions of the kind
  hybrid-operator create webhook --group apps --version v1alpha1 --kind Order --conversion";

#[derive(Debug, clap::Args)]
#[command(after_help = WEBHOOK_EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
struct WebhookArgs {
    #[command(flatten)]
    kind: KindFlags,

    /// Complete objects before they are stored
    #[arg(long)]
    defaulting: bool,

    /// Check objects before they are stored
    #[arg(long)]
    programmatic_validation: bool,

    /// Convert objects between the version, which is the hub, and the other versions of the kind
    #[arg(long)]
    conversion: bool,

    /// Version to convert, can be repeated [default: all others]
    #[arg(long, value_name = "VERSION", requires = "conversion")]
    spoke: Vec<String>,

    /// Overwrite files that have other content
    #[arg(long)]
    force: bool,
}

/// Names of a kind.
#[derive(Debug, clap::Args)]
pub(super) struct KindFlags {
    /// API group without the domain
    #[arg(long)]
    group: Option<String>,

    /// API version, such as v1alpha1
    #[arg(long)]
    version: Option<String>,

    /// Kind in CamelCase
    #[arg(long)]
    kind: Option<String>,
}

impl KindFlags {
    pub(super) fn is_given(&self) -> bool {
        self.group.is_some() || self.version.is_some() || self.kind.is_some()
    }

    /// Takes the names of the chart where flags are missing, and adds these flags to `assumed`.
    fn or_of_chart(self, chart: &ChartSource, assumed: &mut Vec<String>) -> Self {
        let mut assume = |flag: &str, given: Option<String>, value: String| {
            Some(given.unwrap_or_else(|| {
                assumed.push(format!("--{flag} {value}"));
                value
            }))
        };
        Self {
            group: assume("group", self.group, CHART_GROUP.to_owned()),
            version: assume("version", self.version, CHART_VERSION.to_owned()),
            kind: assume("kind", self.kind, chart.kind()),
        }
    }

    /// Returns the names, and asks for those that are missing.
    pub(super) fn ask(self) -> anyhow::Result<Kind> {
        Ok(Kind {
            group: answer(
                "group",
                "API group, without the domain:",
                "apps",
                self.group,
                names::check_group,
            )?,
            version: answer(
                "version",
                "API version:",
                "v1alpha1",
                self.version,
                names::check_version,
            )?,
            kind: answer("kind", "Kind:", "Shop", self.kind, names::check_kind)?,
            plural: None,
            namespaced: true,
        })
    }
}

/// Plural and scope of a kind.
#[derive(Debug, clap::Args)]
struct ShapeFlags {
    /// Plural name in lower case [default: that of the English word]
    #[arg(long)]
    plural: Option<String>,

    /// Whether custom resources are in a namespace
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args(0..=1), require_equals(true), default_value = "true", default_missing_value = "true")]
    namespaced: bool,
}

impl ShapeFlags {
    fn apply(self, kind: Kind) -> Kind {
        Kind {
            plural: self.plural,
            namespaced: self.namespaced,
            ..kind
        }
    }
}

/// The chart of a kind.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_field_names, reason = "named after the flags")]
pub(super) struct ChartFlags {
    /// Chart directory or .tgz, its URL, `oci://HOST/PATH`, its name in --helm-chart-repo, or
    /// REPOSITORY/NAME with a repository of 'helm repo add'; it is copied into helm-charts/
    /// [default: a new chart]
    #[arg(long, value_name = "CHART")]
    helm_chart: Option<String>,

    /// Repository of the chart
    #[arg(long, value_name = "URL", requires = "helm_chart")]
    helm_chart_repo: Option<String>,

    /// Version of the chart, in a repository or registry also a range such as '>=1.2, <2' [default:
    /// the newest]
    #[arg(long, value_name = "VERSION", requires = "helm_chart")]
    helm_chart_version: Option<String>,

    #[command(flatten)]
    access: AccessFlags,
}

impl ChartFlags {
    pub(super) fn is_given(&self) -> bool {
        self.helm_chart.is_some() || self.access.is_given()
    }

    /// Returns the names of the kind and its chart. Flags of the kind that are missing are taken from the chart
    /// and added to `assumed`.
    pub(super) fn load(
        &self,
        kind: KindFlags,
        assumed: &mut Vec<String>,
    ) -> anyhow::Result<(Kind, ChartSource)> {
        let Some(chart) = &self.helm_chart else {
            if self.access.is_given() {
                let message =
                    "flags about repositories and registries need a chart in --helm-chart";
                return Err(UsageError(message.to_owned()).into());
            }
            let kind = kind.ask()?;
            let source = ChartSource::new(&kind.kind)?;
            return Ok((kind, source));
        };
        let version = self.helm_chart_version.as_deref();
        let repo = self.helm_chart_repo.as_deref();
        let source = match self.access.find(chart, repo, version)? {
            Found::Local(path) => ChartSource::load(&path, version)?,
            Found::Verified { path, archive } => {
                ChartSource::from_archive(&path.to_string_lossy(), &archive, version)?
            }
            Found::Fetched {
                reference,
                url,
                digest,
                archive,
            } => ChartSource::fetched(reference, url, &digest, &archive)?,
        };
        let kind = kind.or_of_chart(&source, assumed).ask().with_context(|| {
            format!("cannot name a kind after the chart {}", source.chart.name())
        })?;
        Ok((kind, source))
    }

    /// Fetches the documents of the web that the schemas of the chart refer to, unless its directory in the project has
    /// them, or `force` is given.
    pub(super) fn complete(
        &self,
        source: &mut ChartSource,
        root: &Path,
        force: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let directory = PathBuf::from(source.directory());
        let kept = if force {
            Vec::new()
        } else {
            documents::kept_in(&root.join(&directory))?
        };
        let documents = Documents::add_to(source, &kept, &self.access)?;
        documents.print(&directory, out)?;
        Ok(())
    }

    /// A native kind has no chart.
    pub(super) fn refuse_for_native(&self) -> anyhow::Result<()> {
        if self.is_given() {
            let message = "--helm-chart and the flags about fetching it cannot be used for a native \
                           kind; leave them out";
            return Err(UsageError(message.to_owned()).into());
        }
        Ok(())
    }
}

/// Writes what was asked for.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let project = Project::find(Path::new("."))?;
    let mut draft = draft_of(&project);
    match args.what {
        What::Api(args) => {
            let is_native = args.native || Plugin::of(&project.file)? == Plugin::Native;
            if !is_native {
                return create_chart(&mut draft, project, *args, out);
            }
            args.chart.refuse_for_native()?;
            let kind = args.shape.apply(args.kind.ask()?);
            let mut file = project.file;
            let (resource, controller) = (args.resource, args.controller);
            scaffold::create_native_kind(&mut draft, &mut file, &kind, resource, controller)?;
            finish(&draft, args.force, &[], next_of_native(), out)
        }
        What::Webhook(args) => {
            if !(args.defaulting || args.programmatic_validation || args.conversion) {
                let message = "at least one of --defaulting, --programmatic-validation and --conversion is required";
                return Err(UsageError(message.to_owned()).into());
            }
            let webhook = Webhook {
                defaulting: args.defaulting,
                validation: args.programmatic_validation,
                conversion: args.conversion,
                spokes: args.spoke,
            };
            let kind = args.kind.ask()?;
            let mut file = project.file;
            scaffold::create_webhook(&mut draft, &mut file, &kind, &webhook)?;
            finish(&draft, args.force, &[], next_of_native(), out)
        }
    }
}

fn create_chart(
    draft: &mut Draft,
    project: Project,
    args: ApiArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut assumed = Vec::new();
    let (kind, mut source) = args.chart.load(args.kind, &mut assumed)?;
    args.chart
        .complete(&mut source, draft.root(), args.force, out)?;
    let kind = args.shape.apply(kind);
    let mut file = project.file;
    scaffold::create_chart_kind(draft, &mut file, &kind, &source)?;
    finish(draft, args.force, &assumed, next_of_chart(), out)
}

/// Writes the files, and prints the flags that were assumed, what was done, and what can be done next.
pub(super) fn finish(
    draft: &Draft,
    force: bool,
    assumed: &[String],
    next: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if !assumed.is_empty() {
        writeln!(out, "Assumed: {}", assumed.join(" "))?;
    }
    if draft.write(force, out)? {
        writeln!(out, "\nNext:")?;
        for line in next.lines() {
            writeln!(out, "  {line}")?;
        }
    } else {
        writeln!(out, "\nNothing to do: all files are there already.")?;
    }
    Ok(())
}

pub(super) fn next_of_chart() -> &'static str {
    "hybrid-operator dev   # all of it at once, in the cluster of $KUBECONFIG or a new one, until ctrl-c
make install   # or one by one: the CRDs, into the cluster of $KUBECONFIG
make run       # the operator, until ctrl-c
kubectl apply -k config/samples"
}

pub(super) fn next_of_native() -> &'static str {
    "make check     # after 'cargo fmt'
hybrid-operator dev   # the CRDs, the operator and the samples, in the cluster of $KUBECONFIG or a new one
make install   # or one by one: the CRDs, into the cluster of $KUBECONFIG
make run       # the operator, until ctrl-c"
}
