//! The command `helm`, as people use it beside the program.

use std::io::{Read, Write};

use anyhow::Context;
use data_encoding::BASE64;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::Method;
use json_patch::merge;
use serde_json::{Value, json};

use super::history::{Helm, Named, Propagation};
use super::permitted::is_kept;
use super::snapshot::{RECORD, RECORDS, items, text};
use super::world::World;

/// Label of a record, and of an object of a hook, that names the custom resource.
pub(super) const CUSTOM: &str = "helm.sdk.operatorframework.io/cr";

/// Label of a record of a release whose objects have no owner.
const UNOWNED: &str = "helm.sdk.operatorframework.io/unowned";

impl World {
    /// Runs a command on the release of a custom resource.
    pub(super) async fn helm(&mut self, custom: &Named, command: Helm) -> anyhow::Result<()> {
        let records = self.records(custom);
        let Some(last) = records.last() else {
            return Ok(());
        };
        self.staying.clear();
        if label(last, "status").starts_with("pending") || label(last, "status") == "uninstalling" {
            return Ok(());
        }
        // Helm applies and deletes no objects whose names are generated.
        for record in &records {
            let is_generated = |object: &Value| Named::of(object).name.is_empty();
            if objects(record)?.iter().any(is_generated) {
                return Ok(());
            }
        }
        match command {
            Helm::Uninstall => self.helm_uninstall(custom, &records).await,
            Helm::Rollback => {
                let mut former = records.iter().rev().skip(1);
                match former.find(|record| label(record, "status") == "superseded") {
                    Some(former) => self.helm_rollback(custom, last, former).await,
                    None => Ok(()),
                }
            }
            Helm::Interrupted => {
                let record = next(last, last, "pending-upgrade")?;
                self.create(&record).await?;
                Ok(())
            }
            Helm::Operator => self.go_upgrade(custom, last).await,
        }
    }

    /// Remembers the release of which people delete a record, and whether a revision is being replaced.
    pub(super) fn note_lost_record(&mut self, secret: &Named) {
        let name = secret.name.strip_prefix(RECORDS);
        let Some((release, _)) = name.and_then(|name| name.rsplit_once(".v")) else {
            return;
        };
        let named = Named {
            name: release.to_owned(),
            ..secret.clone()
        };
        let records = self.records(&named);
        let fails = |custom: &Value| {
            let mut conditions = items(custom, "/status/conditions").iter();
            Named::of(custom).name == named.name
                && conditions.any(|condition| {
                    condition.get("type") == Some(&json!("Irreconcilable"))
                        && condition.get("status") == Some(&json!("True"))
                })
        };
        let is_replaced = !self.is_at_rest
            || !self.runs()
            || self.server.objects().iter().any(fails)
            || (records.iter()).any(|record| label(record, "status").starts_with("pending"));
        let custom = records.iter().map(|record| label(record, CUSTOM));
        self.lost_hooks.extend(custom.map(ToOwned::to_owned));
        let lost = self.lost.entry((named.namespace, named.name));
        *lost.or_default() |= is_replaced;
    }

    /// Remembers what the program cannot know of the release of a custom resource that people delete.
    pub(super) fn note_deletion(&mut self, custom: &Named, propagation: Propagation) {
        let objects = self.server.objects();
        let is_deleted = |object: &Value| {
            let deleted = object.pointer("/metadata/deletionTimestamp");
            deleted.is_some() && Named::of(object) == *custom
        };
        let records = self.records_of(custom);
        let is_pending = |record: &Value| label(record, "status").starts_with("pending");
        let is_interrupted = self.has_restarted() && records.iter().any(is_pending);
        if propagation == Propagation::Foreground
            && (is_interrupted || objects.iter().any(is_deleted))
        {
            self.hurried.insert(custom.namespace.clone());
        }
        let is_first = |record: &Value| revision(record) == 1;
        if let Some(record) = records.first().filter(|_| !records.iter().any(is_first)) {
            self.lost_hooks.insert(label(record, CUSTOM).to_owned());
        }
        self.note_change(custom);
    }

    /// Remembers that the release of a custom resource that changes cannot be deployed as before if people have
    /// deleted its records.
    pub(super) fn note_change(&mut self, custom: &Named) {
        // One that is deleted in the foreground stays for a moment.
        let is_going = |record: &Value| record.pointer("/metadata/deletionTimestamp").is_some();
        if self.records_of(custom).iter().all(is_going) {
            let mut lost = self.lost.iter_mut();
            let of_custom = lost.find(|((namespace, name), _)| is_release(custom, namespace, name));
            if let Some((_, is_replaced)) = of_custom {
                *is_replaced = true;
            }
        }
    }

    /// Returns the records of the release of a custom resource, in any order.
    pub(super) fn records_of(&self, custom: &Named) -> Vec<Value> {
        let mut records = self.server.objects();
        records.retain(|object| {
            let namespace = Named::of(object).namespace;
            object.get("type") == Some(&json!(RECORD))
                && is_release(custom, &namespace, label(object, "name"))
        });
        records
    }

    /// Returns whether an object belongs to the release of a custom resource, by its label.
    pub(super) fn is_of(&self, object: &Value, custom: &Named) -> bool {
        let records = self.records_of(custom);
        let mut owners = records.iter().map(|record| label(record, CUSTOM));
        owners.any(|owner| !owner.is_empty() && owner == label(object, CUSTOM))
    }

    /// Returns whether the newest record of a release says that its objects have no owner.
    pub(super) fn is_unowned(&self, release: &Named) -> bool {
        let records = self.records_of(release);
        let newest = records.iter().max_by_key(|record| revision(record));
        newest.is_some_and(|record| label(record, UNOWNED) == format!("{}-true", revision(record)))
    }

    /// Returns the records of a release by their revisions.
    fn records(&self, release: &Named) -> Vec<Value> {
        let mut records = self.server.objects();
        records.retain(|object| {
            object.get("type") == Some(&json!(RECORD))
                && Named::of(object).namespace == release.namespace
                && label(object, "name") == release.name
        });
        records.sort_by_key(revision);
        records
    }

    async fn helm_uninstall(&mut self, release: &Named, records: &[Value]) -> anyhow::Result<()> {
        let mut deployed = records.iter();
        let deployed = deployed.rfind(|record| label(record, "status") == "deployed");
        let objects = deployed.map(objects).transpose()?.unwrap_or_default();
        let objects = objects.iter().filter(|object| !is_kept(object));
        let names = objects.map(|object| in_namespace(object, release));
        for named in names.chain(records.iter().map(Named::of)) {
            self.delete(&named, Propagation::Background).await?;
        }
        Ok(())
    }

    async fn go_upgrade(&mut self, custom: &Named, last: &Value) -> anyhow::Result<()> {
        let mut owners = self.server.objects().into_iter();
        let owner = owners.find(|object| Named::of(object) == *custom);
        let (Some(owner), "deployed") = (owner, label(last, "status")) else {
            return Ok(());
        };
        let mut record = next(last, last, "deployed")?;
        let reference = json!({
            "apiVersion": text(&owner, "/apiVersion"), "kind": text(&owner, "/kind"),
            "name": custom.name, "uid": text(&owner, "/metadata/uid"), "blockOwnerDeletion": true,
        });
        merge(
            &mut record,
            &json!({"metadata": {"ownerReferences": [reference]}}),
        );
        self.create(&record).await?;
        let superseded = with_status(last, "superseded")?;
        self.replace(&Named::of(last), |_| Some(superseded.clone()))
            .await
    }

    async fn helm_rollback(
        &mut self,
        release: &Named,
        last: &Value,
        former: &Value,
    ) -> anyhow::Result<()> {
        if label(last, "status") != "deployed" {
            return Ok(());
        }
        let (before, after) = (objects(last)?, objects(former)?);
        let pending = next(last, former, "pending-rollback")?;
        self.create(&pending).await?;
        let kept = after.iter().map(|object| in_namespace(object, release));
        let kept: Vec<Named> = kept.collect();
        for (mut object, named) in after.into_iter().zip(&kept) {
            claim(&mut object, release);
            if let Some(path) = self.path(named) {
                let path = format!("{path}?fieldManager=helm&force=true");
                let body = object.to_string();
                self.call(Method::PATCH, &path, "application/apply-patch+yaml", &body)
                    .await?;
            }
        }
        for object in before.iter().filter(|object| !is_kept(object)) {
            let named = in_namespace(object, release);
            if !kept.contains(&named) {
                self.delete(&named, Propagation::Background).await?;
            }
        }
        let done = next(last, former, "deployed")?;
        for record in [last, &done] {
            self.held.remove(&Named::of(record));
        }
        self.replace(&Named::of(&done), |_| Some(done.clone()))
            .await?;
        let superseded = with_status(last, "superseded")?;
        self.replace(&Named::of(last), |_| Some(superseded.clone()))
            .await
    }
}

fn label<'a>(record: &'a Value, name: &str) -> &'a str {
    let labels = record.pointer("/metadata/labels");
    let label = labels.and_then(|labels| labels.get(name)?.as_str());
    label.unwrap_or_default()
}

fn revision(record: &Value) -> u64 {
    label(record, "version").parse().unwrap_or_default()
}

/// Returns the record of the revision after the last one, with the content of a former one. Helm copies labels.
fn next(last: &Value, content: &Value, status: &str) -> anyhow::Result<Value> {
    let number = revision(last) + 1;
    let mut release = decode(content).context("a record cannot be read")?;
    merge(&mut release, &json!({"version": number}));
    let labels = content.pointer("/metadata/labels").cloned();
    let mut labels = labels.unwrap_or_default();
    merge(&mut labels, &json!({"version": number.to_string()}));
    let name = format!("{RECORDS}{}.v{number}", label(last, "name"));
    let namespace = Named::of(last).namespace;
    let record = json!({
        "apiVersion": "v1", "kind": "Secret", "type": RECORD,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {"release": encode(&release)?},
    });
    with_status(&record, status)
}

fn with_status(record: &Value, status: &str) -> anyhow::Result<Value> {
    let mut release = decode(record).context("a record cannot be read")?;
    merge(&mut release, &json!({"info": {"status": status}}));
    let mut record = record.clone();
    let changed = json!({
        "metadata": {"labels": {"status": status}},
        "data": {"release": encode(&release)?},
    });
    merge(&mut record, &changed);
    Ok(record)
}

/// Returns the objects of a revision without its hooks.
fn objects(record: &Value) -> anyhow::Result<Vec<Value>> {
    let release = decode(record).context("a record cannot be read")?;
    let manifest = text(&release, "/manifest");
    let mut objects: Vec<Value> = go_yaml::documents(manifest.as_bytes())?;
    objects.retain(Value::is_object);
    Ok(objects)
}

/// Marks an object as one of a release.
fn claim(object: &mut Value, release: &Named) {
    let marks = json!({"metadata": {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": release.name,
            "meta.helm.sh/release-namespace": release.namespace,
        },
    }});
    merge(object, &marks);
}

fn in_namespace(object: &Value, release: &Named) -> Named {
    let mut named = Named::of(object);
    if named.namespace.is_empty() {
        named.namespace.clone_from(&release.namespace);
    }
    named
}

/// Returns the release of a record.
pub(super) fn decode(record: &Value) -> Option<Value> {
    let data = record.pointer("/data/release")?.as_str()?;
    let outer = BASE64.decode(data.as_bytes()).ok()?;
    let inner = BASE64.decode(&outer).ok()?;
    let mut json = Vec::new();
    GzDecoder::new(&*inner).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

fn encode(release: &Value) -> anyhow::Result<String> {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(release.to_string().as_bytes())?;
    Ok(BASE64.encode(BASE64.encode(&zipped.finish()?).as_bytes()))
}

/// Returns whether a custom resource has a release of this name.
fn is_release(custom: &Named, namespace: &str, name: &str) -> bool {
    name == custom.name && (custom.namespace.is_empty() || namespace == custom.namespace)
}
