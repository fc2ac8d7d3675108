//! Several versions of a native kind: which ones a project has, and their place in the CRD.

use serde_json::{Value, json};

use super::kind::Kind;
use super::{Draft, ScaffoldError};
use crate::project::{ProjectFile, Resource};

/// Returns the entries of a native kind, in the order in which they were created.
pub(super) fn entries<'a>(
    file: &'a ProjectFile,
    group: &str,
    kind: &str,
) -> impl Iterator<Item = &'a Resource> {
    file.resources.iter().filter(move |resource| {
        resource.path.is_some() && resource.kind == kind && resource.full_group() == group
    })
}

/// Returns the kind with the plural name of its other versions. Plural and scope are those of the
/// CRD, so that all versions have the same.
pub(super) fn like_others(
    file: &ProjectFile,
    group: &str,
    kind: &Kind,
) -> Result<Kind, ScaffoldError> {
    let mut others = entries(file, group, &kind.kind);
    let Some(other) = others.find(|other| other.version != kind.version) else {
        return Ok(kind.clone());
    };
    let present = Kind {
        plural: other.plural.clone(),
        ..kind.clone()
    };
    let namespaced = other.api.as_ref().is_none_or(|api| api.namespaced);
    let differs = |flag: String| ScaffoldError::VersionDiffers {
        kind: present.kind.clone(),
        version: other.version.clone(),
        flag,
    };
    if kind.plural.is_some() && kind.plural() != present.plural() {
        return Err(differs(format!("--plural {}", present.plural())));
    }
    if kind.namespaced != namespaced {
        return Err(differs(format!("--namespaced={namespaced}")));
    }
    Ok(present)
}

/// Returns whether a version gets the controller: a kind has one, for one version. `wanted` is what
/// the user says.
pub(super) fn gets_controller(
    file: &ProjectFile,
    group: &str,
    kind: &Kind,
    wanted: Option<bool>,
) -> Result<bool, ScaffoldError> {
    let mut others = entries(file, group, &kind.kind);
    let other = others.find(|other| other.controller && other.version != kind.version);
    match (other, wanted) {
        (None, wanted) => Ok(wanted.unwrap_or(true)),
        (Some(other), Some(true)) => Err(ScaffoldError::HasController {
            kind: kind.kind.clone(),
            version: other.version.clone(),
        }),
        (Some(_), _) => Ok(false),
    }
}

/// Adds a version to the present CRD of a kind. `whole` is a CRD with that version alone.
pub(super) fn add_to_crd(draft: &mut Draft, path: &str, whole: &str) -> Result<(), ScaffoldError> {
    let yaml = |source| ScaffoldError::Yaml {
        path: path.into(),
        source,
    };
    let whole: Value = go_yaml::from_str(whole).map_err(yaml)?;
    let mut version = whole
        .pointer("/spec/versions/0")
        .cloned()
        .unwrap_or_default();
    // Objects are stored in the version that they are stored in already.
    if let Some(fields) = version.as_object_mut() {
        fields.insert("storage".to_owned(), false.into());
    }
    let item = go_yaml::to_string(&json!({"versions": [&version]})).map_err(yaml)?;
    draft.edit(path, &item, |text| with_version(text, &version))
}

/// Returns a CRD with one more version, or unchanged if it has it; `None` if it has no list of
/// versions, or has comments, which would be lost.
fn with_version(text: &str, version: &Value) -> Option<String> {
    let mut crd: Value = go_yaml::from_str(text).ok()?;
    let same_form = go_yaml::to_string(&crd).ok()? == text;
    let versions = crd.pointer_mut("/spec/versions")?.as_array_mut()?;
    if versions
        .iter()
        .any(|present| present.get("name") == version.get("name"))
    {
        return Some(text.to_owned());
    }
    versions.push(version.clone());
    if !same_form {
        return None;
    }
    go_yaml::to_string(&crd).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRD: &str = "spec:\n  versions:\n  - name: v1\n    storage: true\n";

    #[test]
    fn a_version_is_appended_once_and_comments_are_not_lost() {
        let version = json!({"name": "v2", "storage": false});
        let added = with_version(CRD, &version).unwrap();
        assert_eq!(added, format!("{CRD}  - name: v2\n    storage: false\n"));
        assert_eq!(with_version(&added, &version).as_ref(), Some(&added));
        assert_eq!(with_version(&format!("# why\n{CRD}"), &version), None);
        assert_eq!(with_version("spec: {}\n", &version), None);
    }

    #[test]
    fn a_version_is_like_the_others_and_only_one_has_the_controller() {
        let file: ProjectFile = go_yaml::from_str(
            "version: '3'\nresources:\n- {kind: Order, version: v1, group: a, path: p, controller: true, plural: orderz, api: {namespaced: true}}\n",
        )
        .unwrap();
        let kind = |plural: Option<&str>, namespaced| Kind {
            group: "a".to_owned(),
            version: "v2".to_owned(),
            kind: "Order".to_owned(),
            plural: plural.map(ToOwned::to_owned),
            namespaced,
        };
        let plural = |kind: &Kind| like_others(&file, "a", kind).map(|kind| kind.plural());
        assert_eq!(plural(&kind(None, true)).unwrap(), "orderz");
        for (kind, flag) in [
            (kind(Some("orders"), true), "--plural orderz"),
            (kind(None, false), "--namespaced=true"),
        ] {
            let error = plural(&kind).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        let second = kind(None, true);
        let first = Kind {
            version: "v1".to_owned(),
            ..second.clone()
        };
        for (kind, wanted, expected) in [
            (&first, None, Some(true)),
            (&first, Some(false), Some(false)),
            (&second, None, Some(false)),
            (&second, Some(false), Some(false)),
            (&second, Some(true), None),
        ] {
            let found = gets_controller(&file, "a", kind, wanted).ok();
            assert_eq!(found, expected, "{} {wanted:?}", kind.version);
        }
    }
}
