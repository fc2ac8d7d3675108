//! The deeds of people.

use std::time::Duration;

use anyhow::bail;
use http::Method;
use json_patch::merge;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::history::{Action, Named, Propagation};
use super::project::Setup;
use super::snapshot::{RECORD, items, text, title, title_of};
use super::world::{Scaled, World};

/// Time within which the finalizers of a custom resource that was replaced are back.
const FINALIZED_WITHIN: Duration = Duration::from_mins(5);

/// Time within which a namespace or a definition that is being deleted is gone.
const RESTORED_WITHIN: Duration = Duration::from_mins(15);

/// Number of replicas of a workload.
pub(super) const REPLICAS: &str = "/spec/replicas";

/// Annotation for another attempt, which a condition recommends.
const RESET_AT: &str = "helm.sdk.operatorframework.io/reset-at";

/// Annotation, and its value, with which a release outlives its custom resource.
const ORPHANS: [&str; 2] = ["helm.sdk.operatorframework.io/deletion-policy", "Orphan"];

/// Finalizer of people.
const HOLD: &str = "people.example.com/hold";

impl World {
    /// Does what people do.
    pub(super) async fn act(&mut self, action: &Action) -> anyhow::Result<()> {
        match action {
            Action::Apply(object) => self.apply(object).await?,
            Action::Put(object) => self.put(object).await?,
            Action::Recreate(object) => self.recreate(object).await?,
            Action::Create(object) => {
                let code = self.create(object).await?;
                if code == 201 && !self.project.replaced.contains(object) {
                    let created = Instant::now();
                    self.others.insert(title(object), (object.clone(), created));
                }
            }
            Action::Delete(named, propagation) => self.delete(named, *propagation).await?,
            Action::Spoil(named, which) => self.spoil(named, *which).await?,
            Action::Scale(named, replicas) => self.scale(named, *replicas).await?,
            Action::Hold(named) => self.hold(named).await?,
            Action::Suspend(named) => self.suspend(named).await?,
            Action::Orphan(named) => self.orphan(named).await?,
            Action::Retry(named, number) => {
                self.annotate(named, RESET_AT, &number.to_string()).await?;
            }
            Action::Configure(settings) => self.configure(*settings).await?,
            Action::Helm(custom, command) => self.helm(custom, *command).await?,
            _ => {}
        }
        Ok(())
    }

    /// Takes all finalizers of people away.
    pub(super) async fn free(&mut self) -> anyhow::Result<()> {
        for named in std::mem::take(&mut self.held) {
            self.replace(&named, |live| {
                let mut changed = live.clone();
                let finalizers = changed.pointer_mut("/metadata/finalizers")?;
                finalizers.as_array_mut()?.retain(|item| item != HOLD);
                Some(changed)
            })
            .await?;
        }
        Ok(())
    }

    /// Creates the custom resources again whose releases have outlived them, once their kinds are served, and has the program
    /// attend to all.
    pub(super) async fn take_over(&mut self) -> anyhow::Result<()> {
        for (named, custom) in self.orphaned.clone() {
            let stays = |object: &Value| {
                Named::of(object) == named
                    && object.pointer("/metadata/deletionTimestamp").is_none()
            };
            for _ in 0..15 {
                if self.server.objects().iter().any(stays) || self.records_of(&named).is_empty() {
                    break;
                }
                self.recreate(&custom).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.check().await?;
            }
        }
        if let Some((name, _)) = self.project.suspends.clone() {
            for (_, mut state) in self.present() {
                let annotations = state.pointer_mut("/metadata/annotations");
                let annotations = annotations.and_then(Value::as_object_mut);
                if annotations.is_some_and(|all| all.remove(&name).is_some()) {
                    self.apply(&state).await?;
                }
            }
        }
        Ok(())
    }

    /// Does what conditions recommend: asks for another attempt, as what failed it has ended, and deletes the Jobs
    /// of former hooks that are in its way, or in that of an uninstall.
    pub(super) async fn reset(&mut self) -> anyhow::Result<()> {
        let customs = self.customs();
        for custom in self.server.objects() {
            let message = |type_: &str| {
                let mut conditions = items(&custom, "/status/conditions").iter();
                let found = conditions.find(|condition| text(condition, "/type") == type_);
                found.and_then(|found| found.get("message")?.as_str())
            };
            let named = Named::of(&custom);
            let is_stalled = message("Stalled").is_some();
            let is_deleted = custom.pointer("/metadata/deletionTimestamp").is_some();
            if !customs.contains(&named.kind) || !is_stalled && !is_deleted {
                continue;
            }
            if let Some(job) = message("ReleaseFailed").and_then(job_to_delete) {
                self.delete(&job, Propagation::Background).await?;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            if is_stalled {
                self.annotate(&named, RESET_AT, "now").await?;
            }
        }
        Ok(())
    }

    async fn annotate(&self, named: &Named, name: &str, value: &str) -> anyhow::Result<()> {
        self.replace(named, |live| {
            let mut changed = live.clone();
            let annotations = json!({name: value});
            merge(
                &mut changed,
                &json!({"metadata": {"annotations": annotations}}),
            );
            Some(changed)
        })
        .await
    }

    /// Creates what is missing of what was there from the beginning, once it is gone.
    pub(super) async fn restore(&mut self) -> anyhow::Result<()> {
        let mut objects = self.project.replaced.clone();
        objects.extend(self.settings().cloned());
        for object in objects {
            let named = Named::of(&object);
            for _ in 0..RESTORED_WITHIN.as_secs() {
                self.create(&object).await?;
                let (code, live) = self.send(Method::GET, &named, "").await?;
                if code == 200 && live.pointer("/metadata/deletionTimestamp").is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.check().await?;
            }
        }
        Ok(())
    }

    /// Adds a finalizer of people to an object.
    async fn hold(&mut self, named: &Named) -> anyhow::Result<()> {
        self.replace(named, |live| {
            let metadata = live.get("metadata")?;
            if metadata.get("deletionTimestamp").is_some() {
                return None;
            }
            let mut finalizers = items(metadata, "/finalizers").to_vec();
            finalizers.push(HOLD.into());
            let mut changed = live.clone();
            let fields = changed.get_mut("metadata")?.as_object_mut()?;
            fields.insert("finalizers".to_owned(), finalizers.into());
            Some(changed)
        })
        .await?;
        let (_, live) = self.send(Method::GET, named, "").await?;
        if is_held(&live) {
            self.held.insert(named.clone());
        }
        Ok(())
    }

    async fn suspend(&self, named: &Named) -> anyhow::Result<()> {
        let Some((name, value)) = self.project.suspends.clone() else {
            return Ok(());
        };
        self.annotate(named, &name, &value).await
    }

    /// Changes the object that values refer to, or creates it again.
    async fn configure(&mut self, settings: usize) -> anyhow::Result<()> {
        self.set_up(Setup {
            settings,
            ..self.setup()
        });
        let Some(object) = self.settings() else {
            return Ok(());
        };
        if self.create(object).await? == 409 {
            self.replace(&Named::of(object), |_| Some(object.clone()))
                .await?;
        }
        Ok(())
    }

    async fn recreate(&mut self, object: &Value) -> anyhow::Result<()> {
        let named = Named::of(object);
        self.delete(&named, Propagation::Background).await?;
        let mut code = 0;
        for _ in 0..600 {
            code = self.create(object).await?;
            if code != 409 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if code == 201 {
            self.begin(object);
            self.remember(object);
        }
        Ok(())
    }

    /// Forgets what there was before a custom resource, unless it takes a release over.
    fn begin(&mut self, custom: &Value) {
        let named = Named::of(custom);
        if !self.orphaned.contains_key(&named) || self.records_of(&named).is_empty() {
            self.past.remove(&title(custom));
        }
    }

    /// Has the release of a custom resource stay when it is deleted.
    async fn orphan(&mut self, named: &Named) -> anyhow::Result<()> {
        let [name, value] = ORPHANS;
        self.annotate(named, name, value).await?;
        let objects = self.server.objects();
        let custom = objects.iter().find(|object| Named::of(object) == *named);
        if let Some(custom) = custom {
            let spec = custom.get("spec").unwrap_or(&Value::Null);
            self.orphaned
                .insert(named.clone(), owned(state_of(custom, spec)));
        }
        Ok(())
    }

    /// Sets a number of replicas, as an autoscaler or `kubectl scale` does.
    async fn scale(&mut self, named: &Named, replicas: u32) -> anyhow::Result<()> {
        let Some(path) = self.path(named) else {
            return Ok(());
        };
        let objects = self.server.objects();
        let autoscaler = autoscaler_of(&objects, named);
        let manager = if autoscaler.is_some() {
            "kube-controller-manager"
        } else {
            self.written.insert((title_of(named), REPLICAS.to_owned()));
            "kubectl"
        };
        let body = json!({"spec": {"replicas": replicas}}).to_string();
        let path = format!("{path}/scale?fieldManager={manager}");
        let media_type = "application/merge-patch+json";
        let answered = self.call(Method::PATCH, &path, media_type, &body).await;
        let (code, answer) = answered?;
        if code != 200 {
            return Ok(());
        }
        // The number of an autoscaler that names the object no longer does not come back.
        self.scaled.remove(named);
        if let Some(autoscaler) = autoscaler {
            let mut matching = self.server.objects();
            matching.retain(|object| Named::of(object) == *named);
            let scaled = Scaled {
                uids: [uid(&answer), uid(autoscaler)],
                replicas,
                charted: matching.first().and_then(charted),
                later: self.present(),
            };
            self.scaled.insert(named.clone(), scaled);
        }
        Ok(())
    }

    /// Creates an object; returns the code of the answer.
    pub(super) async fn create(&self, object: &Value) -> anyhow::Result<u16> {
        let mut named = Named::of(object);
        named.name.clear();
        let Some(path) = self.path(&named) else {
            return Ok(404);
        };
        let (body, media_type) = (object.to_string(), "application/json");
        let answered = self.call(Method::POST, &path, media_type, &body).await;
        let (code, answer) = answered?;
        if code == 422 || code == 400 {
            bail!("cannot create {}: {answer}", title(object));
        }
        Ok(code)
    }

    async fn apply(&mut self, object: &Value) -> anyhow::Result<()> {
        let code = self.create(object).await?;
        if code == 409 {
            self.replace(&Named::of(object), |live| {
                let mut changed = live.clone();
                let spec = object.get("spec").cloned().unwrap_or_default();
                changed.as_object_mut()?.insert("spec".to_owned(), spec);
                let annotations = object.pointer("/metadata/annotations").cloned();
                let metadata = changed.get_mut("metadata")?.as_object_mut()?;
                match annotations {
                    Some(annotations) => metadata.insert("annotations".to_owned(), annotations),
                    None => metadata.remove("annotations"),
                };
                Some(changed)
            })
            .await?;
        } else if code == 201 {
            self.begin(object);
        } else if matches!(code, 403 | 404) {
            // Its namespace or its definition is gone, or is being deleted.
            return Ok(());
        } else {
            bail!("cannot create {}: {code}", title(object));
        }
        self.remember(object);
        Ok(())
    }

    /// Replaces a custom resource by a PUT without its finalizers, and waits until they are back: what is deleted
    /// before is lost to any program. Neither is anything replaced that is being deleted, or will be with its
    /// namespace or definition, or while the program is down.
    async fn put(&mut self, object: &Value) -> anyhow::Result<()> {
        let named = Named::of(object);
        let is_deleted = |live: &Value| live.pointer("/metadata/deletionTimestamp").is_some();
        let objects = self.server.objects();
        let goes =
            |container: &Value| is_deleted(container) && holds(&Named::of(container), &named);
        if !self.runs() || objects.iter().any(goes) {
            return Ok(());
        }
        self.held.remove(&named);
        self.replace(&named, |live| (!is_deleted(live)).then(|| object.clone()))
            .await?;
        self.remember(object);
        for _ in 0..FINALIZED_WITHIN.as_secs() {
            let (code, live) = self.send(Method::GET, &named, "").await?;
            if code == 404 || live.pointer("/metadata/finalizers").is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// Replaces an object that exists, as `kubectl replace` does: with its resource version, and again if
    /// it changes in between.
    pub(super) async fn replace(
        &self,
        named: &Named,
        changed: impl Fn(&Value) -> Option<Value>,
    ) -> anyhow::Result<()> {
        for _ in 0..100 {
            let (status, live) = self.send(Method::GET, named, "").await?;
            let Some(mut object) = (status == 200).then(|| changed(&live)).flatten() else {
                return Ok(());
            };
            let version = live.pointer("/metadata/resourceVersion").cloned();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("resourceVersion".to_owned(), version.unwrap_or_default());
            }
            let object = object.to_string();
            let (code, answer) = self.send(Method::PUT, named, &object).await?;
            match code {
                409 => {}
                200 | 404 => return Ok(()),
                _ => bail!("cannot replace {named:?}: {code} {answer}"),
            }
        }
        bail!("{named:?} keeps changing")
    }

    /// Remembers a specification that a custom resource has had.
    fn remember(&mut self, object: &Value) {
        if !self.customs().contains(&Named::of(object).kind) {
            return;
        }
        self.note_change(&Named::of(object));
        let title = title(object);
        self.staying.retain(|_, (owner, _)| *owner != title);
        let spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(state) = self.orphaned.get_mut(&Named::of(object)) {
            *state = owned(state_of(object, &spec));
        }
        let setup = self.setup();
        let past = self.past.entry(title).or_default();
        past.push((setup, spec));
        for scaled in self.scaled.values_mut() {
            scaled.later.push((setup, object.clone()));
        }
    }

    /// Returns the present states of the custom resources, with what they depend on.
    pub(super) fn present(&self) -> Vec<(Setup, Value)> {
        let customs = self.customs();
        let mut objects = self.server.objects();
        objects.retain(|object| customs.contains(&Named::of(object).kind));
        let states = objects.iter().map(|object| {
            let spec = object.get("spec").unwrap_or(&Value::Null);
            (self.setup(), state_of(object, spec))
        });
        states.collect()
    }

    pub(super) async fn delete(
        &mut self,
        named: &Named,
        propagation: Propagation,
    ) -> anyhow::Result<()> {
        if named.kind == "Secret" {
            self.note_lost_record(named);
        } else if self.customs().contains(&named.kind) {
            self.note_deletion(named, propagation);
            self.note_orphans(named);
        }
        let options = json!({"propagationPolicy": propagation}).to_string();
        let (code, _) = self.send(Method::DELETE, named, &options).await?;
        if code == 200 {
            let mut others = std::mem::take(&mut self.others);
            others.retain(|_, (object, _)| {
                let other = Named::of(object);
                let goes = other == *named || holds(named, &other);
                if goes {
                    self.former_others.push(other);
                }
                !goes
            });
            self.others = others;
        }
        Ok(())
    }

    /// Remembers the objects that have no owner any more when a custom resource is deleted that they outlive.
    fn note_orphans(&mut self, named: &Named) {
        let objects = self.server.objects();
        let Some(custom) = objects.iter().find(|object| Named::of(object) == *named) else {
            return;
        };
        let [name, value] = ORPHANS;
        let annotations = custom.pointer("/metadata/annotations");
        let policy = annotations.and_then(|annotations| annotations.get(name)?.as_str());
        if policy != Some(value) || !self.is_at_rest || !self.runs() || !self.is_unowned(named) {
            return;
        }
        let title = title(custom);
        let orphans = objects.iter().filter(|object| self.is_of(object, named));
        let orphans = orphans.map(|object| (Named::of(object), (title.clone(), uid(object))));
        let orphans: Vec<_> = orphans.collect();
        self.staying.extend(orphans);
    }

    /// Changes one text or number below `data`, `spec`, or the labels of an object.
    async fn spoil(&mut self, named: &Named, which: u64) -> anyhow::Result<()> {
        let (code, object) = self.send(Method::GET, named, "").await?;
        // Nothing restores the content of a record that somebody overwrites, and the server models few changes
        // of definitions.
        let is_record = object.get("type") == Some(&json!(RECORD));
        if code != 200 || is_record || named.kind == "CustomResourceDefinition" {
            return Ok(());
        }
        let mut leaves = Vec::new();
        for place in ["/data", "/spec", "/rules", "/metadata/labels"] {
            if let Some(value) = object.pointer(place) {
                collect_leaves(place, value, &mut leaves);
            }
        }
        // A label with a domain says whose the object is. Another key in a list is an item of somebody else beside
        // the one that comes back.
        leaves.retain(|(path, _)| {
            !(is_key(path) || path.starts_with("/metadata/labels/") && path.contains("~1"))
        });
        let count = u64::try_from(leaves.len()).unwrap_or(1).max(1);
        let index = usize::try_from(which % count).unwrap_or_default();
        let Some((path, value)) = leaves.get(index) else {
            return Ok(());
        };
        let changed = match value {
            Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
            Value::Bool(yes) => json!(!yes),
            _ if path.starts_with("/data") && named.kind == "Secret" => json!("c3BvaWxlZA=="),
            _ => json!("spoiled"),
        };
        self.written.insert((title(&object), path.clone()));
        if path == REPLICAS {
            self.scaled.remove(named);
        }
        let operations = json!([{"op": "replace", "path": path, "value": changed}]).to_string();
        if let Some(path) = self.path(named) {
            let media_type = "application/json-patch+json";
            self.call(Method::PATCH, &path, media_type, &operations)
                .await?;
        }
        Ok(())
    }
}

/// Returns a custom resource without the policy that its release outlives it.
fn owned(mut custom: Value) -> Value {
    let annotations = custom.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(ORPHANS[0]);
    }
    custom
}

/// Returns whether an object has a finalizer of people.
pub(super) fn is_held(object: &Value) -> bool {
    let mut finalizers = items(object, "/metadata/finalizers").iter();
    finalizers.any(|finalizer| finalizer == HOLD)
}

/// Returns whether a chart has set the number of replicas of an object; `None` if an autoscaler owns it.
fn charted(object: &Value) -> Option<bool> {
    let mut entries = items(object, "/metadata/managedFields").iter();
    let owner = entries.find(|entry| entry.pointer("/fieldsV1/f:spec/f:replicas").is_some());
    let subresource = owner.and_then(|owner| owner.get("subresource"));
    (subresource != Some(&json!("scale"))).then_some(owner.is_some())
}

/// Returns a custom resource with this specification, as people apply it.
pub(super) fn state_of(custom: &Value, spec: &Value) -> Value {
    let mut metadata = custom.get("metadata").cloned().unwrap_or_default();
    if let Some(metadata) = metadata.as_object_mut() {
        let kept = ["name", "namespace", "annotations", "labels"];
        metadata.retain(|field, _| kept.contains(&field.as_str()));
    }
    json!({
        "apiVersion": custom.get("apiVersion"), "kind": custom.get("kind"),
        "metadata": metadata, "spec": spec,
    })
}

/// Returns the Job that a message asks to delete.
fn job_to_delete(message: &str) -> Option<Named> {
    let (before, _) = message.split_once(" already exists; delete it")?;
    let (_, job) = before.rsplit_once("Job.batch ")?;
    let (namespace, name) = job.split_once('/')?;
    Some(Named {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns the autoscaler of an object.
pub(super) fn autoscaler_of<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    named: &Named,
) -> Option<&'a Value> {
    let scales = |object: &&Value| {
        let target = |field: &str| object.pointer("/spec/scaleTargetRef")?.get(field)?.as_str();
        let autoscaler = Named::of(object);
        autoscaler.kind == "HorizontalPodAutoscaler"
            && autoscaler.namespace == named.namespace
            && target("kind") == Some(&named.kind)
            && target("name") == Some(&named.name)
    };
    objects.into_iter().find(scales)
}

pub(super) fn uid(object: &Value) -> String {
    text(object, "/metadata/uid").to_owned()
}

/// Returns whether an object is deleted with another one: with its namespace, or with its kind.
pub(super) fn holds(container: &Named, named: &Named) -> bool {
    match container.kind.as_str() {
        "Namespace" => named.namespace == container.name,
        "CustomResourceDefinition" => {
            let group = container.name.split_once('.').map(|(_, group)| group);
            group == named.api_version.split_once('/').map(|(group, _)| group)
        }
        _ => false,
    }
}

/// Returns whether a field tells the items of a list apart.
pub(super) fn is_key(path: &str) -> bool {
    let mut keys = ["/name", "/port", "/protocol"].iter();
    keys.any(|key| path.ends_with(key))
}

/// Collects the texts, numbers and other single values below a value, each with its path.
pub(super) fn collect_leaves(path: &str, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect_leaves(&format!("{path}/{name}"), value, leaves);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_leaves(&format!("{path}/{index}"), value, leaves);
            }
        }
        value => leaves.push((path.to_owned(), value.clone())),
    }
}
