//! The repositories that `helm repo add` has stored, with their names and credentials.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::Url;

use crate::access::{Access, Password, helm_config_home, set_in};

/// The repositories in the file of `helm repo add`.
#[derive(Debug, Default)]
pub struct Repositories {
    path: PathBuf,
    repositories: Vec<Repository>,
}

/// A repository that `helm repo add` has stored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    #[serde(default)]
    name: String,
    #[serde(default)]
    url: String,
    username: Option<String>,
    password: Option<Password>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    #[serde(default, rename = "insecure_skip_tls_verify")]
    insecure_skip_tls_verify: bool,
    #[serde(default, rename = "pass_credentials_all")]
    pass_credentials_all: bool,
}

/// The file of `helm repo add` cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RepositoriesError {
    /// The file cannot be read.
    #[error("cannot read the repositories in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is malformed. Its content, which can have passwords, is not shown.
    #[error("{} is not a file that 'helm repo add' has written", path.display())]
    Malformed { path: PathBuf },
    /// No repository has this name.
    #[error(
        "{} has no repository {name:?}{}; add it with 'helm repo add {name} URL', or give the URL of the repository",
        path.display(),
        others(known)
    )]
    Unknown {
        path: PathBuf,
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// The repository has no URL.
    #[error("the repository {name:?} in {} has no URL; add it again with 'helm repo add'", path.display())]
    NoUrl { path: PathBuf, name: String },
}

fn others(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    format!(", only {}", known.join(", "))
}

/// The content of the file.
#[derive(Deserialize)]
struct File {
    repositories: Option<Vec<Repository>>,
}

impl Repositories {
    /// Returns where Helm keeps the file.
    pub fn default_path(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        set_in(&env, "HELM_REPOSITORY_CONFIG")
            .or_else(|| Some(helm_config_home(&env)?.join("repositories.yaml")))
    }

    /// Reads the file. A missing file has no repositories.
    ///
    /// # Errors
    /// If the file cannot be read, or is malformed.
    pub fn read(path: &Path) -> Result<Self, RepositoriesError> {
        let path = path.to_owned();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let repositories = Vec::new();
                return Ok(Self { path, repositories });
            }
            Err(source) => return Err(RepositoriesError::Read { path, source }),
        };
        // An empty file is null.
        match go_yaml::from_slice::<Option<File>>(&text) {
            Ok(file) => {
                let repositories = file.and_then(|file| file.repositories);
                let repositories = repositories.unwrap_or_default();
                Ok(Self { path, repositories })
            }
            Err(_) => Err(RepositoriesError::Malformed { path }),
        }
    }

    /// Returns the repository with a name.
    ///
    /// # Errors
    /// If there is none, or it has no URL.
    pub fn named(&self, name: &str) -> Result<&Repository, RepositoriesError> {
        let path = || self.path.clone();
        let mut repositories = self.repositories.iter();
        match repositories.find(|one| one.name == name) {
            Some(found) if !found.url.is_empty() => Ok(found),
            Some(_) => Err(RepositoriesError::NoUrl {
                path: path(),
                name: name.to_owned(),
            }),
            None => Err(RepositoriesError::Unknown {
                path: path(),
                name: name.to_owned(),
                known: self
                    .repositories
                    .iter()
                    .map(|one| one.name.clone())
                    .collect(),
            }),
        }
    }

    /// Returns the first repository with a URL, for its credentials and certificates. Slashes at its end do not
    /// count.
    pub fn at(&self, url: &str) -> Option<&Repository> {
        let wanted = comparable(url)?;
        let mut repositories = self.repositories.iter();
        repositories.find(|one| comparable(&one.url).as_ref() == Some(&wanted))
    }
}

impl Repository {
    /// Returns its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds the stored credentials and certificates to `access`, in place of those that it does not have.
    #[must_use]
    pub fn access(&self, access: Access) -> Access {
        let path = |file: &Option<PathBuf>| {
            let file = file.clone();
            file.filter(|file| !file.as_os_str().is_empty())
        };
        let mut access = access;
        // The parts of a pair belong together.
        if access.username.is_none() && access.password.is_none() {
            access.username.clone_from(&self.username);
            access.password.clone_from(&self.password);
            access.pass_credentials |= self.pass_credentials_all;
        }
        if access.cert_file.is_none() && access.key_file.is_none() {
            access.cert_file = path(&self.cert_file);
            access.key_file = path(&self.key_file);
        }
        access.ca_file = access.ca_file.or_else(|| path(&self.ca_file));
        access.insecure_skip_tls_verify |= self.insecure_skip_tls_verify;
        access
    }
}

/// Returns a URL in a form that can be compared.
fn comparable(text: &str) -> Option<Url> {
    let mut url = Url::parse(text).ok()?;
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::rows;

    fn read(text: &str) -> Result<Repositories, RepositoriesError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("repositories.yaml");
        std::fs::write(&path, text).unwrap();
        let mut read = Repositories::read(&path)?;
        read.path = "r.yaml".into();
        Ok(read)
    }

    /// As Helm 4.3.1 writes it.
    const STORED: &str = r#"apiVersion: ""
generated: "0001-01-01T00:00:00Z"
repositories:
- caFile: /ca.crt
  certFile: ""
  insecure_skip_tls_verify: true
  keyFile: ""
  name: shops
  pass_credentials_all: true
  password: hidden
  url: https://shops.example.com/charts
  username: me
- name: others
  url: https://others.example.com
- name: none
"#;

    #[test]
    fn repositories_are_found_by_name_and_by_url() {
        let stored = read(STORED).unwrap();
        let url = |name: &str| stored.named(name).map(|found| found.url().to_owned());
        assert_eq!(url("shops").unwrap(), "https://shops.example.com/charts");
        assert_eq!(
            url("none").unwrap_err().to_string(),
            "the repository \"none\" in r.yaml has no URL; add it again with 'helm repo add'"
        );
        assert_eq!(
            url("shop").unwrap_err().to_string(),
            "r.yaml has no repository \"shop\", only shops, others, none; add it with 'helm repo add shop URL', or \
             give the URL of the repository"
        );
        let name = |url: &str| stored.at(url).map(|found| found.name.as_str());
        assert_eq!(name("https://shops.example.com/charts//"), Some("shops"));
        assert_eq!(name("https://OTHERS.example.com:443/"), Some("others"));
        assert_eq!(name("https://others.example.com/charts"), None);
        assert_eq!(name("charts"), None);
    }

    #[test]
    fn stored_credentials_count_where_none_are_given() {
        let repositories = read(STORED).unwrap();
        let stored = repositories.named("shops").unwrap();
        let access = stored.access(Access::default());
        assert_eq!(access.basic().unwrap(), "Basic bWU6aGlkZGVu");
        assert!(access.pass_credentials && access.insecure_skip_tls_verify);
        assert_eq!(access.ca_file, Some("/ca.crt".into()));
        assert_eq!((access.cert_file, access.key_file), (None, None));

        let given = Access {
            username: Some("you".to_owned()),
            ca_file: Some("/other.crt".into()),
            ..Access::default()
        };
        let access = stored.access(given);
        assert_eq!(access.username.as_deref(), Some("you"));
        assert_eq!(access.password, None, "of another user");
        assert!(!access.pass_credentials);
        assert_eq!(access.ca_file, Some("/other.crt".into()));
    }

    #[test]
    fn a_missing_file_has_no_repositories_and_a_malformed_one_is_refused() {
        let missing = Repositories::read(Path::new("/none/repositories.yaml")).unwrap();
        assert_eq!(
            missing.named("a").unwrap_err().to_string(),
            "/none/repositories.yaml has no repository \"a\"; add it with 'helm repo add a URL', or give the URL of \
             the repository"
        );
        for empty in ["", "apiVersion: v1", "repositories: null"] {
            assert!(read(empty).unwrap().repositories.is_empty(), "{empty}");
        }
        for text in [
            "repositories:\n- {name: a, password: [hidden]}",
            "repositories: hidden",
            "repositories:\n- name: a\n  url: [hidden",
        ] {
            let error = read(text).unwrap_err();
            let is_malformed = matches!(error, RepositoriesError::Malformed { .. });
            assert!(is_malformed, "{text}");
            assert!(!format!("{error} {error:?}").contains("hidden"));
        }
        let stored = read(STORED).unwrap();
        assert!(!format!("{stored:?}").contains("hidden"));
    }

    #[test]
    fn the_file_is_looked_for_where_helm_keeps_it() {
        let found = |set: &[(&str, &str)]| {
            Repositories::default_path(|name| {
                let one = set.iter().find(|(key, _)| *key == name);
                one.map(|(_, value)| (*value).to_owned())
            })
        };
        let home = ("HOME", "/h");
        for [name, value, expected] in rows(
            "
            HOME                   | /h      | /h/.config/helm/repositories.yaml
            XDG_CONFIG_HOME        | /x      | /x/helm/repositories.yaml
            HELM_CONFIG_HOME       | /c      | /c/repositories.yaml
            HELM_REPOSITORY_CONFIG | /r.yaml | /r.yaml
            ",
        ) {
            assert_eq!(found(&[home, (name, value)]), Some(expected.into()));
        }
        assert_eq!(found(&[]), None);
    }
}
