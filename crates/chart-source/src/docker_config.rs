//! Credentials of registries in the format of Docker's `config.json`, which `helm registry login` and
//! `docker login` write and Secrets of type `kubernetes.io/dockerconfigjson` contain.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use data_encoding::BASE64;
use serde::Deserialize;

use crate::access::Password;

/// User name with which helpers mark a token.
const TOKEN_USER: &str = "<token>";

/// Credentials of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// User and password.
    User(String, Password),
    /// A token that is exchanged for tokens of the registry.
    IdentityToken(Password),
}

/// Credentials cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DockerConfigError {
    /// The file cannot be read.
    #[error("cannot read the credentials in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is malformed. Its content is not shown.
    #[error("{} is not a config.json of Docker, line {line}", path.display())]
    Malformed { path: PathBuf, line: usize },
    /// The entry of a host is malformed.
    #[error("the entry {host:?} of {} is not the Base64 encoding of USER:PASSWORD; log in again", path.display())]
    Entry { path: PathBuf, host: String },
    /// A credential helper cannot be run.
    #[error("cannot run {program}, which {} names for {host}; install it, or log in without it", path.display())]
    Helper {
        path: PathBuf,
        program: String,
        host: String,
        #[source]
        source: std::io::Error,
    },
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    creds_store: String,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// Output of a credential helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

/// Returns the credentials of a registry from the first file that has some, and that file.
pub(crate) fn find(
    files: &[PathBuf],
    host: &str,
) -> Result<Option<(Login, PathBuf)>, DockerConfigError> {
    for path in files {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(source) => {
                let path = path.clone();
                return Err(DockerConfigError::Read { path, source });
            }
        };
        if let Some(login) = in_file(&text, path, host)? {
            return Ok(Some((login, path.clone())));
        }
    }
    Ok(None)
}

/// Returns the credentials of a registry from a text; `name` says where it comes from. Helpers are not run.
pub(crate) fn in_text(
    name: &str,
    text: &str,
    host: &str,
) -> Result<Option<Login>, DockerConfigError> {
    let path = Path::new(name);
    parse(text.as_bytes(), path)?.entry(path, &names(host))
}

fn parse(text: &[u8], path: &Path) -> Result<Config, DockerConfigError> {
    serde_json::from_slice(text).map_err(|error| DockerConfigError::Malformed {
        path: path.to_owned(),
        line: error.line(),
    })
}

fn in_file(text: &[u8], path: &Path, host: &str) -> Result<Option<Login>, DockerConfigError> {
    let config = parse(text, path)?;
    let hosts = names(host);
    let named = |key: &str| hosts.iter().any(|host| *host == bare(key));
    let helper = config
        .cred_helpers
        .iter()
        .find(|(key, _)| named(key))
        .map(|(_, helper)| helper);
    let store = Some(&config.creds_store).filter(|store| !store.is_empty());
    if let Some(helper) = helper.or(store)
        && let Some(login) = ask(helper, path, &hosts)?
    {
        return Ok(Some(login));
    }
    config.entry(path, &hosts)
}

impl Config {
    /// Returns the credentials that are in the text itself.
    fn entry(&self, path: &Path, hosts: &[&str]) -> Result<Option<Login>, DockerConfigError> {
        let mut entries = self.auths.iter();
        match entries.find(|(key, _)| hosts.contains(&bare(key))) {
            Some((key, entry)) => entry.login().map_err(|()| DockerConfigError::Entry {
                path: path.to_owned(),
                host: key.clone(),
            }),
            None => Ok(None),
        }
    }
}

impl Entry {
    fn login(&self) -> Result<Option<Login>, ()> {
        if !self.identitytoken.is_empty() {
            let token = self.identitytoken.clone();
            return Ok(Some(Login::IdentityToken(token.into())));
        }
        if !self.auth.is_empty() {
            let text = BASE64.decode(self.auth.as_bytes()).map_err(drop)?;
            let text = String::from_utf8(text).map_err(drop)?;
            let (user, password) = text.split_once(':').ok_or(())?;
            let password = password.trim_end_matches('\0').to_owned();
            return Ok(Some(Login::User(user.to_owned(), password.into())));
        }
        let user = Some(&self.username).filter(|name| !name.is_empty());
        Ok(user.map(|user| Login::User(user.clone(), self.password.clone().into())))
    }
}

/// Returns the names under which a host is kept. Docker Hub has several.
fn names(host: &str) -> Vec<&str> {
    match host {
        "docker.io" | "registry-1.docker.io" | "index.docker.io" => {
            vec!["index.docker.io", "docker.io", "registry-1.docker.io"]
        }
        host => vec![host],
    }
}

/// Returns the host of a key, which may be a URL.
fn bare(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.split('/').next().unwrap_or(key)
}

/// Asks a credential helper. One that knows nothing exits with an error.
fn ask(helper: &str, path: &Path, names: &[&str]) -> Result<Option<Login>, DockerConfigError> {
    let program = format!("docker-credential-{helper}");
    for name in names {
        let failed = |source| DockerConfigError::Helper {
            path: path.to_owned(),
            program: program.clone(),
            host: (*name).to_owned(),
            source,
        };
        let mut child = Command::new(&program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let asked = match *name {
            "index.docker.io" => "https://index.docker.io/v1/",
            name => name,
        };
        if let Some(mut input) = child.stdin.take() {
            // A helper that does not read is one that knows nothing.
            let _ = input.write_all(asked.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            continue;
        }
        if let Ok(found) = serde_json::from_slice::<Helped>(&output.stdout) {
            return Ok(Some(if found.username == TOKEN_USER {
                Login::IdentityToken(found.secret.into())
            } else {
                Login::User(found.username, found.secret.into())
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, password: &str) -> Login {
        Login::User(name.to_owned(), password.to_owned().into())
    }

    #[test]
    fn a_text_is_read_without_running_the_helpers_that_it_names() {
        let text = r#"{"credsStore": "none", "credHelpers": {"h": "none"}, "auths": {"https://h/": {"auth": "bWU6aGlkZGVu"}}}"#;
        let of = |host: &str| in_text("the Secret a/b", text, host).unwrap();
        assert_eq!(of("h"), Some(user("me", "hidden")));
        assert_eq!(of("other"), None);
        let error = in_text("the Secret a/b", "{", "h").unwrap_err().to_string();
        let start = "the Secret a/b is not a config.json";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn entries_are_found_by_host() {
        let text = br#"{"auths": {
            "ghcr.io": {"auth": "bWU6c2VjOnJldA=="},
            "https://index.docker.io/v1/": {"username": "hub", "password": "pw"},
            "token.example.com:5000": {"auth": "bWU6", "identitytoken": "t"},
            "empty.example.com": {},
            "wrong.example.com": {"auth": "bWU="}
        }}"#;
        let find = |host| in_file(text, Path::new("config.json"), host);
        let token = Login::IdentityToken("t".to_owned().into());
        for (host, expected) in [
            ("ghcr.io", Some(user("me", "sec:ret"))),
            ("docker.io", Some(user("hub", "pw"))),
            ("token.example.com:5000", Some(token)),
            ("empty.example.com", None),
            ("token.example.com", None),
            ("other.example.com", None),
        ] {
            assert_eq!(find(host).unwrap(), expected, "{host}");
        }
        let error = find("wrong.example.com").unwrap_err().to_string();
        let wrong = "\"wrong.example.com\" of config.json";
        assert!(error.contains(wrong), "{error}");
        let error = in_file(b"{\n\"auths\": 5}", Path::new("c.json"), "a").unwrap_err();
        let wrong = "c.json is not a config.json of Docker, line 2";
        assert_eq!(error.to_string(), wrong);
    }

    #[test]
    fn first_file_with_an_entry_counts_and_a_missing_one_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = ["none", "a", "b"].map(|name| dir.path().join(name)).into();
        let one = r#"{"auths": {"a.example.com": {"auth": "YTph"}}}"#;
        std::fs::write(&files[1], one).unwrap();
        let both = r#"{"auths": {"a.example.com": {"auth": "YjpiCg=="}, "b.example.com": {"auth": "YjpiYg=="}}}"#;
        std::fs::write(&files[2], both).unwrap();
        for (host, expected) in [
            ("a.example.com", Some((user("a", "a"), files[1].clone()))),
            ("b.example.com", Some((user("b", "bb"), files[2].clone()))),
            ("c.example.com", None),
        ] {
            assert_eq!(find(&files, host).unwrap(), expected, "{host}");
        }
    }

    #[test]
    fn missing_helper_is_named() {
        let text = br#"{"credHelpers": {"r.example.com": "no-such-helper"}}"#;
        let error = in_file(text, Path::new("c.json"), "r.example.com").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("docker-credential-no-such-helper"), "{text}");
    }
}
