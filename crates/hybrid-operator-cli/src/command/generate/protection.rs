//! `generate protection`: policies that refuse the deletion of protected custom resources.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Options;
use crate::files::{FileSet, entries_of};
use crate::generate::inputs::{CRDS, Inputs};
use crate::generate::output::{Target, deliver, place};
use crate::generate::protection::{BEGINNING, policy};

/// Directory of the policies, relative to the project.
const POLICIES: &str = "config/protection";

const EXAMPLES: &str = "\
Examples:
  # Write config/protection/GROUP_PLURAL.yaml for each kind with `protect` in watches.yaml, and install it
  hybrid-operator generate protection
  kubectl apply -f config/protection

  # Let one custom resource be deleted
  kubectl annotate cache one --overwrite helm.sdk.operatorframework.io/protect=false";

/// Arguments of `generate protection`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,

    /// Directory of the policies [default: config/protection of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

impl Args {
    /// Returns the arguments of `generate` alone.
    pub(super) fn with(options: &Options) -> Self {
        Self {
            options: options.clone(),
            output_dir: None,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let options = &args.options;
    let inputs = Inputs::load(options.watches_file.as_deref(), Path::new(CRDS))?;
    let directory = match &args.output_dir {
        Some(directory) => current.join(directory),
        None => inputs.root.join(POLICIES),
    };
    let (root, prefix) = place(&inputs.root, &directory);
    let mut files = FileSet::default();
    for chart in &inputs.charts {
        let Some(by_default) = chart.protect() else {
            continue;
        };
        let api = chart.api();
        let path = prefix.join(format!("{}_{}.yaml", api.group, api.plural));
        // The versions of a kind have one policy.
        if files.get(&path).is_none() {
            let text = policy(&api, &path.display().to_string(), by_default);
            files.add(path, text)?;
        }
    }
    name_stale(&root, &prefix, &files)?;
    let target = Target {
        root: &root,
        check: options.check,
        command: "hybrid-operator generate protection",
    };
    deliver(&files, &target, out)
}

/// Names the policies of kinds that are protected no more. They are not deleted, because they are in the cluster, too.
fn name_stale(root: &Path, prefix: &Path, files: &FileSet) -> anyhow::Result<()> {
    for path in entries_of(&root.join(prefix))? {
        let is_policy = fs::read_to_string(&path).is_ok_and(|text| text.starts_with(BEGINNING));
        let shown = path.strip_prefix(root).unwrap_or(&path);
        if is_policy && files.get(shown).is_none() {
            let shown = shown.display();
            crate::print_message(&format!(
                "warning: {shown} is for no entry with `protect` in the watches file; end the protection with 'kubectl delete -f {shown}', and delete the file"
            ));
        }
    }
    Ok(())
}
