//! Computes the values that templates see from a user's: dependencies, imports, coalescing,
//! schemas.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use go_template::{Tree, TreeMap};

use super::coalesce::{self, Nulls};
use super::import::import_values;
use super::{UserValues, Values, tree};
use crate::chart::{Chart, dependency, schema};
use crate::slots::Slots;
use crate::{Digest, DigestBuilder};

/// An error while coalescing values with those of a chart.
#[derive(Debug, thiserror::Error)]
pub enum CoalesceError {
    /// The values of a dependency are not a map.
    #[error("the values of the dependency {dependency} are {found}, not a map")]
    NotAMap {
        /// The dependency.
        dependency: String,
        /// The type they have instead.
        found: &'static str,
    },
    /// A chart's schema rejects the values.
    #[error(
        "values don't meet the specifications of the schema(s) in the following chart(s):\n{text}"
    )]
    Schema {
        /// The violations, with the places of values and rules in the chart's files.
        text: String,
        /// The lines of these files.
        excerpt: String,
    },
}

impl CoalesceError {
    /// Returns the reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        "InvalidValues"
    }

    /// Returns the lines of the chart's files that the error names, or an empty text.
    pub fn excerpt(&self) -> &str {
        match self {
            Self::Schema { excerpt, .. } => excerpt,
            Self::NotAMap { .. } => "",
        }
    }
}

/// A chart with its enabled dependencies, under their aliases and with imported values.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) chart: Chart,
    /// Key that distinguishes resolutions of one chart.
    pub(crate) shape: String,
}

/// Resolves the dependencies of one chart and caches the results.
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
        let chart = dependency::with_enabled(&self.chart, values)?;
        let mut shape = String::new();
        describe_shape(&chart, &mut shape);
        self.known.get_or_make(shape.clone(), || {
            Ok(Resolved {
                chart: import_values(&chart)?,
                shape,
            })
        })
    }

    /// Coalesces the user's values with those of the chart; `check` enables schema validation.
    pub(crate) fn coalesce(
        &self,
        user: UserValues,
        check: bool,
    ) -> Result<Coalesced, CoalesceError> {
        let (given, user) = user.into_tree();
        let given = Arc::new(given);
        let resolved = self.resolve(&given)?;
        let values = coalesce::coalesce(&resolved.chart, &given, Nulls::Remove)?;
        let coalesced = Coalesced(Arc::new(CoalescedInner {
            resolved,
            user: Arc::new(user),
            values,
            json: OnceLock::new(),
        }));
        if check && schema::has_schema(coalesced.chart()) {
            schema::check(coalesced.chart(), coalesced.tree()).map_err(|rejected| {
                let schema::Rejected { text, excerpt } = rejected;
                CoalesceError::Schema { text, excerpt }
            })?;
        }
        Ok(coalesced)
    }
}

/// Formats the names of a chart's dependencies, with theirs in parentheses.
fn describe_shape(chart: &Chart, shape: &mut String) {
    for below in chart.dependencies() {
        let _ = write!(shape, "{}(", below.name());
        describe_shape(below, shape);
        shape.push(')');
    }
}

/// The coalesced values that templates see. Dependencies disabled by the values are removed, the
/// others have their aliases. Cheap to clone.
#[derive(Clone)]
pub struct Coalesced(Arc<CoalescedInner>);

struct CoalescedInner {
    resolved: Arc<Resolved>,
    user: Arc<Values>,
    values: Arc<TreeMap>,
    /// Computed on first use.
    json: OnceLock<Values>,
}

impl Coalesced {
    /// Returns the user's values as given, which a release records as its config.
    pub fn user(&self) -> &Values {
        &self.0.user
    }

    /// Returns the values that the chart's templates see, with those of its dependencies under
    /// their names.
    pub fn values(&self) -> &Values {
        self.0.json.get_or_init(|| tree::to_map(&self.0.values))
    }

    /// Returns the values in the form that templates read.
    pub(crate) fn tree(&self) -> &Arc<TreeMap> {
        &self.0.values
    }

    /// Returns the chart with the enabled dependencies, as a release records it.
    pub fn chart(&self) -> &Chart {
        &self.0.resolved.chart
    }

    pub(crate) fn resolved(&self) -> &Arc<Resolved> {
        &self.0.resolved
    }

    /// Returns the digest of chart and values; together with
    /// [`crate::capabilities::CapabilityReads`] it makes up the digest of a release's inputs. It
    /// does not distinguish integers from floats, so that values from a release record keep their
    /// digest.
    pub fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        digest.add(self.chart().digest().as_bytes());
        tree::digest_into(&Tree::Map(Arc::clone(&self.0.values)), &mut digest);
        digest.finish()
    }
}

impl std::fmt::Debug for Coalesced {
    /// Omits the values, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "values of {:?}", self.chart())
    }
}

/// Coalesces `user` with the values of `chart`: maps are merged, all other user values replace the
/// chart's, and a null removes a key. Conditions and tags disable dependencies, `import-values` are
/// imported, globals are passed down, and schemas are checked.
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
/// A [`crate::CompiledChart`] coalesces faster because it caches resolved dependencies.
///
/// # Errors
/// If the values do not match a schema, or a dependency's condition or import is malformed.
pub fn coalesce(chart: &Chart, user: impl Into<UserValues>) -> Result<Coalesced, CoalesceError> {
    Resolver::new(chart.clone()).coalesce(user.into(), true)
}
