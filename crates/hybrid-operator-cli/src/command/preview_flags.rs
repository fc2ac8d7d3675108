//! Flags of commands that render custom resources without a cluster.

use std::path::Path;

use clap::ArgAction;
use helm_core::Capabilities;

use super::{UsageError, template};
use crate::preview::{self, Bindings, LimitArgs, Namespace, Request, Source, SourceArgs};

/// Flags of a render without a cluster.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PreviewFlags {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// File with the objects that `valuesFrom` refers to; can be repeated
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    from: Vec<String>,

    /// Namespace of custom resources that name none [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,

    /// Kubernetes version that the templates see
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<String>,

    /// Additional API versions that the templates see; can be repeated
    #[arg(short, long, value_name = "VERSIONS", value_delimiter = ',', action = ArgAction::Append)]
    api_versions: Vec<String>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Show the contents of values in errors of templates
    #[arg(long)]
    debug: bool,
}

impl PreviewFlags {
    /// Finds the watches file and reads it, or that of another revision of the repository.
    pub(crate) fn open(&self, source: Option<Source>) -> anyhow::Result<Bindings> {
        let source = if let Some(source) = source {
            source
        } else {
            let found = self.source.find(Path::new("."))?;
            preview::note_about_code(&found.root);
            found
        };
        let mut bindings = Bindings::load(source)?;
        bindings.limit(self.limits);
        bindings.show_values_in_errors(self.debug);
        Ok(bindings)
    }

    /// Reads custom resources.
    pub(crate) fn read(&self, files: &[String], bindings: &Bindings) -> anyhow::Result<Request> {
        Request::read(files, &self.from, bindings, &self.namespace())
    }

    /// Returns whether capabilities are given, which those of a cluster would replace.
    pub(crate) fn has_capabilities(&self) -> bool {
        self.kube_version.is_some() || !self.api_versions.is_empty()
    }

    pub(crate) fn from(&self) -> &[String] {
        &self.from
    }

    pub(crate) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }

    pub(crate) fn namespace(&self) -> Namespace {
        match self.given_namespace() {
            Some(given) => Namespace::Given(given.to_owned()),
            None => Namespace::Default(template::default_namespace()),
        }
    }

    pub(crate) fn capabilities(&self) -> Result<Capabilities, UsageError> {
        template::capabilities(self.kube_version.as_deref(), &self.api_versions)
    }
}
