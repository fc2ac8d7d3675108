//! A custom resource as the owner of its release: its finalizer, its status, its annotations, and the values that
//! `watches.yaml` makes of it.

use std::sync::Arc;

use futures::future::BoxFuture;
use helm_core::{Digest, Values};
use helm_release::engine::{
    Account, BoxError, DesiredError, OwnValues, Owner, Present, Redactor, ReleaseRef, Remedy,
    Subject, Target, canonical,
};
use helm_release::event::Notices;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::events::Event;
use kube_objects::withheld::Withheld;
use kube_objects::{AccountName, ApiError, Key, Primary, left_out};
use operator_runtime::native::Readers;
use serde_json::{Value, json};

use super::access::Access;
use super::annotations::{self, Annotations, PREFIX};
use super::environment::environment;
use super::extend::ReleaseContext;
use super::locate::{Locator, SubjectError, wanted};
use super::outputs::Numbers;
use super::references;
use super::resources::{Change, Resources};
use super::setup::Setup;
use super::status::Status;
use crate::values::{self, Environment};
use crate::watches::Watch;

/// Finalizer that holds the custom resource until its release is uninstalled.
pub(crate) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// Equivalent finalizers of the Go operators.
pub(super) const LEGACY: &[&str] = &["uninstall-helm-release"];

/// A custom resource at the start of a pass.
pub(super) struct CustomResource {
    setup: Arc<Setup>,
    resources: Resources,
    context: ReleaseContext,
    object: Arc<Value>,
    annotations: Annotations,
    status: Status,
}

impl CustomResource {
    pub(super) fn new(
        resource: &Arc<DynamicObject>,
        setup: &Arc<Setup>,
        access: &Access,
        resources: &Resources,
        readers: &Readers,
    ) -> Self {
        let primary = primary(resource, setup);
        let (status, generation) = (resource.data.get("status"), resource.metadata.generation);
        Self {
            annotations: annotations_of(resource, setup),
            status: Status::read(status, host::timestamp(), generation),
            setup: Arc::clone(setup),
            resources: resources.clone(),
            context: ReleaseContext::new(
                resource,
                primary,
                access.releases.client.clone(),
                readers.clone(),
            ),
            object: Arc::new(serde_json::to_value(resource).unwrap_or_default()),
        }
    }

    /// Returns the status before the pass.
    pub(super) fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the custom resource as JSON.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    /// Returns the outputs in the status that the entry no longer has.
    pub(super) fn former_outputs(&self) -> Vec<String> {
        let mut outputs = self.resources.outputs(self.primary());
        let declared = &self.setup.watch.outputs.status;
        outputs.retain(|name| !declared.contains_key(name));
        outputs
    }

    /// Sets the numbers among the outputs, for the metrics.
    pub(super) fn set_numbers(&self, numbers: Numbers) {
        self.resources.set_numbers(self.primary(), numbers);
    }

    /// Returns what is wrong with the annotations.
    pub(super) fn problems(&self) -> &[String] {
        &self.annotations.problems
    }

    /// Returns the version of the custom resource, if nobody has changed it since this one was read, not even its status.
    pub(super) fn unchanged(&self) -> Option<String> {
        let version = self.resources.version(self.primary());
        version.filter(|version| self.resource().resource_version().as_ref() == Some(version))
    }

    /// Merges a patch into the status. Returns the stored status, `None` if the custom resource no longer exists.
    pub(super) async fn patch_status(&self, patch: &Value) -> Result<Option<Value>, ApiError> {
        let primary = self.primary();
        let version =
            (self.resources.version(primary)).or_else(|| self.resource().resource_version());
        let change = Change::Status {
            patch,
            version: json!(version),
        };
        let changed = self.resources.change(primary, change).await?;
        Ok(changed.map(|object| object.data.get("status").cloned().unwrap_or_default()))
    }

    /// Sends an event about the custom resource.
    pub(super) async fn send(&self, access: &Access, event: Event) {
        let Some(record) = &self.setup.extensions.recorder else {
            return access.events.publish(self.primary(), event).await;
        };
        if let Err(error) = record(self.context.clone(), event).await {
            let error: &dyn std::error::Error = error.as_ref();
            tracing::warn!(error, "the operator's event recorder failed");
        }
    }

    fn resource(&self) -> &DynamicObject {
        self.context.resource()
    }

    fn primary(&self) -> &Primary {
        self.context.primary()
    }

    /// Returns the release of the custom resource, and what it asks for.
    pub(super) fn subject(self: &Arc<Self>, access: &Access) -> Result<Subject, SubjectError> {
        let (setup, resource) = (&*self.setup, self.resource());
        let deleting = resource.metadata.deletion_timestamp.is_some();
        let mut error = left_out(resource).map(SubjectError::LeftOut);
        let own = setup.operator_namespace.as_deref();
        let primary = self.primary();
        let configured = || wanted(primary, &self.object, &setup.watch, own);
        let locator = Locator {
            watch: &setup.watch,
            home: own,
            namespaces: &setup.release.identity.namespaces,
            store: &access.releases.store,
            others: &access.other_records,
        };
        let place = locator.place(primary, deleting, configured)?;
        if let Some(found) = place.error {
            error.get_or_insert(found);
        }
        let account = self.account(access).unwrap_or_else(|found| {
            error.get_or_insert(found);
            access.releases.nobody()
        });
        let target = Target::new(primary.clone(), place.location, account, &access.releases);
        let finalizers = resource.finalizers();
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        Ok(Subject {
            reported: self.status.reported(),
            target,
            owner: Arc::clone(self) as Arc<dyn Owner>,
            generation: resource.metadata.generation,
            deleting,
            held: finalizers.iter().any(|name| holds(name)),
            foreground: has("foregroundDeletion"),
            legacy: LEGACY.iter().any(|name| has(name)),
            instructions: self.annotations.instructions.clone(),
            error: error.map(|error| error.message()),
        })
    }

    /// Returns the service account of the custom resource, or the operator's own.
    fn account(&self, access: &Access) -> Result<Account, SubjectError> {
        let (setup, primary) = (&self.setup, self.primary());
        let Some(template) = &setup.watch.service_account_name else {
            access.releases.release_account(&Key::from(primary));
            return Ok(access.releases.own_account());
        };
        // What was left out may name another account.
        if let Some(left_out) = left_out(self.resource()).filter(|_| template.contains("{{")) {
            return Err(SubjectError::LeftOut(left_out));
        }
        let own = setup.operator_namespace.as_deref();
        let account = picked_account(&setup.watch, template, primary, &self.object, own)?;
        Ok(access.releases.account(&Key::from(primary), &account)?)
    }

    /// Sets the finalizers. Returns whether the custom resource still exists. The resource version
    /// prevents losing a concurrently added finalizer.
    async fn set_finalizers(&self, names: &[Value]) -> Result<bool, ApiError> {
        let version = self.object.pointer("/metadata/resourceVersion");
        let is_deleted = self.resource().metadata.deletion_timestamp.is_some();
        let version = version.filter(|_| !is_deleted);
        let change = Change::Finalizers { names, version };
        let changed = self.resources.change(self.primary(), change).await?;
        Ok(changed.is_some())
    }

    /// Withholds what the values contain of the operator's environment, but not the names that each message
    /// has.
    fn withhold_variables(&self, target: &Target, redactor: &mut Redactor) {
        let mut withheld = Withheld::default();
        let names = [
            target.namespace.as_str(),
            target.name.as_str(),
            target.primary.name.as_str(),
        ];
        let watch = &self.setup.watch;
        let read = environment().read_by(watch).into_iter();
        read.filter(|content| !names.contains(content))
            .for_each(|content| withheld.add_lines(content));
        redactor.withhold(withheld);
        let sources = watch.values_from.iter().map(|from| from.name.as_str());
        let mut referenced = sources.chain(watch.depends_on.iter().map(|on| on.name.as_str()));
        if referenced.any(Environment::is_read_in) {
            redactor.suspect();
        }
    }

    /// Returns the note about paths that `overrideValues` has changed. The texts of `watches.yaml` are shown
    /// only if that is asked for, and are not expanded: the environment may hold passwords.
    fn overridden(&self, paths: &[String]) -> Option<String> {
        let texts = &self.setup.watch.override_values;
        let shown = paths.iter().map(|path| match texts.get(path) {
            Some(text) if self.setup.shows_overrides => format!("{path} with {text:?}"),
            _ => path.clone(),
        });
        let shown: Vec<String> = shown.collect();
        (!shown.is_empty()).then(|| format!("watches.yaml overrides {}", shown.join(", ")))
    }

    async fn compute(
        &self,
        access: &helm_release::engine::Access,
        target: &Target,
        redactor: &mut Redactor,
        notices: &Notices,
    ) -> Result<OwnValues, DesiredError> {
        let watch = &self.setup.watch;
        self.withhold_variables(target, redactor);
        let (mut contents, read) = references::referenced(watch, target, &self.object).await?;
        let kept = references::add_last_values(
            watch,
            access,
            target,
            &self.object,
            &mut contents,
            notices,
        );
        let kept = kept.await?;
        let texts = contents.values().flat_map(|data| data.values());
        *redactor = Redactor::of(texts.map(String::as_str));
        self.withhold_variables(target, redactor);
        let (setup, object) = (Arc::clone(&self.setup), Arc::clone(&self.object));
        let compute = move |_| {
            let inputs = values::Inputs {
                object: &object,
                env: environment(),
                references: &contents,
            };
            let computed = values::compute(&setup.watch, &inputs)?;
            Ok((computed, setup.watch.patches_of(&object)?))
        };
        let computed: Result<_, DesiredError> = access.pool.run(compute).await?;
        let (computed, patches) = computed?;
        let values = match &self.setup.extensions.translator {
            Some(translator) => {
                let before = computed.values.clone();
                let translated = translator(self.context.clone(), computed.values).await;
                let translated = translated.map_err(DesiredError::Translate)?;
                // It may have read Secrets.
                redactor.withhold_more(&before, &translated);
                translated
            }
            None => computed.values,
        };
        Ok(OwnValues {
            values,
            patches,
            note: self.overridden(&computed.overridden),
            kept,
            read,
        })
    }
}

impl Owner for CustomResource {
    fn read(&self) -> BoxFuture<'_, Result<Option<Present>, ApiError>> {
        Box::pin(async move {
            let primary = self.primary();
            let fresh = self.resources.read(primary).await?;
            let fresh = fresh.filter(|fresh| fresh.uid().as_deref() == Some(primary.uid.as_str()));
            Ok(fresh.map(|fresh| {
                let finalizers = fresh.finalizers().iter();
                Present {
                    generation: fresh.metadata.generation,
                    is_held: fresh.finalizers().iter().any(|name| holds(name)),
                    others: finalizers.filter(|name| !holds(name)).cloned().collect(),
                    deleted: fresh.metadata.deletion_timestamp.map(|deleted| deleted.0),
                }
            }))
        })
    }

    fn hold(&self) -> BoxFuture<'_, Result<bool, ApiError>> {
        Box::pin(async move {
            let known = self.resource().finalizers().iter().map(String::as_str);
            let names: Vec<Value> = known.chain([FINALIZER]).map(Value::from).collect();
            self.set_finalizers(&names).await
        })
    }

    fn release<'a>(&'a self, present: &'a Present) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let names: Vec<Value> = present.others.iter().map(|name| json!(name)).collect();
            self.set_finalizers(&names).await.map(drop)
        })
    }

    fn is_wanted(&self) -> bool {
        self.resources.is_wanted(self.primary())
    }

    fn state(&self) -> Option<Digest> {
        // A translator may depend on more.
        if self.setup.extensions.translator.is_some() {
            return None;
        }
        // The templates of `watches.yaml` may read these.
        let part = |pointer| self.object.pointer(pointer).cloned();
        let metadata = json!([part("/metadata/labels"), part("/metadata/annotations")]);
        Some(Digest::of(canonical(&metadata)))
    }

    fn values<'a>(
        &'a self,
        access: &'a helm_release::engine::Access,
        target: &'a Target,
        redactor: &'a mut Redactor,
        notices: &'a Notices,
    ) -> BoxFuture<'a, Result<OwnValues, DesiredError>> {
        Box::pin(self.compute(access, target, redactor, notices))
    }

    fn dependency<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<String>, DesiredError>> {
        let watch = &self.setup.watch;
        Box::pin(references::missing_dependency(watch, target, &self.object))
    }

    fn remedy(&self, remedy: Remedy<'_>) -> String {
        let annotate = |text: &str| format!("annotate the custom resource with {PREFIX}{text}");
        match remedy {
            Remedy::Adopt => annotate("adopt-release=true"),
            Remedy::AdoptBy(operator) => annotate(&format!("adopt-release={operator}")),
            Remedy::Retry => annotate("reset-at=NOW"),
            Remedy::NameAccount => "correct serviceAccountName or what it is made from".to_owned(),
            Remedy::LetGo => format!("remove the finalizer {FINALIZER}"),
            Remedy::Unprotect => annotate("protect=false"),
        }
    }

    fn reported_manifest(&self) -> String {
        self.status.deployed_manifest().to_owned()
    }

    fn quoted(&self) -> Option<&Value> {
        self.object.get("spec")
    }

    fn before<'a>(&'a self, values: &'a Values) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self.setup.extensions.before(&self.context, values))
    }

    fn after(&self, release: ReleaseRef) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(self.setup.extensions.after(&self.context, release))
    }
}

/// Returns whether a finalizer holds a custom resource for its release.
fn holds(finalizer: &str) -> bool {
    finalizer == FINALIZER || LEGACY.contains(&finalizer)
}

/// Returns the identifiers of a custom resource.
pub(super) fn primary(resource: &DynamicObject, setup: &Setup) -> Primary {
    Primary {
        gvk: setup.watch.gvk.clone(),
        namespace: resource.namespace(),
        name: resource.name_any(),
        uid: resource.uid().unwrap_or_default(),
        component: None,
    }
}

/// Parses the annotations of a custom resource, with those that the operator defines.
fn annotations_of(resource: &DynamicObject, setup: &Setup) -> Annotations {
    let extensions = &setup.extensions;
    let all = resource.annotations();
    let others = extensions
        .annotations
        .iter()
        .map(|custom| custom.name.as_str());
    let mut read = annotations::read(all, setup.watch.pause_annotation.as_deref(), others);
    for custom in &extensions.annotations {
        if let Some(value) = all.get(&custom.name)
            && let Err(problem) = (custom.read)(value, &mut read.instructions.options)
        {
            read.problems.push(format!("{}: {problem}", custom.name));
        }
    }
    let is_paused = extensions.is_paused.as_ref();
    let paused = &mut read.instructions.paused;
    *paused = *paused || is_paused.is_some_and(|is_paused| is_paused(resource));
    read
}

/// Returns the service account of a custom resource; `None` if its release has the operator's own. `own` is the namespace of
/// the operator.
pub(super) fn account(
    watch: &Watch,
    primary: &Primary,
    object: &Value,
    own: Option<&str>,
) -> Result<Option<AccountName>, SubjectError> {
    let template = watch.service_account_name.as_ref();
    let account = template.map(|template| picked_account(watch, template, primary, object, own));
    account.transpose()
}

/// Returns the service account that the template `serviceAccountName` picks for a custom resource.
fn picked_account(
    watch: &Watch,
    template: &str,
    primary: &Primary,
    object: &Value,
    own: Option<&str>,
) -> Result<AccountName, SubjectError> {
    let name = values::render_text(template, object, environment(), "serviceAccountName")?;
    if is_operator_account(primary, template, own) && !watch.allow_operator_accounts {
        return Err(SubjectError::OperatorAccount(name));
    }
    let namespace = primary.namespace.as_deref().or(own).unwrap_or("default");
    Ok(AccountName::new(namespace, &name)?)
}

/// Returns whether the author of a custom resource picks an account of the operator's namespace: the
/// template may read the custom resource, and the account is in that namespace.
fn is_operator_account(primary: &Primary, template: &str, own: Option<&str>) -> bool {
    let namespace = primary.namespace.as_deref();
    template.contains("{{") && (namespace.is_none() || namespace == own)
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn a_custom_resource_picks_no_account_of_the_operators_namespace() {
        let picked = "{{ .Object.spec.account }}";
        for (what, namespace, template, own, refused) in [
            (
                "in its own namespace",
                Some("team"),
                picked,
                Some("system"),
                false,
            ),
            (
                "in the operator's namespace",
                Some("system"),
                picked,
                Some("system"),
                true,
            ),
            (
                "a name that watches.yaml fixes",
                Some("system"),
                "deployer",
                Some("system"),
                false,
            ),
            ("cluster-scoped", None, picked, Some("system"), true),
            (
                "cluster-scoped, outside of a cluster",
                None,
                picked,
                None,
                true,
            ),
            (
                "cluster-scoped, with a fixed name",
                None,
                "deployer",
                Some("system"),
                false,
            ),
            ("outside of a cluster", Some("team"), picked, None, false),
        ] {
            let primary = Primary {
                gvk: GroupVersionKind::gvk("g", "v1", "K"),
                namespace: namespace.map(ToOwned::to_owned),
                name: "web".to_owned(),
                uid: "u".to_owned(),
                component: None,
            };
            assert_eq!(
                is_operator_account(&primary, template, own),
                refused,
                "{what}"
            );
        }
    }
}
