//! The `index.yaml` of a repository, read as Helm reads it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use url::Url;

use crate::digest::Digest;
use crate::error::PullError;
use crate::reference::{ReferenceError, http_url, shown};
use crate::version;

/// Largest number of edits by which a similar name may differ.
const SIMILAR: usize = 2;

/// The entries of one chart in an index.
#[derive(Debug, Default)]
struct Index {
    api_version: String,
    /// Whether the name was found.
    found: bool,
    versions: Vec<Entry>,
    nearest: Option<String>,
}

/// One version of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Entry {
    name: Option<String>,
    version: Option<String>,
    urls: Option<Vec<String>>,
    digest: Option<String>,
}

/// The version that was picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) version: String,
    /// URL of the archive, which may be an `oci://` name.
    pub(crate) url: String,
    pub(crate) digest: Option<Digest>,
}

/// Returns the URL of the index of a repository.
pub(crate) fn url_of(repository: &Url) -> Url {
    let mut url = repository.clone();
    let path = format!("{}/index.yaml", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Picks a version of a chart out of the text of an index.
pub(crate) fn pick(
    text: &[u8],
    repository: &Url,
    name: &str,
    wanted: Option<&str>,
) -> Result<Picked, PullError> {
    let url = shown(&url_of(repository));
    let wrong = |why: String| PullError::Index {
        url: url.clone(),
        why,
    };
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(wrong("it is empty".to_owned()));
    }
    let index = go_yaml::from_slice_seed(text, Pick { name })
        .map_err(|error| wrong(format!("it is not the YAML of an index: {error}")))?;
    if index.api_version.is_empty() {
        let why = "it has no apiVersion; is this the URL of a repository?";
        return Err(wrong(why.to_owned()));
    }
    if !index.found {
        return Err(PullError::NoChart {
            url,
            name: name.to_owned(),
            nearest: index.nearest,
        });
    }
    let mut versions: Vec<(&str, &Entry)> = index
        .versions
        .iter()
        .filter(|entry| entry.name.as_deref().is_some_and(|name| !name.is_empty()))
        .filter_map(|entry| Some((entry.version.as_deref()?, entry)))
        .filter(|(text, _)| version::is_exact(text))
        .collect();
    versions.sort_by(|(a, _), (b, _)| version::newest_first(a, b));
    let texts = versions.iter().map(|(text, _)| *text);
    let at = version::pick(texts, wanted).map_err(|error| PullError::Range {
        wanted: wanted.unwrap_or_default().to_owned(),
        source: error.into(),
    })?;
    let Some((found, entry)) = at.and_then(|at| versions.get(at)) else {
        return Err(PullError::NoVersion {
            chart: format!("the chart {name} at {url}"),
            wanted: wanted.unwrap_or("*").to_owned(),
            newest: versions.first().map(|(text, _)| (*text).to_owned()),
        });
    };
    let urls = entry.urls.as_deref().unwrap_or_default();
    let Some(target) = urls.first() else {
        return Err(wrong(format!("{name} {found} has no URL")));
    };
    let digest = match entry.digest.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => {
            let parsed = Digest::parse_bare(text);
            Some(parsed.map_err(|error| wrong(format!("{name} {found}: {error}")))?)
        }
        None => None,
    };
    Ok(Picked {
        version: (*found).to_owned(),
        url: absolute(repository, target)?,
        digest,
    })
}

/// Returns the URL of an archive, which may be relative to the repository's. As in Helm, a relative
/// one keeps the repository's query.
fn absolute(repository: &Url, target: &str) -> Result<String, ReferenceError> {
    if target.starts_with("oci://") {
        return Ok(target.to_owned());
    }
    if Url::parse(target).is_ok() {
        return http_url(target).map(Into::into);
    }
    let mut base = repository.clone();
    base.set_path(&format!("{}/", base.path().trim_end_matches('/')));
    let mut url = base.join(target).map_err(|_| ReferenceError::Url {
        url: target.to_owned(),
    })?;
    url.set_query(base.query());
    Ok(url.into())
}

/// Reads an index, of which only the entries of one chart are kept.
#[derive(Clone, Copy)]
struct Pick<'a> {
    name: &'a str,
}

impl<'de> serde::de::DeserializeSeed<'de> for Pick<'_> {
    type Value = Index;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Index, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pick<'_> {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index of a repository")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let mut index = Index::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => {
                    index.api_version = map.next_value::<Option<String>>()?.unwrap_or_default();
                }
                "entries" => {
                    let entries = map.next_value_seed(PickEntries(self))?;
                    (index.found, index.versions, index.nearest) = entries;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(index)
    }
}

/// Whether the chart was found, its versions, and a similar name.
type Entries = (bool, Vec<Entry>, Option<String>);

struct PickEntries<'a>(Pick<'a>);

impl<'de> serde::de::DeserializeSeed<'de> for PickEntries<'_> {
    type Value = Entries;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for PickEntries<'_> {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the charts of a repository by name")
    }

    fn visit_none<E>(self) -> Result<Entries, E> {
        Ok(Entries::default())
    }

    fn visit_unit<E>(self) -> Result<Entries, E> {
        Ok(Entries::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let PickEntries(Pick { name }) = self;
        let (mut found, mut versions, mut nearest) = Entries::default();
        let mut distance = SIMILAR + 1;
        while let Some(key) = map.next_key::<String>()? {
            if key == name {
                found = true;
                let entries = map.next_value::<Option<Vec<Option<Entry>>>>()?;
                versions = entries.unwrap_or_default().into_iter().flatten().collect();
                continue;
            }
            map.next_value::<IgnoredAny>()?;
            let edits = edits(&key, name, distance);
            if edits < distance {
                distance = edits;
                nearest = Some(key);
            }
        }
        Ok((found, versions, nearest))
    }
}

/// Returns the number of characters by which two names differ, or `limit` if it is at least that.
fn edits(a: &str, b: &str, limit: usize) -> usize {
    if a.len().abs_diff(b.len()) >= limit {
        return limit;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.bytes().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(x != y);
            left = replaced.min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(limit).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{given, rows};

    const INDEX: &str = "\
apiVersion: v1
entries:
  web:
  - {name: web, version: 1.2.0, urls: [web-1.2.0.tgz], digest: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad}
  - {name: web, version: 2.0.0-rc.1, urls: ['https://files.example.com/web.tgz?a=b']}
  - null
  - {name: web, version: 1.10.0, urls: [../up/web-1.10.0.tgz, other]}
  - {name: web, version: broken, urls: [x]}
  - {version: 9.0.0, urls: [x]}
  - {name: web, version: 0.1.0}
  - {name: web, version: 0.2.0, urls: [x], digest: md5}
  - {name: web, version: 0.3.0, urls: ['oci://r.example.com/web:0.3.0']}
  - {name: web, version: 0.4.0, urls: ['file:///etc/passwd']}
  other:
  - 5
generated: 2020-01-01T00:00:00Z
";

    fn find(text: &str, name: &str, wanted: Option<&str>) -> Result<String, String> {
        let repository = "https://example.com/charts?q=1".parse().unwrap();
        let picked = pick(text.as_bytes(), &repository, name, wanted).map_err(|e| e.to_string())?;
        Ok(format!(
            "{} {} {}",
            picked.version,
            picked.url,
            picked.digest.is_some()
        ))
    }

    #[test]
    fn versions_and_urls_are_those_that_helm_takes() {
        for [wanted, expected] in rows(
            "
                    | 1.10.0 https://example.com/up/web-1.10.0.tgz?q=1 false
            ~1.2    | 1.2.0 https://example.com/charts/web-1.2.0.tgz?q=1 true
            >0.0.0-0 | 2.0.0-rc.1 https://files.example.com/web.tgz?a=b false
            0.3.0   | 0.3.0 oci://r.example.com/web:0.3.0 false
            ",
        ) {
            let found = find(INDEX, "web", given(wanted));
            assert_eq!(found, Ok(expected.to_owned()), "{wanted:?}");
        }
    }

    #[test]
    fn errors_name_the_index_and_the_way_out() {
        let json = r#"{"apiVersion": "v1", "entries": {"web": null}}"#;
        let place = "https://example.com/charts/index.yaml";
        for [name, wanted, expected] in rows(
            r#"
            wbe        |       | has no chart "wbe"; did you mean "web"?
            postgresql |       | has no chart "postgresql"
            web        | 3     | has no version "3"; the newest is 2.0.0-rc.1
            web        | a b   | neither a version nor a range
            web        | 0.1.0 | web 0.1.0 has no URL
            web        | 0.2.0 | web 0.2.0: "md5" is not a SHA-256 digest
            web        | 0.4.0 | charts are fetched by https, http or oci
            "#,
        ) {
            let error = find(INDEX, name, given(wanted)).unwrap_err();
            assert!(error.contains(expected), "{error} instead of {expected}");
            assert!(error.contains(place) || !wanted.is_empty(), "{error}");
        }
        let no_index = "not the YAML of an index";
        for (text, expected) in [
            (json, "it has no version at all"),
            ("apiVersion: v1", "has no chart \"web\""),
            (" \n", "it is empty"),
            ("<!DOCTYPE html><p>hi", no_index),
            ("entries: {}", "it has no apiVersion"),
            ("[]", no_index),
            ("apiVersion: v1\nentries: {web: 5}", no_index),
        ] {
            let error = find(text, "web", None).unwrap_err();
            assert!(error.contains(expected), "{error} instead of {expected}");
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn index_is_beside_the_charts() {
        for [repository, index] in rows(
            "
            https://example.com        | https://example.com/index.yaml
            https://example.com/a/?q=1 | https://example.com/a/index.yaml?q=1
            https://example.com/a      | https://example.com/a/index.yaml
            ",
        ) {
            assert_eq!(url_of(&repository.parse().unwrap()).as_str(), index);
        }
    }

    #[test]
    fn similar_names_are_counted_in_edits() {
        let names = [
            ("web", "web", 0),
            ("web", "wbe", 2),
            ("a", "abc", 2),
            ("x", "", 1),
        ];
        for (a, b, expected) in names {
            assert_eq!(edits(a, b, 3), expected, "{a} {b}");
        }
        assert_eq!(edits("postgresql", "web", 3), 3);
    }
}
