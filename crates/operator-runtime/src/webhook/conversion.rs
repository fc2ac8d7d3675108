//! Converts objects between the versions of their kind.
//!
//! One version of a kind is its hub. Any other version is converted to the hub and from there to
//! the wanted version, so that a kind with many versions needs two conversions for each.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use serde_json::Value;
use tracing::{error, warn};

use super::admission::{Unreadable, from_value, panic_message};
use crate::controller::TypedObject;

/// Converts an object of one version to another; the error is for whoever asked for the object.
type Convert = fn(&Value) -> Result<Value, String>;

/// The versions of a kind.
#[derive(Debug, Clone)]
pub(super) struct Versions {
    /// Name of the `CustomResourceDefinition`.
    pub(super) definition: String,
    hub: String,
    spokes: BTreeMap<String, Spoke>,
}

#[derive(Debug, Clone, Copy)]
struct Spoke {
    to_hub: Convert,
    from_hub: Convert,
}

/// The conversions of an operator, by group and kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversions(BTreeMap<(String, String), Versions>);

impl Conversions {
    /// Adds the conversions between a hub and another version; returns a message if that
    /// contradicts what was added before.
    pub(super) fn add<Hub, Spoke>(&mut self) -> Result<(), String>
    where
        Hub: TypedObject + TryFrom<Spoke, Error: Display>,
        Spoke: TypedObject + TryFrom<Hub, Error: Display>,
    {
        let (hub, spoke) = (api_version::<Hub>(), api_version::<Spoke>());
        let id = |group: &str, kind: &str| (group.to_owned(), kind.to_owned());
        let kind = id(&Hub::group(&()), &Hub::kind(&()));
        if kind != id(&Spoke::group(&()), &Spoke::kind(&())) {
            return Err(format!(
                "{} and {} are not versions of one kind: their groups or kinds differ",
                type_name::<Hub>(),
                type_name::<Spoke>()
            ));
        }
        if hub == spoke {
            return Err(format!("{hub} {} is converted to itself", kind.1));
        }
        let versions = self.0.entry(kind.clone()).or_insert_with(|| Versions {
            definition: format!("{}.{}", Hub::plural(&()), Hub::group(&())),
            hub: hub.clone(),
            spokes: BTreeMap::new(),
        });
        if versions.hub != hub {
            return Err(format!(
                "{} has two hubs, {} and {hub}; the first type of each conversion must be the same",
                kind.1, versions.hub
            ));
        }
        let functions = self::Spoke {
            to_hub: convert::<Spoke, Hub>,
            from_hub: convert::<Hub, Spoke>,
        };
        if versions.spokes.insert(spoke.clone(), functions).is_some() {
            return Err(format!("{spoke} {} has two conversions", kind.1));
        }
        Ok(())
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &Versions> {
        self.0.values()
    }

    /// Answers the body of a request with the body of the response.
    pub(super) fn answer(&self, body: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let review: ConversionReview = serde_json::from_slice(body)?;
        let request = ConversionRequest::from_review(review).map_err(|_| Unreadable::NoRequest)?;
        let wanted = request.desired_api_version.clone();
        let converted: Result<Vec<_>, String> = request
            .objects
            .iter()
            .map(|object| self.convert(object, &wanted))
            .collect();
        let response = ConversionResponse::for_request(request);
        let response = match converted {
            Ok(objects) => response.success(objects),
            Err(message) => {
                warn!(wanted, message, "cannot convert an object");
                response.failure(Status::failure(&message, "InvalidObject").with_code(422))
            }
        };
        Ok(serde_json::to_vec(&response.into_review())?)
    }

    /// Converts an object; an error names the object.
    fn convert(&self, object: &Value, wanted: &str) -> Result<Value, String> {
        let text = |field: &str| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version == wanted {
            return Ok(object.clone());
        }
        let name = name_of(object);
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let versions = self.0.get(&(group.to_owned(), kind.to_owned()));
        let versions = versions.ok_or_else(|| {
            format!("cannot convert {kind} {name}: this operator has no conversions of {kind} in the group {group}")
        })?;
        let failed =
            |message| format!("cannot convert {kind} {name} from {version} to {wanted}: {message}");
        let steps = versions.steps(version, wanted).map_err(failed)?;
        let mut converted = object.clone();
        for step in steps {
            let ran = catch_unwind(AssertUnwindSafe(|| step(&converted)));
            converted = match ran {
                Ok(converted) => converted.map_err(failed)?,
                Err(panic) => {
                    let panic = panic_message(panic.as_ref());
                    error!(kind, object = name, panic, "a conversion panicked");
                    return Err(failed(
                        "the conversion panicked; see the log of the operator".to_owned(),
                    ));
                }
            };
        }
        keep_metadata(object, &mut converted);
        Ok(converted)
    }
}

impl Versions {
    /// Returns the conversions from one version to another, through the hub.
    fn steps(&self, from: &str, to: &str) -> Result<Vec<Convert>, String> {
        let spoke = |version: &str| {
            let known = || {
                let spokes = self.spokes.keys().map(String::as_str);
                let known: Vec<&str> = [self.hub.as_str()].into_iter().chain(spokes).collect();
                known.join(", ")
            };
            if version == self.hub {
                return Ok(None);
            }
            let spoke = self.spokes.get(version);
            spoke
                .map(Some)
                .ok_or_else(|| format!("this operator converts {} only", known()))
        };
        let to_hub = spoke(from)?.map(|spoke| spoke.to_hub);
        let from_hub = spoke(to)?.map(|spoke| spoke.from_hub);
        Ok(to_hub.into_iter().chain(from_hub).collect())
    }
}

fn api_version<K: TypedObject>() -> String {
    K::api_version(&()).into_owned()
}

fn convert<From, To>(object: &Value) -> Result<Value, String>
where
    From: TypedObject,
    To: TypedObject + TryFrom<From, Error: Display>,
{
    let object: From = from_value(object).map_err(|(field, error)| format!("{field}: {error}"))?;
    let converted = To::try_from(object).map_err(|error| error.to_string())?;
    serde_json::to_value(converted).map_err(|error| error.to_string())
}

fn name_of(object: &Value) -> String {
    let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
    let name = text("name").unwrap_or("without a name");
    text("namespace").map_or_else(
        || name.to_owned(),
        |namespace| format!("{namespace}/{name}"),
    )
}

/// Restores the metadata, of which a conversion may change labels and annotations only. Those that
/// the converted object does not mention are kept too.
fn keep_metadata(original: &Value, converted: &mut Value) {
    let Some(metadata) = original.get("metadata") else {
        return;
    };
    let mut kept = metadata.clone();
    if let (Some(kept), Some(changed)) = (
        kept.as_object_mut(),
        converted.get("metadata").and_then(Value::as_object),
    ) {
        for field in ["labels", "annotations"] {
            if let Some(value) = changed.get(field) {
                kept.insert(field.to_owned(), value.clone());
            }
        }
    }
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("metadata".to_owned(), kept);
    }
}

#[cfg(test)]
mod tests;
