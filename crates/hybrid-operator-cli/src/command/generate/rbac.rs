//! `hybrid-operator generate rbac`: writes the roles that the operator needs for its charts.

mod namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use helm_core::Values;
use helm_core::chart::Chart;
use hybrid_operator::helm::ChartReader;
use hybrid_operator::watches::{self, CrdPolicy, Watch};
use serde_json::Value;

use super::Options;
use crate::command::chart_flags::chart_path;
use crate::files::{FileSet, entries_of};
use crate::generate::ChartApi;
use crate::generate::native::Program;
use crate::generate::output::{Target, deliver, place};
use crate::project::{PROJECT, Project, WATCHES, plural as regular_plural};
use crate::rbac::chart::{self, ChartRules, Crds, RoleOptions, WatchNeeds};
use crate::rbac::fixed::{self, Access};
use crate::rbac::kinds::{GroupKind, Kinds};
use crate::rbac::native::native_role;
use crate::rbac::rules::{Grant, grants_of};
use crate::rbac::survey::{Survey, survey};
use crate::rbac::write::{RoleScope, binding};
use crate::rbac::{explain, kustomization, role_text};

const EXAMPLES: &str = "\
Examples:
  # Write config/rbac of the project in this directory
  hybrid-operator generate rbac

  # Say why each permission is needed
  hybrid-operator generate rbac --explain --check

  # After a chart's update, when all releases are upgraded
  hybrid-operator generate rbac --prune";

/// Verbs that give more than they say; they are never kept from an earlier file.
const ESCALATING: &[&str] = &["bind", "escalate", "impersonate", "*"];

/// Arguments of `generate rbac`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Args {
    /// Watches file [default: watches.yaml of the project]
    #[arg(long, value_name = "FILE")]
    watches_file: Option<PathBuf>,

    /// Directory to write to, relative to the project
    #[arg(long, value_name = "DIR", default_value = "config/rbac")]
    output_dir: PathBuf,

    /// Print each permission with its reason
    #[arg(long)]
    explain: bool,

    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,

    /// Values file to render the charts with, beside those in their ci/; can be repeated
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Vec<PathBuf>,

    /// Also grant kinds that are in the templates but in no render
    #[arg(long)]
    include_unreached: bool,

    /// An earlier version of a chart, whose kinds are still needed to upgrade its releases (directory
    /// or .tgz); can be repeated
    #[arg(long, value_name = "CHART", value_parser = chart_path())]
    previous_chart: Vec<PathBuf>,

    /// Remove permissions that only earlier versions of the charts need
    #[arg(long)]
    prune: bool,

    /// Grant 'bind' and 'escalate' where a chart's own roles need them
    #[arg(long)]
    allow_escalation: bool,

    /// Write Roles for the operator's namespace instead of `ClusterRoles`
    #[arg(long)]
    namespaced: bool,

    /// Leave out the roles of native controllers, for which the program of the project is built
    #[arg(long)]
    charts_only: bool,

    /// Built program of the project, which has the native controllers; without it, cargo builds it
    #[arg(long, value_name = "FILE", conflicts_with = "charts_only")]
    pub(super) program: Option<PathBuf>,
}

impl Args {
    /// Returns the arguments of `generate` alone.
    pub(super) fn with(options: &Options) -> Self {
        Self {
            watches_file: options.watches_file.clone(),
            output_dir: "config/rbac".into(),
            explain: false,
            check: options.check,
            values: Vec::new(),
            include_unreached: false,
            previous_chart: Vec::new(),
            prune: false,
            allow_escalation: false,
            namespaced: false,
            charts_only: options.charts_only,
            program: options.program.clone(),
        }
    }
}

/// The project as far as roles need it.
struct Input {
    root: PathBuf,
    watches: Vec<Watch>,
    /// Kinds with definitions in the project.
    kinds: Kinds,
    values: Vec<(String, Values)>,
}

/// The watches of one chart.
struct ChartWatches {
    chart: Chart,
    /// Name in files and roles.
    name: String,
    directory: String,
    path: PathBuf,
    watches: Vec<Watch>,
}

pub(super) fn run(args: &Args, program: &Program, out: &mut dyn Write) -> anyhow::Result<()> {
    let input = read(args)?;
    let scope = if args.namespaced {
        RoleScope::Namespace
    } else {
        RoleScope::Cluster
    };
    let output = input.root.join(&args.output_dir);
    let mut files = FileSet::default();
    let mut entries = common_files(&output, scope, &mut files)?;
    let mut users = Vec::new();
    for of_chart in charts(&input)? {
        let (rules, survey) = chart_rules(args, &input, &of_chart, &output)?;
        let (name, directory) = (&of_chart.name, &of_chart.directory);
        let role = format!("chart-{name}-role");
        let text = role_text(name, directory, &rules, scope);
        let file = format!("charts/{name}_role.yaml");
        add(&mut files, &mut entries, file, text)?;
        let binding_text = binding(scope, &format!("chart-{name}-rolebinding"), &role);
        let binding_file = format!("charts/{name}_role_binding.yaml");
        add(&mut files, &mut entries, binding_file, binding_text)?;
        for watch in &of_chart.watches {
            let plural = input.plural(watch);
            let one = watch.gvk.kind.to_lowercase();
            for access in Access::ALL {
                let user_role = fixed::user_role(access, &one, &watch.gvk.group, &plural);
                users.push((format!("{one}_{}_role.yaml", access.name()), user_role));
            }
        }
        if args.explain {
            let title = format!("# chart {directory}");
            let explanation = explain::explain(&title, &rules.rules, &survey, &rules.warnings);
            writeln!(out, "{explanation}")?;
        } else {
            for warning in &rules.warnings {
                crate::print_message(&format!("warning: {directory}: {warning}"));
            }
        }
    }
    if args.namespaced {
        namespaces::add_roles(&input, &output, &mut files, &mut entries)?;
    }
    if !args.charts_only && Program::is_in(&input.root) {
        let description = program.describe(&input.root)?;
        for role in native_role(&description.controllers, scope) {
            let name = &role.name;
            let bound = format!("native-{name}-role");
            let file = format!("native/{name}_role.yaml");
            add(&mut files, &mut entries, file, role.text)?;
            let text = binding(scope, &format!("native-{name}-rolebinding"), &bound);
            let binding_file = format!("native/{name}_role_binding.yaml");
            add(&mut files, &mut entries, binding_file, text)?;
        }
    }
    // A project with webhooks in Rust has the same.
    let has_webhooks = input.root.join("config/webhook").is_dir();
    if !has_webhooks && input.watches.iter().any(|watch| watch.admission.is_some()) {
        for (file, text) in fixed::ADMISSION {
            add(&mut files, &mut entries, file.to_owned(), text.to_owned())?;
        }
    }
    for (file, text) in users {
        add(&mut files, &mut entries, file, text)?;
    }
    add_kustomization(&output, &entries, &mut files)?;
    name_stale(&output, &files);
    let command = "hybrid-operator generate rbac";
    let (root, inside) = place(&input.root, &output);
    let target = Target {
        root: &root,
        check: args.check,
        command,
    };
    deliver(&files.below(&inside)?, &target, out)
}

fn add(
    files: &mut FileSet,
    entries: &mut Vec<String>,
    file: String,
    text: String,
) -> anyhow::Result<()> {
    files.add(&file, text)?;
    entries.push(file);
    Ok(())
}

fn read(args: &Args) -> anyhow::Result<Input> {
    let (root, watches_file) = match &args.watches_file {
        Some(file) => {
            let root = file.parent().filter(|root| !root.as_os_str().is_empty());
            (root.unwrap_or(Path::new(".")).to_owned(), file.clone())
        }
        None if Path::new(WATCHES).is_file() => (PathBuf::from("."), PathBuf::from(WATCHES)),
        None => {
            let project = Project::find(Path::new("."))?;
            (project.root.clone(), project.watches_file())
        }
    };
    let watches = watches::load(&watches_file)?;
    let mut values = Vec::new();
    for file in &args.values {
        let name = file.display().to_string();
        let read =
            helm_core::values::read_file(file).with_context(|| format!("cannot read {name}"))?;
        values.push((name, read));
    }
    Ok(Input {
        kinds: defined_kinds(&root)?,
        root,
        watches,
        values,
    })
}

/// Reads the irregular plurals in `PROJECT`, and the definitions of the project.
fn defined_kinds(root: &Path) -> anyhow::Result<Kinds> {
    let mut kinds = Kinds::default();
    if root.join(PROJECT).is_file() {
        for resource in Project::open(root)?.file.resources {
            if let (Some(plural), Some(api)) = (&resource.plural, &resource.api) {
                let kind = GroupKind::new(&resource.full_group(), &resource.kind);
                kinds.add(kind, plural, api.namespaced);
            }
        }
    }
    for file in sorted_files(&root.join("config/crd/bases"))? {
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let objects: Vec<Value> = go_yaml::documents(&text)
            .with_context(|| format!("{} is not valid YAML", file.display()))?;
        for object in &objects {
            kinds.add_definition(object);
        }
    }
    Ok(kinds)
}

/// Returns the files of a directory, sorted; none if there is no such directory.
fn sorted_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = entries_of(directory)?;
    paths.retain(|path| path.is_file());
    Ok(paths)
}

impl Input {
    fn plural(&self, watch: &Watch) -> String {
        let kind = GroupKind::new(&watch.gvk.group, &watch.gvk.kind);
        let defined = self.kinds.defined(&kind).map(|found| found.plural);
        defined.unwrap_or_else(|| regular_plural(&watch.gvk.kind))
    }

    fn is_namespaced(&self, watch: &Watch) -> bool {
        let kind = GroupKind::new(&watch.gvk.group, &watch.gvk.kind);
        self.kinds
            .defined(&kind)
            .is_none_or(|found| found.namespaced)
    }

    /// Returns a path as messages and comments name it: relative to the project.
    fn shown(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        let text = path.display().to_string();
        text.strip_prefix("./")
            .map_or(text.clone(), ToOwned::to_owned)
    }
}

/// Returns the charts with their watches, in the order of the watches file.
fn charts(input: &Input) -> anyhow::Result<Vec<ChartWatches>> {
    let mut found: Vec<ChartWatches> = Vec::new();
    let reader = ChartReader::open_default().in_project(&input.root);
    for watch in &input.watches {
        let (path, directory) = match watch.chart.path() {
            Some(path) => (
                fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
                input.shown(path),
            ),
            None => (
                PathBuf::from(watch.chart.to_string()),
                watch.chart.to_string(),
            ),
        };
        if let Some(known) = found.iter_mut().find(|known| known.path == path) {
            // The role is for all of them.
            known.chart = watch.with_schema_policy(known.chart.clone());
            known.watches.push(watch.clone());
            continue;
        }
        let chart = reader
            .read(&watch.chart)
            .with_context(|| format!("cannot load the chart {directory}"))?;
        found.push(ChartWatches {
            name: chart.name().to_lowercase(),
            chart: watch.with_schema_policy(chart),
            directory,
            path,
            watches: vec![watch.clone()],
        });
    }
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for chart in &found {
        *uses.entry(chart.name.clone()).or_default() += 1;
    }
    // Two charts of the same name must not overwrite each other's file.
    for chart in &mut found {
        if uses.get(&chart.name).is_some_and(|uses| *uses > 1)
            && let Some(watch) = chart.watches.first()
        {
            chart.name = format!("{}-{}", chart.name, watch.gvk.kind.to_lowercase());
        }
    }
    Ok(found)
}

fn chart_rules(
    args: &Args,
    input: &Input,
    of_chart: &ChartWatches,
    target: &Path,
) -> anyhow::Result<(ChartRules, Survey)> {
    let directory = &of_chart.directory;
    let mut values = ci_values(&of_chart.chart, &of_chart.path)?;
    values.extend(input.values.iter().cloned());
    let found = survey(&of_chart.chart, &values)
        .with_context(|| format!("cannot find the kinds of the chart {directory}"))?;
    let mut kinds = input.kinds.clone();
    kinds.add_chart(&of_chart.chart);
    let watches = of_chart.watches.iter();
    let plurals: Vec<String> = watches.clone().map(|watch| input.plural(watch)).collect();
    let apis: Vec<(ChartApi<'_>, WatchNeeds)> = watches
        .zip(&plurals)
        .map(|(watch, plural)| {
            let api = ChartApi {
                group: &watch.gvk.group,
                version: &watch.gvk.version,
                kind: &watch.gvk.kind,
                plural,
                namespaced: input.is_namespaced(watch),
                chart: &of_chart.chart,
                directory,
            };
            (api, needs(watch))
        })
        .collect();
    let options = RoleOptions {
        namespaced: args.namespaced,
        include_unreached: args.include_unreached,
        allow_escalation: args.allow_escalation,
    };
    let mut previous = Vec::new();
    for path in &args.previous_chart {
        let mut chart = Chart::load(path)
            .with_context(|| format!("cannot load the chart {}", path.display()))?;
        if of_chart.chart.skips_schemas() {
            chart = chart.skip_schemas();
        }
        if chart.name() == of_chart.chart.name() {
            let earlier = survey(&chart, &values).with_context(|| {
                format!("cannot find the kinds of the chart {}", path.display())
            })?;
            let rules = chart::rules(&apis, &earlier, &kinds, &[], options);
            let why = format!("in {}", path.display());
            previous.extend(rules.rules.grants().cloned().map(|mut grant| {
                grant.why = vec![why.clone()];
                grant
            }));
        }
    }
    if !args.prune {
        let file = target.join(format!("charts/{}_role.yaml", of_chart.name));
        previous.extend(present(&file)?);
    }
    let rules = chart::rules(&apis, &found, &kinds, &previous, options);
    Ok((rules, found))
}

/// Reads the values files in the `ci/` of a chart, which `.helmignore` often leaves out of it.
pub(in crate::command) fn ci_values(
    chart: &Chart,
    path: &Path,
) -> anyhow::Result<Vec<(String, Values)>> {
    let mut texts = BTreeMap::new();
    for file in chart.files() {
        if file.name().starts_with("ci/") {
            texts.insert(file.name().to_owned(), file.data().to_vec());
        }
    }
    if path.is_dir() {
        for file in sorted_files(&path.join("ci"))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let text =
                fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            texts.insert(format!("ci/{name}"), text);
        }
    }
    let mut values = Vec::new();
    for (name, text) in texts {
        if name.ends_with("-values.yaml") {
            let read = helm_core::values::read(&text)
                .with_context(|| format!("cannot read {}/{name}", path.display()))?;
            values.push((name, read));
        }
    }
    Ok(values)
}

fn needs(watch: &Watch) -> WatchNeeds {
    WatchNeeds {
        values_from: watch
            .values_from
            .iter()
            .map(|from| match from.kind {
                watches::ReferenceKind::Secret => "Secret",
                watches::ReferenceKind::ConfigMap => "ConfigMap",
            })
            .chain((!watch.secrets.is_empty()).then_some("Secret"))
            .collect(),
        depends_on: watch
            .depends_on
            .iter()
            .map(|other| GroupKind::of_api_version(&other.api_version, &other.kind))
            .collect(),
        expand_volumes: watch.policy.upgrade.expand_volumes,
        crds: match watch.policy.crds {
            CrdPolicy::Skip => Crds::Skip,
            CrdPolicy::Create => Crds::Create,
            CrdPolicy::CreateReplace => Crds::CreateReplace,
        },
        service_account: watch.service_account_name.clone(),
    }
}

/// Reads the rules of a role that was written before.
fn present(file: &Path) -> anyhow::Result<Vec<Grant>> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let role: Value = go_yaml::from_slice(&text).with_context(|| {
        format!(
            "{} is not valid YAML; repair it, or delete it if no release of an earlier version of the chart is left",
            file.display()
        )
    })?;
    let rules = role.get("rules").unwrap_or(&Value::Null);
    let mut grants = grants_of(rules, "in the present file");
    for grant in &mut grants {
        grant
            .verbs
            .retain(|verb| !ESCALATING.contains(&verb.as_str()));
    }
    grants.retain(|grant| !grant.verbs.is_empty());
    Ok(grants)
}

/// Adds the files that do not depend on charts, unless the project has its own.
fn common_files(
    target: &Path,
    scope: RoleScope,
    files: &mut FileSet,
) -> anyhow::Result<Vec<String>> {
    let of_operator = |scope| {
        let binding = binding(scope, "operator-rolebinding", "operator-role");
        [fixed::operator_role(scope), binding]
    };
    let [operator, operator_binding] = of_operator(scope);
    let leader = binding(
        RoleScope::Namespace,
        "leader-election-rolebinding",
        "leader-election-role",
    );
    // Tokens are not namespaced.
    let metrics = binding(
        RoleScope::Cluster,
        "metrics-auth-rolebinding",
        "metrics-auth-role",
    );
    let common: [(&str, &str); 8] = [
        ("service_account.yaml", fixed::SERVICE_ACCOUNT),
        ("leader_election_role.yaml", fixed::LEADER_ELECTION_ROLE),
        ("leader_election_role_binding.yaml", &leader),
        ("metrics_auth_role.yaml", fixed::METRICS_AUTH_ROLE),
        ("metrics_auth_role_binding.yaml", &metrics),
        ("metrics_reader_role.yaml", fixed::METRICS_READER_ROLE),
        ("operator_role.yaml", &operator),
        ("operator_role_binding.yaml", &operator_binding),
    ];
    // A role of the other scope was generated with or without --namespaced.
    let generated = of_operator(match scope {
        RoleScope::Cluster => RoleScope::Namespace,
        RoleScope::Namespace => RoleScope::Cluster,
    });
    let mut entries = Vec::new();
    for (name, text) in common {
        let is_own = match fs::read_to_string(target.join(name)) {
            Ok(present) => present != text && !generated.contains(&present),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read {}", target.join(name).display()));
            }
        };
        if !is_own {
            files.add(name, text)?;
        }
        entries.push(name.to_owned());
    }
    Ok(entries)
}

fn add_kustomization(target: &Path, entries: &[String], files: &mut FileSet) -> anyhow::Result<()> {
    let name = "kustomization.yaml";
    let path = target.join(name);
    let present = match fs::read_to_string(&path) {
        Ok(present) => present,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let text = kustomization::with_resources(&present, entries)
        .with_context(|| format!("cannot add the roles to {}", path.display()))?;
    files.add(name, text)?;
    Ok(())
}

/// Names the roles of charts, and for their credentials, that the watches file needs no more.
fn name_stale(target: &Path, files: &FileSet) {
    let written: BTreeSet<&Path> = files.paths().collect();
    for (directory, why) in [
        (
            "charts",
            "is of no chart in the watches file; delete it, and its entry in kustomization.yaml, when no release of the chart is left",
        ),
        (
            "admission",
            "is for no entry with `admission` in the watches file, or config/webhook has the same; delete it, and its entry in kustomization.yaml",
        ),
        (
            namespaces::CREDENTIALS,
            "is for no Secret in the watches file; delete it, and its objects in the cluster",
        ),
    ] {
        for path in sorted_files(&target.join(directory)).unwrap_or_default() {
            let known = path
                .strip_prefix(target)
                .is_ok_and(|path| written.contains(path));
            if !known {
                crate::print_message(&format!("warning: {} {why}", path.display()));
            }
        }
    }
}
