//! A Helm chart of the operator itself, from the files in `config/` that `make deploy` applies.
//!
//! ```text
//! config/ -> manifests (objects by file) -> objects, bindings, deployment (templates) -> files
//!                                        -> metadata (Chart.yaml), values (values.yaml)
//! ```
//!
//! Only [`manifests`] reads files.

mod bindings;
mod deployment;
mod manifests;
mod marks;
mod metadata;
mod objects;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::files::{FileSet, FilesError};
use crate::project::Project;
use crate::rbac::kinds::Kinds;

pub(crate) use manifests::ManifestError;
use manifests::Manifests;
use marks::Marks;

/// Error generating the chart.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorChartError {
    /// A file of `config/` cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(
        "config/manager has no Deployment with the label control-plane: controller-manager and a container named manager; the chart is made from it"
    )]
    NoDeployment,
    #[error("cannot write {file} of the chart as YAML")]
    Yaml {
        file: String,
        #[source]
        source: go_yaml::Error,
    },
    /// A path in `config/` is not usable in the chart.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Choices of the user.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// Version of the chart.
    pub(crate) version: Option<String>,
    /// Image of the operator.
    pub(crate) image: Option<String>,
}

/// Returns the files of the chart. Fields of `present`, the `Chart.yaml` that exists, are kept if they
/// do not follow from the project.
pub(crate) fn generate(
    project: &Project,
    choices: &Choices,
    present: Option<&Value>,
) -> Result<FileSet, OperatorChartError> {
    let name = &project.file.project_name;
    let manifests = Manifests::read(&project.root)?;
    let manager = deployment::Manager::of(&manifests).ok_or(OperatorChartError::NoDeployment)?;
    let image = choices.image.clone();
    let image = values::Image::parse(&image.unwrap_or_else(|| manager.image.clone()));
    let mut kinds = Kinds::default();
    for object in manifests.objects() {
        kinds.add_definition(object);
    }
    let context = Context {
        project: name,
        marks: Marks::new(name),
        kinds,
        roles: roles(&manifests),
        has_webhooks: manifests.has("Service", "webhook"),
    };

    let mut files = FileSet::default();
    for file in &manifests.files {
        let text = objects::template(file, &context)?;
        if !text.is_empty() {
            files.add(format!("templates/{}", file.path), text)?;
        }
    }
    let key = bindings::record_key_role(&context)?;
    files.add("templates/rbac/record_key_role.yaml", key)?;
    let marks = &context.marks;
    for (path, text) in [
        ("templates/_helpers.tpl", HELPERS),
        ("templates/NOTES.txt", NOTES),
        (".helmignore", HELMIGNORE),
    ] {
        files.add(path, marks.named(text))?;
    }
    let metadata = metadata::chart(&metadata::Inputs {
        project,
        manifests: &manifests,
        image: &image,
        version: choices.version.as_deref(),
        present,
    })?;
    files.add("Chart.yaml", metadata)?;
    files.add("values.yaml", values::values(&manager, &image)?)?;
    Ok(files)
}

const HELPERS: &str = include_str!("../../templates/operator-chart/_helpers.tpl");
const NOTES: &str = include_str!("../../templates/operator-chart/NOTES.txt");
const HELMIGNORE: &str = include_str!("../../templates/operator-chart/helmignore");

/// Data that the templates of all objects depend on.
struct Context<'a> {
    /// Name of the project, and of the chart.
    project: &'a str,
    marks: Marks,
    /// Scopes of resources.
    kinds: Kinds,
    /// The cluster roles by name.
    roles: BTreeMap<String, Value>,
    /// Whether the operator serves webhooks.
    has_webhooks: bool,
}

fn roles(manifests: &Manifests) -> BTreeMap<String, Value> {
    let roles = manifests
        .objects()
        .filter(|object| kind(object) == "ClusterRole");
    roles
        .map(|role| (object_name(role).to_owned(), role.clone()))
        .collect()
}

fn kind(object: &Value) -> &str {
    text_at(object, "/kind")
}

fn object_name(object: &Value) -> &str {
    text_at(object, "/metadata/name")
}

/// Returns a string in an object; empty if it is missing.
fn text_at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn yaml(file: &str, value: &Value) -> Result<String, OperatorChartError> {
    go_yaml::to_string(value).map_err(|source| OperatorChartError::Yaml {
        file: file.to_owned(),
        source,
    })
}
