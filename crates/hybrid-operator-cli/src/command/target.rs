//! `KIND/NAME`, and where the custom resource is.

use std::path::Path;

use hybrid_operator::watches::{self, Watch};

use crate::cluster::{Cluster, ClusterArgs, Selected};
use crate::output::with_progress;
use crate::preview::SourceArgs;

/// Arguments of commands that read one custom resource of the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// Kind and name of a custom resource, such as `shop/main`
    #[arg(value_name = "KIND/NAME")]
    pub(crate) target: String,

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
    /// Reads the watches file.
    pub(crate) fn watches(&self) -> anyhow::Result<Vec<Watch>> {
        let source = self.source.find(Path::new("."))?;
        Ok(watches::load(&source.watches_file)?)
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }
}

impl TargetArgs {
    /// Runs `work` with the custom resource and its records.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Cluster, Selected) -> F,
    ) -> anyhow::Result<T> {
        let watches = self.place.watches()?;
        self.place.cluster.run(async |cluster| {
            let read = Selected::read(&cluster, &watches, &self.target, self.place.namespace());
            let selected = with_progress("reading the release", read).await?;
            work(cluster, selected).await
        })
    }
}
