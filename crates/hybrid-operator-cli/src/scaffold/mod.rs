//! The files of a project: what `init` and `create` write. Each function adds files to a [`Draft`],
//! which is written at the end, all or nothing.

mod chart;
mod draft;
mod edit;
mod extra;
mod init;
mod kind;
mod merge;
pub(crate) mod names;
mod template;
mod upgrade;
mod version;
mod webhook;

use std::io;
use std::path::PathBuf;

use crate::files::FilesError;
use crate::project::{Project, ProjectError, ProjectFile};

pub(crate) use chart::{ChartError, ChartSource};
pub(crate) use draft::Draft;
pub(crate) use extra::Extra;
pub(crate) use init::{Framework, Init, License, init};
pub(crate) use kind::{Kind, create_chart_kind, create_native_kind};
pub(crate) use names::NameError;
pub(crate) use upgrade::{Conflict, Merge, merge_chart};
pub(crate) use webhook::{Webhook, create_webhook};

/// Directory of the charts in a project.
const CHARTS: &str = "helm-charts";

/// Error while files are put together. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaffoldError {
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The chart cannot be used.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// A file cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A template cannot be rendered.
    #[error(transparent)]
    Template(#[from] template::TemplateError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot find the place in {path} for the following; add it by hand and run the command again:\n{line}"
    )]
    NoPlace {
        path: String,
        /// Text to be added.
        line: String,
    },
    #[error(
        "the project has no {path}; create it with the following in it, and run the command again:\n{line}"
    )]
    NotThere {
        path: String,
        /// Text that the file must contain.
        line: String,
    },
    #[error(
        "nothing was written, because these files have other content: {paths}; keep them, or replace them with --force"
    )]
    Differ { paths: String },
    #[error("{} would not be valid YAML", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: go_yaml::Error,
    },
    #[error("cannot write PROJECT")]
    Project(#[source] go_yaml::Error),
    /// `PROJECT` is there, but cannot be read.
    #[error(transparent)]
    Present(#[from] ProjectError),
    #[error(
        "this is the directory of the project {present} already: PROJECT has {difference}; add kinds to it with 'hybrid-operator create api', or use another directory"
    )]
    OtherProject {
        /// Name of that project.
        present: String,
        difference: String,
    },
    #[error(
        "the kind {kind} of {group} is in the project already, as {present}; choose another kind or group, or remove it from PROJECT first"
    )]
    KindExists {
        kind: String,
        /// API group of the kind.
        group: String,
        /// Version in the project, with its chart or file.
        present: String,
    },
    #[error(
        "the project has no native kind {kind} of {group}/{version}; create it with 'hybrid-operator create api --native' first"
    )]
    NoSuchKind {
        kind: String,
        /// API group of the kind.
        group: String,
        version: String,
    },
    #[error(
        "{kind} is in the project already, in version {version}; all versions of a kind have the same plural name and scope: use {flag}"
    )]
    VersionDiffers {
        kind: String,
        /// The version that is there.
        version: String,
        /// The flag that makes the versions alike.
        flag: String,
    },
    #[error(
        "{kind} has a controller for version {version} already, which gets the objects of all versions; leave out --controller"
    )]
    HasController {
        kind: String,
        /// The version that the controller reads.
        version: String,
    },
    #[error(
        "{kind} of {group} has no version to convert {hub} to; add one with 'hybrid-operator create api --native --version VERSION' first"
    )]
    OneVersion {
        kind: String,
        /// API group of the kind.
        group: String,
        /// Version of the kind.
        hub: String,
    },
    #[error(
        "the conversions of {kind} have the hub {hub}, and a kind has one; use --version {hub}"
    )]
    OtherHub { kind: String, hub: String },
    /// The project cannot have such kinds.
    #[error("{0}")]
    WrongLayout(&'static str),
    #[error(
        "{} is not a checkout of the framework: it has no crates/hybrid-operator/Cargo.toml",
        path.display()
    )]
    Framework { path: PathBuf },
    #[error("cannot generate {what}: {cause}")]
    Generate {
        /// Part that was to be generated, such as the CRD.
        what: &'static str,
        cause: String,
    },
}

/// Parts that a project is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plugin {
    /// Charts only, without code
    Helm,
    /// Controllers in Rust only
    Native,
    /// Charts, and controllers in Rust
    Hybrid,
}

impl Plugin {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Native => "native",
            Self::Hybrid => "hybrid",
        }
    }

    /// Returns the name in the `layout` of `PROJECT`.
    fn layout(self) -> &'static str {
        match self {
            Self::Helm => "helm.sdk.operatorframework.io/v1",
            Self::Native => "native.hybrid-operator.sdk.operatorframework.io/v1",
            Self::Hybrid => "hybrid-operator.sdk.operatorframework.io/v1",
        }
    }

    /// Returns the plugin that made a project.
    pub(crate) fn of(file: &ProjectFile) -> Result<Self, ScaffoldError> {
        [Self::Helm, Self::Native, Self::Hybrid]
            .into_iter()
            .find(|plugin| file.layout.iter().any(|layout| layout == plugin.layout()))
            .ok_or(ScaffoldError::WrongLayout(
                "the layout in PROJECT is not one of this command: it must be helm.sdk.operatorframework.io/v1, native.hybrid-operator.sdk.operatorframework.io/v1 or hybrid-operator.sdk.operatorframework.io/v1",
            ))
    }

    pub(crate) fn has_charts(self) -> bool {
        self != Self::Native
    }

    pub(crate) fn has_code(self) -> bool {
        self != Self::Helm
    }
}

/// Adds `PROJECT` to the draft. Comments at the beginning of a present file are kept.
pub(crate) fn add_project_file(draft: &mut Draft, file: &ProjectFile) -> Result<(), ScaffoldError> {
    let name = crate::project::PROJECT;
    let present = draft.read(name)?.unwrap_or_default();
    let comments = present.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = comments.flat_map(|line| [line, "\n"]).collect();
    text.push_str(&file.to_yaml().map_err(ScaffoldError::Project)?);
    draft.edit_or_add(name, text)
}

/// Returns a draft for the directory of a project.
pub(crate) fn draft_of(project: &Project) -> Draft {
    Draft::new(&project.root)
}
