//! The flags that say how charts are fetched, with Helm's names, and what they lead to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chart_source::verify::{self, Policy};
use chart_source::{
    Access, Cache, ChartReference, Digest, DocumentFetcher, Location, Pulled, Puller, Repositories,
    Repository,
};
use clap::builder::{PathBufValueParser, TypedValueParser};
use helm_core::chart::{Chart, Limits, SchemaRoots};
use helm_core::engine::OpenError;
use helm_core::{CompiledChart, RenderError};
use hybrid_operator::watches::RemoteChart;

use super::UsageError;
use super::cosign_flags::CosignFlags;

/// Heading of the flags below, which only `--help` shows.
pub(super) const HEADING: &str = "Charts from repositories and registries";

/// Access to repositories and registries.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct AccessFlags {
    /// User of the repository or registry [default: of a registry, as 'helm registry login' or
    /// 'docker login' has stored it]
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "NAME")]
    username: Option<String>,

    /// Password or token of the user
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "TEXT")]
    password: Option<String>,

    /// Send user and password also to other hosts that the index of the repository names
    #[arg(long, help_heading = HEADING, hide_short_help = true)]
    pass_credentials: bool,

    /// File with certificates of authorities to trust besides those of the system
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    ca_file: Option<OsString>,

    /// File with the certificate of this client
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    cert_file: Option<OsString>,

    /// File with the key of this client
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    key_file: Option<OsString>,

    /// Reach registries by HTTP without TLS
    #[arg(long, help_heading = HEADING, hide_short_help = true)]
    plain_http: bool,

    /// Do not verify the certificates of repositories and registries
    #[arg(long, help_heading = HEADING, hide_short_help = true)]
    insecure_skip_tls_verify: bool,

    /// Verify the chart with its provenance file (.prov) before it is used, as Helm does
    #[arg(long, help_heading = HEADING, hide_short_help = true)]
    verify: bool,

    /// Keyring with the public keys for --verify [default: pubring.gpg, else pubring.kbx, in
    /// `$GNUPGHOME` or ~/.gnupg]
    #[arg(
        long,
        help_heading = HEADING, hide_short_help = true,
        value_name = "FILE",
        allow_hyphen_values = true
    )]
    keyring: Option<OsString>,

    #[command(flatten)]
    cosign: CosignFlags,

    /// File with the credentials of registries [default: those of Helm and Docker]
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    registry_config: Option<OsString>,

    /// File with the repositories of 'helm repo add' [default: that of Helm]
    #[arg(
        long,
        help_heading = HEADING, hide_short_help = true,
        value_name = "FILE",
        allow_hyphen_values = true
    )]
    repository_config: Option<OsString>,

    /// Directory in which fetched charts are kept [default: `$CHART_CACHE`, else
    /// hybrid-operator/charts in the user's cache directory]
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "DIR")]
    chart_cache: Option<PathBuf>,
}

/// The chart that a command line names.
pub(crate) enum Found {
    /// A directory or an archive on this machine, which may not exist.
    Local(PathBuf),
    /// An archive on this machine that was verified.
    Verified { path: PathBuf, archive: Vec<u8> },
    /// An archive that was fetched.
    Fetched {
        /// The chart as it was named, without credentials.
        reference: String,
        /// URL of the fetched chart.
        url: String,
        /// Digest of the archive.
        digest: Digest,
        archive: Vec<u8>,
    },
}

impl Found {
    pub(crate) fn load(&self) -> anyhow::Result<Chart> {
        let loaded = match self {
            Self::Local(path) => Chart::load(path),
            Self::Verified { archive, .. } | Self::Fetched { archive, .. } => {
                let chart = Chart::from_archive(archive, &Limits::default());
                chart.map(|chart| chart.with_schema_roots(SchemaRoots::of_process()))
            }
        };
        loaded.with_context(|| self.cannot_load())
    }

    /// Loads and compiles the chart. The inner error is that of a template.
    pub(crate) fn compile(&self) -> anyhow::Result<Result<CompiledChart, RenderError>> {
        let compiled = match self {
            Self::Local(path) => CompiledChart::load(path),
            Self::Verified { archive, .. } | Self::Fetched { archive, .. } => {
                let compiled = CompiledChart::from_archive(archive, &Limits::default());
                compiled.map(|chart| chart.with_schema_roots(SchemaRoots::of_process()))
            }
        };
        match compiled {
            Ok(compiled) => Ok(Ok(compiled)),
            Err(OpenError::Compile(error)) => Ok(Err(error)),
            Err(OpenError::Load(error)) => Err(error).with_context(|| self.cannot_load()),
        }
    }

    fn cannot_load(&self) -> String {
        match self {
            Self::Local(path) | Self::Verified { path, .. } => {
                format!("cannot load the chart {:?}", path.display())
            }
            Self::Fetched { url, .. } => format!("cannot load the chart {url}"),
        }
    }
}

impl AccessFlags {
    /// Returns whether one of the flags is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Finds a chart, and fetches it if it is a URL, an `oci://` name, with `repo` the name of a chart in a
    /// repository, or the name of a repository of `helm repo add` and of a chart in it (`NAME/CHART`).
    pub(crate) fn find(
        &self,
        chart: &str,
        repo: Option<&str>,
        version: Option<&str>,
    ) -> anyhow::Result<Found> {
        let parse = |chart: &str, repo: Option<&str>| {
            ChartReference::parse(chart, repo, version).map_err(UsageError::of)
        };
        if repo.is_some() || chart.contains("://") {
            return self.fetch(&parse(chart, repo)?, None);
        }
        // As in Helm, a file of this name goes before a repository.
        let is_path = chart.starts_with(['/', '.', '~']) || Path::new(chart).exists();
        let Some((name, chart)) = chart.split_once('/').filter(|_| !is_path) else {
            return self.find_local(in_home(chart.into()));
        };
        let repositories = self.repositories()?;
        let repository = repositories
            .named(name)
            .with_context(|| format!("there is no chart at {name}/{chart}"))?;
        let reference = parse(chart, Some(repository.url()))?;
        self.fetch(&reference, Some(repository))
    }

    fn fetch(
        &self,
        reference: &ChartReference,
        repository: Option<&Repository>,
    ) -> anyhow::Result<Found> {
        let found = self.pull(reference, repository)?;
        Ok(Found::Fetched {
            reference: reference.to_string(),
            url: found.resolved.url,
            digest: found.resolved.digest,
            archive: found.archive,
        })
    }

    fn find_local(&self, path: PathBuf) -> anyhow::Result<Found> {
        if self.cosign.is_given() {
            return Err(UsageError(format!(
                "cannot verify the chart {:?}: signatures of cosign are in registries only; give its name in a \
                 registry (oci://HOST/PATH)",
                path.display()
            ))
            .into());
        }
        if !self.verify {
            return Ok(Found::Local(path));
        }
        // As in Helm, a directory is refused before the keyring is read.
        if path.is_dir() {
            bail!(
                "cannot verify the chart {:?}: a directory cannot be verified; give the packaged chart (.tgz)",
                path.display()
            );
        }
        let archive = verify::read_archive(&path, &self.policy()?)
            .with_context(|| format!("cannot verify the chart {:?}", path.display()))?;
        Ok(Found::Verified { path, archive })
    }

    /// Reads the repositories of `helm repo add`.
    pub(crate) fn repositories(&self) -> anyhow::Result<Repositories> {
        let default = || Repositories::default_path(|name| std::env::var(name).ok());
        match given(self.repository_config.as_ref()).or_else(default) {
            Some(path) => Ok(Repositories::read(&path)?),
            None => Ok(Repositories::default()),
        }
    }

    /// Fetches a chart, with what is stored about its repository.
    pub(crate) fn pull(
        &self,
        reference: &ChartReference,
        repository: Option<&Repository>,
    ) -> anyhow::Result<Pulled> {
        let access = match repository {
            Some(repository) => repository.access(self.access()),
            None => self.access(),
        };
        let cache = self.chart_cache.clone().map(Cache::at);
        let puller = Puller::new(&access, cache.or_else(Cache::open_default))?;
        puller
            .verifying(self.policy()?)
            .pull_blocking(reference)
            .with_context(|| format!("cannot fetch the chart {reference}"))
    }

    /// Fetches a chart, with what `helm repo add` has stored about its repository.
    pub(crate) fn pull_known(&self, reference: &ChartReference) -> anyhow::Result<Pulled> {
        let repositories = self.repositories()?;
        let stored = match &reference.location {
            Location::Repository { url, .. } => repositories.at(url.as_str()),
            _ => None,
        };
        self.pull(reference, stored)
    }

    /// Returns the flags without those about signatures, for a chart that is known by its digest.
    pub(crate) fn without_signatures(&self) -> Self {
        Self {
            verify: false,
            cosign: CosignFlags::default(),
            ..self.clone()
        }
    }

    /// Returns who must have signed the charts.
    fn policy(&self) -> anyhow::Result<Policy> {
        if self.verify && self.cosign.is_given() {
            let message = "--verify is for provenance files, and --cosign-key and --certificate-identity are for \
                           signatures of cosign: a chart is verified with one of them";
            return Err(UsageError(message.to_owned()).into());
        }
        if let Some(policy) = self.cosign.policy()? {
            return Ok(policy);
        }
        if !self.verify {
            return Ok(Policy::default());
        }
        let path = given(self.keyring.as_ref()).map_or_else(default_keyring, Ok)?;
        Ok(Policy::keyring(&path)?)
    }

    /// Returns whether a chart of a watches file must be signed.
    pub(crate) fn verifies(&self, chart: &RemoteChart) -> bool {
        self.verify || self.cosign.is_given() || chart.verify.is_some()
    }

    /// Returns what fetches a chart of a watches file: as the flags say, and as its entry says. The flags for
    /// signatures are for the entries that do not say who must have signed their charts.
    pub(crate) fn puller(&self, chart: &RemoteChart) -> anyhow::Result<Puller> {
        let flags = self.access();
        let access = Access {
            ca_file: flags.ca_file.clone().or_else(|| chart.ca_file.clone()),
            plain_http: flags.plain_http || chart.plain_http,
            insecure_skip_tls_verify: flags.insecure_skip_tls_verify
                || chart.insecure_skip_tls_verify,
            ..flags
        };
        let cache = self.chart_cache.clone().map(Cache::at);
        let puller = Puller::new(&access, cache.or_else(Cache::open_default))?;
        let policy = match chart.verify {
            Some(_) => chart.policy()?,
            None => self.policy()?,
        };
        Ok(puller.verifying(policy))
    }

    /// Returns what fetches the documents of the web that schemas refer to, without credentials.
    pub(crate) fn documents(&self) -> anyhow::Result<DocumentFetcher> {
        Ok(DocumentFetcher::new(&self.access())?)
    }

    fn access(&self) -> Access {
        let default = || Access::default_docker_configs(|name| std::env::var(name).ok());
        Access {
            username: self.username.clone(),
            password: self.password.clone().map(Into::into),
            pass_credentials: self.pass_credentials,
            ca_file: given(self.ca_file.as_ref()),
            cert_file: given(self.cert_file.as_ref()),
            key_file: given(self.key_file.as_ref()),
            plain_http: self.plain_http,
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            docker_configs: given(self.registry_config.as_ref())
                .map_or_else(default, |file| vec![file]),
            ..Access::default()
        }
    }
}

/// Parses the path of a chart.
pub(crate) fn chart_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(in_home)
}

/// Returns a path with the home directory in place of `~`, which shells leave behind an equals sign
/// (`--helm-chart=~/web`).
fn in_home(path: PathBuf) -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) if !path.exists() => Path::new(&home).join(rest),
        _ => path,
    }
}

/// Returns the path of a flag. An empty one is none, as in Helm.
fn given(file: Option<&OsString>) -> Option<PathBuf> {
    let file = file.filter(|file| !file.is_empty());
    file.map(PathBuf::from)
}

/// Returns GnuPG's keyring that Helm uses.
fn default_keyring() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = match set("GNUPGHOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            PathBuf::from(set("HOME").context("give the keyring with --keyring")?).join(".gnupg")
        }
    };
    let (old, new) = (folder.join("pubring.gpg"), folder.join("pubring.kbx"));
    Ok(if !old.exists() && new.exists() {
        new
    } else {
        old
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::HEADING;
    use crate::command::Cli;

    #[test]
    fn flags_of_access_are_in_the_long_help_alone_and_others_are_not_among_them() {
        let mut command = Cli::command();
        let lint = command.find_subcommand_mut("lint").unwrap();
        let (short, long) = (lint.render_help(), lint.render_long_help());
        let (short, long) = (short.to_string(), long.to_string());
        assert!(
            short.contains("--ignore") && !short.contains(HEADING),
            "{short}"
        );
        let (others, access) = long.split_once(HEADING).unwrap();
        for flag in "username ca-file verify cosign-key trusted-root chart-cache".split(' ') {
            let flag = format!("--{flag} ");
            assert!(!short.contains(&flag) && access.contains(&flag), "{flag}");
        }
        assert!(others.contains("--limit-time") && !access.contains("--limit-time"));
    }
}
