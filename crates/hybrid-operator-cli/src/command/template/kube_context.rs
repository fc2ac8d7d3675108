//! The default namespace, from the environment or the current context of the kubeconfig.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Deserialize;

/// The parts of a kubeconfig with namespaces.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    current_context: String,
    contexts: Vec<NamedContext>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    namespace: String,
}

/// Returns `HELM_NAMESPACE`, else the namespace of the context `HELM_KUBECONTEXT`, or of the current
/// context, of the files in `KUBECONFIG` (or of `~/.kube/config`), else `default`. Files that cannot be read are ignored.
pub(super) fn namespace(env: impl Fn(&str) -> Option<OsString>) -> String {
    let set = |name| env(name).filter(|value| !value.is_empty());
    if let Some(namespace) = set("HELM_NAMESPACE") {
        return namespace.to_string_lossy().into_owned();
    }
    let paths: Vec<PathBuf> = match set("KUBECONFIG") {
        Some(paths) => std::env::split_paths(&paths).collect(),
        None => set("HOME")
            .map(|home| PathBuf::from(home).join(".kube/config"))
            .into_iter()
            .collect(),
    };
    let files: Vec<Kubeconfig> = paths
        .iter()
        .filter_map(|path| go_yaml::from_slice(&std::fs::read(path).ok()?).ok())
        .collect();
    let named = set("HELM_KUBECONTEXT").map(|name| name.to_string_lossy().into_owned());
    let of_files = files
        .iter()
        .map(|file| &file.current_context)
        .find(|name| !name.is_empty());
    let current = named.as_ref().or(of_files);
    let mut contexts = files.iter().flat_map(|file| &file.contexts);
    let context = current.and_then(|current| contexts.find(|named| named.name == *current));
    context
        .map(|named| named.context.namespace.clone())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_first_context_with_the_current_name() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&first, "current-context: here\ncontexts: []\n").unwrap();
        let contexts = "current-context: there\ncontexts:\n\
                        - {name: there, context: {namespace: wrong}}\n\
                        - {name: here, context: {cluster: c, namespace: prod}}\n";
        std::fs::write(&second, contexts).unwrap();
        let paths = std::env::join_paths([&first, &second]).unwrap();
        let env = |name: &str| (name == "KUBECONFIG").then(|| paths.clone());
        assert_eq!(namespace(env), "prod");
        let env = |name: &str| (name == "HELM_NAMESPACE").then(|| OsString::from("mine"));
        assert_eq!(namespace(env), "mine");
        let env = |name: &str| match name {
            "KUBECONFIG" => Some(paths.clone()),
            "HELM_KUBECONTEXT" => Some(OsString::from("there")),
            _ => None,
        };
        assert_eq!(namespace(env), "wrong");
        assert_eq!(namespace(|_| None), "default");
    }
}
