//! The roles of `generate rbac --namespaced` for single Secrets: the key of the records, and credentials.

use std::path::Path;

use anyhow::Context as _;

use super::{Input, add};
use crate::files::FileSet;
use crate::olm::kustomize;
use crate::project::DEPLOYED;
use crate::rbac::credentials::{SECRETS_ROLE, secret_roles};
use crate::rbac::deployed::Deployed;
use crate::rbac::write::{RoleScope, binding};

/// Directory of the roles for Secrets in other namespaces.
pub(super) const CREDENTIALS: &str = "credentials";

/// Adds the roles that an operator needs beside those of its charts, if these are for one namespace only.
pub(super) fn add_roles(
    input: &Input,
    target: &Path,
    files: &mut FileSet,
    entries: &mut Vec<String>,
) -> anyhow::Result<()> {
    let roles = secret_roles(&input.watches, &deployed(&input.root));
    let role_file = "operator_secrets_role.yaml".to_owned();
    add(files, entries, role_file, roles.own)?;
    let text = binding(
        RoleScope::Namespace,
        "operator-secrets-rolebinding",
        SECRETS_ROLE,
    );
    let binding_file = "operator_secrets_role_binding.yaml".to_owned();
    add(files, entries, binding_file, text)?;
    for (namespace, text) in roles.others {
        let file = format!("{CREDENTIALS}/{namespace}_role.yaml");
        // Not a resource of the kustomization, which would move it to the operator's namespace.
        files.add(&file, text)?;
        crate::print_message(&format!(
            "warning: {} is not part of the kustomization, because it is for the namespace {namespace}; apply it with kubectl apply -f",
            target.join(file).display()
        ));
    }
    Ok(())
}

/// Returns the operator as the project deploys it, or with the names of a project without a kustomization.
fn deployed(root: &Path) -> Deployed {
    let directory = root.join(DEPLOYED);
    let found = kustomize::build(&directory)
        .and_then(|objects| Deployed::of(&objects).context("it has no Deployment of the operator"));
    found.unwrap_or_else(|error| {
        let default = Deployed::default();
        crate::print_message(&format!(
            "warning: cannot read how {} deploys the operator ({error:#}); its roles are for the operator {} with the account {} in the namespace {}",
            directory.display(),
            default.operator,
            default.account,
            default.namespace
        ));
        default
    })
}
