//! From a user's values to those that templates see: dependencies, imports, coalescing, schemas.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use go_template::{Tree, TreeMap};

use super::coalesce::{self, Nulls};
use super::import::import_values;
use super::{Values, tree};
use crate::chart::{Chart, dependency, schema};
use crate::slots::Slots;
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

/// A chart whose dependencies are decided: those that are switched on, under their aliases, with
/// imported values.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) chart: Chart,
    /// Tells resolutions of one chart apart.
    pub(crate) shape: String,
}

/// Decides the dependencies of one chart, and remembers what it decided.
pub(crate) struct Resolver {
    chart: Chart,
    known: Slots<String, Resolved>,
}

impl Resolver {
    pub(crate) fn new(chart: Chart) -> Self {
        Self {
            chart,
            known: Slots::new(),
        }
    }

    pub(crate) fn chart(&self) -> &Chart {
        &self.chart
    }

    fn resolve(&self, values: &Arc<TreeMap>) -> Result<Arc<Resolved>, CoalesceError> {
        let chart = dependency::switch(&self.chart, values)?;
        let mut shape = String::new();
        describe_shape(&chart, &mut shape);
        self.known.get_or_make(shape.clone(), || {
            Ok(Resolved {
                chart: import_values(&chart)?,
                shape,
            })
        })
    }

    /// The user's values with those of the chart; with `check`, held against its schemas.
    pub(crate) fn coalesce(&self, user: Values, check: bool) -> Result<Coalesced, CoalesceError> {
        let given = Arc::new(tree::from_map(&user));
        let resolved = self.resolve(&given)?;
        let values = coalesce::coalesce(&resolved.chart, &given, Nulls::Remove)?;
        let coalesced = Coalesced(Arc::new(Content {
            resolved,
            user: Arc::new(user),
            values,
            json: OnceLock::new(),
        }));
        if check && schema::has_schema(coalesced.chart()) {
            schema::check(coalesced.chart(), coalesced.tree()).map_err(CoalesceError::Schema)?;
        }
        Ok(coalesced)
    }
}

/// The names of a chart's dependencies, theirs in parentheses.
fn describe_shape(chart: &Chart, shape: &mut String) {
    for below in chart.dependencies() {
        let _ = write!(shape, "{}(", below.name());
        describe_shape(below, shape);
        shape.push(')');
    }
}

/// A user's values with those of the chart: what templates see. Dependencies that the values
/// switch off are gone, the others have their aliases. Cheap to clone.
#[derive(Clone)]
pub struct Coalesced(Arc<Content>);

struct Content {
    resolved: Arc<Resolved>,
    user: Arc<Values>,
    values: Arc<TreeMap>,
    /// Made when first asked for.
    json: OnceLock<Values>,
}

impl Coalesced {
    /// The user's values as they were given, which is what a release records as its config.
    pub fn user(&self) -> &Values {
        &self.0.user
    }

    /// The values that the templates of the chart see, with those of its dependencies under
    /// their names.
    pub fn values(&self) -> &Values {
        self.0.json.get_or_init(|| tree::to_map(&self.0.values))
    }

    /// The values as templates read them.
    pub(crate) fn tree(&self) -> &Arc<TreeMap> {
        &self.0.values
    }

    /// The chart with the dependencies that are switched on, as a release records it.
    pub fn chart(&self) -> &Chart {
        &self.0.resolved.chart
    }

    pub(crate) fn resolved(&self) -> &Arc<Resolved> {
        &self.0.resolved
    }

    /// The digest of chart and values, which with [`crate::capabilities::CapabilityReads`] makes
    /// the digest of a release's inputs. Whether a number was an integer or a float does not
    /// count, so values that went through a release record have the digest that they had before.
    pub fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        digest.add(self.chart().digest().as_bytes());
        tree::digest_into(&Tree::Map(Arc::clone(&self.0.values)), &mut digest);
        digest.finish()
    }
}

impl std::fmt::Debug for Coalesced {
    /// Values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "values of {:?}", self.chart())
    }
}

/// Coalesces `user` with the values of `chart`: maps are merged, all else of the user's replaces
/// the chart's, and a null of the user's removes a key. Conditions and tags switch dependencies
/// off, `import-values` are imported, globals are handed down, schemas are checked.
///
/// ```
/// use helm_core::chart::{Chart, File};
/// let chart = Chart::from_files([
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n"),
///     File::new("values.yaml", "replicas: 1\nimage: {tag: latest, pull: Always}\n"),
/// ])?;
/// let user = helm_core::values::read(b"image: {tag: '2', pull: null}")?;
/// let values = helm_core::values::coalesce(&chart, user)?;
/// let expected = serde_json::json!({"replicas": 1.0, "image": {"tag": "2"}});
/// assert_eq!(serde_json::Value::from(values.values().clone()), expected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A [`crate::CompiledChart`] coalesces faster: it remembers what it decided before.
pub fn coalesce(chart: &Chart, user: Values) -> Result<Coalesced, CoalesceError> {
    Resolver::new(chart.clone()).coalesce(user, true)
}
