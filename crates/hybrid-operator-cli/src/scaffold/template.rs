//! The embedded templates of the files of a project.

use handlebars::{Handlebars, no_escape};
use serde_json::Value;

/// Error rendering a template; a mistake in this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot render the file {name}")]
pub(crate) struct TemplateError {
    name: &'static str,
    #[source]
    source: Box<handlebars::RenderError>,
}

/// Embeds templates by their path below `templates/`.
macro_rules! templates {
    ($($name:literal,)*) => {
        const TEMPLATES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../templates/", $name))),)*];
    };
}

templates! {
    "kind/admin_role.yaml",
    "kind/editor_role.yaml",
    "kind/viewer_role.yaml",
    "native/controller.rs",
    "native/crd.yaml",
    "native/desired.rs",
    "native/role.yaml",
    "native/sample.yaml",
    "native/status.rs",
    "native/type.rs",
    "native/version.rs",
    "project/Cargo.toml",
    "project/Dockerfile.helm",
    "project/Dockerfile.native",
    "project/LICENSE.apache2",
    "project/Makefile.helm",
    "project/Makefile.native",
    "project/README.md",
    "project/api.rs",
    "project/ci.mk",
    "project/ci.yml",
    "project/config/default/kustomization.yaml",
    "project/config/default/metrics_service.yaml",
    "project/config/manager/kustomization.yaml",
    "project/config/manager/manager.yaml",
    "project/config/network-policy/allow-metrics-traffic.yaml",
    "project/config/prometheus/kustomization.yaml",
    "project/config/prometheus/monitor.yaml",
    "project/config/rbac/kustomization.yaml",
    "project/config/rbac/leader_election_role.yaml",
    "project/config/rbac/leader_election_role_binding.yaml",
    "project/config/rbac/metrics_auth_role.yaml",
    "project/config/rbac/metrics_auth_role_binding.yaml",
    "project/config/rbac/metrics_reader_role.yaml",
    "project/config/rbac/operator_role.yaml",
    "project/config/rbac/operator_role_binding.yaml",
    "project/config/rbac/service_account.yaml",
    "project/config/scorecard/config.yaml",
    "project/config/scorecard/kustomization.yaml",
    "project/controllers.rs",
    "project/dockerignore",
    "project/gitignore",
    "project/lib.rs",
    "project/main.rs",
    "project/olm.mk",
    "project/resources.yaml",
    "project/rust-toolchain.toml",
    "project/rustfmt.toml",
    "project/samples.sh",
    "project/watches.yaml",
    "webhook/conversion.rs",
    "webhook/conversion_role.yaml",
    "webhook/conversion_role_binding.yaml",
    "webhook/kind.rs",
    "webhook/kustomization.yaml",
    "webhook/mod.rs",
    "webhook/network_policy.yaml",
    "webhook/role.yaml",
    "webhook/role_binding.yaml",
    "webhook/service.yaml",
}

/// Renders a template. A field that is missing in `data` is an error.
pub(super) fn render(name: &'static str, data: &Value) -> Result<String, TemplateError> {
    let text = TEMPLATES.iter().find(|(known, _)| *known == name);
    let mut engine = Handlebars::new();
    engine.set_strict_mode(true);
    engine.register_escape_fn(no_escape);
    engine
        .render_template(text.map_or("{{missing}}", |(_, text)| text), data)
        .map_err(|source| TemplateError {
            name,
            source: Box::new(source),
        })
}
