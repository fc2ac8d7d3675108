//! The state of the server, and the way of a request through it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use host::watch;
use http::Method;
use serde_json::{Value, json};

use super::clock::Clock;
use super::controllers::Controllers;
use super::kinds::{Kind, Kinds, Version, is_built_in_group};
use super::request::{Call, Form, Target};
use super::status::Failure;
use super::store::{Key, Resource, Store, Stored};
use super::{Options, discovery, reviews, watching};

/// Everything that the server knows.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) store: Store,
    pub(super) kinds: Kinds,
    pub(super) clock: Clock,
    pub(super) random: fastrand::Rng,
    pub(super) controllers: Controllers,
    unmodelled: Vec<String>,
    /// Warnings of the request that is executed.
    pub(super) warnings: Vec<String>,
    /// Delay with which watches and caches show a change.
    lag: RangeInclusive<Duration>,
    repeats: bool,
    /// Tells watches that the store has changed, or that they are cut.
    changed: watch::Sender<Signal>,
    /// Version up to which the controllers have seen the changes.
    observed: u64,
    /// Version of the last change of an object that is neither a lease nor an event.
    last_change: u64,
    time: Duration,
}

/// Signal that watches wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) version: u64,
    /// Number of times that all watches were cut.
    pub(super) cuts: u64,
}

/// An answer to a request.
#[derive(Debug)]
pub(super) enum Reply {
    Object { code: u16, body: Value },
    Json { code: u16, text: String },
    Text(String),
    Watch(Box<watching::Watch>),
}

impl Reply {
    pub(super) fn ok(body: Value) -> Self {
        Self::with_code(200, body)
    }

    pub(super) fn with_code(code: u16, body: Value) -> Self {
        Self::Object { code, body }
    }
}

/// The kind, version and object that a request is about.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) kind: Arc<Kind>,
    pub(super) version: Version,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

impl Place {
    pub(super) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
        }
    }
}

impl Server {
    pub(super) fn new(options: &Options) -> Self {
        let mut server = Self {
            store: Store::new(),
            kinds: Kinds::new(),
            clock: Clock::starting(options.epoch),
            random: fastrand::Rng::with_seed(options.seed),
            controllers: Controllers::new(options),
            unmodelled: Vec::new(),
            warnings: Vec::new(),
            lag: options.lag.clone(),
            repeats: options.repeats,
            changed: watch::Sender::new(Signal::default()),
            observed: 0,
            last_change: 0,
            time: Duration::ZERO,
        };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let body = format!(r#"{{"metadata": {{"name": "{namespace}"}}}}"#);
            let path = "/api/v1/namespaces".to_owned();
            drop(server.act_as("kube-apiserver", Method::POST, path, &body));
        }
        while server.step() {}
        server
    }

    /// Returns the present time as metadata shows it.
    pub(super) fn now(&self) -> String {
        self.clock.text(self.time)
    }

    /// Returns the time since the start.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    pub(super) fn set_time(&mut self, time: Duration) {
        self.time = self.time.max(time);
        self.store.set_time(self.time);
    }

    /// Executes a request of a client. Returns warnings for it, too.
    pub(super) fn handle(&mut self, call: &Call) -> (Result<Reply, Failure>, Vec<String>) {
        self.catch_up();
        self.warnings.clear();
        let reply = self.route(call);
        let warnings = std::mem::take(&mut self.warnings);
        if let Err(failure) = &reply
            && failure.code == 501
        {
            let text = format!("{}: {}", call.text(), failure.message);
            self.unmodelled.push(text);
        }
        self.observe();
        (reply, warnings)
    }

    /// Executes a request of the controllers.
    pub(super) fn act(
        &mut self,
        method: Method,
        path: String,
        body: &str,
    ) -> Result<Reply, Failure> {
        self.act_as("kube-controller-manager", method, path, body)
    }

    /// Executes a request of a part of the cluster.
    pub(super) fn act_as(
        &mut self,
        program: &str,
        method: Method,
        path: String,
        body: &str,
    ) -> Result<Reply, Failure> {
        let content_type = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let call = Call::internal(program, method, path, content_type, body);
        let reply = self.route(&call);
        self.observe();
        reply
    }

    /// Shows the controllers what has changed, and wakes watches.
    pub(super) fn observe(&mut self) {
        let changes: Vec<_> = self.store.changes_after(self.observed).cloned().collect();
        self.observed = self.store.version();
        for change in changes {
            if !matches!(change.resource.plural.as_str(), "leases" | "events") {
                self.last_change = change.version;
            }
            self.react(&change);
        }
        let version = self.store.version();
        self.changed.send_if_modified(|signal| {
            let news = signal.version != version;
            signal.version = version;
            news
        });
    }

    /// Draws how late a watch or a cache shows a change.
    pub(super) fn draw_lag(&mut self) -> Duration {
        let lag = self.lag.clone();
        self.draw(&lag)
    }

    /// Draws whether a watch shows a change twice.
    pub(super) fn draw_repetition(&mut self) -> bool {
        self.repeats && self.random.u8(0..8) == 0
    }

    pub(super) fn draw(&mut self, from: &RangeInclusive<Duration>) -> Duration {
        let span = from.end().saturating_sub(*from.start());
        let span = u64::try_from(span.as_millis()).unwrap_or_default();
        if span == 0 {
            return *from.start();
        }
        *from.start() + Duration::from_millis(self.random.u64(0..=span))
    }

    /// Returns a version that a cache may show as the present one.
    pub(super) fn cached_version(&mut self) -> u64 {
        let lag = self.draw_lag();
        let version = self.store.version_at(self.time.saturating_sub(lag));
        version.max(self.store.compacted())
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Signal> {
        self.changed.subscribe()
    }

    pub(super) fn cut_watches(&self) {
        self.changed.send_modify(|signal| signal.cuts += 1);
    }

    pub(super) fn last_change(&self) -> u64 {
        self.last_change
    }

    pub(super) fn unmodelled(&self) -> &[String] {
        &self.unmodelled
    }

    fn route(&mut self, call: &Call) -> Result<Reply, Failure> {
        let target = Target::of(&call.path);
        if call.has_groups {
            return Err(Failure::unmodelled("impersonated groups"));
        }
        self.authorize(call, target.as_ref())?;
        if call.form().is_none() {
            let what = format!("answers of the form {:?}", call.accept);
            return Err(Failure::unmodelled(what));
        }
        if call.method == Method::GET
            && let Some(document) = discovery::document(self, call)
        {
            return document.map(Reply::ok);
        }
        let Some(target) = target else {
            return Err(unknown_path(&call.path));
        };
        if call.path.starts_with("/apis/authorization.k8s.io/")
            || call.path.starts_with("/apis/authentication.k8s.io/")
        {
            return reviews::review(self, call, &target);
        }
        let place = self.place(&target)?;
        self.dispatch(call, &target, &place)
    }

    /// Returns what a path names.
    fn place(&self, target: &Target) -> Result<Place, Failure> {
        let (group, version) = (&target.group, &target.version);
        let missing = || unserved(group);
        let kind = self.kinds.served(group, version, &target.plural);
        let kind = kind.ok_or_else(missing)?;
        let version = kind.version(version).cloned().ok_or_else(missing)?;
        let is_elsewhere = if kind.namespaced {
            target.namespace.is_none() && target.name.is_some()
        } else {
            target.namespace.is_some()
        };
        if is_elsewhere {
            return Err(missing());
        }
        if let Some(subresource) = &target.subresource
            && !version.has(subresource)
        {
            let name = target.name.as_deref().unwrap_or_default();
            return Err(if kind.rules.custom {
                Failure::not_found(kind.named(), name)
            } else {
                missing()
            });
        }
        Ok(Place {
            kind,
            version,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        })
    }

    fn dispatch(&mut self, call: &Call, target: &Target, place: &Place) -> Result<Reply, Failure> {
        let verb = target.verb(call);
        let preferred = place.kind.versions.first();
        let is_preferred = preferred.is_some_and(|first| first.name == place.version.name);
        let is_converted = !place.kind.rules.custom && !is_preferred;
        if is_converted && (verb != "list" || !self.is_form_of_all_versions(call, place)) {
            let (kind, version) = (&place.kind.kind, &place.version.name);
            let what = format!("conversion of {kind} to {version}");
            return Err(Failure::unmodelled(what));
        }
        let everywhere = place.kind.namespaced && place.namespace.is_none();
        let listing = matches!(verb, "list" | "watch");
        let permitted = match (verb, target.subresource.as_deref()) {
            ("", _) => false,
            (
                "create" | "update" | "patch" | "delete" | "get",
                Some("status" | "scale" | "finalize"),
            ) => !matches!(verb, "create" | "delete"),
            ("get", Some("log")) => true,
            (_, Some(subresource)) => {
                let what = format!("the subresource {subresource}");
                return Err(Failure::unmodelled(what));
            }
            ("create", None) => (place.name.is_none() || place.kind.rules.custom) && !everywhere,
            ("update" | "patch", None) => place.name.is_some(),
            (verb, None) => {
                (listing || !everywhere) && place.kind.verbs.iter().any(|known| known == verb)
            }
        };
        if matches!(verb, "update" | "patch") && place.name.is_none() && place.kind.rules.custom {
            return Err(Failure::bad_request("name must be provided"));
        }
        if !permitted {
            return Err(Failure::method_not_allowed());
        }
        match (verb, target.subresource.as_deref()) {
            ("get", Some("scale")) => self.get_scale(place),
            ("get", Some("log")) => self.get_log(place),
            ("get", _) => self.get(call, place),
            ("list", _) => self.list(call, place),
            ("watch", _) => watching::open(self, call, place),
            ("create", _) => self.create(call, place),
            (_, Some("scale")) => self.update_scale(call, place),
            ("update" | "patch", subresource) => self.update(call, place, subresource),
            ("delete", _) => self.delete(call, place),
            ("deletecollection", _) => self.delete_collection(call, place),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Returns whether a list is the same in all versions of a kind.
    fn is_form_of_all_versions(&self, call: &Call, place: &Place) -> bool {
        let is_metadata = matches!(call.form(), Some(Form::Metadata));
        is_metadata || self.objects(&place.kind.resource, None).is_empty()
    }

    /// Returns the stored object that a path names.
    pub(super) fn find(&self, place: &Place) -> Result<Arc<Stored>, Failure> {
        let key = place.key();
        let found = self.store.get(&place.kind.resource, &key);
        found.ok_or_else(|| Failure::not_found(place.kind.named(), &key.name))
    }

    /// Returns the objects of a resource with their keys.
    pub(super) fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Vec<(Key, Arc<Stored>)> {
        let objects = self.store.list(resource, namespace, None);
        let objects = objects.map(|(key, object)| (key.clone(), Arc::clone(object)));
        objects.collect()
    }
}

fn unknown_path(path: &str) -> Failure {
    let rest = path.strip_prefix("/apis/");
    match rest.and_then(|rest| rest.split('/').next()) {
        Some(group) => unserved(group),
        None if path.starts_with("/api/v1") => Failure::no_resource(),
        None => Failure::no_page(),
    }
}

/// The server serves nothing at a path of this group.
pub(super) fn unserved(group: &str) -> Failure {
    if is_built_in_group(group) {
        Failure::no_resource()
    } else {
        Failure::no_page()
    }
}

/// Returns an object as the text that a client asks for.
pub(super) fn text(form: Form, object: &Stored) -> String {
    match form {
        Form::Whole => object.text().to_owned(),
        Form::Metadata => formed(form, object).to_string(),
    }
}

/// Reduces an object to what the client asks for.
pub(super) fn formed(form: Form, object: &Value) -> Value {
    match form {
        Form::Whole => object.clone(),
        Form::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata"),
        }),
    }
}
