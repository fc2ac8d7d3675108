//! Renders a revision: resolves the `lookup` calls of the templates and applies the patches of
//! `watches.yaml` and of the owner.

use host::HashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helm_core::engine::{
    BudgetError, Cancel, LookupAnswer, LookupKey, ReleaseInfo, RenderInput, RenderLimits, Snapshot,
};
use helm_core::manifest::{ManifestError, ManifestObject};
use helm_core::release::Revision;
use helm_core::{Capabilities, CompiledChart, Digest, DigestBuilder, RenderError, Rendered};
use host::phases;
use kube::core::GroupVersionKind;
use kube_objects::ownership::CR_LABEL;
use kube_objects::read::{self, ReadError};
use kube_objects::with_causes;
use kube_objects::withheld::Withheld;
use kube_objects::{ApiError, Cluster, DiscoveryError, Scope};
use serde_json::Value;

use super::access::Access;
use super::desired_error::DesiredError;
use super::digest::canonical;
use super::inputs::{Read, Sources};
use super::interest::ResourceRef;
use super::lookup::{LOOKUP_ROUNDS, VisibleObjects};
use super::message::Redactor;
use super::own_patches::{self, OwnPatches};
use super::patches;
use super::setup::Setup;
use super::subject::Subject;
use super::target::Target;
use crate::capabilities::capabilities;
use crate::policy::Patch;
use crate::release_memory::RenderMemory;

/// Maximum age of the cached capabilities.
const CAPABILITIES_AGE: Duration = Duration::from_mins(10);

/// Interval of checks during a render whether the owner is being deleted.
const DELETION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Revision to render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RenderTarget {
    pub(super) revision: Revision,
    pub(super) upgrade: bool,
}

impl RenderTarget {
    /// Target for computing the digest of the inputs, for any revision.
    pub(super) const FIRST: Self = Self {
        revision: Revision::FIRST,
        upgrade: false,
    };
}

/// Rendered chart, and what its templates looked up.
pub(super) struct Render {
    pub(super) rendered: Rendered,
    /// Objects of the rendered chart, unless one cannot be created.
    pub(super) objects: Result<Vec<ManifestObject>, ManifestError>,
    /// Digest of the objects looked up, if lookups are inputs.
    pub(super) looked_up: Option<Digest>,
    pub(super) read: Read,
    /// Whether a template looked up a kind that is not served.
    pub(super) missing_kind: bool,
}

/// Renders a revision. Returns an error early if the owner is deleted during the render.
/// Messages are not to quote what the templates looked up.
pub(super) async fn render(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    sources: &Sources,
    target: RenderTarget,
    redactor: &mut Redactor,
) -> Result<Render, DesiredError> {
    let mut lookups = Lookups::default();
    let render = render_with_lookups(setup, access, subject, sources, target, &mut lookups);
    let rendered = phases::span("render").run(render).await;
    if !lookups.contents.is_empty() {
        redactor.suspect();
        redactor.withhold(lookups.quotable(&rendered));
    }
    rendered
}

/// Renders until no lookup is missing.
async fn render_with_lookups(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    sources: &Sources,
    target: RenderTarget,
    lookups: &mut Lookups,
) -> Result<Render, DesiredError> {
    let capabilities = capabilities(&access.cluster, CAPABILITIES_AGE).await?;
    let mut info = ReleaseInfo::new(
        subject.target.name.as_str(),
        subject.target.namespace.as_str(),
    );
    info.revision = target.revision;
    (info.is_install, info.is_upgrade) = (!target.upgrade, target.upgrade);
    let mut rounds = 0;
    while rounds < LOOKUP_ROUNDS {
        let limits = subject.target.share.limits().await?;
        let once = RenderJob {
            setup: Arc::clone(setup),
            sources: sources.clone(),
            info: info.clone(),
            capabilities: capabilities.clone(),
            objects: VisibleObjects::new(
                lookups.snapshot.clone(),
                &subject.target.namespace,
                setup.policy.lookup_is_trusted,
                Arc::clone(&lookups.cluster_scoped),
            ),
            memory: limits,
        };
        let work = access.pool.run(move |cancel| once.render(cancel));
        let rendered = tokio::select! {
            biased;
            rendered = work => rendered?,
            () = wait_for_deletion(subject) => return Err(DesiredError::Deleted),
        };
        let needed = match rendered {
            Err(DesiredError::Limit(error, _)) if exceeds_share(&error, setup) => {
                let grown = subject.target.share.grow().await;
                grown.map_err(|why| DesiredError::memory(error, why))?;
                continue;
            }
            Err(DesiredError::Render(error)) => match *error {
                RenderError::NeedsLookup(keys) => keys,
                other => return Err(DesiredError::Render(Box::new(other))),
            },
            rendered => {
                let Parsed {
                    rendered,
                    objects,
                    bytes,
                } = rendered?;
                subject.target.share.rendered(bytes);
                let inputs = setup.policy.lookup_is_input && !rendered.lookups().is_empty();
                return Ok(Render {
                    rendered,
                    objects,
                    looked_up: inputs.then(|| lookups.digest()),
                    read: std::mem::take(&mut lookups.read),
                    missing_kind: lookups.missing_kind,
                });
            }
        };
        rounds += 1;
        for key in needed {
            lookups.look_up(setup, access, &subject.target, key).await?;
        }
    }
    Err(DesiredError::TooManyLookups)
}

/// Input of one render, sent to a thread of the pool.
struct RenderJob {
    setup: Arc<Setup>,
    sources: Sources,
    info: ReleaseInfo,
    capabilities: Capabilities,
    objects: VisibleObjects<Snapshot>,
    memory: RenderMemory,
}

/// The result of a render, and the bytes that it holds.
struct Parsed {
    rendered: Rendered,
    objects: Result<Vec<ManifestObject>, ManifestError>,
    bytes: usize,
}

impl RenderJob {
    fn render(self, cancel: Cancel) -> Result<Parsed, DesiredError> {
        let mut input = RenderInput::new(self.info, &self.sources.coalesced)
            .capabilities(&self.capabilities)
            .lookup(self.objects)
            .cancel(cancel);
        // As the Go operators, which deploy what is there.
        input.incomplete = true;
        let own = self.setup.policy.limits.of_render();
        let within = |memory: usize| RenderLimits {
            memory: own.memory.min(memory),
            ..own.clone()
        };
        input.limits = within(self.memory.render);
        if host::is_simulated() {
            input.limits.time = None;
        }
        let patches = &self.setup.policy.patches;
        let rendered = render_once(&self.setup.chart, &input, patches, &self.sources.patches)?;
        let (objects, bytes) = match rendered.objects_within(&within(self.memory.result)) {
            Ok((objects, bytes)) => (Ok(objects), bytes),
            Err(RenderError::Object(error)) => (Err(error), rendered.manifest().len()),
            Err(error) => return Err(error.into()),
        };
        Ok(Parsed {
            rendered,
            objects,
            bytes,
        })
    }
}

/// Returns whether a render needs more memory than its share, although less than its own limit.
fn exceeds_share(error: &RenderError, setup: &Setup) -> bool {
    let own = setup.policy.limits.of_render().memory;
    matches!(error.limit(), Some(BudgetError::Memory { limit }) if *limit < own)
}

/// Renders a chart with the patches of `watches.yaml`, and then those of the owner. No I/O.
pub fn render_once(
    chart: &CompiledChart,
    input: &RenderInput<'_>,
    patches: &[Patch],
    own: &OwnPatches,
) -> Result<Rendered, DesiredError> {
    let rendered = patches::apply(chart.render(input)?, patches)?;
    Ok(own_patches::apply(rendered, own)?)
}

/// Waits until the owner is deleted. Waits forever if it was being deleted before the
/// render, which is then part of the uninstall.
async fn wait_for_deletion(subject: &Subject) {
    if subject.deleting {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(DELETION_CHECK_INTERVAL).await;
        if !subject.owner.is_wanted() {
            return;
        }
    }
}

/// Lookup results so far.
#[derive(Default)]
struct Lookups {
    snapshot: Snapshot,
    read: Read,
    missing_kind: bool,
    /// Keys of cluster-scoped kinds.
    cluster_scoped: Arc<HashSet<LookupKey>>,
    /// Objects found that do not belong to the release itself, as JSON by lookup key.
    found: BTreeMap<String, Vec<String>>,
    /// Contents of the objects found.
    contents: Withheld,
}

impl Lookups {
    /// Reads what a template looks up. A read error fails the render: an empty result would remove
    /// objects from the release.
    async fn look_up(
        &mut self,
        setup: &Setup,
        access: &Access,
        release: &Target,
        key: LookupKey,
    ) -> Result<(), DesiredError> {
        let gvk = kind_of(&key);
        let namespace = Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let cluster = &release.cluster;
        let kind = match cluster.resolve(&gvk).await {
            Ok(kind) => kind,
            // As in Helm, an unserved kind has no objects.
            Err(DiscoveryError::UnknownKind { .. }) => {
                access.interests.add_kind(&gvk, &release.key());
                self.missing_kind = true;
                self.snapshot.insert(key, LookupAnswer::Absent);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if kind.scope == Scope::Cluster {
            Arc::make_mut(&mut self.cluster_scoped).insert(key.clone());
        }
        let target = ResourceRef {
            resource: kind.resource.clone(),
            namespace: namespace.map(ToOwned::to_owned),
            name: (!key.is_list()).then(|| key.name.clone()),
        };
        let is_input = setup.policy.lookup_is_input;
        let seen = is_input.then(|| release.interests.add(&target, &release.key()));
        let answer = read_key(cluster, &key).await;
        if let (Some(seen), Ok(found)) = (seen, &answer) {
            self.read.push((target, seen.read(found.as_ref())));
        }
        let answer = match answer {
            Ok(Some(value)) => {
                self.contents.add_object(&gvk.kind, &value);
                let items = value.get("items").and_then(Value::as_array);
                let objects = items.map_or(std::slice::from_ref(&value), Vec::as_slice);
                let others = objects
                    .iter()
                    .filter(|object| !belongs_to_release(object, release));
                let texts = others.map(|object| canonical(&without_bookkeeping(object)));
                self.found.insert(key.to_string(), texts.collect());
                LookupAnswer::Found(value)
            }
            Ok(None) => LookupAnswer::Absent,
            Err(ReadError::Api(error)) if ApiError::is_not_found(&error) => LookupAnswer::Absent,
            Err(source) => {
                return Err(DesiredError::Lookup {
                    key: key.to_string(),
                    source,
                });
            }
        };
        self.snapshot.insert(key, answer);
        Ok(())
    }

    /// Returns what messages about a render may quote of the contents.
    fn quotable(&self, rendered: &Result<Render, DesiredError>) -> Withheld {
        let mut contents = self.contents.clone();
        match rendered {
            Err(error) => contents.retain_in(&[&with_causes(error)]),
            Ok(Render { rendered, .. }) => {
                let hooks = rendered.hooks().iter().map(|hook| hook.manifest.as_str());
                let texts = [rendered.manifest(), rendered.notes()];
                let texts: Vec<&str> = texts.into_iter().chain(hooks).collect();
                contents.retain_in(&texts);
            }
        }
        contents
    }

    fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        for (key, objects) in &self.found {
            digest = digest.part(key);
            for object in objects {
                digest = digest.part(object);
            }
        }
        digest.finish()
    }
}

/// Returns the kind that a template looks up.
pub fn kind_of(key: &LookupKey) -> GroupVersionKind {
    let version = key.api_version.as_str();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    GroupVersionKind::gvk(group, version, &key.kind)
}

/// Reads what a template looks up: an object, or a list of objects.
pub async fn read_key(cluster: &Cluster, key: &LookupKey) -> Result<Option<Value>, ReadError> {
    let gvk = kind_of(key);
    let namespace = Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    if key.is_list() {
        return read::list(cluster, &gvk, namespace).await.map(Some);
    }
    let object = helm_core::manifest::ObjectKey {
        group: gvk.group,
        version: gvk.version,
        kind: gvk.kind,
        namespace: namespace.map(ToOwned::to_owned),
        name: key.name.clone(),
    };
    read::get(cluster, &object).await
}

/// Returns whether an object belongs to the release itself, is one of its records, or is the custom
/// resource.
fn belongs_to_release(object: &Value, release: &Target) -> bool {
    if object.pointer("/metadata/uid").and_then(Value::as_str) == Some(&release.primary.uid) {
        return true;
    }
    let label = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(CR_LABEL))
        .and_then(Value::as_str);
    label == Some(release.primary.identity().as_str())
}

/// Returns an object without fields that the API server changes.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use helm_core::chart::{Chart, File};
    use helm_core::values::Values;

    use super::*;
    use crate::policy::ChartLimits;

    /// Renders a chart with this template.
    fn render(template: &str, limits: ChartLimits) -> Result<Rendered, DesiredError> {
        let chart = Chart::from_files([
            File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
            File::new("templates/a.yaml", template),
        ]);
        let chart = CompiledChart::compile(&chart.unwrap()).unwrap();
        let values = chart.coalesce(Values::new()).unwrap();
        let mut input = RenderInput::new(ReleaseInfo::new("r", "ns"), &values);
        input.limits = limits.of_render();
        render_once(&chart, &input, &[], &OwnPatches::default())
    }

    #[test]
    fn render_beyond_the_limits_of_its_entry_is_refused_with_the_field_that_raises_them() {
        let memory = |size| ChartLimits {
            memory: Some(size),
            ..ChartLimits::default()
        };
        let time = |time| ChartLimits {
            time: Some(time),
            ..ChartLimits::default()
        };
        let large = "kind: A\nx: {{ repeat 3000000 \"x\" | len }}\n";
        let long = "kind: A\n{{ range until 1000000 }}{{ $x := . }}{{ end }}\n";
        for (template, limits, parts) in [
            (
                large,
                memory(2 << 20),
                ["a.yaml:2:", "(limit `memory`)", "`limits.memory`"],
            ),
            (
                long,
                time(Duration::from_millis(1)),
                ["a.yaml:2:", "(limit `time`)", "`limits.time`"],
            ),
        ] {
            let error = render(template, limits).unwrap_err();
            assert!(matches!(error, DesiredError::Limit(..)), "{error}");
            let message = error.to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        assert!(render(large, memory(20 << 20)).is_ok());
        assert!(render(long, time(Duration::ZERO)).is_ok());
    }
}
