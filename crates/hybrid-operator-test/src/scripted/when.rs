//! Matches requests to the rules of the script.

use http::Method;

use crate::request::Recorded;

/// Matches requests by method, path and query.
///
/// In a path, `*` matches one segment, and `**` at its end any number of segments.
#[derive(Debug, Clone)]
pub struct When {
    method: Option<Method>,
    path: String,
    query: Vec<(String, Option<String>)>,
    times: Option<usize>,
}

impl When {
    /// Matches every request.
    pub fn any() -> Self {
        Self {
            method: None,
            path: "**".to_owned(),
            query: Vec::new(),
            times: None,
        }
    }

    /// Matches GET: get, list and watch.
    pub fn get(path: &str) -> Self {
        Self::method(Method::GET, path)
    }

    /// Matches POST: create.
    pub fn post(path: &str) -> Self {
        Self::method(Method::POST, path)
    }

    /// Matches PUT: update.
    pub fn put(path: &str) -> Self {
        Self::method(Method::PUT, path)
    }

    /// Matches PATCH: patches and server-side apply.
    pub fn patch(path: &str) -> Self {
        Self::method(Method::PATCH, path)
    }

    /// Matches DELETE: delete and deletecollection.
    pub fn delete(path: &str) -> Self {
        Self::method(Method::DELETE, path)
    }

    fn method(method: Method, path: &str) -> Self {
        Self {
            method: Some(method),
            path: path.to_owned(),
            ..Self::any()
        }
    }

    /// Matches only with this parameter in the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// Matches only without this parameter in the query.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.query.push((name.to_owned(), None));
        self
    }

    /// Matches at most this many times.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    pub(super) fn matches(&self, request: &Recorded, used: usize) -> bool {
        let (method, mut query) = (self.method.as_ref(), self.query.iter());
        self.times.is_none_or(|times| used < times)
            && method.is_none_or(|method| *method == request.method)
            && query.all(|(name, value)| request.query.get(name) == value.as_ref())
            && path_matches(&self.path, &request.path)
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        match (wanted, segments.next()) {
            ("**", _) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(segment)) if wanted == segment => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_patterns_match_segments() {
        for (pattern, path, expected) in [
            ("**", "/version", true),
            ("/version", "/version", true),
            ("/version", "/versions", false),
            ("/api/*/pods", "/api/v1/pods", true),
            ("/api/*/pods", "/api/v1/pods/a", false),
            ("/api/*/pods/*", "/api/v1/pods", false),
            ("/api/**", "/api/v1/pods/a", true),
            ("/apis/**", "/api/v1/pods/a", false),
        ] {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
