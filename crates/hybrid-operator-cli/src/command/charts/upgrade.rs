//! `charts upgrade`: brings newer versions into the copies that a project has of charts, and keeps what was changed in
//! these.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chart_source::{ChartReference, Location, check_version};
use helm_core::chart::{Chart, SchemaRoots};
use hybrid_operator::watches::{LockedChart, RemoteChart};
use semver::Version;

use super::documents::{self, Documents};
use crate::command::chart_flags::AccessFlags;
use crate::command::diff::{self, Side};
use crate::command::{UsageError, generate};
use crate::files;
use crate::generate::inputs::CRDS;
use crate::output::Paint;
use crate::preview::{self, print};
use crate::project::{ChartOrigin, Project};
use crate::scaffold::{self, ChartSource, Conflict, Draft, Merge};

const EXAMPLES: &str = "\
Examples:
  # Take the newest versions in the ranges that 'create api' was given
  hybrid-operator charts upgrade

  # One chart, in another range, which counts from then on
  hybrid-operator charts upgrade helm-charts/redis --version '^24'";

/// Arguments of `charts upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directories of charts, or their kinds [default: all charts that were fetched]
    #[arg(value_name = "DIRECTORY | KIND")]
    charts: Vec<String>,

    /// Version or range of versions of one chart [default: the range that it was created with]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    #[command(flatten)]
    access: AccessFlags,
}

/// A newer version of a chart, and the copy of the former one.
struct Upgrade {
    /// Directory of the copy, relative to the project.
    directory: String,
    /// Version of the copy.
    from: String,
    to: ChartOrigin,
    merge: Merge,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(version) = &args.version {
        check_version(version).map_err(UsageError::of)?;
    }
    let project = Project::find(Path::new("."))?;
    let copies = copies(&project, &args.charts)?;
    if args.version.is_some() && copies.len() > 1 {
        let message = "--version is for one chart; name its directory or its kind";
        return Err(UsageError(message.to_owned()).into());
    }
    let is_asked_for = !args.charts.is_empty() || copies.len() == 1;
    let mut upgrades = Vec::new();
    for (directory, origin) in &copies {
        match wanted(directory, origin, args.version.as_deref())? {
            Ok(wanted) => {
                upgrades.extend(Upgrade::find(
                    args, &project, directory, origin, &wanted, out,
                )?);
            }
            Err(why) if is_asked_for => bail!(why),
            Err(why) => writeln!(out, "{why}")?,
        }
    }
    refuse_conflicts(&upgrades, out)?;
    if upgrades.is_empty() {
        return Ok(());
    }
    preview::note_about_code(&project.root);
    let before = Side::of_samples();
    write(args, project, upgrades, out)?;
    let compared = before.and_then(|before| diff::between(&before, &Side::of_samples()?));
    match compared {
        Ok(differences) => {
            let text = print::text(&differences, Paint(false));
            writeln!(out, "\nWhat changes for the samples:\n{text}")?;
        }
        Err(error) => {
            crate::print_message(&format!(
                "warning: cannot compare what the samples deploy: {error:#}"
            ));
        }
    }
    writeln!(out, "Next:\n  hybrid-operator generate rbac")?;
    Ok(())
}

/// Returns the directories of the named charts, or of all that were fetched, with their origins.
fn copies(project: &Project, names: &[String]) -> anyhow::Result<BTreeMap<String, ChartOrigin>> {
    let resources = &project.file.resources;
    let mut found: BTreeMap<String, ChartOrigin> = BTreeMap::new();
    let mut add = |directory: &String, origin: &ChartOrigin| {
        let other = found.insert(directory.clone(), origin.clone());
        if other.is_some_and(|other| other != *origin) {
            bail!(
                "PROJECT has two origins of {directory}, in 'chartSource' of its kinds; remove the one that is out of date"
            );
        }
        Ok(())
    };
    for name in names {
        let path = fs::canonicalize(name).ok();
        let is_named = |chart: &str| {
            let directory = fs::canonicalize(project.root.join(chart)).ok();
            path.is_some() && path == directory
        };
        let mut charts = resources
            .iter()
            .filter_map(|resource| Some((resource, resource.chart.as_ref()?)))
            .filter(|(resource, chart)| resource.kind.eq_ignore_ascii_case(name) || is_named(chart))
            .peekable();
        if charts.peek().is_none() {
            bail!(
                "PROJECT has no kind {name} with a chart, and {name} is not the directory of one"
            );
        }
        for (resource, directory) in charts {
            let origin = resource.chart_source.as_ref().with_context(|| {
                format!(
                    "PROJECT does not say where {directory} was fetched, because it is of this machine; replace it \
                     with 'hybrid-operator create api --force --helm-chart CHART'"
                )
            })?;
            add(directory, origin)?;
        }
    }
    if names.is_empty() {
        for resource in resources {
            if let (Some(directory), Some(origin)) = (&resource.chart, &resource.chart_source) {
                add(directory, origin)?;
            }
        }
        if found.is_empty() {
            bail!(
                "PROJECT has no chart that was fetched; replace charts of this machine with \
                 'hybrid-operator create api --force --helm-chart CHART'"
            );
        }
    }
    Ok(found)
}

/// Returns the chart to look for, or why there is no newer one.
fn wanted(
    directory: &str,
    origin: &ChartOrigin,
    version: Option<&str>,
) -> anyhow::Result<Result<ChartReference, String>> {
    let known = parse(directory, origin)?;
    Ok(match (version, &known.location) {
        (_, Location::Archive(url)) => Err(format!(
            "{directory} was asked for as one archive, {url}; take another one with 'hybrid-operator create api --force \
             --helm-chart URL'"
        )),
        (Some(version), _) => Ok(known.with_version(version)?),
        (None, _) if known.is_exact() => Err(format!(
            "{directory} was asked for in one version, {known}; name another one, or a range, with --version"
        )),
        (None, _) => Ok(known),
    })
}

fn parse(directory: &str, origin: &ChartOrigin) -> anyhow::Result<ChartReference> {
    let parsed = origin.reference.parse();
    parsed.with_context(|| format!("cannot use 'chartSource' of {directory} in PROJECT"))
}

impl Upgrade {
    /// Looks for a newer version of a chart, and merges it with the copy. Returns `None` if the copy has it.
    fn find(
        args: &Args,
        project: &Project,
        directory: &str,
        origin: &ChartOrigin,
        wanted: &ChartReference,
        out: &mut dyn Write,
    ) -> anyhow::Result<Option<Self>> {
        let pulled = args.access.pull_known(wanted)?;
        let found = pulled.resolved;
        let new = ChartSource::fetched(
            wanted.to_string(),
            found.url,
            &found.digest,
            &pulled.archive,
        )?;
        let to = new
            .origin
            .clone()
            .context("a fetched chart has an origin")?;
        if to == *origin {
            let version = &to.version;
            writeln!(
                out,
                "{directory} has the newest version already: {version} of {wanted}"
            )?;
            return Ok(None);
        }
        if args.version.is_none() && is_older(&to.version, &origin.version) {
            let (old, new) = (&origin.version, &to.version);
            writeln!(
                out,
                "{directory} has {old} already, which is newer than {new} of {wanted}"
            )?;
            return Ok(None);
        }
        let old = copied(args, directory, origin).with_context(|| {
            format!(
                "cannot fetch what {directory} was copied from, without which changes in it are not known; \
                 'hybrid-operator create api --force' replaces it whole"
            )
        })?;
        Ok(Some(Self {
            merge: scaffold::merge_chart(&project.root.join(directory), &old, &new)?,
            directory: directory.to_owned(),
            from: origin.version.clone(),
            to,
        }))
    }

    /// Returns the chart as it will be in the project. Documents that its schemas refer to, and that it does not have,
    /// are fetched, and added to its changes.
    fn chart(&mut self, args: &Args, root: &Path) -> anyhow::Result<(Chart, Documents)> {
        let mut source = ChartSource::read(&root.join(&self.directory))?;
        source.change_files(&self.merge.changes)?;
        let in_project = |chart: &Chart| chart.with_schema_roots(SchemaRoots::of_project(root));
        source.chart = in_project(&source.chart);
        let before = documents::files_of(&source);
        let documents = Documents::add_to(&mut source, &[], &args.access)?;
        for (name, data) in documents::files_of(&source) {
            if before.get(&name) != Some(&data) {
                self.merge.changes.insert(name, Some(data));
            }
        }
        Ok((in_project(&source.chart), documents))
    }
}

fn is_older(version: &str, than: &str) -> bool {
    let parse = |text: &str| Version::parse(text.trim_start_matches('v'));
    matches!((parse(version), parse(than)), (Ok(version), Ok(than)) if version < than)
}

/// Fetches the chart that a directory of the project is a copy of.
fn copied(args: &Args, directory: &str, origin: &ChartOrigin) -> anyhow::Result<ChartSource> {
    let ChartOrigin {
        reference,
        version,
        url,
        digest,
    } = origin;
    let mut chart = RemoteChart::new(parse(directory, origin)?);
    chart.locked = Some(LockedChart {
        reference: reference.clone(),
        version: Some(version.clone()),
        url: url.clone(),
        digest: digest.parse()?,
    });
    // Its digest is known, whoever has signed it.
    let access = args.access.without_signatures();
    let pulled = access.pull_known(&chart.wanted())?;
    Ok(ChartSource::from_archive(url, &pulled.archive, None)?)
}

/// Prints the conflicts, and fails if there are any.
fn refuse_conflicts(upgrades: &[Upgrade], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for upgrade in upgrades {
        let [old, new] = [&upgrade.from, &upgrade.to.version];
        for (name, conflict) in &upgrade.merge.conflicts {
            let path = format!("{}/{name}", upgrade.directory);
            let places = match conflict {
                Conflict::File(why) => {
                    all.push(format!("{path} ({why})"));
                    continue;
                }
                Conflict::Places(places) => places,
            };
            for place in places {
                writeln!(out, "{path}:{}", place.line)?;
                for (marker, text) in [
                    ("<<<<<<< here".to_owned(), &place.ours),
                    (format!("||||||| {old}"), &place.base),
                    ("=======".to_owned(), &place.theirs),
                ] {
                    let end = if text.is_empty() || text.ends_with('\n') {
                        ""
                    } else {
                        "\n"
                    };
                    write!(out, "{marker}\n{text}{end}")?;
                }
                writeln!(out, ">>>>>>> {new}")?;
                all.push(format!("{path}:{}", place.line));
            }
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    bail!(
        "nothing was written, because the project and the new version have changed the same in different ways: {}; write \
         there what one of the two versions of the chart has, run this again, and then make your changes again, or \
         replace the chart whole with 'hybrid-operator create api --force'",
        all.join(", ")
    )
}

/// Writes the charts, and the CRDs and samples that are as they were generated, all of them or nothing, and then `PROJECT`.
fn write(
    args: &Args,
    project: Project,
    upgrades: Vec<Upgrade>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut draft = scaffold::draft_of(&project);
    let mut last = scaffold::draft_of(&project);
    let mut file = project.file;
    let mut charts = BTreeMap::new();
    let mut report = Vec::new();
    for mut upgrade in upgrades {
        let (chart, documents) = upgrade.chart(args, &project.root)?;
        let Upgrade {
            directory,
            from,
            to,
            merge,
        } = upgrade;
        writeln!(report, "{directory}: from {from} to {}", to.version)?;
        for name in &merge.merged {
            writeln!(report, "merge     {directory}/{name}")?;
        }
        documents.print(Path::new(&directory), &mut report)?;
        charts.insert(PathBuf::from(&directory), chart);
        for (name, data) in merge.changes {
            let path = Path::new(&directory).join(name);
            match data {
                Some(data) => draft.add(path, data)?,
                None => draft.delete(path)?,
            }
        }
        let copies = file.resources.iter_mut();
        for copy in copies.filter(|copy| copy.chart.as_ref() == Some(&directory)) {
            copy.chart_source = Some(to.clone());
        }
    }
    let edited = generate_anew(&mut draft, &charts)?;
    out.write_all(&report)?;
    draft.write(true, out)?;
    // If the command is interrupted before, running it again completes the rest.
    scaffold::add_project_file(&mut last, &file)?;
    last.write(true, out)?;
    for path in edited {
        let what = if path.starts_with(CRDS) {
            "crds"
        } else {
            "samples --force"
        };
        writeln!(
            out,
            "keep      {}, which is not what was generated before; 'hybrid-operator generate {what}' replaces it",
            path.display()
        )?;
    }
    Ok(())
}

/// Adds the CRDs and samples of the new charts to the draft. Returns those that are not what was generated for the former
/// charts.
fn generate_anew(
    draft: &mut Draft,
    charts: &BTreeMap<PathBuf, Chart>,
) -> anyhow::Result<Vec<PathBuf>> {
    let before = generate::of_charts(&BTreeMap::new())?;
    let after = generate::of_charts(charts)?;
    let mut edited = Vec::new();
    for path in after.paths() {
        let (old, new) = (before.get(path), after.get(path).unwrap_or_default());
        let present = files::read(&draft.root().join(path))?;
        if old == Some(new) || present.as_deref() == Some(new) {
            continue;
        }
        if present.as_deref() == old {
            draft.add(path, new)?;
        } else if present.is_some() {
            edited.push(path.to_owned());
        }
    }
    Ok(edited)
}
