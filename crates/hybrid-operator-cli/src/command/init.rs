//! `hybrid-operator init`: the files of a new project, in the current directory.

use std::env;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;

use super::ask::answer;
use super::create::{ChartFlags, KindFlags, next_of_chart, next_of_native};
use crate::project::Project;
use crate::scaffold::names;
use crate::scaffold::{self, Draft, Extra, Framework, Init, License, Plugin};

const EXAMPLES: &str = "\
Examples:
  # A project for charts and for controllers in Rust
  hybrid-operator init --domain example.com --project-name shop-operator

  # An operator for a chart, without code
  hybrid-operator init --domain example.com \\
    --helm-chart oci://ghcr.io/stefanprodan/charts/podinfo

  # The same with what operators in production need
  hybrid-operator init --domain example.com --with monitoring,olm,scorecard,ci \\
    --helm-chart oci://ghcr.io/stefanprodan/charts/podinfo

  # A controller in Rust, with the framework from a checkout
  hybrid-operator init --plugins native --domain example.com --framework ../hybrid-operator \\
    --group shop --version v1alpha1 --kind Order";

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Suffix of the API groups, such as example.com
    #[arg(long)]
    domain: Option<String>,

    /// Name of the project [default: the name of the directory]
    #[arg(long, value_name = "NAME")]
    project_name: Option<String>,

    /// What the project is made of [default: helm with --helm-chart, else hybrid]
    #[arg(long, value_enum, value_name = "PLUGIN")]
    plugins: Option<Plugin>,

    #[command(flatten)]
    kind: KindFlags,

    #[command(flatten)]
    chart: ChartFlags,

    /// Parts that not everybody needs, separated by commas; also in a project that is there already
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',')]
    with: Vec<Extra>,

    /// Licence of the project
    #[arg(long, value_enum, default_value = "none")]
    license: License,

    /// Who has the copyright, for the licence
    #[arg(long, requires = "license")]
    owner: Option<String>,

    /// A checkout of the framework, as a directory or the URL of a git repository, with #REVISION if it is
    /// not its newest commit [default: the released crates; for charts alone, the checkout in which this program
    /// was built]
    #[arg(long, value_name = "PATH|GIT-URL")]
    framework: Option<String>,

    /// Overwrite files that have other content, and delete those that the chart of --helm-chart does not have
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let root = env::current_dir().context("cannot find the current directory")?;
    let mut assumed = Vec::new();
    let plugin = args.plugins.unwrap_or_else(|| {
        let plugin = plugin_of(&root, args.chart.is_given());
        assumed.push(format!("--plugins {}", plugin.name()));
        plugin
    });
    let project_name = if let Some(name) = args.project_name {
        name
    } else {
        let name = name_of(&root)?;
        assumed.push(format!("--project-name {name}"));
        name
    };
    let check = names::check_domain;
    let question = "Domain of the API groups:";
    let domain = answer("domain", question, "example.com", args.domain, check)?;
    let init = Init {
        domain,
        project_name,
        plugin,
        license: args.license,
        owner: args.owner,
        framework: Framework::parse(args.framework.as_deref())?,
        extras: args.with,
    };
    let mut draft = Draft::new(&root);
    let mut file = scaffold::init(&mut draft, &root, &init)?;
    let next = if !(args.kind.is_given() || args.chart.is_given()) {
        next_of_project(plugin)
    } else if plugin == Plugin::Native {
        let kind = args.kind.ask()?;
        args.chart.refuse_for_native()?;
        scaffold::create_native_kind(&mut draft, &mut file, &kind, true, None)?;
        next_of_native()
    } else {
        let (kind, mut source) = args.chart.load(args.kind, &mut assumed)?;
        args.chart.complete(&mut source, &root, args.force, out)?;
        scaffold::create_chart_kind(&mut draft, &mut file, &kind, &source)?;
        next_of_chart()
    };
    super::create::finish(&draft, args.force, &assumed, next, out)
}

/// Returns the plugin of the project that is there already, else the one for charts alone if there is a chart.
fn plugin_of(root: &Path, has_chart: bool) -> Plugin {
    let project = Project::open(root).ok();
    let present = project.and_then(|project| Plugin::of(&project.file).ok());
    present.unwrap_or(if has_chart {
        Plugin::Helm
    } else {
        Plugin::Hybrid
    })
}

/// Returns the directory's name as that of the project.
fn name_of(root: &Path) -> anyhow::Result<String> {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase();
    names::check_project(&name, false)
        .context("the directory's name cannot be that of the project; pass --project-name")?;
    Ok(name)
}

fn next_of_project(plugin: Plugin) -> &'static str {
    match plugin {
        Plugin::Helm => {
            "hybrid-operator create api --group apps --version v1alpha1 --kind Shop   # with a new chart
hybrid-operator create api --helm-chart DIR   # for a chart that you have"
        }
        Plugin::Native => "hybrid-operator create api --group apps --version v1alpha1 --kind Order",
        Plugin::Hybrid => {
            "hybrid-operator create api --group apps --version v1alpha1 --kind Shop   # with a new chart
hybrid-operator create api --helm-chart DIR   # for a chart that you have
hybrid-operator create api --group apps --version v1alpha1 --kind Order --native   # in Rust"
        }
    }
}
