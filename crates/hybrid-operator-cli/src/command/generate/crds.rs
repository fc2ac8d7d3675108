//! `generate crds`: the CRDs of the kinds of the watches file and of native controllers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Options;
use crate::ToDo;
use crate::files::FileSet;
use crate::generate::compat;
use crate::generate::crds::{Definition, Version};
use crate::generate::inputs::{CRDS, Inputs};
use crate::generate::native::{self, Program};
use crate::generate::output::{Target, deliver, place};
use crate::generate::schema::{LIMIT, Strictness};

const EXAMPLES: &str = "\
Examples:
  # Write config/crd/bases/GROUP_PLURAL.yaml for each kind
  hybrid-operator generate crds

  # In continuous integration: are they up to date, and do they still fit existing custom resources?
  hybrid-operator generate crds --check
  hybrid-operator generate crds --check --compat origin/main

  # Without a PROJECT file
  hybrid-operator generate crds --watches-file watches.yaml --output-dir crds";

/// Arguments of `generate crds`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) options: Options,

    /// Directory of the CRDs [default: config/crd/bases of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Restrict values to the types of the defaults and to what comments say, where a chart has no
    /// values.schema.json. Helm would accept more
    #[arg(long)]
    strict: bool,

    /// Keep fields that a chart's schema does not allow. Helm refuses them, which the status then
    /// says; otherwise the API server refuses them, or drops them with a warning
    #[arg(long)]
    keep_unknown_fields: bool,

    /// Compare with the CRDs of a git revision, and exit with 3 if a change breaks existing custom
    /// resources or clients
    #[arg(long, value_name = "REV")]
    compat: Option<String>,
}

impl Args {
    /// Returns the arguments of `generate` alone.
    pub(super) fn with(options: &Options) -> Self {
        Self {
            options: options.clone(),
            output_dir: None,
            strict: false,
            keep_unknown_fields: false,
            compat: None,
        }
    }
}

pub(super) fn run(args: &Args, program: &Program, out: &mut dyn Write) -> anyhow::Result<()> {
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let given = args.output_dir.as_ref().map(|dir| current.join(dir));
    let options = &args.options;
    let lookup = given.clone().unwrap_or_else(|| PathBuf::from(CRDS));
    let inputs = Inputs::load(options.watches_file.as_deref(), &lookup)?;
    let directory = given.unwrap_or_else(|| inputs.root.join(CRDS));
    let (root, prefix) = place(&inputs.root, &directory);
    let strictness = Strictness {
        inferred: args.strict,
        keep_unknown: args.keep_unknown_fields,
    };
    let mut files = of_charts(&inputs, &prefix, strictness)?;
    if inputs.is_program() && !options.charts_only {
        add_native(&mut files, program, &root, &prefix, &inputs.root)?;
    }
    let broken = match &args.compat {
        Some(revision) => incompatible(&files, &root, revision)?,
        None => Vec::new(),
    };
    let target = Target {
        root: &root,
        check: options.check,
        command: "hybrid-operator generate crds",
    };
    let delivered = deliver(&files, &target, out);
    for change in &broken {
        writeln!(out, "{change}")?;
    }
    delivered?;
    match (broken.len(), &args.compat) {
        (0, _) | (_, None) => Ok(()),
        (count, Some(revision)) => Err(ToDo::Message(format!(
            "{count} breaking change(s) since {revision}: add a new version of the kind for them, or undo them"
        ))
        .into()),
    }
}

/// Generates the CRDs of the watches file.
pub(super) fn of_charts(
    inputs: &Inputs,
    prefix: &Path,
    strictness: Strictness,
) -> anyhow::Result<FileSet> {
    let mut definitions: BTreeMap<(&str, &str), Definition> = BTreeMap::new();
    for chart in &inputs.charts {
        let api = chart.api();
        let key = (api.group, api.kind);
        let definition = definitions
            .remove(&key)
            .unwrap_or_else(|| Definition::new(api.group, api.kind, chart.names().clone()));
        let version = match chart.spec() {
            Some(spec) => Version::of_spec(&api, spec),
            None => Version::of_chart(&api, strictness)?,
        };
        let version = match chart.patches() {
            Some(from) => version.with_patches(from)?,
            None => version,
        };
        let version = version.with_outputs(chart.outputs());
        definitions.insert(key, definition.version(version));
    }
    let mut files = FileSet::default();
    for definition in definitions.values() {
        let (yaml, cut) = definition.to_yaml(LIMIT)?;
        if let Some(cut) = cut {
            crate::print_message(&cut);
        }
        files.add(prefix.join(definition.file_name()), yaml)?;
    }
    Ok(files)
}

/// Adds the CRDs that the program defines.
fn add_native(
    files: &mut FileSet,
    program: &Program,
    root: &Path,
    prefix: &Path,
    project: &Path,
) -> anyhow::Result<()> {
    for crd in &program.describe(project)?.crds {
        let name = native::file_name(crd)
            .context("the program describes a CRD without group or plural name")?;
        let path = prefix.join(name);
        if files.get(&path).is_some() {
            bail!(
                "{} is defined by the program and by a chart of the watches file; remove one of them",
                path.display()
            );
        }
        if let Ok(present) = fs::read(root.join(&path)) {
            let lost = lost_versions(&present, crd);
            if !lost.is_empty() {
                bail!(
                    "{} has versions that the program does not describe, and that would be lost: {}; leave out defines_crd() in the controller, and keep this file by hand",
                    path.display(),
                    lost.join(", ")
                );
            }
        }
        let yaml =
            go_yaml::to_string(crd).with_context(|| format!("cannot write {}", path.display()))?;
        files.add(path, yaml)?;
    }
    Ok(())
}

/// Returns the versions of a CRD that another one does not have.
fn lost_versions(present: &[u8], new: &Value) -> Vec<String> {
    let names = |crd: &Value| -> Vec<String> {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        versions
            .into_iter()
            .flatten()
            .filter_map(|version| Some(version.get("name")?.as_str()?.to_owned()))
            .collect()
    };
    // A file that is not YAML has no versions to keep.
    let present: Value = go_yaml::from_slice(present).unwrap_or_default();
    let new = names(new);
    let mut lost = names(&present);
    lost.retain(|name| !new.contains(name));
    lost
}

/// Names what breaks since a revision: in files that were there, and in those that are gone.
fn incompatible(files: &FileSet, root: &Path, revision: &str) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for path in files.paths() {
        let Some(before) = compat::at_revision(root, revision, path)? else {
            continue;
        };
        let parse = |text: &[u8]| {
            go_yaml::from_slice::<Value>(text)
                .with_context(|| format!("{} is not YAML", path.display()))
        };
        let before = parse(before.as_bytes())?;
        let after = parse(files.get(path).unwrap_or_default())?;
        let changes = compat::breaking_changes(&before, &after);
        let kind = after
            .pointer("/spec/names/kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        broken.extend(changes.iter().map(|change| format!("{kind} {change}")));
    }
    Ok(broken)
}
