//! `hybrid-operator template [NAME] CHART`: prints the same output as `helm template`. With `--cr`,
//! prints what the operator would deploy for custom resources.

mod dependency_update;
mod helm_flags;
mod images;
mod kube_context;
mod name_template;
mod output_dir;
mod show_only;
mod user_values;

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction};
use helm_core::capabilities::KubeVersion;
use helm_core::chart::Chart;
use helm_core::engine::{Output, ReleaseInfo, RenderError, RenderInput};
use helm_core::manifest::{Hook, HookEvent};
use helm_core::release::{ReleaseName, Revision};
use helm_core::{Capabilities, Coalesced, CompiledChart, Rendered};

use crate::command::UsageError;
use crate::command::chart_flags::{AccessFlags, Found};
use crate::output::Format;
use crate::preview::{self, Bindings, LimitArgs, Namespace, Request, SourceArgs, with_excerpt};
use helm_flags::HelmFlags;
use images::Images;
use output_dir::Documents;
use user_values::ValueFlags;

/// Default name of the release, as in Helm.
const NAME: &str = "release-name";

/// Version range that `--devel` stands for.
const WITH_PRERELEASES: &str = ">0.0.0-0";

const EXAMPLES: &str = "\
Examples:
  # A chart directory, with values from a file and from the command line
  hybrid-operator template web ./helm-charts/web --values prod.yaml --set replicas=3

  # One template of a packaged chart, for another cluster
  hybrid-operator template web web-1.2.3.tgz --show-only templates/service.yaml \\
    --namespace prod --kube-version 1.33 --api-versions monitoring.coreos.com/v1

  # Charts of a registry and of a repository
  hybrid-operator template web oci://ghcr.io/stefanprodan/charts/podinfo --version '^6'
  hybrid-operator template web podinfo --repo https://stefanprodan.github.io/podinfo

  # What the operator would deploy for a custom resource of the project, without a cluster
  hybrid-operator template --cr config/samples/shop_v1_web.yaml

  # The same from standard input, with the Secrets that valuesFrom refers to
  kubectl get web shop -o yaml | hybrid-operator template --cr - --from secrets.yaml

  # The container images of it, to mirror them
  hybrid-operator template --images --cr config/samples/shop_v1_web.yaml";

/// Arguments that a custom resource replaces.
const CHART_ONLY: &str = "\
    target files set set_string set_json set_file set_literal is_upgrade skip_schema_validation \
    generate_name repo version devel username password pass_credentials ca_file cert_file \
    key_file plain_http insecure_skip_tls_verify verify keyring cosign_key certificate_identity \
    certificate_identity_regexp certificate_oidc_issuer certificate_oidc_issuer_regexp \
    trusted_root registry_config repository_config chart_cache";

/// Arguments of `template`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "hybrid-operator template [NAME] <CHART> [OPTIONS]\n       \
                      hybrid-operator template --cr <FILE> [OPTIONS]",
    args_override_self = true,
    mut_args(switch)
)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Args {
    /// Name of the release [default: release-name], and path of a chart directory or a packaged
    /// chart (.tgz), its URL, `oci://HOST/PATH`, with --repo its name, or REPOSITORY/NAME with a
    /// repository of 'helm repo add'
    #[arg(value_name = "CHART", num_args = 1..=2, required_unless_present = "cr")]
    target: Vec<String>,

    /// Repository of the chart
    #[arg(long, value_name = "URL")]
    repo: Option<String>,

    /// Version of the chart in a repository or registry, or a range such as '>=1.2, <2' [default: the
    /// newest]. Without effect on a chart on this machine, as in Helm
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    version: Option<String>,

    /// Without --version: take prereleases of the chart, too
    #[arg(long)]
    devel: bool,

    #[command(flatten)]
    access: AccessFlags,

    /// Render what the operator would deploy for the custom resources of a file, or of standard input
    /// (`-`), through the watches file; can be repeated. `lookup` finds nothing
    #[arg(
        long,
        value_name = "FILE",
        action = ArgAction::Append,
        conflicts_with_all = CHART_ONLY.split_whitespace()
    )]
    cr: Vec<String>,

    /// File with the objects that `valuesFrom` refers to; can be repeated
    #[arg(long, value_name = "FILE", action = ArgAction::Append, requires = "cr")]
    from: Vec<String>,

    #[command(flatten)]
    source: SourceArgs,

    /// Print only the container images
    #[arg(long, conflicts_with_all = ["output_dir", "show_only"])]
    images: bool,

    /// Format of the images; `table` is one per line, `wide` also names the objects that use them
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        requires = "images"
    )]
    output: Format,

    /// Namespace of the release [default: `HELM_NAMESPACE`, else that of the kubeconfig's context]
    #[arg(short, long, allow_hyphen_values = true)]
    namespace: Option<String>,

    #[command(flatten)]
    values: ValueFlags,

    /// Kubernetes version for `.Capabilities.KubeVersion`
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    kube_version: Option<String>,

    /// Additional API versions for `.Capabilities.APIVersions`, such as `monitoring.coreos.com/v1`;
    /// can be repeated
    #[arg(short, long, value_name = "VERSIONS", value_delimiter = ',', action = ArgAction::Append)]
    api_versions: Vec<String>,

    /// Set `.Release.IsUpgrade` instead of `.Release.IsInstall`
    #[arg(long)]
    is_upgrade: bool,

    /// Include the files of crds/ in the output
    #[arg(long)]
    include_crds: bool,

    /// Print only the output of this template (a path or pattern relative to the chart); can be
    /// repeated
    #[arg(short, long, value_name = "TEMPLATE", action = ArgAction::Append, allow_hyphen_values = true)]
    show_only: Vec<String>,

    /// Skip test hooks
    #[arg(long)]
    skip_tests: bool,

    /// Skip all hooks
    #[arg(long)]
    no_hooks: bool,

    /// Do not validate the values against the chart's JSON schemas
    #[arg(long)]
    skip_schema_validation: bool,

    /// Accepted for compatibility with `helm template`; NAME must be omitted
    #[arg(short, long)]
    generate_name: bool,

    #[command(flatten)]
    limits: LimitArgs,

    /// Print progress, the contents of values in errors, and the rendered output even if it is not valid
    /// YAML; with --cr, only the contents of values
    #[arg(long)]
    debug: bool,

    #[command(flatten)]
    helm: HelmFlags,
}

/// Accepts `--name=true` and `--name=false` for a boolean flag, as in Helm.
fn switch(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    arg.action(ArgAction::Set)
        .value_name("BOOL")
        .value_parser(helm_flags::go_bool)
        .num_args(0..=1)
        .require_equals(true)
        .default_value("false")
        .default_missing_value("true")
        .hide_default_value(true)
        .hide_possible_values(true)
}

/// Renders the chart and prints it.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    args.helm.check()?;
    if args.helm.output_dir().is_some() && !args.show_only.is_empty() {
        let message = "--show-only selects from standard output; leave it or --output-dir out";
        return Err(UsageError(message.to_owned()).into());
    }
    let capabilities = capabilities(args.kube_version.as_deref(), &args.api_versions)?;
    if !args.cr.is_empty() {
        return args.print_previews(&capabilities, out);
    }
    let (name, chart) = match args.target.as_slice() {
        [name, chart] => (Some(name.as_str()), chart),
        [chart, ..] => (None, chart),
        [] => {
            let message = "give a chart, or a custom resource with --cr";
            return Err(UsageError(message.to_owned()).into());
        }
    };
    let name = args.release_name(name)?;
    let values = args.values.merged()?;
    let compiled = args.load(chart.trim())?;
    if args.debug {
        let root = compiled.chart();
        let count = root.dependencies().len();
        crate::print_message(&format!("chart {}: {count} dependencies", root.name()));
    }
    let coalesced = if args.skip_schema_validation {
        compiled.coalesce_unchecked(values)?
    } else {
        compiled.coalesce(values)?
    };
    let mut info = ReleaseInfo::new(name.as_str(), args.namespace());
    if args.is_upgrade {
        info = info.upgrade_to(Revision::FIRST);
    }
    let mut input = RenderInput::new(info, &coalesced).capabilities(&capabilities);
    if args.helm.enable_dns {
        input.host_names = Some(helm_flags::first_address);
    }
    input.limits = args.limits.limits().of_render();
    input.values_in_errors = args.debug;
    let rendered = match compiled.render(&input) {
        Ok(rendered) => rendered,
        Err(error) => return Err(args.render_error(&compiled, &input, error, out)?),
    };
    // Helm prints it, too, but cannot install it.
    if let Err(error) = rendered.objects() {
        crate::print_message(&format!("warning: {error}"));
    }
    if args.images {
        let mut images = Images::default();
        images.add(&rendered, &args.hooks(&rendered))?;
        return images.print(args.output, out);
    }
    if let Some(directory) = args.helm.output_dir() {
        let release = args.helm.uses_release_name().then_some(name.as_str());
        let documents = args.documents(&coalesced, &rendered);
        return output_dir::write(directory, release, &documents, out);
    }
    let text = args.format_output(&coalesced, &rendered);
    if args.show_only.is_empty() {
        out.write_all(text.as_bytes())?;
    } else {
        out.write_all(show_only::pick(&text, &args.show_only)?.as_bytes())?;
    }
    Ok(())
}

/// Checks that a chart is one to install.
fn check_installable(chart: &Chart, shown: &str) -> anyhow::Result<()> {
    for name in chart.repeated_files() {
        crate::print_message(&format!(
            "warning: {shown} contains {name} more than once; the last one counts"
        ));
    }
    if chart.metadata().is_library() {
        bail!(
            "library charts are not installable; give the chart that depends on {:?}",
            chart.name()
        );
    }
    if chart.metadata().deprecated {
        crate::print_message("warning: this chart is deprecated");
    }
    Ok(())
}

/// Returns the default namespace, from the environment or the kubeconfig.
pub(crate) fn default_namespace() -> String {
    kube_context::namespace(|name| std::env::var_os(name))
}

/// Returns the capabilities that templates see without a cluster.
pub(crate) fn capabilities(
    kube_version: Option<&str>,
    api_versions: &[String],
) -> Result<Capabilities, UsageError> {
    let mut capabilities = Capabilities::default();
    if let Some(version) = kube_version.filter(|text| !text.is_empty()) {
        capabilities.kube_version = KubeVersion::parse(version)
            .with_context(|| format!("invalid kube version '{version}'"))
            .map_err(UsageError::of)?;
    }
    if !api_versions.is_empty() {
        capabilities.api_versions = capabilities.api_versions.with(api_versions);
    }
    Ok(capabilities)
}

impl Args {
    /// Loads the chart, which is fetched if it is not on this machine.
    fn load(&self, chart: &str) -> anyhow::Result<CompiledChart> {
        let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
        let (repo, mut version) = (given(&self.repo), given(&self.version));
        if self.devel && version.is_none() {
            version = Some(WITH_PRERELEASES.to_owned());
        }
        let found = self
            .access
            .find(chart, repo.as_deref(), version.as_deref())?;
        if let Found::Local(path) = &found
            && !path.exists()
        {
            bail!(
                "chart {chart:?} not found; give a chart directory, a packaged chart (.tgz), a URL, \
                 oci://HOST/PATH, or its name with --repo, or as REPOSITORY/NAME"
            );
        }
        let mut compiled = found.compile()?;
        // Helm reports what is missing before the errors of templates.
        let mut loaded = match &compiled {
            Ok(compiled) => compiled.chart().clone(),
            Err(_) => found.load()?,
        };
        check_installable(&loaded, chart)?;
        if let Found::Local(path) = &found
            && self.helm.dependency_update
            && dependency_update::check_complete(&loaded).is_err()
        {
            dependency_update::update(path, &self.access, &mut std::io::stderr())?;
            loaded = found.load()?;
            compiled = CompiledChart::compile(&loaded);
        }
        dependency_update::check_complete(&loaded)?;
        compiled.map_err(with_excerpt)
    }

    /// Returns the given name, or Helm's default.
    fn release_name(&self, name: Option<&str>) -> anyhow::Result<ReleaseName> {
        let template = self.helm.name_template();
        for (flag, is_set) in [
            ("--generate-name", self.generate_name),
            ("--name-template", template.is_some()),
        ] {
            if name.is_some() && is_set {
                let message =
                    format!("cannot set {flag} and also specify a name; leave one of them out");
                return Err(UsageError(message).into());
            }
        }
        let name = match template {
            Some(template) => name_template::render(template).map_err(UsageError::of)?,
            None => name.unwrap_or(NAME).to_owned(),
        };
        let checked = ReleaseName::new(name.as_str()).context("release name check failed");
        Ok(checked.map_err(UsageError::of)?)
    }

    fn namespace(&self) -> String {
        let given = self.namespace.clone().filter(|name| !name.is_empty());
        given.unwrap_or_else(|| self.default_namespace())
    }

    fn default_namespace(&self) -> String {
        let (file, context) = (&self.helm.kubeconfig, &self.helm.kube_context);
        kube_context::namespace(|name| match name {
            "KUBECONFIG" if !file.is_empty() => Some(file.into()),
            "HELM_KUBECONTEXT" if !context.is_empty() => Some(context.into()),
            _ => std::env::var_os(name),
        })
    }

    /// Prints what the operator would deploy for the custom resources of `--cr`.
    fn print_previews(
        &self,
        capabilities: &Capabilities,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let source = self.source.find(Path::new("."))?;
        preview::note_about_code(&source.root);
        let mut bindings = Bindings::load(source)?;
        bindings.limit(self.limits);
        bindings.show_values_in_errors(self.debug);
        let namespace = match self.namespace.clone().filter(|name| !name.is_empty()) {
            Some(given) => Namespace::Given(given),
            None => Namespace::Default(self.default_namespace()),
        };
        let request = Request::read(&self.cr, &self.from, &bindings, &namespace)?;
        let (mut text, mut images) = (String::new(), Images::default());
        for resource in &request.resources {
            let found = preview::offline(&mut bindings, resource, &request.objects, capabilities)?;
            if !(found.overridden.is_empty() || self.images) {
                let paths = found.overridden.join(", ");
                crate::print_message(&format!("{resource}: the watches file overrides {paths}"));
            }
            images.add(&found.rendered, &self.hooks(&found.rendered))?;
            text.push_str(&self.format_output(&found.values, &found.rendered));
        }
        if self.images {
            return images.print(self.output, out);
        }
        if !self.show_only.is_empty() {
            text = show_only::pick(&text, &self.show_only)?;
        }
        out.write_all(text.as_bytes())?;
        Ok(())
    }

    /// Formats the custom resource definitions, the manifest and the hooks as Helm prints them.
    fn format_output(&self, values: &Coalesced, rendered: &Rendered) -> String {
        let mut text = String::with_capacity(rendered.manifest().len() + 1024);
        if self.include_crds {
            for crd in values.chart().crds() {
                let data = String::from_utf8_lossy(crd.file().data());
                push_document(&mut text, crd.path(), &data);
            }
        }
        text.push_str(rendered.manifest());
        let mut text = format!("{}\n", text.trim());
        for hook in self.hooks(rendered) {
            push_document(&mut text, &hook.path, &hook.manifest);
        }
        text
    }

    /// Returns the hooks to print.
    fn hooks<'a>(&self, rendered: &'a Rendered) -> Vec<&'a Hook> {
        let is_shown =
            |hook: &&Hook| !(self.no_hooks || self.skip_tests && hook.runs_at(&HookEvent::Test));
        rendered.hooks().iter().filter(is_shown).collect()
    }

    /// Returns what `--output-dir` writes.
    fn documents<'a>(&self, values: &Coalesced, rendered: &'a Rendered) -> Documents<'a> {
        let crds = self.include_crds.then(|| values.chart().crds());
        Documents {
            crds: crds.unwrap_or_default(),
            manifest: rendered.documents().collect(),
            hooks: self.hooks(rendered),
        }
    }

    /// Returns the error of a chart that cannot be rendered. With `--debug`, prints the output
    /// first.
    fn render_error(
        &self,
        chart: &CompiledChart,
        input: &RenderInput<'_>,
        error: RenderError,
        out: &mut dyn Write,
    ) -> anyhow::Result<anyhow::Error> {
        if !self.debug {
            let error = with_excerpt(error);
            return Ok(anyhow::anyhow!(
                "{error:#}\n\nUse --debug flag to render out invalid YAML"
            ));
        }
        let files = match &error {
            RenderError::Yaml { .. } => chart.render_files(input).unwrap_or_default(),
            _ => Output::default(),
        };
        let mut text = String::new();
        for (path, content) in &files.files {
            let content = String::from_utf8_lossy(content);
            if !content.trim().is_empty() && !path.ends_with("NOTES.txt") {
                push_document(&mut text, path, &content);
            }
        }
        if self.show_only.is_empty() {
            writeln!(out, "{}", text.trim())?;
        } else if let Ok(picked) = show_only::pick(&text, &self.show_only) {
            out.write_all(picked.as_bytes())?;
        }
        Ok(with_excerpt(error))
    }
}

fn push_document(text: &mut String, path: &str, content: &str) {
    for part in ["---\n# Source: ", path, "\n", content, "\n"] {
        text.push_str(part);
    }
}
