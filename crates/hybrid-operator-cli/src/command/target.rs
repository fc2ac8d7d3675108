//! Custom resources on the command line, and where they are.

use std::path::Path;

use kube::api::DynamicObject;

use super::UsageError;
use crate::cluster::{Cluster, ClusterArgs, Kind, Kinds, Listed, Selected, parse};
use crate::output::with_progress;
use crate::preview::{SourceArgs, SourceError};

/// Arguments of commands that read one custom resource of the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// Kind and name of a custom resource, such as `shop/main`
    #[arg(value_name = "KIND/NAME")]
    pub(crate) target: String,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Arguments of commands that read several custom resources.
#[derive(Debug, clap::Args)]
pub(crate) struct SelectionArgs {
    /// Kind and name of a custom resource, such as `shop/main`, or a kind
    #[arg(value_name = "KIND/NAME")]
    pub(crate) target: Option<String>,

    /// Custom resources of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// Only custom resources with these labels, such as `app=web,tier!=db`
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<String>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Flags that choose the cluster, the namespace and the watches file.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Namespace of the custom resource [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl PlaceArgs {
    pub(crate) fn kinds(&self) -> anyhow::Result<Kinds> {
        kinds(&self.source)
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }
}

/// Returns where kinds come from: the watches file that a flag names, the project of the current directory, or the
/// cluster.
pub(crate) fn kinds(args: &SourceArgs) -> anyhow::Result<Kinds> {
    let source = match args.find(Path::new(".")) {
        Ok(source) => source,
        Err(SourceError::Missing { .. }) => return Ok(Kinds::Cluster),
        Err(error) => return Err(error.into()),
    };
    let is_given = args.watches_file.is_some();
    let mut kinds: Vec<Kind> = if is_given || source.watches_file.is_file() {
        source.watches()?.into_iter().map(Kind::from).collect()
    } else {
        Vec::new()
    };
    if is_given {
        return Ok(Kinds::File(kinds));
    }
    kinds.extend(source.native_kinds().map(Kind::from));
    Ok(if kinds.is_empty() {
        Kinds::Cluster
    } else {
        Kinds::Project(kinds)
    })
}

impl SelectionArgs {
    /// Returns kind and name if a single custom resource is meant.
    pub(crate) fn one(&self) -> Result<Option<&str>, UsageError> {
        let one = self.target.as_deref().filter(|text| text.contains('/'));
        match one {
            Some(text) if self.all_namespaces || self.selector.is_some() => {
                Err(UsageError(format!(
                    "{text} names one custom resource; leave out --all-namespaces and --selector, or the name"
                )))
            }
            _ => Ok(one),
        }
    }

    /// Returns the namespace to list; `None` is all of them.
    pub(crate) fn namespace<'a>(&'a self, cluster: &'a Cluster) -> Option<&'a str> {
        if self.all_namespaces {
            None
        } else {
            Some(self.place.namespace().unwrap_or(&cluster.namespace))
        }
    }

    /// Returns the kinds whose custom resources are meant.
    pub(crate) async fn kinds(&self, cluster: &Cluster, kinds: &Kinds) -> anyhow::Result<Listed> {
        let Some(kind) = &self.target else {
            return kinds.list(cluster, self.namespace(cluster)).await;
        };
        Ok(Listed {
            kinds: vec![kinds.find(cluster, kind).await?],
            problems: Vec::new(),
        })
    }

    /// Lists custom resources, each with its kind, and returns the kinds. What cannot be read is named on standard
    /// error, unless nothing can.
    pub(crate) async fn list(
        &self,
        cluster: &Cluster,
        listed: Listed,
    ) -> anyhow::Result<(Vec<(Kind, DynamicObject)>, Vec<Kind>)> {
        let namespace = self.namespace(cluster);
        let Listed {
            kinds,
            mut problems,
        } = listed;
        let (mut found, mut failed) = (Vec::new(), 0);
        for kind in &kinds {
            let selector = kind.selector(self.selector.as_deref());
            match cluster
                .list(&kind.gvk, namespace, selector.as_deref())
                .await
            {
                Ok(objects) => {
                    found.extend(objects.into_iter().map(|object| (kind.clone(), object)));
                }
                Err(error) => {
                    failed += 1;
                    problems.push(error);
                }
            }
        }
        let last = if failed == kinds.len() {
            problems.pop()
        } else {
            None
        };
        for problem in problems {
            crate::print_message(&format!("warning: {problem:#}"));
        }
        match last {
            Some(error) => Err(error),
            None => Ok((found, kinds)),
        }
    }
}

impl TargetArgs {
    /// Runs `work` with the custom resource and its records.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Cluster, Selected) -> F,
    ) -> anyhow::Result<T> {
        parse(&self.target)?;
        let kinds = self.place.kinds()?;
        self.place.cluster.run(async |cluster| {
            let read = Selected::read(&cluster, &kinds, &self.target, self.place.namespace());
            let selected = with_progress("reading the release", read).await?;
            work(cluster, selected).await
        })
    }
}
