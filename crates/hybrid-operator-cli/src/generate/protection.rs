//! Policies by which the API server refuses to delete protected custom resources.

use super::ChartApi;

const ANNOTATION: &str = "helm.sdk.operatorframework.io/protect";

const POLICY: &str = include_str!("protection.yaml");

/// Beginning of each policy.
pub(crate) const BEGINNING: &str = "# Refuses the deletion of ";

/// The texts that the operator reads as false, and as true.
const FALSE: &str = "['0', 'f', 'F', 'false', 'FALSE', 'False']";
const TRUE: &str = "['1', 't', 'T', 'true', 'TRUE', 'True']";

/// Returns the policy and its binding for a kind, as the YAML of a file. With `by_default`, objects are protected
/// unless their annotation says otherwise.
pub(crate) fn policy(api: &ChartApi<'_>, file: &str, by_default: bool) -> String {
    let protected = if by_default {
        format!("!(variables.annotation in {FALSE})")
    } else {
        format!("variables.annotation in {TRUE}")
    };
    let name = format!("{}.{}-protection", api.plural, api.group);
    let texts = [
        ("kind", api.kind),
        ("file", file),
        ("name", &*name),
        ("group", api.group),
        ("plural", api.plural),
        ("annotation", ANNOTATION),
        ("protected", &*format!("\"{protected}\"")),
    ];
    texts
        .iter()
        .fold(POLICY.to_owned(), |policy, (mark, text)| {
            policy.replace(&format!("{{{{{mark}}}}}"), text)
        })
}
