//! `status [KIND/NAME]`: custom resources and their releases.

mod follow;

use std::io::Write;

use jiff::Timestamp;

use super::UsageError;
use super::row::{self, Row};
use super::target::SelectionArgs;
use super::tree;
use crate::cluster::{Cluster, Kind, Kinds, Selected};
use crate::output::{self, Named as _, OutputArgs, with_progress};

const EXAMPLES: &str = "\
Examples:
  # All custom resources of a project's kinds; outside of a project, of all kinds that operators serve
  hybrid-operator status --all-namespaces

  # One of them, with its conditions and objects, and the Pods of those that are not ready
  hybrid-operator status shop/main --namespace prod

  # Those of a kind with a label, until interrupted
  hybrid-operator status shop -l team=web --watch";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Show changes until interrupted; on a terminal the table is redrawn, elsewhere changed rows are
    /// appended
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.watch && !args.output.output.is_table() {
        let message = "--watch prints a table; leave out --output, or --watch";
        return Err(UsageError(message.to_owned()).into());
    }
    let kinds = args.selection.place.kinds()?;
    let one = args.selection.one()?;
    args.selection.place.cluster.run(async |cluster| {
        if args.watch {
            return follow::run(args, &cluster, &kinds, out).await;
        }
        match one {
            Some(target) => show_one(args, &cluster, &kinds, target, out).await,
            None => show_all(args, &cluster, &kinds, out).await,
        }
    })
}

impl Args {
    fn is_wide(&self) -> bool {
        self.output.output == output::Format::Wide
    }
}

async fn show_one(
    args: &Args,
    cluster: &Cluster,
    kinds: &Kinds,
    target: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let read = async {
        let namespace = args.selection.place.namespace();
        let selected = Selected::read(cluster, kinds, target, namespace).await?;
        tree::read(cluster, &selected).await
    };
    let tree = with_progress("reading the release", read).await?;
    let format = args.output.output;
    if format == output::Format::Name {
        writeln!(out, "{}", tree.name())?;
    } else if !output::print_data(format, &tree, out)? {
        let text = tree.text(args.output.color.paint(), Timestamp::now());
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

async fn show_all(
    args: &Args,
    cluster: &Cluster,
    kinds: &Kinds,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let namespace = args.selection.namespace(cluster);
    let list = async {
        let listed = args.selection.kinds(cluster, kinds).await?;
        let (found, kinds) = args.selection.list(cluster, listed).await?;
        let rows = found
            .iter()
            .map(|(kind, object)| Row::of(&kind.gvk, object));
        anyhow::Ok((rows.collect::<Vec<_>>(), kinds))
    };
    let (mut rows, kinds) = with_progress("listing custom resources", list).await?;
    rows.sort_by_key(Row::key);
    if output::print_list(args.output.output, &rows, out)? {
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "{}", nothing(&kinds, namespace))?;
        return Ok(());
    }
    let table = row::table(&rows, args.is_wide(), Timestamp::now());
    out.write_all(table.text(args.output.color.paint()).as_bytes())?;
    Ok(())
}

fn nothing(kinds: &[Kind], namespace: Option<&str>) -> String {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.gvk.kind.as_str()).collect();
    let kinds = kinds.join(", ");
    match namespace {
        Some(namespace) => format!(
            "no custom resources of {kinds} in namespace {namespace}; see others with \
             --all-namespaces"
        ),
        None => format!("no custom resources of {kinds}"),
    }
}
