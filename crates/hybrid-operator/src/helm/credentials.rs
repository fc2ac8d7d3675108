//! Credentials of repositories and registries from Secrets.

use std::collections::BTreeMap;

use chart_source::{Access, Password};
use data_encoding::BASE64;
use helm_core::manifest::ObjectKey;
use kube_objects::Cluster;
use kube_objects::read::{self, ReadError};
use serde_json::Value;

use crate::watches::{RemoteChart, SecretName};

/// Type of a Secret with the credentials of registries.
const DOCKER: &str = "kubernetes.io/dockerconfigjson";
/// Key of the credentials in such a Secret.
const DOCKER_KEY: &str = ".dockerconfigjson";
/// Key of the certificates of authorities.
const AUTHORITIES: &str = "ca.crt";

/// Credentials that a Secret has for the server of a chart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Credentials {
    user: Option<(String, Password)>,
    docker_config: Option<(String, Password)>,
    authorities: Option<(String, Vec<u8>)>,
}

/// The credentials of a chart cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error(
        "the namespace of the Secret {0} is not known: write NAMESPACE/{0} in `credentialsSecret`, or set $POD_NAMESPACE"
    )]
    Namespace(String),
    #[error("cannot read the Secret {name}")]
    Read {
        name: String,
        #[source]
        source: ReadError,
    },
    #[error("there is no Secret {0}, which `credentialsSecret` names; create it")]
    Missing(String),
    #[error(
        "the Secret {name} has the type {found}; it must be {DOCKER}, kubernetes.io/basic-auth or Opaque"
    )]
    Type { name: String, found: String },
    #[error("the Secret {name} has no {wanted}; its keys are: {keys}")]
    Key {
        name: String,
        wanted: &'static str,
        keys: String,
    },
    #[error("{key} of the Secret {name} is not text")]
    Text { name: String, key: &'static str },
}

/// Reads the Secret of a chart, if it has one. `own` is the operator's namespace.
///
/// Needs `get` on the Secret.
pub(super) async fn read(
    cluster: &Cluster,
    own: Option<&str>,
    chart: &RemoteChart,
) -> Result<Credentials, CredentialsError> {
    let Some(secret) = &chart.credentials_secret else {
        return Ok(Credentials::default());
    };
    let key = key(secret, own)?;
    let name = shown(&key);
    let object = read::get(cluster, &key).await;
    let object = object.map_err(|source| CredentialsError::Read {
        name: name.clone(),
        source,
    })?;
    match object {
        Some(object) => of_secret(&name, &object),
        None => Err(CredentialsError::Missing(name)),
    }
}

fn key(secret: &SecretName, own: Option<&str>) -> Result<ObjectKey, CredentialsError> {
    let namespace = secret.namespace.as_deref().or(own);
    let namespace = namespace.ok_or_else(|| CredentialsError::Namespace(secret.name.clone()))?;
    Ok(ObjectKey {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: secret.name.clone(),
    })
}

fn shown(key: &ObjectKey) -> String {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", key.name)
}

/// Returns what a Secret has.
fn of_secret(name: &str, object: &Value) -> Result<Credentials, CredentialsError> {
    let data: BTreeMap<&str, Vec<u8>> = object
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let value = BASE64.decode(value.as_str()?.as_bytes()).ok()?;
            Some((key.as_str(), value))
        })
        .collect();
    let text = |key: &'static str| match data.get(key) {
        None => Ok(None),
        Some(value) => match String::from_utf8(value.clone()) {
            Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
            Err(_) => Err(CredentialsError::Text {
                name: name.to_owned(),
                key,
            }),
        },
    };
    let missing = |wanted| {
        let keys: Vec<&str> = data.keys().copied().collect();
        CredentialsError::Key {
            name: name.to_owned(),
            wanted,
            keys: if keys.is_empty() {
                "none".to_owned()
            } else {
                keys.join(", ")
            },
        }
    };
    let from = format!("the Secret {name}");
    let mut credentials = Credentials {
        authorities: data
            .get(AUTHORITIES)
            .map(|certificates| (from.clone(), certificates.clone())),
        ..Credentials::default()
    };
    let found = object.get("type").and_then(Value::as_str);
    match found.unwrap_or("Opaque") {
        DOCKER => {
            let config = text(DOCKER_KEY)?.ok_or_else(|| missing(DOCKER_KEY))?;
            credentials.docker_config = Some((from, config.into()));
        }
        "Opaque" | "kubernetes.io/basic-auth" => {
            credentials.user = match (text("username")?, text("password")?) {
                (Some(user), Some(password)) => Some((user, password.into())),
                (None, Some(_)) => return Err(missing("username")),
                (Some(_), None) => return Err(missing("password")),
                (None, None) if credentials.authorities.is_some() => None,
                (None, None) => return Err(missing("username and password")),
            };
        }
        other => {
            return Err(CredentialsError::Type {
                name: name.to_owned(),
                found: other.to_owned(),
            });
        }
    }
    Ok(credentials)
}

impl Credentials {
    /// Adds the credentials to what is known of a server.
    pub(super) fn add_to(&self, access: Access) -> Access {
        let (username, password) = self.user.clone().unzip();
        Access {
            username,
            password,
            docker_config: self.docker_config.clone(),
            ca_certificates: self.authorities.clone(),
            ..access
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encoded(data: &[(&str, &str)]) -> Value {
        let data = data.iter().map(|(key, value)| {
            let value = BASE64.encode(value.as_bytes());
            ((*key).to_owned(), json!(value))
        });
        Value::Object(data.collect())
    }

    #[test]
    fn secrets_have_a_user_or_a_docker_config_and_authorities() {
        let of = |type_: &str, data: &[(&str, &str)]| {
            let object = json!({"type": type_, "data": encoded(data)});
            of_secret("system/registry", &object).map(|found| found.add_to(Access::default()))
        };
        let user = of("Opaque", &[("username", "me"), ("password", "hidden\n")]).unwrap();
        assert_eq!(user.username.as_deref(), Some("me"));
        assert_eq!(user.password, Some("hidden".to_owned().into()));
        let docker = of(DOCKER, &[(DOCKER_KEY, "{}"), ("ca.crt", "PEM")]).unwrap();
        let from = "the Secret system/registry".to_owned();
        assert_eq!(
            docker.docker_config,
            Some((from.clone(), "{}".to_owned().into()))
        );
        assert_eq!(docker.ca_certificates, Some((from, b"PEM".to_vec())));
        assert!(
            of("Opaque", &[("ca.crt", "PEM")])
                .unwrap()
                .username
                .is_none()
        );
        for (type_, data, wanted) in [
            (
                DOCKER,
                &[("username", "me")][..],
                "has no .dockerconfigjson; its keys are: username",
            ),
            (
                "Opaque",
                &[("username", "me")],
                "has no password; its keys are: username",
            ),
            ("Opaque", &[("password", "hidden")], "has no username"),
            (
                "Opaque",
                &[],
                "has no username and password; its keys are: none",
            ),
            (
                "kubernetes.io/dockercfg",
                &[(".dockercfg", "{}")],
                "has the type kubernetes.io/dockercfg; it must be",
            ),
        ] {
            let error = of(type_, data).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(
                error.contains("system/registry") && !error.contains("hidden"),
                "{error}"
            );
        }
    }

    #[test]
    fn secret_without_a_namespace_is_in_that_of_the_operator() {
        let named = |namespace: Option<&str>, own: Option<&str>| {
            let secret = SecretName {
                namespace: namespace.map(ToOwned::to_owned),
                name: "s".to_owned(),
            };
            key(&secret, own).map(|key| shown(&key))
        };
        assert_eq!(named(Some("a"), Some("b")).unwrap(), "a/s");
        assert_eq!(named(None, Some("b")).unwrap(), "b/s");
        let error = named(None, None).unwrap_err().to_string();
        assert!(
            error.contains("write NAMESPACE/s in `credentialsSecret`"),
            "{error}"
        );
    }
}
