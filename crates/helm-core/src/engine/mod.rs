//! Rendering: a chart is compiled once and rendered many times, by many threads, without locks.
//!
//! ```
//! use helm_core::chart::{Chart, File};
//! use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
//! use helm_core::values::Values;
//!
//! let chart = Chart::from_files([
//!     File::new("Chart.yaml", r#"{"apiVersion": "v2", "name": "web", "version": "0.1.0"}"#),
//!     File::new("templates/a.yaml", r#"{"apiVersion": "v1", "kind": "Namespace"}"#),
//! ])?;
//! let compiled = CompiledChart::compile(&chart)?;
//! let values = compiled.coalesce(Values::new())?;
//! let rendered = compiled.render(&RenderInput::new(ReleaseInfo::new("web", "prod"), &values))?;
//! assert!(rendered.manifest().starts_with("---\n# Source: web/templates/a.yaml\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(
    clippy::unnecessary_wraps,
    reason = "functions and methods of templates have one signature"
)]

mod compile;
mod context;
mod error;
mod execute;
mod files_object;
mod funcs_duration;
mod funcs_json;
mod funcs_toml;
mod funcs_yaml;
mod glob;
mod include;
pub mod lookup;
mod source;
mod strip;
mod toml_reader;
mod values_object;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use compile::{Linked, Templates};
pub use error::{OpenError, RenderError};
pub use execute::Output;
pub use go_template::{BudgetError, Cancel, Limits as RenderLimits};
pub use lookup::{Lookup, LookupAnswer, LookupKey, MAX_LOOKUPS, NoCluster, Snapshot};

use go_template::Stop;

use crate::capabilities::Capabilities;
use crate::chart::{self, Chart, version_range};
use crate::release::Revision;
use crate::render::Rendered;
use crate::values::{CoalesceError, Coalesced, Resolver, UserValues};

/// The value of `.Release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// The name of the release.
    pub name: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The revision that is rendered.
    pub revision: Revision,
    /// Whether this is an install.
    pub is_install: bool,
    /// Whether this is an upgrade or rollback.
    pub is_upgrade: bool,
}

impl ReleaseInfo {
    /// Describes the first install of a release.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            revision: Revision::FIRST,
            is_install: true,
            is_upgrade: false,
        }
    }

    /// Describes an upgrade to `revision`.
    #[must_use]
    pub fn upgrade_to(mut self, revision: Revision) -> Self {
        self.revision = revision;
        self.is_install = false;
        self.is_upgrade = true;
        self
    }
}

/// Everything that a render depends on.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct RenderInput<'a> {
    /// The release.
    pub release: ReleaseInfo,
    /// The values, from [`CompiledChart::coalesce`] of the same chart.
    pub values: &'a Coalesced,
    /// The cluster's capabilities.
    pub capabilities: &'a Capabilities,
    /// Answers for `lookup`.
    pub lookup: Arc<dyn Lookup>,
    /// Limits. The time limit covers the templates and the sorting of their output.
    pub limits: RenderLimits,
    /// Handle that ends the render with [`RenderError::Cancelled`] within milliseconds.
    pub cancel: Cancel,
    /// Whether to render the notes of dependencies too (`--render-subchart-notes`).
    pub subchart_notes: bool,
    /// Whether a chart is rendered although dependencies of its `Chart.yaml` are missing, see
    /// [`CompiledChart::missing_dependencies`]. Without it, which is the default, that is an error.
    pub incomplete: bool,
    /// Whether keys, certificates and password hashes may be weak. They are fast to generate then;
    /// only for renders whose secrets nobody uses. Without the feature `crypto` there are none.
    pub weak_secrets: bool,
    /// Whether errors show the contents of values and the text given to `tpl`, which may be secret
    /// (`--debug`). Without it, which is the default, errors name their place, kind and length.
    pub values_in_errors: bool,
    /// The time that templates see, in place of the system's clock. A platform without a clock, such as
    /// `wasm32-unknown-unknown`, needs it for charts that use the time.
    pub time: Option<SystemTime>,
    /// Returns an address of a host for `getHostByName` (`--enable-dns`). Without it, which is the
    /// default, the function returns an empty text and rendering does not use the network.
    pub host_names: Option<HostNames>,
}

/// Returns an address of a host.
pub type HostNames = fn(&str) -> std::io::Result<String>;

impl<'a> RenderInput<'a> {
    /// Creates the input of a render without a cluster.
    pub fn new(release: ReleaseInfo, values: &'a Coalesced) -> Self {
        static DEFAULT: std::sync::LazyLock<Capabilities> =
            std::sync::LazyLock::new(Capabilities::default);
        Self {
            release,
            values,
            capabilities: &DEFAULT,
            lookup: Arc::new(NoCluster),
            limits: RenderLimits::default(),
            cancel: Cancel::new(),
            subchart_notes: false,
            incomplete: false,
            weak_secrets: false,
            values_in_errors: false,
            time: None,
            host_names: None,
        }
    }

    /// Sets the capabilities of the cluster.
    #[must_use]
    pub fn capabilities(mut self, capabilities: &'a Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets the answers for `lookup`.
    #[must_use]
    pub fn lookup(mut self, lookup: impl Lookup + 'static) -> Self {
        self.lookup = Arc::new(lookup);
        self
    }

    /// Sets the handle that cancels the render. [`RenderError::Cancelled`] lists what cannot be
    /// interrupted.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets the time that templates see.
    #[must_use]
    pub fn time(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// Starts the clock of a render.
    fn start(&self) -> Stop {
        Stop::new(self.cancel.clone(), self.limits.time)
    }
}

/// A chart with parsed templates. Cheap to clone, `Send` and `Sync`.
#[derive(Clone)]
pub struct CompiledChart(Arc<CompiledInner>);

struct CompiledInner {
    resolver: Resolver,
    templates: Arc<Templates>,
}

impl CompiledChart {
    /// Parses the templates of a chart. The errors of those of a dependency are reported by the first render that
    /// it takes part in.
    ///
    /// # Errors
    /// [`RenderError::Parse`] if a file of the chart itself is not a template.
    pub fn compile(chart: &Chart) -> Result<Self, RenderError> {
        let templates = Templates::start(chart);
        templates.start_dependencies(chart);
        Self::finish(chart.clone(), templates)
    }

    /// Loads a chart like [`Chart::load`] and compiles it. This is faster than one after the other where there are
    /// several processors: the templates of a large chart are parsed while its values are read.
    ///
    /// # Errors
    /// Those of [`Chart::load`] and [`CompiledChart::compile`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open(Chart::outline_of(path.as_ref())?)
    }

    /// Loads a chart like [`Chart::from_archive`] and compiles it, as [`CompiledChart::load`] does.
    ///
    /// # Errors
    /// Those of [`Chart::from_archive`] and [`CompiledChart::compile`].
    pub fn from_archive(archive: &[u8], limits: &chart::Limits) -> Result<Self, OpenError> {
        Self::open(Chart::outline(archive, limits)?)
    }

    fn open(outline: Chart) -> Result<Self, OpenError> {
        let templates = Templates::start(&outline);
        // They tell which dependencies are likely to take part.
        outline.read_own_values()?;
        templates.start_dependencies(&outline);
        let chart = outline.with_values_read()?;
        Ok(Self::finish(chart, templates)?)
    }

    fn finish(chart: Chart, templates: Templates) -> Result<Self, RenderError> {
        templates.finish()?;
        let resolver = Resolver::new(chart);
        Ok(Self(Arc::new(CompiledInner {
            resolver,
            templates: Arc::new(templates),
        })))
    }

    /// Returns the chart.
    pub fn chart(&self) -> &Chart {
        self.0.resolver.chart()
    }

    /// Returns the chart with other directories that its schemas may refer to; see [`Chart::with_schema_roots`].
    #[must_use]
    pub fn with_schema_roots(&self, roots: chart::SchemaRoots) -> Self {
        Self(Arc::new(CompiledInner {
            resolver: Resolver::new(self.chart().with_schema_roots(roots)),
            templates: Arc::clone(&self.0.templates),
        }))
    }

    /// Returns the chart without the check of values against schemas; see [`Chart::skip_schemas`].
    #[must_use]
    pub fn skip_schemas(&self) -> Self {
        Self(Arc::new(CompiledInner {
            resolver: Resolver::new(self.chart().skip_schemas()),
            templates: Arc::clone(&self.0.templates),
        }))
    }

    /// Coalesces the user's values with those of the chart and validates them against its schemas;
    /// see [`crate::values::coalesce`].
    ///
    /// # Errors
    /// If the values do not match a schema, or a dependency's condition or import is malformed.
    pub fn coalesce(&self, user: impl Into<UserValues>) -> Result<Coalesced, CoalesceError> {
        self.0
            .resolver
            .coalesce(user.into(), !self.chart().skips_schemas())
    }

    /// Like [`CompiledChart::coalesce`], without schema validation (`--skip-schema-validation`).
    ///
    /// # Errors
    /// Like [`CompiledChart::coalesce`], without those of schemas.
    pub fn coalesce_unchecked(
        &self,
        user: impl Into<UserValues>,
    ) -> Result<Coalesced, CoalesceError> {
        self.0.resolver.coalesce(user.into(), false)
    }

    /// Renders the chart into manifest, hooks and notes.
    ///
    /// # Errors
    /// Every variant of [`RenderError`]; [`RenderError::NeedsLookup`] asks for objects, and for another render.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Rendered, RenderError> {
        self.check_installable(input.incomplete)?;
        let chart = input.values.chart();
        let constraint = &chart.metadata().kube_version;
        let version = &input.capabilities.kube_version;
        if !constraint.is_empty() && !version_range::contains(constraint, version.comparable()) {
            return Err(RenderError::KubeVersion {
                constraint: constraint.clone(),
                version: version.version().to_owned(),
            });
        }
        let linked = self.link(input)?;
        let stop = input.start();
        let output = execute::files(&linked, input, &stop)?;
        Rendered::assemble(output, chart, input.subchart_notes, &input.limits, &stop)
    }

    /// Checks that the chart is not a library and, unless it may be `incomplete`, has all of its
    /// dependencies.
    fn check_installable(&self, incomplete: bool) -> Result<(), RenderError> {
        let metadata = self.chart().metadata();
        if !matches!(metadata.chart_type.as_str(), "" | "application") {
            return Err(RenderError::NotInstallable(metadata.chart_type.clone()));
        }
        let missing = self.missing_dependencies();
        if missing.is_empty() || incomplete {
            Ok(())
        } else {
            Err(RenderError::MissingDependencies(missing))
        }
    }

    /// Returns the names of the dependencies that `Chart.yaml` lists and the chart does not contain.
    pub fn missing_dependencies(&self) -> Vec<String> {
        let chart = self.chart();
        let is_there = |name: &str| chart.dependencies().iter().any(|have| have.name() == name);
        let dependencies = &chart.metadata().dependencies;
        let names = dependencies.iter().map(|needed| &needed.name);
        names.filter(|name| !is_there(name)).cloned().collect()
    }

    /// Renders the chart's files in Helm's order, without parsing or sorting the documents.
    ///
    /// # Errors
    /// Those of the templates: [`RenderError::Parse`], [`RenderError::Execution`],
    /// [`RenderError::NeedsLookup`], [`RenderError::TooManyLookups`] and [`RenderError::Cancelled`].
    pub fn render_files(&self, input: &RenderInput<'_>) -> Result<Output, RenderError> {
        let linked = self.link(input)?;
        execute::files(&linked, input, &input.start())
    }

    /// Returns the templates that take part. The first render with them parses them.
    fn link(&self, input: &RenderInput<'_>) -> Result<Arc<Linked>, RenderError> {
        self.0.templates.link(input.values.resolved())
    }
}

impl fmt::Debug for CompiledChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compiled {:?}", self.chart())
    }
}
