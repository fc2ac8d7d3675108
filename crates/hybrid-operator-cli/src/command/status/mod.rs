//! `status [KIND/NAME]`: custom resources and their releases.

mod follow;
mod row;
mod tree;

use std::io::Write;

use anyhow::bail;
use hybrid_operator::watches::Watch;
use jiff::Timestamp;

use super::target::PlaceArgs;
use crate::cluster::{Cluster, Selected};
use crate::output::{self, OutputArgs, with_progress};
use row::Row;

const EXAMPLES: &str = "\
Examples:
  # All custom resources of the kinds in the watches file
  hybrid-operator status --all-namespaces

  # One of them, with its conditions and objects, and the Pods of those that are not ready
  hybrid-operator status shop/main --namespace prod

  # Until interrupted
  hybrid-operator status --watch";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Kind and name of a custom resource, such as `shop/main` [default: all]
    #[arg(value_name = "KIND/NAME")]
    target: Option<String>,

    #[command(flatten)]
    place: PlaceArgs,

    /// Show the custom resources of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "target"])]
    all_namespaces: bool,

    /// Show changes until interrupted; on a terminal the table is redrawn, elsewhere changed rows are
    /// appended
    #[arg(short, long, conflicts_with = "target")]
    watch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let watches = args.place.watches()?;
    args.place.cluster.run(async |cluster| match &args.target {
        Some(target) => one(args, &cluster, &watches, target, out).await,
        None if args.watch => {
            if !args.is_table() {
                bail!("--watch prints a table; leave out --output, or --watch");
            }
            follow::run(args, &cluster, &watches, out).await
        }
        None => all(args, &cluster, &watches, out).await,
    })
}

impl Args {
    fn is_table(&self) -> bool {
        matches!(
            self.output.output,
            output::Format::Table | output::Format::Wide
        )
    }

    fn is_wide(&self) -> bool {
        self.output.output == output::Format::Wide
    }

    /// Returns the namespace to list; `None` is all of them.
    fn namespace<'a>(&'a self, cluster: &'a Cluster) -> Option<&'a str> {
        if self.all_namespaces {
            None
        } else {
            Some(self.place.namespace().unwrap_or(&cluster.namespace))
        }
    }
}

async fn one(
    args: &Args,
    cluster: &Cluster,
    watches: &[Watch],
    target: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let read = async {
        let selected = Selected::read(cluster, watches, target, args.place.namespace()).await?;
        tree::read(cluster, &selected).await
    };
    let tree = with_progress("reading the release", read).await?;
    if !output::print_data(args.output.output, &tree, out)? {
        let text = tree.text(args.output.color.paint(), Timestamp::now());
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

async fn all(
    args: &Args,
    cluster: &Cluster,
    watches: &[Watch],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let namespace = args.namespace(cluster);
    let list = async {
        let mut rows = Vec::new();
        let mut problems = Vec::new();
        for watch in watches {
            let selector = watch.selector.as_ref().map(ToString::to_string);
            let objects = cluster.list(&watch.gvk, namespace, selector.as_deref());
            match objects.await {
                Ok(objects) => rows.extend(objects.iter().map(|object| Row::of(watch, object))),
                Err(error) => problems.push(error),
            }
        }
        let all = problems.len() == watches.len();
        for problem in problems {
            if all {
                return Err(problem);
            }
            // The other kinds are still worth showing.
            crate::print_message(&format!("warning: {problem:#}"));
        }
        Ok(rows)
    };
    let mut rows = with_progress("listing custom resources", list).await?;
    rows.sort_by_key(Row::key);
    if output::print_data(args.output.output, &rows, out)? {
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "{}", nothing(watches, namespace))?;
        return Ok(());
    }
    let table = row::table(&rows, args.is_wide(), Timestamp::now());
    out.write_all(table.text(args.output.color.paint()).as_bytes())?;
    Ok(())
}

fn nothing(watches: &[Watch], namespace: Option<&str>) -> String {
    let kinds: Vec<&str> = watches.iter().map(|w| w.gvk.kind.as_str()).collect();
    let kinds = kinds.join(", ");
    match namespace {
        Some(namespace) => format!(
            "no custom resources of {kinds} in namespace {namespace}; see others with \
             --all-namespaces"
        ),
        None => format!("no custom resources of {kinds}"),
    }
}
