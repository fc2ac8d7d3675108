//! Go's `net/url`: parsing and formatting of URLs.

use bounded::Buffer;
use std::net::Ipv6Addr;

use super::cut;
use super::strconv::quoted;

/// The part of a URL that a text is escaped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    /// The zone of an IPv6 address.
    Zone,
    UserInfo,
    Fragment,
}

/// An error in the text of a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUrlError {
    /// The URL was rejected, with Go's reason.
    #[error("parse {}: {reason}", quoted(url))]
    Refused {
        /// The URL, without its fragment.
        url: Vec<u8>,
        /// The reason.
        reason: String,
    },
}

/// A user with an optional password, both unescaped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    username: Vec<u8>,
    password: Option<Vec<u8>>,
}

impl UserInfo {
    /// Returns `user:password`, escaped.
    pub fn text(&self) -> Vec<u8> {
        let mut out = escape(&self.username, Part::UserInfo);
        if let Some(password) = &self.password {
            out.push(b':');
            out.extend(escape(password, Part::UserInfo));
        }
        out
    }
}

/// The parts of a URL, like Go's `url.URL`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Url {
    /// The scheme in lower case, such as `https`.
    pub scheme: Vec<u8>,
    /// The text after the scheme if it is not a path.
    pub opaque: Vec<u8>,
    /// The user.
    pub user: Option<UserInfo>,
    /// The host with an optional port, unescaped.
    pub host: Vec<u8>,
    /// The path, unescaped.
    pub path: Vec<u8>,
    /// The text after the question mark, as written.
    pub query: Vec<u8>,
    /// The text after `#`, unescaped.
    pub fragment: Vec<u8>,
}

impl Url {
    /// Go's `url.Parse`.
    ///
    /// # Errors
    /// If the text is not a URL.
    pub fn parse(text: &[u8]) -> Result<Self, ParseUrlError> {
        let (url, fragment) = cut(text, b'#');
        let refused = |url: &[u8], reason| ParseUrlError::Refused {
            url: url.to_vec(),
            reason,
        };
        let mut parsed =
            Self::parse_without_fragment(url).map_err(|reason| refused(url, reason))?;
        if let Some(fragment) = fragment {
            parsed.fragment =
                unescape(fragment, Part::Fragment).map_err(|reason| refused(text, reason))?;
        }
        Ok(parsed)
    }

    fn parse_without_fragment(text: &[u8]) -> Result<Self, String> {
        if text.iter().any(u8::is_ascii_control) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut url = Self::default();
        if text == b"*" {
            url.path = text.to_vec();
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = cut(rest, b'?');
        url.query = query.unwrap_or_default().to_vec();
        if !rest.starts_with(b"/") {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_vec();
                return Ok(url);
            }
            if cut(rest, b'/').0.contains(&b':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !url.scheme.is_empty() || !rest.starts_with(b"///");
        if let Some(authority) = rest.strip_prefix(b"//").filter(|_| has_authority) {
            let end = authority.iter().position(|&c| c == b'/');
            let (authority, path) = authority.split_at(end.unwrap_or(authority.len()));
            (url.user, url.host) = parse_authority(&url.scheme, authority)?;
            rest = path;
        }
        url.path = unescape(rest, Part::Path)?;
        Ok(url)
    }

    /// Returns the host without port and without the brackets of an IPv6 address.
    pub fn hostname(&self) -> &[u8] {
        let colon = self.host.iter().rposition(|&c| c == b':');
        let host = match colon.map(|colon| self.host.split_at(colon)) {
            Some((host, port)) if is_optional_port(port) => host,
            _ => self.host.as_slice(),
        };
        match host {
            [b'[', inner @ .., b']'] => inner,
            _ => host,
        }
    }

    /// Go's `URL.String` for a URL assembled from parts.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Buffer::new();
        if !self.scheme.is_empty() {
            out.extend_from_slice(&self.scheme);
            out.push(b':');
        }
        if self.opaque.is_empty() {
            self.push_hierarchy(&mut out);
        } else {
            out.extend_from_slice(&self.opaque);
        }
        if !self.query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push(b'#');
            out.extend(escape(&self.fragment, Part::Fragment));
        }
        out.into_vec()
    }

    fn push_hierarchy(&self, out: &mut Buffer) {
        let has_authority = !self.host.is_empty() || self.user.is_some();
        if has_authority || !self.scheme.is_empty() && !self.path.is_empty() {
            out.extend_from_slice(b"//");
        }
        if let Some(user) = &self.user {
            out.extend(user.text());
            out.push(b'@');
        }
        out.extend(escape(&self.host, Part::Host));
        let path = if self.path == b"*" {
            self.path.clone()
        } else {
            escape(&self.path, Part::Path)
        };
        if !path.is_empty() && !path.starts_with(b"/") && !self.host.is_empty() {
            out.push(b'/');
        }
        // A first segment with a colon would look like a scheme.
        if out.is_empty() && cut(&path, b'/').0.contains(&b':') {
            out.extend_from_slice(b"./");
        }
        out.extend(path);
    }
}

fn split_scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (at, &c) in text.iter().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => {
                let (scheme, rest) = text.split_at(at);
                return Ok((scheme, rest.get(1..).unwrap_or_default()));
            }
            _ => break,
        }
    }
    Ok((b"", text))
}

/// Parses the user of a URL.
fn parse_user(text: &[u8]) -> Result<UserInfo, String> {
    let allowed = |c: &u8| c.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(c);
    if !text.iter().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (username, password) = cut(text, b':');
    Ok(UserInfo {
        username: unescape(username, Part::UserInfo)?,
        password: password
            .map(|password| unescape(password, Part::UserInfo))
            .transpose()?,
    })
}

fn parse_authority(scheme: &[u8], text: &[u8]) -> Result<(Option<UserInfo>, Vec<u8>), String> {
    match text.iter().rposition(|&c| c == b'@') {
        None => Ok((None, parse_host(scheme, text)?)),
        Some(at) => {
            let (user, host) = text.split_at(at);
            let host = parse_host(scheme, host.get(1..).unwrap_or_default())?;
            Ok((Some(parse_user(user)?), host))
        }
    }
}

fn parse_host(scheme: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    match host.iter().rposition(|&c| c == b'[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    let first = host.iter().position(|&c| c == b':');
    // Database URLs list several hosts with ports, so only HTTP is restricted to one colon.
    let strict = scheme == b"http" || scheme == b"https";
    let colon = if strict {
        first
    } else {
        host.iter().rposition(|&c| c == b':')
    };
    if let Some(port) = colon.and_then(|colon| host.get(colon..)) {
        check_port(port)?;
    }
    unescape(host, Part::Host)
}

fn parse_ip_literal(host: &[u8]) -> Result<Vec<u8>, String> {
    let close = host.iter().rposition(|&c| c == b']');
    let close = close.ok_or_else(|| "missing ']' in host".to_owned())?;
    let (literal, rest) = host.split_at(close);
    let port = rest.get(1..).unwrap_or_default();
    check_port(port)?;
    let literal = literal.get(1..).unwrap_or_default();
    let zone = literal.windows(3).position(|three| three == b"%25");
    let (address, zone) = literal.split_at(zone.unwrap_or(literal.len()));
    let mut out = unescape(address, Part::Host)?;
    let is_address = std::str::from_utf8(&out).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    let zone = unescape(zone, Part::Zone)?;
    if !is_address || zone == b"%" {
        let whole = quoted(&[out, zone].concat());
        let message = format!("invalid host: ParseAddr({whole}): unable to parse IP");
        return Err(message);
    }
    out.insert(0, b'[');
    out.extend(zone);
    out.push(b']');
    out.extend_from_slice(port);
    Ok(out)
}

fn check_port(port: &[u8]) -> Result<(), String> {
    if is_optional_port(port) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quoted(port)))
}

fn is_optional_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn must_escape(c: u8, part: Part) -> bool {
    if c.is_ascii_alphanumeric() || b"-_.~".contains(&c) {
        return false;
    }
    let allowed: &[u8] = match part {
        Part::Path => b"$&+,/:;=@",
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::UserInfo => b"$&+,;=",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !allowed.contains(&c)
}

fn escape(text: &[u8], part: Part) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |digit: u8| HEX.get(usize::from(digit & 15)).copied().unwrap_or(b'0');
    let mut out = Vec::with_capacity(text.len());
    for &c in text {
        if must_escape(c, part) {
            out.extend_from_slice(&[b'%', hex(c >> 4), hex(c)]);
        } else {
            out.push(c);
        }
    }
    out
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let in_host = matches!(part, Part::Host | Part::Zone);
    let bad_escape = |escape: &[u8]| format!("invalid URL escape {}", quoted(escape));
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&c, after)) = rest.split_first() {
        if c != b'%' {
            if in_host && c.is_ascii() && must_escape(c, part) {
                let character = quoted(&[c]);
                return Err(format!("invalid character {character} in host name"));
            }
            out.push(c);
            rest = after;
            continue;
        }
        let digit = |index: usize| after.get(index).and_then(|&c| (c as char).to_digit(16));
        let value = digit(0)
            .zip(digit(1))
            .and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        let escape = rest.get(..3.min(rest.len())).unwrap_or(rest);
        let Some(value) = value else {
            return Err(bad_escape(escape));
        };
        // In a host only non-ASCII characters may be escaped; in a zone, any character of a host.
        let allowed = match part {
            Part::Host => value >= 0x80 || escape == b"%25",
            Part::Zone => escape == b"%25" || value == b' ' || !must_escape(value, Part::Host),
            _ => true,
        };
        if !allowed {
            return Err(bad_escape(escape));
        }
        out.push(value);
        rest = after.get(2..).unwrap_or_default();
    }
    Ok(out)
}

/// Parses `user` or `user:password` for a URL assembled from parts.
///
/// # Errors
/// If the text is not the user of a URL.
pub fn parse_user_info(text: &[u8]) -> Result<Option<UserInfo>, ParseUrlError> {
    let url = [b"proto://", text, b"@host"].concat();
    Ok(Url::parse(&url)?.user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_formatted() {
        let text = b"https://user:p%40ss@[fe80::1%25en0]:8080/a%20b/c?x=1&y=2#frag%2Fment";
        let url = Url::parse(text).unwrap();
        assert_eq!(url.scheme, b"https");
        assert_eq!(url.host, b"[fe80::1%en0]:8080");
        assert_eq!(url.hostname(), b"fe80::1%en0");
        assert_eq!(url.path, b"/a b/c");
        assert_eq!(url.fragment, b"frag/ment");
        assert_eq!(url.user.as_ref().unwrap().text(), b"user:p%40ss");
        let opaque = Url::parse(b"mailto:a@b?subject=x").unwrap();
        assert_eq!(
            (opaque.opaque.as_slice(), opaque.text()),
            (&b"a@b"[..], b"mailto:a@b?subject=x".to_vec())
        );
        let host = Url {
            host: b"h".to_vec(),
            path: b"p q".to_vec(),
            ..Url::default()
        };
        assert_eq!(host.text(), b"//h/p%20q");
        let colon = Url {
            path: b"a:b/c".to_vec(),
            ..Url::default()
        };
        assert_eq!(colon.text(), b"./a:b/c");
    }

    #[test]
    fn urls_that_go_rejects_are_rejected() {
        let error = |url: &str| Url::parse(url.as_bytes()).unwrap_err().to_string();
        let cases = "
:x            | missing protocol scheme
1:b           | first path segment in URL cannot contain colon
http://a:b:1/ | invalid port \":b:1\" after host
http://[::1/  | missing ']' in host
http://a b/   | invalid character \" \" in host name
/%zz          | invalid URL escape \"%zz\"
http://%41/   | invalid URL escape \"%41\"";
        for case in cases.trim_start().lines() {
            let (url, reason) = case.split_once(" | ").unwrap();
            let url = url.trim_end();
            assert_eq!(error(url), format!("parse \"{url}\": {reason}"));
        }
        let control = "parse \"a:b/c d\\n\": net/url: invalid control character in URL";
        assert_eq!(error("a:b/c d\n"), control);
    }
}
