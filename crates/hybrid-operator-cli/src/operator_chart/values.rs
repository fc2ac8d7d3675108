//! `values.yaml` of the chart, with its comments. Pure.

use serde_json::{Value, json};

use super::deployment::Manager;
use super::{OperatorChartError, yaml};

/// An image, in parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) repository: String,
    pub(super) tag: String,
    pub(super) digest: String,
}

impl Image {
    /// Splits `REGISTRY:PORT/NAME:TAG@DIGEST`.
    pub(super) fn parse(image: &str) -> Self {
        let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
        let name = rest.rfind('/').map_or(0, |slash| slash + 1);
        let colon = rest.get(name..).and_then(|name| name.find(':'));
        let (repository, tag) = match colon.map(|colon| rest.split_at(name + colon)) {
            Some((repository, tag)) => (repository, tag.trim_start_matches(':')),
            None => (rest, ""),
        };
        Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            digest: digest.to_owned(),
        }
    }

    /// Returns the image in one piece.
    pub(super) fn text(&self) -> String {
        let tag = Some(&self.tag).filter(|tag| !tag.is_empty());
        let digest = Some(&self.digest).filter(|digest| !digest.is_empty());
        let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = digest.map(|digest| format!("@{digest}"));
        format!("{}{tag}{}", self.repository, digest.unwrap_or_default())
    }
}

pub(super) fn values(manager: &Manager, image: &Image) -> Result<String, OperatorChartError> {
    let of = |value: &Value| yaml("values.yaml", value);
    let image_yaml = of(&json!({"digest": image.digest, "repository": image.repository}))?;
    let image_yaml: String = image_yaml
        .lines()
        .flat_map(|line| ["  ", line, "\n"])
        .collect();
    Ok(format!(
        "\
# -- Replaces the name of the chart in the names of objects.
nameOverride: \"\"
# -- Replaces the names of the release and the chart in the names of objects.
fullnameOverride: \"\"

# -- Number of Pods. One of them works, the others wait to take over.
{replicas}
image:
{image_yaml}  # -- The chart's appVersion if empty.
  tag: \"\"
  pullPolicy: IfNotPresent
# -- Secrets with which the image is pulled, such as [{{name: registry}}].
imagePullSecrets: []

# -- Arguments of the operator.
{args}
# -- Namespaces in which the operator works; all if empty. With a list, its roles are bound in these
# namespaces only.
watchNamespaces: []
# -- Further environment variables of the operator, such as [{{name: HTTPS_PROXY, value: ...}}].
env: []
{resources}
nodeSelector: {{}}
tolerations: []
affinity: {{}}
priorityClassName: \"\"

serviceAccount:
  create: true
  # -- Its name; made from the name of the release if empty.
  name: \"\"
  annotations: {{}}

rbac:
  # -- Whether to install what the operator is allowed to do.
  create: true
  # -- Whether to install roles for users: admin, editor and viewer of each kind.
  userRoles: true

crds:
  # -- Whether to install the definitions of the custom resources.
  install: true
  # -- Whether they, and with them all custom resources, stay when the chart is uninstalled.
  keep: true

metrics:
  serviceMonitor:
    # -- Whether to install a ServiceMonitor; needs the Prometheus operator's CRDs.
    enabled: false
  alerts:
    # -- Whether to install a PrometheusRule; needs the Prometheus operator's CRDs.
    enabled: false

networkPolicy:
  # -- Whether to allow connections only to the metrics, from namespaces with the label metrics: enabled, and to webhooks.
  enabled: false
",
        replicas = of(&json!({"replicas": manager.replicas}))?,
        args = of(&json!({"args": manager.args}))?,
        resources = of(&json!({"resources": manager.resources}))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_split_at_tag_and_digest() {
        for (text, repository, tag, digest) in [
            ("a", "a", "", ""),
            ("r:5000/a/b", "r:5000/a/b", "", ""),
            ("r:5000/a/b:v1", "r:5000/a/b", "v1", ""),
            ("a/b@sha256:0", "a/b", "", "sha256:0"),
            ("a/b:v1@sha256:0", "a/b", "v1", "sha256:0"),
        ] {
            let image = Image::parse(text);
            let parts = (&*image.repository, &*image.tag, &*image.digest);
            assert_eq!(parts, (repository, tag, digest));
            assert_eq!(image.text(), text);
        }
    }
}
