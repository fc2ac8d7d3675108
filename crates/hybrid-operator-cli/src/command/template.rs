//! `template`: prints what `helm template` prints.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use helm_core::capabilities::KubeVersion;
use helm_core::chart::path_match;
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::manifest::{Hook, HookEvent, split};
use helm_core::release::{ReleaseName, Revision};
use helm_core::{Capabilities, Chart, CompiledChart, RenderError, Rendered};

use super::show::print;
use super::values::ValueArgs;

const EXAMPLES: &str = "\
Examples:
  hybrid-operator template shop ./helm-charts/shop
  hybrid-operator template shop ./shop-1.2.3.tgz -f values.yaml --set replicas=2
  hybrid-operator template shop ./shop --show-only 'templates/service*.yaml'
  hybrid-operator template shop ./shop --kube-version 1.34 --api-versions monitoring.coreos.com/v1";

/// What to render, and what of it to print.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    /// Name of the release; `release-name` when only a chart is given.
    #[arg(value_name = "NAME")]
    first: String,
    /// Folder or .tgz of the chart.
    #[arg(value_name = "CHART")]
    second: Option<PathBuf>,
    /// Make a name of the chart's and the time.
    #[arg(short, long, conflicts_with = "second")]
    generate_name: bool,
    /// Namespace of the release.
    #[arg(short, long, default_value = "default", env = "HELM_NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    values: ValueArgs,
    /// Kubernetes version that templates see.
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<String>,
    /// Further API versions that templates see, such as monitoring.coreos.com/v1.
    #[arg(short, long, value_name = "VERSION", value_delimiter = ',')]
    api_versions: Vec<String>,
    /// Render an upgrade instead of an install.
    #[arg(long)]
    is_upgrade: bool,
    /// Print the definitions of crds/, too.
    #[arg(long)]
    include_crds: bool,
    /// Print only what these templates give; may have wildcards (can be given several times).
    #[arg(short, long, value_name = "TEMPLATE")]
    show_only: Vec<String>,
    /// Leave the chart's tests out.
    #[arg(long)]
    skip_tests: bool,
    /// Leave all hooks out.
    #[arg(long)]
    no_hooks: bool,
    /// Do not hold the values against the chart's schema.
    #[arg(long)]
    skip_schema_validation: bool,
    /// Print what was rendered even if it is no YAML, and tell more of errors.
    #[arg(long)]
    debug: bool,
}

impl Args {
    /// The name of the release, and its chart.
    fn name_and_chart(&self) -> (String, PathBuf) {
        if let Some(chart) = &self.second {
            return (self.first.clone(), chart.clone());
        }
        let chart = PathBuf::from(&self.first);
        if !self.generate_name {
            return ("release-name".to_owned(), chart);
        }
        let base = chart.file_name().unwrap_or_default().to_string_lossy();
        let base = base.split('.').next().filter(|base| !base.is_empty());
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        (format!("{}-{seconds}", base.unwrap_or("chart")), chart)
    }

    fn capabilities(&self) -> anyhow::Result<Capabilities> {
        let mut capabilities = Capabilities::default();
        if let Some(version) = &self.kube_version {
            capabilities.kube_version = KubeVersion::parse(version)
                .with_context(|| format!("invalid kube version '{version}'"))?;
        }
        capabilities.api_versions = capabilities.api_versions.with(self.api_versions.clone());
        Ok(capabilities)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (name, path) = args.name_and_chart();
    ReleaseName::new(name.as_str())
        .with_context(|| format!("release name {name:?} cannot be used"))?;
    let capabilities = args.capabilities()?;
    let user = args.values.read()?;
    let chart = load(&path)?;
    let compiled = CompiledChart::compile(&chart)?;
    let values = if args.skip_schema_validation {
        compiled.coalesce_unchecked(user)?
    } else {
        compiled.coalesce(user)?
    };
    let mut info = ReleaseInfo::new(name, &*args.namespace);
    if args.is_upgrade {
        info = info.upgrade_to(Revision::FIRST);
    }
    let input = RenderInput::new(info, &values).capabilities(&capabilities);
    match compiled.render(&input) {
        Ok(rendered) => print(manifest(args, &rendered)?.as_bytes()),
        Err(error @ (RenderError::Yaml { .. } | RenderError::Object(_))) if args.debug => {
            // What is no YAML is what a person wants to see then.
            let files = compiled.render_files(&input)?.files;
            let mut text = String::new();
            for (path, content) in &files {
                let content = String::from_utf8_lossy(content);
                if !content.trim().is_empty() && !path.ends_with("NOTES.txt") {
                    push(&mut text, path, &content);
                }
            }
            print(format!("{}\n", text.trim()).as_bytes())?;
            Err(error.into())
        }
        Err(error @ (RenderError::Yaml { .. } | RenderError::Object(_))) => {
            Err(anyhow::Error::from(error).context("use --debug to see what was rendered"))
        }
        Err(error) => Err(error.into()),
    }
}

fn load(path: &Path) -> anyhow::Result<Chart> {
    if !path.exists() {
        bail!(
            "there is no chart at {}; give the folder that has Chart.yaml, or a .tgz",
            path.display()
        );
    }
    Chart::load(path).with_context(|| format!("cannot load the chart {}", path.display()))
}

/// Everything that is printed, or the part of it that was asked for.
fn manifest(args: &Args, rendered: &Rendered) -> anyhow::Result<String> {
    let mut text = String::new();
    if args.include_crds {
        for crd in rendered.crds() {
            let content = String::from_utf8_lossy(crd.file().data());
            push(&mut text, crd.path(), &content);
        }
    }
    text.push_str(rendered.manifest());
    let mut text = format!("{}\n", text.trim());
    if !args.no_hooks {
        let skipped = |hook: &&Hook| args.skip_tests && hook.runs_at(&HookEvent::Test);
        for hook in rendered.hooks().iter().filter(|hook| !skipped(hook)) {
            push(&mut text, &hook.path, &hook.manifest);
        }
    }
    if args.show_only.is_empty() {
        return Ok(text);
    }
    let mut shown = String::new();
    for pattern in &args.show_only {
        let wanted = pattern.replace('\\', "/");
        let mut found = false;
        for document in split(&text) {
            let source = document.lines().find_map(|l| l.strip_prefix("# Source: "));
            let file = source.and_then(|source| source.split_once('/'));
            if file.is_some_and(|(_, file)| path_match::matches(&wanted, file).unwrap_or(false)) {
                found = true;
                for part in ["---\n", document, "\n"] {
                    shown.push_str(part);
                }
            }
        }
        if !found {
            bail!("could not find template {pattern} in chart");
        }
    }
    Ok(shown)
}

fn push(text: &mut String, path: &str, content: &str) {
    for part in ["---\n# Source: ", path, "\n", content, "\n"] {
        text.push_str(part);
    }
}
