//! References of images, and the parts of them that values hold. Pure.

use std::fmt;

/// Registry of images that name none.
const DOCKER: &str = "docker.io";

/// A reference of an image: `[REGISTRY/]PATH[:TAG][@DIGEST]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) registry: Option<String>,
    pub(crate) path: String,
    pub(crate) tag: Option<String>,
    pub(crate) digest: Option<String>,
}

impl Reference {
    /// Parses a reference; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            // Otherwise the colon is before a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_registry(first) => (Some(first), path),
            _ => (None, name),
        };
        let is_path = path.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
        });
        let is_tag = |tag: &str| {
            !tag.is_empty()
                && tag.len() <= 128
                && tag
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        let is_digest = |digest: &str| {
            let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
            hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
        };
        let is_valid = is_path && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        is_valid.then(|| Self {
            registry: registry.map(str::to_owned),
            path: path.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// Returns the reference with its registry, as container engines complete it.
    pub(crate) fn qualified(&self) -> Self {
        let mut whole = self.clone();
        let registry = whole.registry.get_or_insert_with(|| DOCKER.to_owned());
        if registry == DOCKER && !whole.path.contains('/') {
            whole.path.insert_str(0, "library/");
        }
        whole
    }

    /// Returns the reference without tag and digest.
    pub(crate) fn name(&self) -> String {
        match &self.registry {
            Some(registry) => format!("{registry}/{}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns whether both name the same image. With digests, a tag that one of them lacks does not count.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (one, other) = (self.qualified(), other.qualified());
        let same_tags = match (&one.tag, &other.tag) {
            (Some(one), Some(other)) => one == other,
            (one_tag, other_tag) => {
                let latest = |tag: &Option<String>| tag.as_deref().unwrap_or("latest") == "latest";
                one.digest.is_some() || (latest(one_tag) && latest(other_tag))
            }
        };
        (one.registry, one.path, one.digest) == (other.registry, other.path, other.digest)
            && same_tags
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

/// The part of a reference that one value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// Segments of the name.
    Segments(Segments),
    Tag,
    Digest,
    /// The digest without its algorithm.
    Hex,
}

/// Segments of a name, which slashes separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segments {
    start: Start,
    /// Number of the last segments that are left out.
    without: usize,
}

/// The first of some segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    Registry,
    AfterRegistry,
    /// Counted from the end, so that a longer name of a mirror has its further segments elsewhere.
    Last(usize),
}

/// Whether the chart has a value for the digest. Without one, what a variable has after the name goes where the tag is:
/// `repository:tag@digest` is a reference, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestField {
    Present,
    Absent,
}

impl Part {
    /// Returns the parts of `image` that a value may hold.
    pub(crate) fn of(value: &str, image: &str) -> Vec<Self> {
        let mut parts = Vec::new();
        let Some(reference) = Reference::parse(image).filter(|_| !value.is_empty()) else {
            return parts;
        };
        if value == image {
            parts.push(Self::Whole);
        }
        let tag = reference.tag.as_deref().unwrap_or_default();
        let digest = reference.digest.as_deref().unwrap_or_default();
        let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
        let after_name = image.get(reference.name().len() + 1..).unwrap_or_default();
        if value == tag || value == after_name {
            parts.push(Self::Tag);
        }
        if value == digest {
            parts.push(Self::Digest);
        }
        if value == hex {
            // A name that ends with @sha256 may be joined with it.
            parts.extend([Self::Tag, Self::Hex]);
        }
        let name = reference.name();
        let segments: Vec<&str> = name.split('/').collect();
        let plain = value.strip_suffix("@sha256").unwrap_or(value);
        let wanted: Vec<&str> = plain.trim_end_matches('/').split('/').collect();
        let has_registry = usize::from(reference.registry.is_some());
        for (first, window) in segments.windows(wanted.len()).enumerate() {
            let end = first + wanted.len();
            if window != wanted || (first, end) == (0, segments.len()) && value == image {
                continue;
            }
            let start = match first {
                0 => Start::Registry,
                1 if has_registry == 1 => Start::AfterRegistry,
                first => Start::Last(segments.len() - first),
            };
            let without = segments.len() - end;
            // The registry alone is the first segment, whatever follows.
            let is_registry = (first, end) == (0, 1) && has_registry == 1;
            let without = if is_registry { usize::MAX } else { without };
            parts.push(Self::Segments(Segments { start, without }));
        }
        parts
    }

    /// Returns the text of `overrideValues` that is this part of a variable.
    pub(crate) fn expression(self, variable: &str, digest: DigestField) -> String {
        let joined = digest == DigestField::Absent;
        match self {
            Self::Whole => format!("${variable}"),
            Self::Digest => format!("{{{{ regexFind \"sha256:[0-9a-f]+\" \"${variable}\" }}}}"),
            Self::Hex => format!("{{{{ regexFind \"[0-9a-f]{{64}}\" \"${variable}\" }}}}"),
            Self::Tag if joined => {
                let pattern = "^(.*/)?[^/:]*:";
                format!("{{{{ regexReplaceAll \"{pattern}\" \"${variable}\" \"\" }}}}")
            }
            Self::Tag => {
                let pattern = "^(.*/)?[^/:@]*:?|@.*";
                format!("{{{{ regexReplaceAll \"{pattern}\" \"${variable}\" \"\" }}}}")
            }
            Self::Segments(segments) => segments.expression(variable, joined),
        }
    }
}

impl Segments {
    fn expression(self, variable: &str, joined: bool) -> String {
        if self.without == usize::MAX {
            return format!("{{{{ regexFind \"^[^/]+\" \"${variable}\" }}}}");
        }
        // The end of a text is \z, because a dollar would begin a variable.
        let end = match (self.without, joined) {
            (0, true) => ":[^/]*\\\\z".to_owned(),
            (0, false) => "[:@][^/]*\\\\z".to_owned(),
            (count, _) => format!("(/[^/]+){{{count}}}\\\\z"),
        };
        let (begin, text) = match self.start {
            Start::Registry => ("", format!("\"${variable}\"")),
            Start::AfterRegistry => ("^[^/]+/|", format!("\"${variable}\"")),
            Start::Last(count) => {
                let before = "[^/]+/".repeat(count.saturating_sub(1));
                let last = format!("(regexFind \"{before}[^/]+\\\\z\" \"${variable}\")");
                ("", last)
            }
        };
        format!("{{{{ regexReplaceAll \"{begin}{end}\" {text} \"\" }}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed_and_compared_as_engines_do() {
        let hex = "a".repeat(64);
        let parse = |text: &str| Reference::parse(&text.replace("HEX", &hex));
        for (text, whole) in [
            ("nginx", "docker.io/library/nginx"),
            ("bitnami/redis:7", "docker.io/bitnami/redis:7"),
            ("localhost:5000/a:1", "localhost:5000/a:1"),
            ("quay.io/a/b@sha256:HEX", "quay.io/a/b@sha256:HEX"),
        ] {
            let found = parse(text).unwrap().qualified().to_string();
            assert_eq!(found, whole.replace("HEX", &hex), "{text}");
        }
        for text in ["", ":1", "a:", "a b", "A/b", "a@sha256:1", "a/:1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for (one, other, same) in [
            ("nginx", "docker.io/library/nginx:latest", true),
            ("a.io/b:1", "a.io/b:2", false),
            ("a.io/b:1@sha256:HEX", "a.io/b@sha256:HEX", true),
            ("a.io/b:1@sha256:HEX", "a.io/b:1", false),
        ] {
            let found = parse(one).unwrap().is_same(&parse(other).unwrap());
            assert_eq!(found, same, "{one} {other}");
        }
    }

    #[test]
    fn a_value_may_hold_more_than_one_part() {
        let image = "quay.io/org/web:1";
        assert_eq!(Part::of(image, image), [Part::Whole]);
        assert_eq!(Part::of("1", image), [Part::Tag]);
        assert_eq!(Part::of("", image), []);
        assert_eq!(Part::of("other", image), []);
        let expression = |value: &str, digest| {
            let parts = Part::of(value, image);
            assert_eq!(parts.len(), 1, "{value}: {parts:?}");
            parts[0].expression("X", digest)
        };
        let joined = |value: &str| expression(value, DigestField::Absent);
        let name = "{{ regexReplaceAll \":[^/]*\\\\z\" \"$X\" \"\" }}";
        assert_eq!(joined("quay.io/org/web"), name);
        assert_eq!(joined("quay.io"), "{{ regexFind \"^[^/]+\" \"$X\" }}");
        let path = "{{ regexReplaceAll \"^[^/]+/|:[^/]*\\\\z\" \"$X\" \"\" }}";
        assert_eq!(joined("org/web"), path);
        let above = "{{ regexReplaceAll \"(/[^/]+){1}\\\\z\" \"$X\" \"\" }}";
        assert_eq!(joined("quay.io/org"), above);
        let last =
            "{{ regexReplaceAll \"[:@][^/]*\\\\z\" (regexFind \"[^/]+\\\\z\" \"$X\") \"\" }}";
        assert_eq!(expression("web", DigestField::Present), last);
        let hex = "a".repeat(64);
        let parts = Part::of(&hex, &format!("quay.io/web@sha256:{hex}"));
        assert_eq!(parts, [Part::Tag, Part::Hex]);
    }
}
