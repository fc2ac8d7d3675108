//! `hybrid-operator lint`: says what breaks when a chart runs under an operator.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use comfy_table::{ContentArrangement, Table, presets};
use helm_core::Values;
use helm_core::chart::Chart;
use hybrid_operator::helm::ChartReader;
use hybrid_operator::watches::{self, ChartSource};
use serde::Serialize;

use super::UsageError;
use super::chart_flags::{AccessFlags, Found};
use crate::ToDo;
use crate::lint::{Finding, Input, Severity, judge, lint, rules, spec};
use crate::preview::LimitArgs;
use crate::project::{PROJECT, Project, WATCHES};

const EXAMPLES: &str = "\
Examples:
  # All charts of the project in this directory
  hybrid-operator lint

  # One chart, for a certain version of Kubernetes
  hybrid-operator lint ./helm-charts/shop --kube-version 1.33

  # A chart of a registry
  hybrid-operator lint oci://ghcr.io/stefanprodan/charts/podinfo --version '^6'

  # In CI: warnings fail too, but not those about names
  hybrid-operator lint --strict --ignore fixed-name --output json

Exit code: 3 if there is an error, or with --strict a warning; else 0.
'hybrid-operator lint --rules' lists the rules.";

/// Minor version of Kubernetes that charts are checked for by default.
const KUBE_VERSION: &str = "1.36";

/// Arguments of `lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Chart directory, packaged chart (.tgz), its URL, `oci://HOST/PATH`, with --repo its name,
    /// REPOSITORY/NAME with a repository of 'helm repo add', or a project
    #[arg(value_name = "CHART", default_value = ".")]
    path: PathBuf,

    /// Repository of the chart
    #[arg(long, value_name = "URL")]
    repo: Option<String>,

    /// Version of the chart in a repository or registry, or a range such as '>=1.2, <2' [default: the
    /// newest]
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    version: Option<String>,

    #[command(flatten)]
    access: AccessFlags,

    /// Values file to render the chart with, beside those in its ci/; can be repeated
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Vec<PathBuf>,

    /// Version of Kubernetes that the chart is for
    #[arg(long, value_name = "VERSION", default_value = KUBE_VERSION)]
    kube_version: String,

    /// Rule to leave out; can be repeated
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = ids(), hide_possible_values = true)]
    ignore: Vec<String>,

    /// Make warnings errors
    #[arg(long)]
    strict: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,

    #[command(flatten)]
    limits: LimitArgs,

    /// Show the contents of values in errors of templates
    #[arg(long)]
    debug: bool,

    /// List the rules
    #[arg(long)]
    rules: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
}

fn ids() -> PossibleValuesParser {
    PossibleValuesParser::new(rules().map(|(id, _)| id))
}

/// The findings of one chart.
#[derive(Debug, Serialize)]
struct Report {
    /// The chart's path, as given or as in the watches file.
    chart: String,
    findings: Vec<Finding>,
}

/// Prints the findings.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.rules {
        for (id, what) in rules() {
            writeln!(out, "{id:<22}{what}")?;
        }
        return Ok(());
    }
    let kube_minor = minor(&args.kube_version)?;
    let (charts, mut reports) = inputs(args)?;
    for (path, chart) in charts {
        let shown = path.display().to_string();
        if chart.metadata().is_library() {
            bail!("{shown} is a library chart, which renders nothing; lint the charts that use it");
        }
        let given = values(args, &path, &chart)?;
        let input = Input {
            chart: &chart,
            given: &given,
            kube_minor,
            limits: args.limits.limits(),
            values_in_errors: args.debug,
        };
        reports.push(Report {
            chart: shown,
            findings: judge(lint(&input), &args.ignore, args.strict),
        });
    }
    print(&reports, args.output, out)?;
    let count = |severity| {
        let findings = reports.iter().flat_map(|report| &report.findings);
        findings
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if errors > 0 {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let message = format!(
            "{errors} error{} and {warnings} warning{}; fix the errors, or leave rules out with --ignore",
            plural(errors),
            plural(warnings)
        );
        return Err(ToDo::Message(message).into());
    }
    Ok(())
}

fn minor(version: &str) -> Result<u32, UsageError> {
    let parsed = version.trim_start_matches('v').strip_prefix("1.");
    let minor = parsed.and_then(|rest| rest.split('.').next()?.parse().ok());
    minor.ok_or_else(|| {
        let message =
            format!("{version:?} is no version of Kubernetes; give one such as {KUBE_VERSION}");
        UsageError(message)
    })
}

/// The charts to lint, each with its path or URL.
type Charts = Vec<(PathBuf, Chart)>;

/// Returns the chart that is named, or those of a project, and what is found in the watches file of the project.
fn inputs(args: &Args) -> anyhow::Result<(Charts, Vec<Report>)> {
    let given = args.path.to_string_lossy();
    let (repo, version) = (args.repo.as_deref(), args.version.as_deref());
    let found = args.access.find(&given, repo, version)?;
    let path = match &found {
        Found::Local(path) | Found::Verified { path, .. } => path,
        Found::Fetched { url, .. } => {
            return Ok((vec![(url.into(), found.load()?)], Vec::new()));
        }
    };
    if version.is_some() {
        let message = "--version is for charts of repositories and registries; leave it out";
        return Err(UsageError(message.to_owned()).into());
    }
    if let Found::Verified { path, .. } = &found {
        return Ok((vec![(path.clone(), found.load()?)], Vec::new()));
    }
    let Place {
        project,
        charts,
        findings,
    } = charts_at(path)?;
    let reports = findings.map(|findings| Report {
        chart: WATCHES.to_owned(),
        findings: judge(findings, &args.ignore, args.strict),
    });
    let reader = ChartReader::open_default().in_project(project);
    let load = |(source, skip_schema): (ChartSource, bool)| -> anyhow::Result<_> {
        let chart = reader.read(&source);
        let mut chart = chart.with_context(|| format!("cannot load the chart {source}"))?;
        if skip_schema {
            chart = chart.skip_schemas();
        }
        Ok((source.to_string().into(), chart))
    };
    let charts = charts.into_iter().map(load).collect::<Result<_, _>>()?;
    Ok((charts, reports.into_iter().collect()))
}

/// A chart, or a project.
struct Place {
    /// Directory in which the operator of the charts runs.
    project: PathBuf,
    /// The charts, each with whether its schemas are skipped.
    charts: Vec<(ChartSource, bool)>,
    /// Findings in the watches file; `None` if it has no specs of its own.
    findings: Option<Vec<Finding>>,
}

/// Returns the chart at a path, or the project at it.
fn charts_at(path: &Path) -> anyhow::Result<Place> {
    if !path.exists() {
        bail!(
            "{} not found; give a chart directory, a packaged chart (.tgz), a URL, oci://HOST/PATH, its name with \
             --repo or as REPOSITORY/NAME, or a project",
            path.display()
        );
    }
    if path.is_file() || path.join("Chart.yaml").is_file() {
        let chart = ChartSource::Local(path.to_owned());
        return Ok(Place {
            project: ".".into(),
            charts: vec![(chart, false)],
            findings: None,
        });
    }
    let watches_file = if path.join(WATCHES).is_file() {
        path.join(WATCHES)
    } else if path.join(PROJECT).is_file() || path == Path::new(".") {
        Project::find(path)?.watches_file()
    } else {
        bail!(
            "{} is neither a chart nor a project: it has no Chart.yaml, {PROJECT} or {WATCHES}",
            path.display()
        );
    };
    let project = watches_file.parent().unwrap_or(Path::new(""));
    let reader = ChartReader::open_default().in_project(project);
    let watches = watches::load_with(&watches_file, |entry| {
        // A chart that cannot be loaded is reported with its name.
        match reader.read(&entry.watch.chart) {
            Ok(chart) => entry.watch.of_chart(&chart),
            Err(_) => Ok(entry.watch),
        }
    })?;
    let findings = if watches.iter().any(|watch| watch.api.is_some()) {
        let name = watches_file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        Some(spec::findings(
            &name,
            &std::fs::read(&watches_file)?,
            &watches,
        ))
    } else {
        None
    };
    let mut charts = Vec::new();
    for watch in watches {
        let chart = match watch.chart {
            ChartSource::Local(path) => {
                ChartSource::Local(path.strip_prefix("./").unwrap_or(&path).to_owned())
            }
            remote @ ChartSource::Remote(_) => remote,
        };
        let entry = (chart, watch.skip_schema);
        if !charts.contains(&entry) {
            charts.push(entry);
        }
    }
    Ok(Place {
        project: project.to_owned(),
        charts,
        findings,
    })
}

fn values(args: &Args, path: &Path, chart: &Chart) -> anyhow::Result<Vec<(String, Values)>> {
    let mut values = super::generate::ci_values(chart, path)?;
    for file in &args.values {
        let name = file.display().to_string();
        let read =
            helm_core::values::read_file(file).with_context(|| format!("cannot read {name}"))?;
        values.push((name, read));
    }
    Ok(values)
}

fn print(reports: &[Report], format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(reports)?)?,
        Format::Yaml => write!(out, "{}", go_yaml::to_string(reports)?)?,
        Format::Table => {
            for (index, report) in reports.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                table(report, out)?;
            }
        }
    }
    Ok(())
}

fn table(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.findings.is_empty() {
        writeln!(out, "{}: nothing found", report.chart)?;
        return Ok(());
    }
    writeln!(out, "{}", report.chart)?;
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["SEVERITY", "RULE", "PLACE", "FINDING"]);
    for finding in &report.findings {
        table.add_row([
            finding.severity.name().to_owned(),
            finding.id.to_owned(),
            format!("{}:{}", finding.file, finding.line),
            format!("{}; {}", finding.message, finding.help),
        ]);
    }
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim())?;
    }
    Ok(())
}
