//! Creates, updates and patches.
//!
//! Source: `k8s.io/apiserver/pkg/registry/generic/registry/store.go` and `pkg/endpoints/handlers`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::checks::{
    check_name, check_options, check_uid, parse_body, parse_version, take_namespace,
};
use super::decode::{self, Decoded, to_stored, to_version};
use super::fields::keep_times;
use super::kinds::Kind;
use super::managed;
use super::object::{
    copy, copy_meta, finalizers, generation, is_deleting, meta, meta_field, remove, remove_meta,
    same_except, set_meta, text_at,
};
use super::patches::{json_patch, merge};
use super::request::{Call, Form};
use super::server::{Place, Reply, Server, text};
use super::status::{Cause, Failure};
use super::store::{Key, Stored};
use super::{definitions, metadata, namespaces, typed};

/// Letters of generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Number of names that are tried for a prefix.
const NAMES: usize = 8;

impl Server {
    pub(super) fn create(&mut self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        check_options("CreateOptions", call)?;
        let body = parse_body(call, &place.kind)?;
        let decoded = decode::body(&place.kind, &place.version, body)?;
        let mut object = self.check_unknown(call, place, decoded)?;
        take_namespace(place, &mut object)?;
        let set_by_server = "uid creationTimestamp deletionTimestamp deletionGracePeriodSeconds";
        for field in set_by_server.split(' ') {
            remove_meta(&mut object, field);
        }
        let now = self.now();
        let writer = managed::writer(call, place, None, &now);
        let mut object = managed::update(place, None, object, &writer)?;
        let reply = |object: &Stored| answer(call, 201, object);
        if !meta(&object, "name").is_empty() {
            let created = self.create_named(call, place, object);
            return created.map(|object| reply(&object));
        }
        let prefix = meta(&object, "generateName").to_owned();
        let mut tries = 0;
        loop {
            if !prefix.is_empty() {
                set_meta(&mut object, "name", self.generated_name(&prefix));
            }
            tries += 1;
            match self.create_named(call, place, object.clone()) {
                Err(failure) if failure.reason == "AlreadyExists" && tries < NAMES => {}
                created => return created.map(|object| reply(&object)),
            }
        }
    }

    /// Creates an object that has a name and managed fields.
    pub(super) fn create_named(
        &mut self,
        call: &Call,
        place: &Place,
        mut object: Value,
    ) -> Result<Arc<Stored>, Failure> {
        let kind = &place.kind;
        let name = meta(&object, "name").to_owned();
        self.admit(place, &name)?;
        let version = meta(&object, "resourceVersion").to_owned();
        let is_posted = call.method == http::Method::POST;
        for field in "deletionTimestamp deletionGracePeriodSeconds resourceVersion".split(' ') {
            remove_meta(&mut object, field);
        }
        set_meta(&mut object, "uid", self.new_uid());
        set_meta(&mut object, "creationTimestamp", self.now());
        if kind.rules.custom {
            if place.version.has("status") {
                remove(&mut object, "status");
            }
            set_meta(&mut object, "generation", 1);
        } else {
            typed::prepare_create(kind, &mut object);
            definitions::prepare_create(kind, &mut object);
        }
        self.validate(place, &object, None, None)?;
        if !is_posted {
            self.authorize_creation(call)?;
        }
        if is_posted && !matches!(version.as_str(), "" | "0") {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Failure::internal(why));
        }
        let key = Key {
            name: name.clone(),
            ..place.key()
        };
        if let Some(existing) = self.store.get(&kind.resource, &key) {
            let deleting = is_deleting(&existing);
            return Err(Failure::already_exists(kind.named(), &name, deleting));
        }
        if call.is_dry_run() {
            if !is_posted && !version.is_empty() {
                set_meta(&mut object, "resourceVersion", version);
            }
            let stored = Arc::new(Stored::new(to_stored(kind, object)));
            return Ok(to_version(kind, &place.version, &stored));
        }
        let stored = self.store.put(&kind.resource, to_stored(kind, object));
        Ok(to_version(kind, &place.version, &stored))
    }

    /// Fails if nothing may be created of the kind or in the namespace.
    fn admit(&self, place: &Place, name: &str) -> Result<(), Failure> {
        if place.kind.terminating {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(place.kind.named(), name, why));
        }
        let Some(namespace) = &place.namespace else {
            return Ok(());
        };
        let kinds = self.kinds.served("", "v1", "namespaces");
        let Some(kind) = kinds else { return Ok(()) };
        let key = Key::new("", namespace);
        let Some(found) = self.store.get(&kind.resource, &key) else {
            return Err(Failure::not_found(kind.named(), namespace));
        };
        if is_deleting(&found) {
            return Err(Failure::terminating(place.kind.named(), name, namespace));
        }
        Ok(())
    }

    fn validate(
        &mut self,
        place: &Place,
        object: &Value,
        before: Option<&Value>,
        subresource: Option<&str>,
    ) -> Result<(), Failure> {
        let kind = &place.kind;
        let name = meta(object, "name");
        if kind.rules.custom && object.get("kind") != Some(&json!(kind.kind)) {
            let found = text_at(object, "/kind");
            let named = super::status::Named {
                group: &kind.resource.group,
                name: found,
            };
            let detail = format!("must be {}", kind.kind);
            let cause = Cause::invalid("kind", &found.into(), &detail);
            return Err(Failure::invalid(named, name, &[cause]));
        }
        let mut causes = metadata::validate(kind, object);
        if let Some(before) = before {
            causes.extend(metadata::validate_update(object, before));
        }
        if kind.rules.custom {
            if let Some(schema) = &place.version.schema {
                causes.extend(if subresource == Some("status") {
                    schema.validate_status(object, before)
                } else {
                    schema.validate(object, before)
                });
                if before.is_none_or(|before| schema.duplicates(before).is_empty()) {
                    causes.extend(schema.duplicates(object));
                }
            }
        } else {
            causes.extend(typed::validate(kind, object, before));
            causes.extend(definitions::validate(kind, object, before)?);
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(kind.named_kind(), name, &causes));
        }
        if kind.rules.custom {
            let warnings = metadata::finalizer_warnings(object, before);
            self.warnings.extend(warnings);
        }
        Ok(())
    }

    pub(super) fn update(
        &mut self,
        call: &Call,
        place: &Place,
        subresource: Option<&str>,
    ) -> Result<Reply, Failure> {
        let method = Method::of(call, place)?;
        let key = place.key();
        let existing = self.store.get(&place.kind.resource, &key);
        let live = existing.as_ref();
        let live = live.map(|live| to_version(&place.kind, &place.version, live));
        let live = live.as_ref().map(|live| &***live);
        let may_create = match method {
            Method::Apply(_) => subresource.is_none(),
            Method::Replace(_) => place.kind.rules.creates_on_update && subresource.is_none(),
            Method::Patch(_) => false,
        };
        let missing = || Failure::not_found(place.kind.named(), &key.name);
        let is_put = matches!(method, Method::Replace(_));
        if live.is_none() && !may_create && !is_put {
            return Err(missing());
        }
        let object = self.written(call, place, method, live, subresource)?;
        let Some(existing) = existing else {
            if !may_create {
                return Err(missing());
            }
            if is_put {
                check_uid(place, &object, None)?;
            }
            parse_version(meta(&object, "resourceVersion"))?;
            let created = self.create_named(call, place, object)?;
            return Ok(answer(call, 201, &created));
        };
        if is_put {
            check_uid(place, &object, Some(&existing))?;
        }
        let updated = self.replace(call, place, &existing, object, subresource)?;
        Ok(answer(call, 200, &updated))
    }

    /// Returns the object that a request writes, with its managed fields.
    pub(super) fn written(
        &mut self,
        call: &Call,
        place: &Place,
        method: Method,
        live: Option<&Value>,
        subresource: Option<&str>,
    ) -> Result<Value, Failure> {
        let now = self.now();
        let writer = managed::writer(call, place, subresource, &now);
        let decoded = match method {
            Method::Apply(applied) => {
                let force = call.flag("force");
                let merged = managed::apply(place, live, &applied, &writer, force)?;
                let mut object = merged.object;
                if merged.is_changed {
                    object = decode::applied(&place.kind, &place.version, &applied, object)?;
                }
                if live.is_none() && !meta(&object, "uid").is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {}, and no existing object was found",
                        meta(&object, "uid")
                    );
                    let name = place.key().name;
                    return Err(Failure::conflict(place.kind.named(), &name, &why));
                }
                take_namespace(place, &mut object)?;
                check_name(&object, &place.key().name)?;
                return Ok(object);
            }
            Method::Replace(body) => decode::body(&place.kind, &place.version, body)?,
            Method::Patch(change) => {
                let mut object = live.cloned().unwrap_or_default();
                change(&mut object, &call.body)?;
                decode::patched(&place.kind, &place.version, object, || {
                    let mut again = live.cloned().unwrap_or_default();
                    // It has succeeded before.
                    drop(change(&mut again, &call.body));
                    again.to_string()
                })?
            }
        };
        let mut object = self.check_unknown(call, place, decoded)?;
        take_namespace(place, &mut object)?;
        check_name(&object, &place.key().name)?;
        managed::update(place, live, object, &writer)
    }

    /// Replaces a stored object, if its resource version is the expected one.
    pub(super) fn replace(
        &mut self,
        call: &Call,
        place: &Place,
        existing: &Arc<Stored>,
        mut object: Value,
        subresource: Option<&str>,
    ) -> Result<Arc<Stored>, Failure> {
        let kind = &place.kind;
        let key = place.key();
        let version = meta(&object, "resourceVersion").to_owned();
        let wanted = parse_version(&version)?;
        if wanted == 0 && kind.rules.conditional {
            let detail = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), detail);
            return Err(Failure::invalid(kind.named(), &key.name, &[cause]));
        }
        if wanted != 0 && version != meta(existing, "resourceVersion") {
            return Err(Failure::modified(kind.named(), &key.name));
        }
        let before = to_version(kind, &place.version, existing);
        copy_meta(&before, &mut object, "resourceVersion");
        copy_meta(&before, &mut object, "generation");
        if subresource.is_some() {
            object = only_subresource(kind, &before, &object, subresource);
        } else {
            prepare_update(place, &mut object, &before);
        }
        if meta(&object, "uid").is_empty() {
            copy_meta(&before, &mut object, "uid");
        }
        copy_meta(&before, &mut object, "creationTimestamp");
        if is_deleting(&before) {
            copy_meta(&before, &mut object, "deletionTimestamp");
        }
        if meta_field(&object, "deletionGracePeriodSeconds").is_none() {
            copy_meta(&before, &mut object, "deletionGracePeriodSeconds");
        }
        self.validate(place, &object, Some(&before), subresource)?;
        let object = keep_times(&before, object);
        let is_released = is_deleting(&object)
            && finalizers(&object).is_empty()
            && !namespaces::is_held(kind, &object)
            && meta_field(&before, "deletionGracePeriodSeconds").is_none_or(|grace| grace == 0);
        if is_released {
            if !call.is_dry_run() {
                self.store.delete(&kind.resource, &key);
            }
            return Ok(Arc::new(Stored::new(object)));
        }
        let stored = to_stored(kind, object);
        if stored == ***existing {
            return Ok(to_version(kind, &place.version, existing));
        }
        let stored = if call.is_dry_run() {
            Arc::new(Stored::new(stored))
        } else {
            self.store.put(&kind.resource, stored)
        };
        Ok(to_version(kind, &place.version, &stored))
    }

    /// Rejects unknown fields, or warns about them, as the request asks.
    fn check_unknown(
        &mut self,
        call: &Call,
        place: &Place,
        decoded: Decoded,
    ) -> Result<Value, Failure> {
        let unknown = decoded.unknown.iter();
        let texts = unknown.map(|path| format!("unknown field {path:?}"));
        let mut texts: Vec<String> = texts.collect();
        texts.sort();
        match call.parameter("fieldValidation") {
            "Ignore" => {}
            "Strict" if !texts.is_empty() => {
                let why = format!("strict decoding error: {}", texts.join(", "));
                return Err(if call.method == http::Method::PATCH {
                    decode::invalid_patch(decoded.object.to_string(), &why)
                } else {
                    decode::undecodable(&place.kind, &place.version, &why)
                });
            }
            _ => self.warnings.extend(texts),
        }
        Ok(decoded.object)
    }

    fn generated_name(&mut self, prefix: &str) -> String {
        let start: String = prefix.chars().take(58).collect();
        let letters = (0..5).filter_map(|_| {
            let index = self.random.usize(..LETTERS.len());
            LETTERS.get(index).copied().map(char::from)
        });
        start.chars().chain(letters).collect()
    }

    fn new_uid(&mut self) -> String {
        let bits = self.random.u128(..);
        let part = |shift: u32, digits: u32| bits >> shift & ((1_u128 << (4 * digits)) - 1);
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            part(96, 8),
            part(80, 4),
            part(68, 3),
            part(56, 3),
            part(0, 12)
        )
    }
}

fn prepare_update(place: &Place, object: &mut Value, before: &Value) {
    let kind = &place.kind;
    if !kind.rules.custom {
        typed::prepare_update(kind, object, before);
        definitions::prepare_update(kind, object, before);
        return;
    }
    if place.version.has("status") {
        copy(before, object, "status");
    }
    if !same_except(object, before, &["metadata"]) {
        set_meta(object, "generation", generation(before) + 1);
    }
}

/// Returns the stored object with only that changed which belongs to a subresource.
fn only_subresource(
    kind: &Kind,
    before: &Value,
    object: &Value,
    subresource: Option<&str>,
) -> Value {
    let mut changed = before.clone();
    copy_meta(object, &mut changed, "managedFields");
    if subresource == Some("finalize") {
        copy(object, &mut changed, "spec");
        return changed;
    }
    copy(object, &mut changed, "status");
    if !kind.rules.custom {
        for field in ["annotations", "finalizers", "ownerReferences"] {
            copy_meta(object, &mut changed, field);
        }
    }
    changed
}

/// A way to write an object that may be there already.
pub(super) enum Method {
    /// Server-side apply of an object.
    Apply(Value),
    /// An update to an object.
    Replace(Value),
    Patch(fn(&mut Value, &[u8]) -> Result<(), Failure>),
}

impl Method {
    /// Returns the method of a request, whose parameters are valid.
    pub(super) fn of(call: &Call, place: &Place) -> Result<Self, Failure> {
        if call.method == http::Method::PUT {
            check_options("UpdateOptions", call)?;
            return Ok(Self::Replace(parse_body(call, &place.kind)?));
        }
        let media_type = call.content_type.split(';').next().unwrap_or_default();
        let applies = media_type == "application/apply-patch+yaml";
        if applies && call.parameter("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid_options("PatchOptions", cause));
        }
        if !applies && call.query.contains_key("force") {
            let detail = "may not be specified for non-apply patch";
            let cause = Cause::forbidden("force", detail);
            return Err(Failure::invalid_options("PatchOptions", cause));
        }
        check_options("PatchOptions", call)?;
        Ok(match media_type {
            "application/apply-patch+yaml" => {
                let object = serde_json::from_slice(&call.body)
                    .ok()
                    .filter(Value::is_object);
                let yaml = || Failure::unmodelled("an apply with anything but an object in JSON");
                Self::Apply(object.ok_or_else(yaml)?)
            }
            "application/merge-patch+json" => Self::Patch(merge),
            "application/json-patch+json" => Self::Patch(json_patch),
            "application/strategic-merge-patch+json" if !place.kind.rules.custom => {
                return Err(Failure::unmodelled("strategic merge patches"));
            }
            _ => return Err(unknown_patch(place)),
        })
    }
}

/// The server knows no patches of this media type.
fn unknown_patch(place: &Place) -> Failure {
    let reason = "UnsupportedMediaType";
    if place.kind.rules.custom {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        return Failure::new(415, reason, message);
    }
    Failure::new(415, reason, "415: Unsupported Media Type").with_details(json!({}))
}

/// Returns the answer with an object.
pub(super) fn answer(call: &Call, code: u16, object: &Stored) -> Reply {
    let text = text(call.form().unwrap_or(Form::Whole), object);
    Reply::Json { code, text }
}
