//! The plural name of a kind whose definition does not say it. Pure.

/// Returns the plural of a kind in lower case by the rules for English that kubebuilder uses.
pub(crate) fn plural(kind: &str) -> String {
    /// Endings, the longest first, and what replaces them.
    const ENDINGS: &[(&str, &str)] = &[
        ("person", "people"),
        ("series", "series"),
        ("child", "children"),
        ("alias", "aliases"),
        ("index", "indices"),
        ("atus", "atuses"),
        ("irus", "iri"),
        ("rix", "rices"),
        ("man", "men"),
        ("bus", "buses"),
        ("sis", "ses"),
        ("box", "boxes"),
        ("ium", "ia"),
        ("ex", "ices"),
        ("fe", "ves"),
        ("lf", "lves"),
        ("rf", "rves"),
        ("tz", "tzes"),
        ("ch", "ches"),
        ("sh", "shes"),
        ("ss", "sses"),
        ("io", "ios"),
        ("ay", "ays"),
        ("ey", "eys"),
        ("iy", "iys"),
        ("oy", "oys"),
        ("uy", "uys"),
        ("x", "xes"),
        ("o", "oes"),
        ("y", "ies"),
        ("s", "s"),
    ];
    let kind = kind.to_ascii_lowercase();
    let ending = ENDINGS
        .iter()
        .find_map(|(from, to)| Some((kind.strip_suffix(from)?, to)));
    match ending {
        Some((stem, to)) => format!("{stem}{to}"),
        None => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_those_of_kubebuilder() {
        for (kind, wanted) in [
            ("Memcached", "memcacheds"),
            ("Proxy", "proxies"),
            ("Gateway", "gateways"),
            ("Ingress", "ingresses"),
            ("Redis", "redis"),
            ("Mailbox", "mailboxes"),
            ("Batch", "batches"),
            ("Index", "indices"),
            ("Status", "statuses"),
            ("Podinfo", "podinfoes"),
            ("Policy", "policies"),
            ("Cache", "caches"),
        ] {
            assert_eq!(plural(kind), wanted, "{kind}");
        }
    }
}
