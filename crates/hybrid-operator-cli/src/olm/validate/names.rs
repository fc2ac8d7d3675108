//! Forms of names. Pure.

/// Returns what is wrong with the name of an object, which is also the value of a label.
pub(super) fn bundle_name(name: &str) -> Option<String> {
    if !is_subdomain(name) {
        return Some("it must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit".to_owned());
    }
    (name.len() > 63).then(|| {
        format!(
            "it has {} characters, and the value of a label at most 63",
            name.len()
        )
    })
}

/// Returns whether a text is a DNS subdomain.
pub(crate) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label_part)
}

/// Returns whether a text is a DNS label.
pub(super) fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_label_part(name)
}

fn is_label_part(part: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(is_plain)
        && part.ends_with(is_plain)
        && part.chars().all(|c| is_plain(c) || c == '-')
}

/// Returns whether a text names an image: a repository with an optional registry, tag and digest.
pub(super) fn is_image(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let is_digest = |digest: &str| {
        digest.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty() && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
        })
    };
    let (repository, tag) = match rest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (rest, None),
    };
    let is_tag = |tag: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        tag.len() <= 128
            && tag.starts_with(is_word)
            && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
    };
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part
                .chars()
                .all(|c| is_plain(c) || matches!(c, '-' | '_' | '.'))
    };
    let (host, path) = match repository.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            (Some(host), path)
        }
        _ => (None, repository),
    };
    let is_host = |host: &str| {
        let (name, port) = host.split_once(':').unwrap_or((host, "80"));
        !port.is_empty()
            && port.chars().all(|c| c.is_ascii_digit())
            && name
                .split('.')
                .all(|part| is_label_part(&part.to_ascii_lowercase()))
    };
    path.split('/').all(is_part)
        && host.is_none_or(is_host)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_other_texts() {
        for image in [
            "busybox",
            "localhost:5000/a/b:v1",
            "quay.io/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "team/app:1.0_x",
        ] {
            assert!(is_image(image), "{image}");
        }
        for image in [
            "",
            "UPPER/x",
            "a b",
            "a:",
            "quay.io/a@sha256:12",
            "https://quay.io/a",
            "a//b",
        ] {
            assert!(!is_image(image), "{image}");
        }
    }

    #[test]
    fn the_name_of_a_bundle_is_a_subdomain_and_a_label() {
        assert_eq!(bundle_name("shop.v0.1.0"), None);
        for bad in ["Shop.v1", "shop..v1", "shop.v1+b", "-a", &"a".repeat(64)] {
            assert!(bundle_name(bad).is_some(), "{bad}");
        }
    }
}
