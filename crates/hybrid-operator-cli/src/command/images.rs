//! `images --cr FILE`: lists the container images of what the operator would deploy.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::ArgAction;
use serde::Serialize;

use super::preview_flags::PreviewFlags;
use crate::output::{self, Format, Paint, Table};
use crate::preview::{self, images};

const EXAMPLES: &str = "\
Examples:
  # The images to mirror for the samples of the project
  hybrid-operator images --cr config/samples/shop_v1_web.yaml

  # The objects that use each image
  hybrid-operator images --cr web.yaml --output wide";

/// Arguments of `images`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File with custom resources, or `-` for standard input; can be repeated
    #[arg(long, value_name = "FILE", action = ArgAction::Append, required = true)]
    cr: Vec<String>,

    #[command(flatten)]
    flags: PreviewFlags,

    /// Format of the output; `table` is one image per line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

/// An image in JSON and YAML.
#[derive(Serialize)]
struct Image<'a> {
    image: &'a str,
    objects: &'a BTreeSet<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut previews = args.flags.open(None)?;
    let request = args.flags.read(&args.cr, &previews)?;
    let capabilities = args.flags.capabilities()?;
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for resource in &request.resources {
        let found = preview::offline(&mut previews, resource, &request.objects, &capabilities)?;
        for (image, users) in images::images(&preview::deployed_by(&found)?) {
            all.entry(image).or_default().extend(users);
        }
    }
    let list: Vec<Image<'_>> = all
        .iter()
        .map(|(image, objects)| Image { image, objects })
        .collect();
    if output::print_data(args.output, &list, out)? {
        return Ok(());
    }
    if args.output == Format::Wide {
        let mut table = Table::new(&["IMAGE", "OBJECTS"]);
        for (image, users) in &all {
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            table.row([image.clone(), users.join(", ")]);
        }
        out.write_all(table.text(Paint(false)).as_bytes())?;
        return Ok(());
    }
    for image in all.keys() {
        writeln!(out, "{image}")?;
    }
    Ok(())
}
