//! Lenient decoding of the fields that readiness depends on. Custom resources may have any content
//! in `spec` and `status`; a field of an unexpected type counts as missing instead of failing the
//! whole object.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The fields of `spec` that tell of readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecView {
    #[serde(deserialize_with = "int")]
    pub(super) replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) progress_deadline_seconds: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) parallelism: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) completions: Option<i64>,
    #[serde(deserialize_with = "object")]
    pub(super) update_strategy: UpdateStrategy,
    #[serde(rename = "type", deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(rename = "clusterIP", deserialize_with = "text")]
    pub(super) cluster_ip: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UpdateStrategy {
    #[serde(rename = "type", deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) rolling_update: RollingUpdate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct RollingUpdate {
    #[serde(deserialize_with = "int")]
    pub(super) partition: Option<i64>,
}

/// The fields of `status` that tell of readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusView {
    #[serde(deserialize_with = "int")]
    pub(super) observed_generation: Option<i64>,
    #[serde(deserialize_with = "list")]
    pub(super) conditions: Vec<ObjectCondition>,
    #[serde(deserialize_with = "text")]
    pub(super) phase: Option<String>,
    #[serde(deserialize_with = "int")]
    pub(super) replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) ready_replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) available_replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) updated_replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) current_replicas: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) fully_labeled_replicas: Option<i64>,
    #[serde(deserialize_with = "text")]
    pub(super) current_revision: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) update_revision: Option<String>,
    #[serde(deserialize_with = "int")]
    pub(super) desired_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) current_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) updated_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) number_available: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) number_ready: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) succeeded: Option<i64>,
    #[serde(deserialize_with = "int")]
    pub(super) failed: Option<i64>,
    #[serde(deserialize_with = "text")]
    pub(super) start_time: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ObjectCondition {
    #[serde(rename = "type", deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) status: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) reason: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    #[serde(deserialize_with = "text")]
    pub(super) name: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) state: ContainerState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    #[serde(deserialize_with = "object")]
    pub(super) waiting: Waiting,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    #[serde(deserialize_with = "text")]
    pub(super) reason: Option<String>,
}

impl StatusView {
    pub(super) fn condition(&self, kind: &str) -> Option<&ObjectCondition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind.as_deref() == Some(kind))
    }

    pub(super) fn has(&self, kind: &str, status: &str) -> bool {
        self.condition(kind)
            .is_some_and(|condition| condition.is(status))
    }
}

impl ObjectCondition {
    pub(super) fn is(&self, status: &str) -> bool {
        self.status.as_deref() == Some(status)
    }

    /// Returns the reason and the message.
    pub(super) fn explained(&self) -> String {
        let text = self.text();
        match self.reason.as_deref() {
            Some(reason) if !reason.is_empty() && reason != text => format!("{reason}: {text}"),
            _ => text,
        }
    }

    /// Returns the message, else the reason, else the type.
    pub(super) fn text(&self) -> String {
        [&self.message, &self.reason, &self.kind]
            .into_iter()
            .flatten()
            .find(|text| !text.is_empty())
            .cloned()
            .unwrap_or_default()
    }
}

/// Target of a lenient decode: implements the JSON types that it accepts; all others yield the
/// default.
trait LenientTarget: Default {
    fn integer(_: i64) -> Self {
        Self::default()
    }
    fn text(_: &str) -> Self {
        Self::default()
    }
    fn map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Self::default())
    }
    fn seq<'de, A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Self::default())
    }
}

impl LenientTarget for Option<i64> {
    fn integer(value: i64) -> Self {
        Some(value)
    }
}

impl LenientTarget for Option<String> {
    fn text(value: &str) -> Self {
        Some(value.to_owned())
    }
}

/// Map decoded as a struct.
#[derive(Default)]
struct Object<T>(T);

impl<T: Default + for<'a> Deserialize<'a>> LenientTarget for Object<T> {
    fn map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

/// List of maps decoded as structs.
#[derive(Default)]
struct List<T>(Vec<T>);

impl<T: Default + for<'a> Deserialize<'a>> LenientTarget for List<T> {
    fn seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(Lenient(Object(item))) = seq.next_element()? {
            items.push(item);
        }
        Ok(Self(items))
    }
}

/// Lenient wrapper: decodes any JSON value as `F`.
struct Lenient<F>(F);

impl<'de, F: LenientTarget> Deserialize<'de> for Lenient<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(LenientVisitor(PhantomData))
            .map(Self)
    }
}

struct LenientVisitor<F>(PhantomData<F>);

impl<'de, F: LenientTarget> Visitor<'de> for LenientVisitor<F> {
    type Value = F;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_i64<E>(self, value: i64) -> Result<F, E> {
        Ok(F::integer(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<F, E> {
        Ok(i64::try_from(value).map_or_else(|_| F::default(), F::integer))
    }
    fn visit_str<E>(self, value: &str) -> Result<F, E> {
        Ok(F::text(value))
    }
    fn visit_bool<E>(self, _: bool) -> Result<F, E> {
        Ok(F::default())
    }
    fn visit_f64<E>(self, _: f64) -> Result<F, E> {
        Ok(F::default())
    }
    fn visit_unit<E>(self) -> Result<F, E> {
        Ok(F::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<F, A::Error> {
        F::map(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<F, A::Error> {
        F::seq(seq)
    }
}

fn int<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Lenient::deserialize(deserializer).map(|Lenient(value)| value)
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Lenient::deserialize(deserializer).map(|Lenient(value)| value)
}

fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Default + for<'a> Deserialize<'a>,
{
    Lenient::deserialize(deserializer).map(|Lenient(List(value))| value)
}

/// Decodes a field as a struct, or as the default if it has another type. For `spec` and `status`
/// of a projection.
pub fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + for<'a> Deserialize<'a>,
{
    Lenient::deserialize(deserializer).map(|Lenient(Object(value))| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Projection {
        #[serde(default, deserialize_with = "object")]
        spec: SpecView,
        #[serde(default, deserialize_with = "object")]
        status: StatusView,
    }

    #[test]
    fn fields_of_another_type_count_as_missing() {
        for (spec, status) in [
            ("null", "null"),
            ("\"text\"", "[1, {}]"),
            ("1.5", "true"),
            (
                r#"{"replicas": {"min": [1, {"a": 2}]}, "updateStrategy": "x"}"#,
                r#"{"conditions": {}}"#,
            ),
            (
                r#"{"replicas": "3", "type": 5}"#,
                r#"{"conditions": "None", "phase": {"a": []}}"#,
            ),
            (
                r#"{"replicas": 18446744073709551615}"#,
                r#"{"replicas": 1.5}"#,
            ),
        ] {
            let text = format!(r#"{{"spec": {spec}, "status": {status}, "more": 1}}"#);
            let projection: Projection = serde_json::from_str(&text).unwrap();
            assert_eq!(projection.spec, SpecView::default(), "{spec}");
            assert_eq!(projection.status, StatusView::default(), "{status}");
        }
    }

    #[test]
    fn fields_after_one_of_another_type_are_read() {
        let text = r#"{"status": {"conditions": [1, "x", {"type": "Ready", "status": "True",
            "extra": {"a": [1]}}, null], "phase": [[{}]], "replicas": 3}, "spec": {"type": "A"}}"#;
        let projection: Projection = serde_json::from_str(text).unwrap();
        assert_eq!(projection.status.conditions.len(), 4);
        assert!(projection.status.has("Ready", "True"));
        assert_eq!(projection.status.replicas, Some(3));
        assert_eq!(projection.spec.kind.as_deref(), Some("A"));
    }
}
