//! Names of projects and kinds: what Kubernetes and Rust allow, and what follows from them. Pure.

/// Error in a name that the user gave.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum NameError {
    #[error("the {what} {name:?} is not valid: {rule}")]
    Invalid {
        /// Type of the name, such as `kind`.
        what: &'static str,
        name: String,
        /// The rule, and an example.
        rule: &'static str,
    },
    #[error(
        "the {what} {name:?} cannot be used in Rust: {word:?} is a reserved word; choose another name"
    )]
    Reserved {
        /// Type of the name, such as `kind`.
        what: &'static str,
        name: String,
        /// The reserved word that it leads to.
        word: String,
    },
    #[error(
        "the names {plural:?} and {group:?} are too long together: {plural}.{group} is the name of the \
         CustomResourceDefinition, which may have 253 characters, and would have {}; choose a shorter domain or group",
        .plural.len() + 1 + .group.len()
    )]
    Definition {
        /// Plural name of the kind.
        plural: String,
        group: String,
    },
    #[error(
        "the kind {name:?} cannot be native: the generated code uses a type of this name; choose another name"
    )]
    Taken { name: String },
}

const PROJECT: &str = "use at most 36 lower case letters, digits and '-', with a letter first and a letter or digit last, such as memcached-operator; the longest name that is made of it, PROJECT-controller-manager-metrics, must be that of a Service";
const SUBDOMAIN: &str = "use lower case letters, digits and '-' in parts of at most 63 characters that are separated by '.', such as example.com";
const COMMUNITY: &str = "Kubernetes keeps groups below k8s.io and kubernetes.io for itself; use a domain of your own, such as example.com";
const KIND: &str = "use at most 59 letters and digits in CamelCase, such as MemcachedBackup; Kubernetes allows 63 in the name of its list, KINDList";
const VERSION: &str = "use v1, v1beta1, v1alpha1 and the like, of at most 63 characters";

/// The longest name of a Service, and of most parts of names.
const LABEL_MAX: usize = 63;
/// The longest name of an object.
const NAME_MAX: usize = 253;
/// The longest name of a project: that of a Service begins with it.
const PROJECT_MAX: usize = LABEL_MAX - "-controller-manager-metrics".len();
/// The longest kind: the kind of its list is a label, too.
const KIND_MAX: usize = LABEL_MAX - "List".len();

/// Keywords of Rust, including reserved ones.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that Cargo refuses for packages, or that hide a crate of the same name.
const CRATES: &str = "\
    alloc core hybrid_operator k8s_openapi kube proc_macro schemars serde serde_json std test";

/// Types that the generated code imports, or that are always in scope.
const TYPES: &str = "\
    Action Arc BTreeMap Capabilities Condition Conditions Container Context CustomResource Debug \
    Default Denied Deployment DeploymentSpec Deserialize Err JsonSchema LabelSelector None \
    NativeController ObjectMeta Ok Option PodSpec PodTemplateSpec Request ResourceExt Result \
    SecurityContext Self Serialize Some String Vec Webhooks";

fn lists(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}

/// Checks the name of a project: a DNS label, because Services and namespaces are named after it.
pub(crate) fn check_project(name: &str, is_rust: bool) -> Result<(), NameError> {
    let what = "project name";
    let is_short = name.len() <= PROJECT_MAX;
    if !is_short || !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(invalid(what, name, PROJECT));
    }
    let module = name.replace('-', "_");
    if is_rust && (KEYWORDS.contains(&module.as_str()) || lists(CRATES, &module)) {
        return Err(NameError::Reserved {
            what,
            name: name.to_owned(),
            word: module,
        });
    }
    Ok(())
}

/// Checks the domain of a project.
pub(crate) fn check_domain(name: &str) -> Result<(), NameError> {
    if is_of_community(name) {
        return Err(invalid("domain", name, COMMUNITY));
    }
    check_subdomain("domain", name)
}

/// Checks the API group of a kind, without the domain.
pub(crate) fn check_group(name: &str) -> Result<(), NameError> {
    check_subdomain("group", name)
}

/// Returns whether the API server refuses definitions of a group or domain without the approval of the Kubernetes community.
fn is_of_community(name: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let rest = name.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Checks the name of the `CustomResourceDefinition` of a kind, which consists of its plural and its whole group.
pub(super) fn check_definition(plural: &str, group: &str) -> Result<(), NameError> {
    if is_of_community(group) {
        return Err(invalid("group", group, COMMUNITY));
    }
    if plural.len() + 1 + group.len() > NAME_MAX {
        return Err(NameError::Definition {
            plural: plural.to_owned(),
            group: group.to_owned(),
        });
    }
    Ok(())
}

fn check_subdomain(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.len() <= NAME_MAX && name.split('.').all(is_label) {
        Ok(())
    } else {
        Err(invalid(what, name, SUBDOMAIN))
    }
}

/// Checks the API version of a kind.
pub(crate) fn check_version(name: &str) -> Result<(), NameError> {
    let number = |text: &str| {
        !text.starts_with('0') && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
    };
    let is_valid = name.strip_prefix('v').is_some_and(|rest| {
        let stage = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
        stage.map_or_else(
            || number(rest),
            |(major, minor)| number(major) && number(minor),
        )
    });
    if is_valid && name.len() <= LABEL_MAX {
        Ok(())
    } else {
        Err(invalid("version", name, VERSION))
    }
}

pub(crate) fn check_kind(name: &str) -> Result<(), NameError> {
    let is_valid = name.len() <= KIND_MAX
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_alphanumeric());
    if is_valid {
        Ok(())
    } else {
        Err(invalid("kind", name, KIND))
    }
}

/// Checks that a kind can be the name of a type, and of a module.
pub(super) fn check_native_kind(name: &str) -> Result<(), NameError> {
    let module = module(name);
    if KEYWORDS.contains(&module.as_str()) {
        return Err(NameError::Reserved {
            what: "kind",
            name: name.to_owned(),
            word: module,
        });
    }
    if lists(TYPES, name) {
        return Err(NameError::Taken {
            name: name.to_owned(),
        });
    }
    Ok(())
}

pub(super) fn check_plural(name: &str) -> Result<(), NameError> {
    if is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Ok(())
    } else {
        let rule = "use at most 63 lower case letters and digits, such as memcacheds";
        Err(invalid("plural", name, rule))
    }
}

/// Returns the name of a sample, which the generated controller uses as a label. Of a long kind it has the end.
pub(super) fn sample(lower_kind: &str, end: &str) -> String {
    let name = format!("{lower_kind}-{end}");
    let cut = name.len().saturating_sub(LABEL_MAX);
    let kept: String = name.chars().skip(cut).collect();
    kept.trim_start_matches('-').to_owned()
}

fn invalid(what: &'static str, name: &str, rule: &'static str) -> NameError {
    NameError::Invalid {
        what,
        name: name.to_owned(),
        rule,
    }
}

/// Returns whether a text is a DNS label (RFC 1123).
pub(super) fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Returns the name of a kind's module: `HTTPRoute` becomes `http_route`.
pub(super) fn module(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut text = String::new();
    for (i, letter) in letters.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| letters.get(i));
        let starts_word = before.is_some_and(|before| {
            let next_is_lower = letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
            letter.is_ascii_uppercase() && (!before.is_ascii_uppercase() || next_is_lower)
        });
        if starts_word {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Returns the kind for a chart, as operator-sdk names it: `ingress-nginx` becomes `IngressNginx`.
pub(super) fn kind_of_chart(chart: &str) -> String {
    let words = chart.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_words_in_lower_case() {
        for (kind, wanted) in [
            ("MemcachedBackup", "memcached_backup"),
            ("HTTPRoute", "http_route"),
            ("Redis2", "redis2"),
            ("DB", "db"),
        ] {
            assert_eq!(module(kind), wanted);
        }
        assert_eq!(kind_of_chart("ingress-nginx"), "IngressNginx");
    }

    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        for name in ["v1", "v2beta3", "v1alpha1"] {
            assert_eq!(check_version(name), Ok(()), "{name}");
        }
        for name in [
            "", "1", "v", "v0", "v1alpha", "v1gamma1", "v1.0", "valpha1", "V1",
        ] {
            assert!(check_version(name).is_err(), "{name}");
        }
        let longest = format!("A{}", "b".repeat(58));
        assert_eq!(check_kind(&longest), Ok(()));
        let too_long = longest + "c";
        for name in ["memcached", "My-Kind", "Käse", "", "2Kind", "A_B"] {
            assert!(check_kind(name).is_err(), "{name}");
        }
        assert!(check_kind(&too_long).is_err());
        assert_eq!(check_domain("example.com"), Ok(()));
        for name in ["", "Example.com", "a..b", "-a.com", "a_b.com", "a.com."] {
            assert!(check_domain(name).is_err(), "{name}");
        }
        for name in ["", "Shop", "2shop", "shop-", "shop.operator"] {
            assert!(check_project(name, false).is_err(), "{name}");
        }
        assert!(check_project(&"a".repeat(37), false).is_err());
    }

    #[test]
    fn names_that_are_made_of_others_are_not_too_long() {
        assert_eq!(check_project(&"a".repeat(36), true), Ok(()));
        let (plural, domain) = ("a".repeat(63), ["b".repeat(63), "c".repeat(63)].join("."));
        let group = format!("{}.{domain}", "d".repeat(61));
        assert_eq!(check_definition(&plural, &group), Ok(()));
        let error = check_definition(&plural, &format!("d{group}")).unwrap_err();
        assert!(error.to_string().contains("would have 254;"), "{error}");
        for group in ["k8s.io", "apps.k8s.io", "x.kubernetes.io"] {
            assert!(check_definition("webs", group).is_err(), "{group}");
        }
        assert_eq!(check_definition("webs", "apps.myk8s.io"), Ok(()));
        assert!(check_domain("apps.kubernetes.io").is_err());
        let kind = "a".repeat(59);
        assert_eq!(sample("order", "sample"), "order-sample");
        let shortened = format!("{}-sample", "a".repeat(56));
        assert_eq!(sample(&kind, "sample"), shortened);
        let name = sample(&kind, "v1beta1-sample");
        assert_eq!((name.len(), name.ends_with("a-v1beta1-sample")), (63, true));
    }

    #[test]
    fn words_of_rust_are_refused_where_they_become_rust() {
        assert_eq!(check_project("async", false), Ok(()));
        assert!(check_project("async", true).is_err());
        assert!(check_project("hybrid-operator", true).is_err());
        assert!(check_native_kind("Type").is_err());
        assert!(check_native_kind("Deployment").is_err());
        assert_eq!(check_native_kind("MemcachedBackup"), Ok(()));
    }
}
