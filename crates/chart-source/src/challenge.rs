//! Challenges of registries in the header `WWW-Authenticate` (RFC 9110, section 11.6.1).

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// Authentication that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By user and password.
    Basic,
    /// By a token of a service.
    Bearer {
        /// URL of the service.
        realm: String,
        /// The registry's name at the service.
        service: Option<String>,
        /// Access that the token is to grant.
        scope: Option<String>,
    },
}

/// Returns the challenge that is answered: that for a token, if there is one.
pub(crate) fn of(headers: &HeaderMap) -> Option<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter();
    let challenges: Vec<_> = texts
        .filter_map(|value| value.to_str().ok())
        .filter_map(parse)
        .collect();
    let bearer = challenges
        .iter()
        .find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
    bearer.or(challenges.first()).cloned()
}

/// Parses one challenge.
fn parse(text: &str) -> Option<Challenge> {
    let (scheme, parameters) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    let mut rest = parameters;
    while let Some((key, value, after)) = parameter(rest) {
        match key.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
        rest = after;
    }
    Some(Challenge::Bearer {
        realm: realm?,
        service,
        scope,
    })
}

/// Splits `key="value"` or `key=value` off a list.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([',', ' ', '\t']);
    let (key, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ' ']).unwrap_or(rest.len());
        let (value, after) = rest.split_at_checked(end)?;
        return Some((key.trim(), value.to_owned(), after));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((key.trim(), value, quoted.get(at + 1..)?)),
            '\\' => value.push(characters.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }
    }

    #[test]
    fn challenges_are_parsed() {
        let realm = "https://auth.example.com/token";
        let whole = r#"Bearer realm="https://auth.example.com/token",service="r",scope="repository:a/b:pull,push""#;
        let escaped = r#"bearer Service=r , realm="https://auth.example.com/\token""#;
        let other = r#"Bearer realm="https://auth.example.com/token""#;
        let basic = r#"Basic realm="r""#;
        let scope = Some("repository:a/b:pull,push");
        for (texts, expected) in [
            (&[whole][..], Some(bearer(realm, Some("r"), scope))),
            (&[escaped], Some(bearer(realm, Some("r"), None))),
            (&[basic], Some(Challenge::Basic)),
            (&[basic, other], Some(bearer(realm, None, None))),
            (&["Negotiate"], None),
            (&["Bearer realm=\"unclosed"], None),
            (&["Bearer service=\"r\""], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for text in texts {
                headers.append(WWW_AUTHENTICATE, text.parse().unwrap());
            }
            assert_eq!(of(&headers), expected, "{texts:?}");
        }
    }
}
