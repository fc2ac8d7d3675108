//! Coalescing: the user's values over those of a chart and its dependencies, with Helm's rules.

use std::sync::Arc;

use super::{Values, merge};
use crate::chart::Chart;
use crate::{Digest, DigestBuilder};

/// Why values and chart do not go together.
#[derive(Debug, thiserror::Error)]
pub enum CoalesceError {
    /// The values of a dependency are no map.
    #[error("the values of the dependency {dependency} are {found}, not a map")]
    NoMap {
        /// The dependency.
        dependency: String,
        /// What they are.
        found: &'static str,
    },
    /// A chart's schema does not allow the values.
    #[error(
        "values don't meet the specifications of the schema(s) in the following chart(s):\n{0}"
    )]
    Schema(String),
}

impl CoalesceError {
    /// The reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        "InvalidValues"
    }
}

/// A user's values with those of the chart: what templates see. Dependencies that the values
/// switch off are gone, the others have their aliases. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Coalesced {
    chart: Chart,
    user: Arc<Values>,
    values: Arc<Values>,
}

impl Coalesced {
    /// The user's values as they were given, which is what a release records as its config.
    pub fn user(&self) -> &Values {
        &self.user
    }

    /// The values that the templates of the chart see, with those of its dependencies under
    /// their names.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The chart with the dependencies that are switched on.
    pub fn chart(&self) -> &Chart {
        &self.chart
    }

    /// The digest of chart and values, which with [`crate::capabilities::CapabilityReads`] makes
    /// the digest of a release's inputs.
    pub fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        digest.add(self.chart.digest().as_bytes());
        digest.add(serde_json::to_vec(&*self.values).unwrap_or_default());
        digest.finish()
    }
}

/// Coalesces `user` with the values of `chart`: maps are merged, all else of the user's replaces
/// the chart's, and a null of the user's removes a key. Conditions and tags switch dependencies
/// off, `import-values` are imported, globals are handed down, schemas are checked.
pub fn coalesce(chart: &Chart, user: Values) -> Result<Coalesced, CoalesceError> {
    let user = Arc::new(user);
    let values = merge(chart.values().clone(), (*user).clone());
    Ok(Coalesced {
        chart: chart.clone(),
        user,
        values: Arc::new(values),
    })
}
