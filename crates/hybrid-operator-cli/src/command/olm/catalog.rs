//! `olm catalog`: a file-based catalog of bundles.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::command::UsageError;
use crate::files::FileSet;
use crate::generate::output::{Target, deliver};
use crate::olm::catalog::{Objects, Package, by_package, dockerfile, read};
use crate::project::Project;

const EXAMPLES: &str = "\
Examples:
  # Add the bundle of this project to catalog/PACKAGE/catalog.yaml
  hybrid-operator olm catalog bundle --image 'example.com/{package}-bundle:v{version}'

  # A catalog of several bundles
  hybrid-operator olm catalog bundles/0.1.0 bundles/0.2.0 \\
    --image 'example.com/{package}-bundle:v{version}' --output-dir catalog";

/// Image with the program that serves catalogs.
const OPM: &str = "quay.io/operator-framework/opm:v1.73.0";

/// Arguments of `olm catalog`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directories of bundles; those that the catalog has already are kept
    #[arg(value_name = "DIR", required = true)]
    bundles: Vec<PathBuf>,

    /// Image of a bundle; {package}, {name} and {version} are replaced
    #[arg(long, value_name = "IMAGE")]
    image: String,

    /// What the catalog says of a bundle's objects
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Objects::Metadata)]
    objects: Objects,

    /// Image with opm, for catalog.Dockerfile
    #[arg(long, value_name = "IMAGE", default_value = OPM)]
    opm_image: String,

    /// Directory of the catalog; catalog.Dockerfile is written beside it [default: catalog of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Write nothing; print how files differ, and exit with 3 if any does
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let directory = match &args.output_dir {
        Some(directory) => current.join(directory),
        None => Project::find(&current)?.root.join("catalog"),
    };
    let (Some(root), Some(inside)) = (directory.parent(), directory.file_name()) else {
        return Err(UsageError(format!("--output-dir {} has no name", directory.display())).into());
    };
    let mut entries = Vec::new();
    for bundle in &args.bundles {
        entries.push(read(bundle, &args.image, args.objects)?);
    }
    let mut files = FileSet::default();
    for (name, entries) in by_package(entries) {
        let path = Path::new(inside).join(&name).join("catalog.yaml");
        let present = match fs::read(root.join(&path)) {
            Ok(present) => present,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let shown = || format!("cannot make {}", path.display());
        let mut package = Package::parse(&present).with_context(shown)?;
        package.add(entries).with_context(shown)?;
        let yaml = package.to_yaml().with_context(shown)?;
        files.add(path, yaml)?;
    }
    let text = dockerfile(&inside.to_string_lossy(), &args.opm_image);
    files.add("catalog.Dockerfile", text)?;
    let target = Target {
        root,
        check: args.check,
        command: "hybrid-operator olm catalog",
    };
    deliver(&files, &target, out)
}
