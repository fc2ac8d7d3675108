//! Charts in OCI registries: the distribution API, with tokens.

mod manifest;
mod signatures;

use std::path::PathBuf;

use http::header::{HeaderName, HeaderValue, LINK};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::access::{self, Access, Password};
use crate::challenge::{self, Challenge};
use crate::digest::Digest;
use crate::docker_config::{self, Login};
use crate::error::PullError;
use crate::limits;
use crate::reference::{OciName, ReferenceError, shown};
use crate::transport::{Answer, Request, Transport};
use crate::version;

use manifest::{DOCUMENTS, Document, INDEX, MANIFESTS, Manifest};

pub(crate) use manifest::{Layer, Layers};
pub(crate) use signatures::Signed;

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// Name of this program at token services.
const CLIENT: &str = "hybrid-operator";

/// The repository of a chart in a registry.
pub(crate) struct Registry<'a> {
    transport: &'a Transport,
    access: &'a Access,
    name: &'a OciName,
    /// Authorization header, once the registry has asked for one.
    authorization: Option<HeaderValue>,
    /// Source of the credentials, if there are any.
    credentials_from: Option<String>,
}

/// A chart that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The tag, unless the chart was asked for by its digest alone.
    pub(crate) tag: Option<String>,
    /// Digest of the first of the manifests.
    pub(crate) digest: Digest,
    /// The manifest that was asked for. If it is an index, what leads from it to the manifest of the chart follows.
    pub(crate) manifests: Vec<Vec<u8>>,
    pub(crate) layers: Layers,
}

/// A text that a registry has under a tag or a digest.
struct Text {
    /// URL of the text, for messages.
    url: String,
    digest: Digest,
    body: Vec<u8>,
}

impl Text {
    fn wrong(&self, why: String) -> PullError {
        let url = self.url.clone();
        PullError::Manifest { url, why }
    }
}

#[derive(Deserialize)]
struct Tags {
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Registry<'a> {
    pub(crate) fn new(transport: &'a Transport, access: &'a Access, name: &'a OciName) -> Self {
        Self {
            transport,
            access,
            name,
            authorization: None,
            credentials_from: None,
        }
    }

    /// Finds the manifest of a version, or of the newest one in a range, as Helm does.
    pub(crate) async fn find(&mut self, wanted: Option<&str>) -> Result<Found, PullError> {
        let name = self.name;
        let tag = match (&name.tag, wanted) {
            (Some(tag), _) => Some(tag.clone()),
            (None, Some(wanted)) if version::is_exact(wanted) => Some(wanted.replace('+', "_")),
            (None, None) if name.digest.is_some() => None,
            (None, wanted) => Some(self.newest(wanted).await?),
        };
        let by = match (&tag, &name.digest) {
            (_, Some(digest)) => digest.to_string(),
            (Some(tag), None) => tag.clone(),
            // There is a digest if there is no tag.
            (None, None) => "latest".to_owned(),
        };
        let found = self.chart(&by).await?;
        if let (Some(tag), Some(_)) = (&tag, &name.digest) {
            let tagged = self.text(tag).await?;
            if tagged.digest != found.digest {
                return Err(PullError::Digest {
                    url: format!("oci://{}/{}:{tag}", name.host, name.repository),
                    by: "the reference",
                    expected: found.digest,
                    actual: tagged.digest,
                });
            }
        }
        Ok(Found { tag, ..found })
    }

    /// Returns the digest of what the tag names.
    pub(crate) async fn digest(&mut self) -> Result<Digest, PullError> {
        let name = self.name;
        let by = match (&name.digest, &name.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
        };
        Ok(self.document_of(&by, "image").await?.digest)
    }

    /// Fetches an archive.
    pub(crate) async fn archive(&mut self, layer: &Layer) -> Result<Vec<u8>, PullError> {
        self.blob(layer, "chart", limits::ARCHIVE).await
    }

    /// Fetches a provenance file.
    #[cfg(feature = "provenance")]
    pub(crate) async fn provenance(&mut self, layer: &Layer) -> Result<Vec<u8>, PullError> {
        self.blob(layer, "provenance file", limits::PROVENANCE)
            .await
    }

    /// Returns the last part of the name of the repository, which is the name of the chart.
    #[cfg(feature = "provenance")]
    pub(crate) fn chart_name(&self) -> &str {
        let name = self.name.repository.as_str();
        name.rsplit('/').next().unwrap_or(name)
    }

    /// Fetches a blob.
    async fn blob(
        &mut self,
        layer: &Layer,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, PullError> {
        let address = self.url(&format!("blobs/{}", layer.digest))?;
        if layer.size > limit as u64 {
            return Err(PullError::TooLarge {
                url: shown(&address),
                what,
                limit,
            });
        }
        let request = Request::get(address, what, limit);
        let data = self.send(request.clone()).await?.success(&request)?;
        let (url, actual) = (request.shown(), data.len() as u64);
        if actual != layer.size {
            let expected = layer.size;
            return Err(PullError::Length {
                url,
                expected,
                actual,
            });
        }
        check(url, "the manifest", layer.digest, &data)?;
        Ok(data)
    }

    /// Returns the newest tag in a range.
    async fn newest(&mut self, wanted: Option<&str>) -> Result<String, PullError> {
        let mut versions: Vec<String> = self.tags().await?;
        for tag in &mut versions {
            *tag = tag.replace('_', "+");
        }
        versions.retain(|tag| version::is_tag_of_version(tag));
        versions.sort_by(|a, b| version::newest_first(a, b));
        let texts = versions.iter().map(String::as_str);
        let at = version::pick(texts, wanted).map_err(|error| PullError::Range {
            wanted: wanted.unwrap_or_default().to_owned(),
            source: error.into(),
        })?;
        match at.and_then(|at| versions.get(at)) {
            Some(version) => Ok(version.replace('+', "_")),
            None => Err(PullError::NoVersion {
                chart: self.name.to_string(),
                wanted: wanted.unwrap_or("*").to_owned(),
                newest: versions.first().cloned(),
            }),
        }
    }

    async fn tags(&mut self) -> Result<Vec<String>, PullError> {
        let mut all = Vec::new();
        let first = self.url("tags/list")?;
        let mut url = first.clone();
        for _ in 0..limits::TAG_PAGES {
            let request = Request::get(url.clone(), "chart", limits::TAGS);
            let answer = self.send(request.clone()).await?;
            let next = next_page(&answer.headers, &url);
            let body = answer.success(&request)?;
            let page: Tags = parse(
                &body,
                &request,
                "its list of tags is not that of a registry",
            )?;
            all.extend(page.tags.unwrap_or_default());
            match next {
                Some(next) if next.origin() == first.origin() => url = next,
                _ => return Ok(all),
            }
        }
        Err(PullError::TooLarge {
            url: shown(&first),
            what: "list of tags",
            limit: limits::TAGS * limits::TAG_PAGES,
        })
    }

    /// Finds a chart by tag or digest.
    async fn chart(&mut self, by: &str) -> Result<Found, PullError> {
        let text = self.text(by).await?;
        let wrong = |why| text.wrong(why);
        let (manifests, layers) = match Document::of(&text.body).map_err(wrong)? {
            Document::Manifest(layers) => (vec![text.body.clone()], layers.map_err(wrong)?),
            Document::Index(listed) => self.in_index(&text, listed).await?,
        };
        Ok(Found {
            tag: None,
            digest: text.digest,
            manifests,
            layers,
        })
    }

    /// Finds the only chart among what an index lists, also in indexes that it lists. Images and other artifacts may
    /// be beside it. Helm takes any of several charts; here they are refused.
    async fn in_index(
        &mut self,
        index: &Text,
        listed: Vec<Digest>,
    ) -> Result<(Vec<Vec<u8>>, Layers), PullError> {
        let wrong = |why| index.wrong(why);
        let root = vec![index.body.clone()];
        let mut left: Vec<(Vec<Vec<u8>>, Digest)> = Vec::new();
        left.extend(listed.into_iter().rev().map(|one| (root.clone(), one)));
        let mut found: Option<(Vec<Vec<u8>>, Layers)> = None;
        let mut fetched = 0;
        while let Some((mut chain, digest)) = left.pop() {
            if fetched == limits::INDEXED {
                return Err(wrong(format!(
                    "its index lists more than {} manifests",
                    limits::INDEXED
                )));
            }
            fetched += 1;
            let text = self.text(&digest.to_string()).await?;
            chain.push(text.body.clone());
            match Document::of(&text.body).map_err(wrong)? {
                Document::Manifest(Err(_)) => {}
                Document::Manifest(Ok(layers)) => match &found {
                    None => found = Some((chain, layers)),
                    Some((_, first)) if first.chart == layers.chart => {}
                    Some((texts, _)) => {
                        let first = texts.last().map(|text| Digest::of(text));
                        let first = first.unwrap_or(index.digest);
                        return Err(wrong(format!(
                            "its index has several charts, with the manifests {first} and {digest}; name one of \
                             them: oci://{}/{}@{first}",
                            self.name.host, self.name.repository
                        )));
                    }
                },
                Document::Index(listed) => {
                    left.extend(listed.into_iter().rev().map(|one| (chain.clone(), one)));
                }
            }
        }
        found.ok_or_else(|| wrong("its index has no chart".to_owned()))
    }

    /// Fetches a manifest or an index of a chart by tag or digest.
    async fn text(&mut self, by: &str) -> Result<Text, PullError> {
        self.document_of(by, "chart").await
    }

    async fn document_of(&mut self, by: &str, what: &'static str) -> Result<Text, PullError> {
        let request = self.document(&format!("manifests/{by}"), what, DOCUMENTS)?;
        let answer = self.send(request.clone()).await?;
        let promised = answer.headers.get(&CONTENT_DIGEST);
        let promised = promised.and_then(|value| value.to_str().ok()?.parse::<Digest>().ok());
        let body = answer.success(&request)?;
        let digest = Digest::of(&body);
        for (by, expected) in [
            ("the reference", by.parse().ok()),
            ("the registry's header Docker-Content-Digest", promised),
        ] {
            if let Some(expected) = expected {
                check(request.shown(), by, expected, &body)?;
            }
        }
        Ok(Text {
            url: request.shown(),
            digest,
            body,
        })
    }

    /// Asks for a manifest, or a list of manifests.
    fn document(
        &self,
        path: &str,
        what: &'static str,
        accept: &'static str,
    ) -> Result<Request, PullError> {
        Ok(Request {
            accept: Some(accept),
            ..Request::get(self.url(path)?, what, limits::MANIFEST)
        })
    }

    fn url(&self, path: &str) -> Result<Url, PullError> {
        let scheme = if self.access.plain_http {
            "http"
        } else {
            "https"
        };
        let host = match self.name.host.as_str() {
            // Docker Hub.
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        };
        let text = format!("{scheme}://{host}/v2/{}/{path}", self.name.repository);
        Url::parse(&text).map_err(|_| ReferenceError::Url { url: text }.into())
    }

    /// Sends a request. If the registry wants to know who asks, the request is sent once more.
    async fn send(&mut self, request: Request) -> Result<Answer, PullError> {
        let first = Request {
            authorization: self.authorization.clone(),
            ..request.clone()
        };
        let mut answer = self.transport.send(&first).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            self.authorization = Some(self.authorize(&answer, &request).await?);
            let second = Request {
                authorization: self.authorization.clone(),
                ..request.clone()
            };
            answer = self.transport.send(&second).await?;
        }
        match answer.status.as_u16() {
            status @ (401 | 403) => Err(self.denied(request.shown(), status)),
            404 => Err(PullError::NotFound {
                url: request.shown(),
                what: request.what,
                private: self.credentials_from.is_none(),
            }),
            _ => Ok(answer),
        }
    }

    fn denied(&self, url: String, status: u16) -> PullError {
        match &self.credentials_from {
            Some(from) => PullError::Denied {
                url,
                source_of_credentials: from.clone(),
                status,
            },
            None => PullError::NeedsCredentials {
                url,
                host: self.name.host.clone(),
                status,
            },
        }
    }

    /// Returns the header that the challenge of an answer asks for.
    async fn authorize(
        &mut self,
        answer: &Answer,
        request: &Request,
    ) -> Result<HeaderValue, PullError> {
        let login = self.login().await?;
        let denied = |registry: &Self| registry.denied(request.shown(), answer.status.as_u16());
        match challenge::of(&answer.headers) {
            Some(Challenge::Basic) => match login {
                Some(Login::User(user, password)) => {
                    access::basic(&user, password.reveal()).ok_or_else(|| denied(self))
                }
                _ => Err(denied(self)),
            },
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let scope =
                    scope.unwrap_or_else(|| format!("repository:{}:pull", self.name.repository));
                let realm = self.realm(&realm, request)?;
                self.token(realm, service.as_deref(), &scope, login).await
            }
            None => Err(denied(self)),
        }
    }

    /// Returns the credentials of the registry: those that were given, or those of a file.
    async fn login(&mut self) -> Result<Option<Login>, PullError> {
        let access = self.access;
        let username = access.username.clone().unwrap_or_default();
        if !username.is_empty() || access.password.is_some() {
            self.credentials_from = Some("that were given".to_owned());
            let password = access.password.clone().unwrap_or_default();
            return Ok(Some(Login::User(username, password)));
        }
        if let Some((name, text)) = &access.docker_config
            && let Some(login) = docker_config::in_text(name, text.reveal(), &self.name.host)?
        {
            self.credentials_from = Some(format!("of {name}"));
            return Ok(Some(login));
        }
        let files: Vec<PathBuf> = access.docker_configs.clone();
        let host = self.name.host.clone();
        // A credential helper is a program that may take its time.
        let found = tokio::task::spawn_blocking(move || docker_config::find(&files, &host)).await;
        let Ok(found) = found else {
            return Ok(None);
        };
        Ok(found?.map(|(login, path)| {
            self.credentials_from = Some(format!("of {}", path.display()));
            login
        }))
    }

    /// Checks the URL of a token service: credentials do not leave TLS.
    fn realm(&self, realm: &str, request: &Request) -> Result<Url, PullError> {
        let refused = |why: String| PullError::Challenge {
            url: request.shown(),
            why,
        };
        let url = Url::parse(realm)
            .map_err(|_| refused("the address of its token service is not a URL".to_owned()))?;
        match url.scheme() {
            "https" => Ok(url),
            "http" if self.access.plain_http => Ok(url),
            _ => Err(refused(format!(
                "its token service {} is not reached by https",
                shown(&url)
            ))),
        }
    }

    /// Gets a token, with the credentials if there are any, else anonymously.
    async fn token(
        &self,
        mut realm: Url,
        service: Option<&str>,
        scope: &str,
        login: Option<Login>,
    ) -> Result<HeaderValue, PullError> {
        let mut form = Serializer::new(String::new());
        if let Some(service) = service {
            form.append_pair("service", service);
        }
        form.append_pair("scope", scope);
        let request = match login {
            Some(Login::IdentityToken(token)) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("client_id", CLIENT);
                form.append_pair("refresh_token", token.reveal());
                Request {
                    form: Some(form.finish()),
                    ..Request::get(realm, "token", limits::TOKEN)
                }
            }
            login => {
                let parameters = form.finish();
                let query = match realm.query() {
                    Some(own) => format!("{own}&{parameters}"),
                    None => parameters,
                };
                realm.set_query(Some(&query));
                let basic =
                    |user: String, password: Password| access::basic(&user, password.reveal());
                Request {
                    authorization: match login {
                        Some(Login::User(user, password)) => basic(user, password),
                        _ => None,
                    },
                    ..Request::get(realm, "token", limits::TOKEN)
                }
            }
        };
        let answer = self.transport.send(&request).await?;
        if let status @ (400 | 401 | 403) = answer.status.as_u16() {
            return Err(self.denied(request.shown(), status));
        }
        let body = answer.success(&request)?;
        let refused = |why: &str| PullError::Challenge {
            url: request.shown(),
            why: why.to_owned(),
        };
        let granted: Token = serde_json::from_slice(&body)
            .map_err(|_| refused("the answer of the token service is not a token"))?;
        let token = granted.token.or(granted.access_token);
        token
            .filter(|token| !token.is_empty())
            .and_then(|token| access::bearer(&token))
            .ok_or_else(|| refused("the token service gives no token"))
    }
}

/// Compares data with the digest that it must have.
pub(crate) fn check(
    url: String,
    by: &'static str,
    expected: Digest,
    data: &[u8],
) -> Result<(), PullError> {
    let actual = Digest::of(data);
    if actual == expected {
        return Ok(());
    }
    Err(PullError::Digest {
        url,
        by,
        expected,
        actual,
    })
}

fn parse<T: serde::de::DeserializeOwned>(
    body: &[u8],
    request: &Request,
    why: &str,
) -> Result<T, PullError> {
    serde_json::from_slice(body).map_err(|_| PullError::Manifest {
        url: request.shown(),
        why: why.to_owned(),
    })
}

/// Returns the URL of the next page, which a header names: `</v2/…?last=x>; rel="next"`.
fn next_page(headers: &HeaderMap, url: &Url) -> Option<Url> {
    let link = headers.get(LINK)?.to_str().ok()?;
    let (target, relation) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = relation.contains("rel=\"next\"") || relation.contains("rel=next");
    is_next.then(|| url.join(target).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{given, rows};

    #[test]
    fn next_page_is_that_of_the_link() {
        let url: Url = "https://r.example.com/v2/web/tags/list".parse().unwrap();
        for [link, expected] in rows(
            r#"
            </v2/web/tags/list?last=a&n=2>; rel="next" | https://r.example.com/v2/web/tags/list?last=a&n=2
            <https://other.example.com/>; rel=next     | https://other.example.com/
            </v2/x>; rel="prev"                        |
            /v2/x                                      |
            "#,
        ) {
            let mut headers = HeaderMap::new();
            headers.insert(LINK, link.parse().unwrap());
            let found = next_page(&headers, &url).map(String::from);
            assert_eq!(found.as_deref(), given(expected), "{link}");
        }
    }
}
