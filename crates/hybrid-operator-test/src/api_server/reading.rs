//! Gets and lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::decode::to_version;
use super::object::set;
use super::request::{Call, Form};
use super::selectors::Selector;
use super::server::{Place, Reply, Server, formed};
use super::status::{Cause, Failure};
use super::store::{Key, Stored};
use super::writing::answer;

/// A version, the last object of the page before, and the objects of the resource if they are not the present ones.
type State = (u64, Option<Key>, Option<BTreeMap<Key, Arc<Stored>>>);

impl Server {
    pub(super) fn get(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        self.check_not_too_new(call.parameter("resourceVersion"))?;
        let object = to_version(&place.kind, &place.version, &self.find(place)?);
        Ok(answer(call, 200, &object))
    }

    /// Returns the log of a Pod, which says nothing but its name.
    pub(super) fn get_log(&self, place: &Place) -> Result<Reply, Failure> {
        self.find(place)?;
        Ok(Reply::Text(format!("log of {}\n", place.key().name)))
    }

    /// Lists objects. A list from version 0 may be as old as the events of watches.
    pub(super) fn list(&mut self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let options = |cause: Cause| Failure::invalid_options("ListOptions", cause);
        if call.query.contains_key("sendInitialEvents") {
            let detail = "sendInitialEvents is forbidden for list";
            return Err(options(Cause::forbidden("sendInitialEvents", detail)));
        }
        let version = call.parameter("resourceVersion");
        let rule = call.parameter("resourceVersionMatch");
        let token = call.parameter("continue");
        if !rule.is_empty() {
            check_match(rule, version, token)?;
        }
        let selector = Selector::of(call, &place.kind)?;
        let limit: usize = call.parameter("limit").parse().unwrap_or_default();
        let (shown, after, former) = self.state(call, place, limit)?;
        let namespace = place.namespace.as_deref();
        let resource = &place.kind.resource;
        let objects: Box<dyn Iterator<Item = (&Key, &Arc<Stored>)>> = match &former {
            Some(objects) => Box::new(objects.iter()),
            None => Box::new(self.store.list(resource, namespace, None)),
        };
        let matching: Vec<(&Key, &Arc<Stored>)> = objects
            .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
            .filter(|(key, _)| namespace.is_none_or(|wanted| key.namespace == wanted))
            .filter(|(_, object)| selector.matches(object))
            .collect();
        let page = if limit == 0 { matching.len() } else { limit };
        let more = matching.len().saturating_sub(page);
        let mut metadata = json!({"resourceVersion": shown.to_string()});
        if more > 0
            && let Some((last, _)) = page.checked_sub(1).and_then(|last| matching.get(last))
        {
            set(&mut metadata, "continue", write_token(shown, last));
            if selector.is_everything() {
                set(&mut metadata, "remainingItemCount", more);
            }
        } else if place.kind.rules.custom && call.form() == Some(Form::Whole) {
            set(&mut metadata, "continue", "");
        }
        let form = call.form().unwrap_or(Form::Whole);
        let mut items = Vec::new();
        for (_, object) in matching.into_iter().take(page) {
            let object = to_version(&place.kind, &place.version, object);
            items.push(match form {
                Form::Metadata => formed(form, &object).to_string(),
                Form::Whole if place.kind.rules.custom => object.text().to_owned(),
                Form::Whole => object.item().to_owned(),
            });
        }
        let (api_version, kind) = match form {
            Form::Whole => (&*place.version.api_version, &*place.kind.list_kind),
            Form::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
        };
        let items = if items.is_empty() && form == Form::Metadata {
            "null".to_owned()
        } else {
            format!("[{}]", items.join(","))
        };
        let (api_version, kind) = (Value::from(api_version), Value::from(kind));
        let text = format!(
            r#"{{"apiVersion":{api_version},"kind":{kind},"metadata":{metadata},"items":{items}}}"#
        );
        Ok(Reply::Json { code: 200, text })
    }

    /// Returns the objects as the request asks to see them.
    fn state(&mut self, call: &Call, place: &Place, limit: usize) -> Result<State, Failure> {
        let version = call.parameter("resourceVersion");
        let rule = call.parameter("resourceVersionMatch");
        let token = call.parameter("continue");
        let resource = &place.kind.resource;
        if !token.is_empty() {
            if !matches!(version, "" | "0") {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (shown, key) = parse_token(token)?;
            let objects = self.store.list_at(resource, shown);
            return Ok((shown, Some(key), Some(objects.ok_or_else(expired_token)?)));
        }
        if version.parse::<u64>().is_err() && !version.is_empty() {
            return Err(Failure::bad_request(format!(
                "invalid resource version: {}",
                unparsable("resourceVersion", version)
            )));
        }
        self.check_not_too_new(version)?;
        let wanted: u64 = version.parse().unwrap_or_default();
        let exact = rule == "Exact" || (limit > 0 && wanted > 0 && rule.is_empty());
        let shown = match version {
            "0" => self.cached_version(),
            _ if exact => wanted,
            _ => self.store.version(),
        };
        if shown == self.store.version() {
            return Ok((shown, None, None));
        }
        let objects = self.store.list_at(resource, shown);
        Ok((shown, None, Some(objects.ok_or_else(expired)?)))
    }

    /// Fails for a resource version that the server has not reached.
    pub(super) fn check_not_too_new(&self, version: &str) -> Result<(), Failure> {
        let current = self.store.version();
        let wanted: u64 = version.parse().unwrap_or_default();
        if wanted <= current {
            return Ok(());
        }
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = json!([{
            "reason": "ResourceVersionTooLarge",
            "message": "Too large resource version",
        }]);
        let details = json!({"causes": cause, "retryAfterSeconds": 1});
        Err(Failure::new(504, "Timeout", message).with_details(details))
    }
}

/// Returns Go's words about a resource version that is no number.
pub(super) fn unparsable(field: &str, version: &str) -> String {
    format!(
        "{field}: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"
    )
}

fn check_match(rule: &str, version: &str, token: &str) -> Result<(), Failure> {
    let field = "resourceVersionMatch";
    let options = |cause: Cause| Err(Failure::invalid_options("ListOptions", cause));
    if !token.is_empty() {
        let detail = "resourceVersionMatch is forbidden when continue is provided";
        return options(Cause::forbidden(field, detail));
    }
    if version.is_empty() {
        let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        return options(Cause::forbidden(field, detail));
    }
    if !matches!(rule, "Exact" | "NotOlderThan") {
        let supported = ["Exact".into(), "NotOlderThan".into(), "".into()];
        return options(Cause::not_supported(field, &rule.into(), &supported));
    }
    if rule == "Exact" && version == "0" {
        let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        return options(Cause::forbidden(field, detail));
    }
    Ok(())
}

fn expired() -> Failure {
    Failure::expired("The resourceVersion for the provided list is too old.")
}

fn expired_token() -> Failure {
    Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
    )
}

fn write_token(version: u64, last: &Key) -> String {
    format!("v{version}.{}.{}", last.namespace, last.name)
}

fn parse_token(token: &str) -> Result<(u64, Key), Failure> {
    let parsed = || {
        let (version, rest) = token.strip_prefix('v')?.split_once('.')?;
        let (namespace, name) = rest.split_once('.')?;
        Some((version.parse().ok()?, Key::new(namespace, name)))
    };
    parsed()
        .ok_or_else(|| Failure::bad_request("invalid continue token: continue key is not valid"))
}
