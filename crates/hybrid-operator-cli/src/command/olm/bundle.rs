//! `olm bundle`: the bundle of a project for OLM.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hybrid_operator::helm::ChartReader;
use hybrid_operator::watches;
use semver::Version;
use serde_json::Value;

use super::pin::Pinning;
use crate::ToDo;
use crate::command::UsageError;
use crate::command::generate::ci_values;
use crate::files::FileSet;
use crate::generate::native::Program;
use crate::generate::output::{Target, deliver};
use crate::olm::bundle::{Metadata, files};
use crate::olm::csv::{self, Release};
use crate::olm::parts::{self, Parts};
use crate::olm::resources::Created;
use crate::olm::{kustomize, validate};
use crate::project::{DEPLOYED, Project};
use crate::rbac::kinds::GroupKind;
use crate::rbac::survey::survey;

/// Directories of a project, and what they are for.
const SAMPLES: &str = "config/samples";
const SCORECARD: &str = "config/scorecard/config.yaml";
const BASES: &str = "config/manifests/bases";

const EXAMPLES: &str = "\
Examples:
  # Write bundle/ and bundle.Dockerfile of the project in this directory
  hybrid-operator olm bundle --version 0.1.0 --image example.com/shop-operator:v0.1.0

  # A version that replaces another one, in two channels
  hybrid-operator olm bundle --version 0.2.0 --replaces shop-operator.v0.1.0 --channels stable,fast

  # A version whose images, those of the charts included, are pinned to their digests
  hybrid-operator olm bundle --version 0.3.0 --pin

  # Objects with fields of kustomize that this command does not apply itself
  kubectl kustomize config/default | hybrid-operator olm bundle --version 0.1.0 --manifests -";

/// Arguments of `olm bundle`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Args {
    /// Version of the bundle, such as 0.1.0
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    version: Version,

    /// Name of the package [default: name of the project]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// Channels of the bundle, separated by commas
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "stable"
    )]
    channels: Vec<String>,

    /// Channel for users who do not choose one [default: the first of --channels]
    #[arg(long, value_name = "NAME")]
    default_channel: Option<String>,

    /// Image of the operator [default: that of config/manager]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Fail unless all images are named by their digest; without --pin, no registry is asked for it
    #[arg(long)]
    image_digests: bool,

    /// Pin the images of the charts, by digest if the registries answer: add lines to `overrideValues` in
    /// watches.yaml, and variables `RELATED_IMAGE_*` to config/manager/manager.yaml; print what is left to do by hand
    #[arg(long)]
    pin: bool,

    /// Name of the bundle that this one replaces [default: spec.replaces of the base]
    #[arg(long, value_name = "NAME")]
    replaces: Option<String>,

    /// Versions that this one updates, such as '>=0.1.0 <0.2.0' [default: olm.skipRange of the base]
    #[arg(long, value_name = "RANGE")]
    skip_range: Option<String>,

    /// File with the objects of config/default, as kustomize writes them; - is standard input
    #[arg(long, value_name = "FILE")]
    manifests: Option<PathBuf>,

    /// Directory of the bundle; bundle.Dockerfile is written beside it [default: bundle of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Write nothing; print how files differ, and exit with 3 if any does
    #[arg(long)]
    check: bool,

    /// Leave out which kinds native controllers own, for which the program of the project is built
    #[arg(long)]
    charts_only: bool,

    /// Built program of the project, which has the native controllers; without it, cargo builds it
    #[arg(long, value_name = "FILE", conflicts_with = "charts_only")]
    program: Option<PathBuf>,
}

/// Parses a version as OLM does, without a leading `v`.
fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text)
        .map_err(|error| format!("{error}; write MAJOR.MINOR.PATCH, such as 0.1.0, without a v"))
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let project = Project::find(Path::new("."))?;
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let package = args
        .package
        .as_deref()
        .unwrap_or(&project.file.project_name);
    let default_channel = default_channel(args)?;
    let layout = project.file.layout.join(",");
    let mut parts = parts::sort(objects(args, &project.root)?)
        .with_context(|| format!("cannot make a bundle of {DEPLOYED}"))?;
    add_files(&mut parts, &project.root)?;
    let pinning = args.pin.then(|| Pinning::new(&project.root, &mut parts));
    let mut pinning = pinning.transpose()?;
    let file = project.watches_file();
    add_charts(&mut parts.created, &file, pinning.as_mut())?;
    let pins = match &mut pinning {
        Some(pinning) => {
            let files = pinning.finish(&mut parts)?;
            pinning.report(args.image_digests, out)?;
            files
        }
        None => FileSet::default(),
    };
    if !args.charts_only && Program::is_in(&project.root) {
        let program = Program::new(args.program.clone());
        for controller in &program.describe(&project.root)?.controllers {
            parts.created.add_controller(controller);
        }
    }
    let release = Release {
        package,
        version: &args.version,
        image: args.image.as_deref(),
        digests: args.image_digests,
        replaces: args.replaces.as_deref(),
        skip_range: args.skip_range.as_deref(),
        layout: &layout,
    };
    let base_file = Path::new(BASES).join(format!("{package}.clusterserviceversion.yaml"));
    let (base, new_base) = base(&mut parts, &project.root.join(&base_file), package)?;
    let csv = csv::csv(&parts, &base, &release)
        .with_context(|| format!("cannot make a bundle with the base {}", base_file.display()))?;
    let metadata = Metadata {
        package,
        channels: &args.channels,
        default_channel,
        layout: &layout,
    };

    let directory = match &args.output_dir {
        Some(directory) => current.join(directory),
        None => project.root.join("bundle"),
    };
    let (Some(parent), Some(inside)) = (directory.parent(), directory.file_name()) else {
        return Err(UsageError(format!("--output-dir {} has no name", directory.display())).into());
    };
    let bundle = files(Path::new(inside), &parts, &csv, &metadata)?;
    let command = format!("hybrid-operator olm bundle --version {}", args.version);
    let target = |root| Target {
        root,
        check: args.check,
        command: &command,
    };
    let mut results = vec![deliver(&pins, &target(&project.root), out)];
    if let Some(text) = new_base {
        let mut files = FileSet::default();
        files.add(base_file, text)?;
        results.push(deliver(&files, &target(&project.root), out));
    }
    results.push(deliver(&bundle, &target(parent), out));
    results.into_iter().collect::<anyhow::Result<()>>()?;
    name_others(&bundle, parent, Path::new(inside))?;
    if !args.check {
        // What the base lacks is known only now.
        let findings = validate::bundle(&directory, &BTreeSet::new());
        let broken: Vec<_> = findings
            .iter()
            .filter(|finding| finding.is_error())
            .collect();
        if !broken.is_empty() {
            for finding in &broken {
                writeln!(out, "{finding}")?;
            }
            let message = format!(
                "the bundle has {} error(s); correct the base {BASES} or the files of config",
                broken.len()
            );
            return Err(ToDo::Message(message).into());
        }
    }
    Ok(())
}

fn default_channel(args: &Args) -> anyhow::Result<&str> {
    let Some(default) = args
        .default_channel
        .as_deref()
        .or(args.channels.first().map(String::as_str))
    else {
        return Err(UsageError("--channels is empty".to_owned()).into());
    };
    let is_name = |name: &String| !name.is_empty() && !name.contains(char::is_whitespace);
    if let Some(bad) = args.channels.iter().find(|name| !is_name(name)) {
        return Err(UsageError(format!(
            "--channels has {bad:?}, which is not the name of a channel"
        ))
        .into());
    }
    if !args.channels.iter().any(|channel| channel == default) {
        return Err(UsageError(format!(
            "--default-channel {default} is not one of --channels ({})",
            args.channels.join(", ")
        ))
        .into());
    }
    Ok(default)
}

/// Reads the objects that the project deploys.
fn objects(args: &Args, root: &Path) -> anyhow::Result<Vec<Value>> {
    let Some(file) = &args.manifests else {
        return kustomize::build(&root.join(DEPLOYED));
    };
    let text = if file.as_os_str() == "-" {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .context("cannot read standard input")?;
        text
    } else {
        fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let documents: Vec<Value> = go_yaml::documents(&text)
        .with_context(|| format!("{} is not valid YAML", file.display()))?;
    Ok(documents
        .into_iter()
        .filter(|object| !object.is_null())
        .collect())
}

/// Adds the samples and the configuration of scorecard, if they were not among the objects.
fn add_files(parts: &mut Parts, root: &Path) -> anyhow::Result<()> {
    let samples = root.join(SAMPLES);
    if parts.examples.is_empty() && samples.is_dir() {
        parts.examples = kustomize::build(&samples)?;
    }
    let scorecard = root.join(SCORECARD);
    if parts.scorecard.is_none() && scorecard.is_file() {
        parts.scorecard = Some(read(&scorecard)?);
    }
    Ok(())
}

/// Adds the kinds of objects that the charts of a project contain, and pins their images.
fn add_charts(
    created: &mut Created,
    watches_file: &Path,
    mut pinning: Option<&mut Pinning>,
) -> anyhow::Result<()> {
    if !watches_file.is_file() {
        return Ok(());
    }
    let project = watches_file.parent().unwrap_or(Path::new(""));
    let reader = ChartReader::open_default().in_project(project);
    for watch in watches::load(watches_file)? {
        let chart = reader
            .read(&watch.chart)
            .with_context(|| format!("cannot load the chart {}", watch.chart))?;
        let chart = watch.with_schema_policy(chart);
        let mut values = ci_values(&chart, watch.chart.path().unwrap_or(Path::new("")))?;
        if let Some(pinning) = &pinning {
            values.extend(pinning.samples(&watch));
        }
        let owner = GroupKind::new(&watch.gvk.group, &watch.gvk.kind);
        match survey(&chart, &values) {
            Ok(found) => {
                created.add_chart(owner, &chart, &found);
                if let Some(pinning) = &mut pinning {
                    pinning.add(&watch, &reader, &chart, &found)?;
                }
            }
            // The chart may need values that only custom resources have.
            Err(error) => {
                let error = anyhow::Error::new(error);
                crate::print_message(&format!(
                    "warning: the bundle does not say what kinds of objects {owner} has; list them in spec.customresourcedefinitions.owned of the base, as resources, or make the chart render: {error:#}"
                ));
                if let Some(pinning) = &mut pinning {
                    pinning.leave(&watch);
                }
            }
        }
    }
    Ok(())
}

/// Returns the base, and its text if it is a new one.
fn base(parts: &mut Parts, path: &Path, package: &str) -> anyhow::Result<(Value, Option<String>)> {
    if let Some(base) = parts.base.take() {
        return Ok((base, None));
    }
    if path.is_file() {
        return Ok((read(path)?, None));
    }
    let text = csv::base(package);
    let base = go_yaml::from_str(&text).context("the base of a new project is not YAML")?;
    Ok((base, Some(text)))
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    go_yaml::from_slice(&text).with_context(|| format!("{} is not valid YAML", path.display()))
}

/// Names files among the manifests that this command did not write: OLM takes them as well.
fn name_others(bundle: &FileSet, parent: &Path, directory: &Path) -> anyhow::Result<()> {
    let manifests = directory.join("manifests");
    let Ok(entries) = fs::read_dir(parent.join(&manifests)) else {
        return Ok(());
    };
    let mut others = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", manifests.display()))?;
        let path = manifests.join(entry.file_name());
        if bundle.get(&path).is_none() {
            others.push(path);
        }
    }
    others.sort();
    for other in others {
        crate::print_message(&format!(
            "{} does not follow from the project and is kept; delete it if it is from an earlier version",
            other.display()
        ));
    }
    Ok(())
}
