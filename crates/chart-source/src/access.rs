//! Access to servers: credentials, certificates and patience.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use data_encoding::BASE64;
use http::HeaderValue;
use serde::Deserialize;

/// A secret that is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Password(String);

impl Password {
    /// Returns the text.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Access to servers. The default is what needs no configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// User of the repository or registry.
    pub username: Option<String>,
    /// Password or token of that user.
    pub password: Option<Password>,
    /// Whether the credentials of a repository are also sent to the hosts that its index names.
    pub pass_credentials: bool,
    /// File with certificates of authorities that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// File with the client's certificate.
    pub cert_file: Option<PathBuf>,
    /// File with the key of that certificate.
    pub key_file: Option<PathBuf>,
    /// Whether registries are reached by HTTP without TLS.
    pub plain_http: bool,
    /// Whether certificates are accepted without verification.
    pub insecure_skip_tls_verify: bool,
    /// Files in the format of Docker's `config.json`, in which credentials of registries are looked
    /// for. A missing file has none.
    pub docker_configs: Vec<PathBuf>,
    /// Credentials of registries in the same format, and where they come from. They go before those of
    /// the files; credential helpers that they name are not run.
    pub docker_config: Option<(String, Password)>,
    /// Certificates in PEM format of authorities that are trusted as well, and where they come from.
    pub ca_certificates: Option<(String, Vec<u8>)>,
    /// Longest waits, and number of attempts.
    pub patience: Patience,
}

impl Access {
    /// Returns the header of the given user, if there is one.
    pub(crate) fn basic(&self) -> Option<HeaderValue> {
        let username = self.username.as_deref().filter(|name| !name.is_empty());
        let password = self.password.as_ref().map_or("", Password::reveal);
        (username.is_some() || !password.is_empty())
            .then(|| basic(username.unwrap_or_default(), password))
            .flatten()
    }

    /// Returns where Helm and Docker keep the credentials of registries, in the order in which they
    /// are looked for.
    pub fn default_docker_configs(env: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
        let helm = set_in(&env, "HELM_REGISTRY_CONFIG")
            .or_else(|| Some(helm_config_home(&env)?.join("registry/config.json")));
        let docker =
            set_in(&env, "DOCKER_CONFIG").or_else(|| Some(set_in(&env, "HOME")?.join(".docker")));
        helm.into_iter()
            .chain(docker.map(|docker| docker.join("config.json")))
            .collect()
    }
}

/// Returns a path that the environment names, unless it is empty.
pub(crate) fn set_in(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<PathBuf> {
    let value = env(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Returns the directory of Helm's configuration.
pub(crate) fn helm_config_home(env: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    set_in(env, "HELM_CONFIG_HOME")
        .or_else(|| Some(set_in(env, "XDG_CONFIG_HOME")?.join("helm")))
        .or_else(|| Some(set_in(env, "HOME")?.join(".config/helm")))
}

/// Returns the header of HTTP's basic authentication.
pub(crate) fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let encoded = BASE64.encode(format!("{username}:{password}").as_bytes());
    secret_header(&format!("Basic {encoded}"))
}

/// Returns the header of a token.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    secret_header(&format!("Bearer {token}"))
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Longest waits for a server, and number of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patience {
    /// Time to connect.
    pub connect: Duration,
    /// Time until an answer begins, and between two parts of it.
    pub answer: Duration,
    /// Time for a whole answer.
    pub whole: Duration,
    /// Number of attempts, if a server cannot be reached or answers 429, 500, 502, 503 or 504.
    pub attempts: u32,
    /// Time before the second attempt, which doubles with each further one.
    pub delay: Duration,
    /// Longest time between two attempts that a server can ask for with `Retry-After`.
    pub longest_delay: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            whole: Duration::from_mins(5),
            attempts: 4,
            delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Access;

    #[test]
    fn credentials_are_looked_for_where_helm_and_docker_keep_them() {
        let found = |set: &[(&str, &str)]| {
            let configs = Access::default_docker_configs(|name| {
                let one = set.iter().find(|(key, _)| *key == name);
                one.map(|(_, value)| (*value).to_owned())
            });
            let shown = configs.iter().map(|path| path.display().to_string());
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            found(&[("HOME", "/h")]),
            "/h/.config/helm/registry/config.json /h/.docker/config.json"
        );
        assert_eq!(
            found(&[
                ("HOME", "/h"),
                ("XDG_CONFIG_HOME", "/x"),
                ("DOCKER_CONFIG", "/d")
            ]),
            "/x/helm/registry/config.json /d/config.json"
        );
        assert_eq!(found(&[("HELM_REGISTRY_CONFIG", "/r.json")]), "/r.json");
        assert_eq!(found(&[]), "");
    }

    #[test]
    fn credentials_are_not_shown() {
        let access = Access {
            username: Some("me".to_owned()),
            password: Some("hidden".to_owned().into()),
            ..Access::default()
        };
        assert!(!format!("{access:?} {:?}", access.basic()).contains("hidden"));
        assert_eq!(access.basic().unwrap(), "Basic bWU6aGlkZGVu");
    }
}
