//! State that all controllers with charts share in a process.

use operator_runtime::manager::ControllerContext;

use helm_release::engine::{ReleaseMemory, RenderPool};
use helm_release::release::{AllRecords, ProofKeys};

/// State that all controllers with charts share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Process {
    /// The history of all releases.
    pub(crate) records: AllRecords,
    /// Renders the charts.
    pub(crate) pool: RenderPool,
    /// The memory that releases may take.
    pub(crate) memory: ReleaseMemory,
}

impl Process {
    /// Returns the state, which the first controller opens.
    pub(crate) fn of(context: &ControllerContext) -> Self {
        context.shared(|context| {
            let renders = Renders::of(context);
            Self {
                records: AllRecords::new(
                    context.client().clone(),
                    context.namespaces.clone(),
                    context.metrics.restarts(),
                    context.shards.clone(),
                    context.stop.clone(),
                    proof_keys(context),
                ),
                pool: renders.pool,
                memory: renders.memory,
            }
        })
    }
}

/// Resources that renders of charts share: a setting of the process, so that the leader's releases and the admission of
/// each replica share it, too.
#[derive(Clone)]
pub(crate) struct Renders {
    pub(crate) pool: RenderPool,
    pub(crate) memory: ReleaseMemory,
}

impl Renders {
    pub(crate) fn new() -> Self {
        Self {
            pool: RenderPool::default(),
            memory: ReleaseMemory::of_container(),
        }
    }

    /// Returns those of the process; new ones without the setting.
    pub(crate) fn of(context: &ControllerContext) -> Self {
        let set = context.settings::<Self>().cloned();
        set.unwrap_or_else(Self::new)
    }
}

/// Returns the source of the key that proves release records. It is kept in the operator's namespace,
/// never in one of its custom resources', whose users may read it.
fn proof_keys(context: &ControllerContext) -> ProofKeys {
    let identity = &context.identity;
    ProofKeys::in_secret(context.client().clone(), &identity.home, &identity.operator)
}
