//! Outputs of releases in the status of custom resources, and conditions of their readiness.

use std::collections::BTreeMap;
use std::sync::Arc;

use go_yaml::tree::Node;
use kube_objects::target::Target;
use kube_objects::watch::Fields as KeptFields;
use object_cel::{Expression, Type, Variables};

use super::definitions;
use super::expression::{condition, expression, parse};
use super::fields::{Fields, boolean, problem, string_map};
use super::problem::{Mistake, Problem};
use super::target::target_of_kind;

/// Fields of the status that the operator sets itself.
pub(crate) const OWN_FIELDS: [&str; 6] = [
    "conditions",
    "deployedRelease",
    "handled",
    "history",
    "observedGeneration",
    "release",
];

/// Outputs of releases in the status of custom resources, and conditions of their readiness.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs {
    /// Objects of the release, by the names that expressions have for them.
    pub objects: BTreeMap<String, Target>,
    /// Fields of the status.
    pub status: BTreeMap<String, Arc<Expression>>,
    /// Conditions of `Ready`, beside those of the objects.
    pub ready_when: Vec<Arc<Expression>>,
    /// Columns of `kubectl get`: titles and JSON paths.
    pub columns: Vec<(String, String)>,
}

impl Outputs {
    /// Reads the fields of an entry; `spec` is the type of the spec.
    pub(super) fn read(fields: &mut Fields<'_>, spec: Type) -> Self {
        let objects = fields.named("objects", |name, node, path, problems| {
            check_name(name, &[], node, path, problems)?;
            Fields::read(node, path, problems, target_of_kind)?
        });
        let variables = variables(&objects, spec);
        let expressions = Expressions {
            objects: &objects,
            variables: &variables,
        };
        let status = fields.named("status", |name, node, path, problems| {
            check_name(name, &OWN_FIELDS, node, path, problems)?;
            expressions.output(node, path, problems)
        });
        Self {
            status,
            ready_when: fields.items("readyWhen", |node| expressions.condition(node)),
            columns: fields.or_default("columns", columns),
            objects,
        }
    }

    /// Returns whether there are no expressions.
    pub(crate) fn is_empty(&self) -> bool {
        self.status.is_empty() && self.ready_when.is_empty()
    }

    /// Returns whether a field of the status is an output that reads no data of a Secret.
    pub(crate) fn is_public(&self, field: &str) -> bool {
        let output = self.status.get(field);
        output.is_some_and(|output| !reads_secret(output, &self.objects))
    }

    /// Checks the expressions against the kinds that a chart defines in `crds/`, too.
    ///
    /// # Errors
    /// Says what is wrong with the first one.
    pub(super) fn of_chart(
        self,
        chart: &helm_core::chart::Chart,
        spec: Type,
    ) -> Result<Self, Mistake> {
        if self.is_empty() {
            return Ok(self);
        }
        let defined = definitions::of_chart(chart);
        let types = self.objects.iter().map(|(name, target)| {
            let found = built_in(target).or_else(|| defined.type_of(target));
            (name.clone(), found.unwrap_or(Type::Dyn))
        });
        let variables = custom_resource(spec).with("objects", Type::object("objects", types));
        let again = |field: String, expression: &Expression| {
            let parsed = parse(expression.source(), &variables);
            parsed
                .map(Arc::new)
                .map_err(|error| Mistake::new(field, error))
        };
        let status = self.status.iter().map(|(name, expression)| {
            Ok((name.clone(), again(format!("status.{name}"), expression)?))
        });
        let status = status.collect::<Result<_, Mistake>>()?;
        let conditions = self.ready_when.iter().enumerate();
        let ready_when = conditions
            .map(|(i, expression)| again(format!("readyWhen[{i}]"), expression))
            .collect::<Result<_, Mistake>>()?;
        Ok(Self {
            status,
            ready_when,
            ..self
        })
    }

    /// Returns the fields of objects that the expressions read, by kind.
    pub(super) fn kept_fields(&self) -> BTreeMap<String, Arc<KeptFields>> {
        let mut kept: BTreeMap<&str, KeptFields> = BTreeMap::new();
        for target in self.objects.values() {
            let fields = kept.entry(kind_of(target)).or_default();
            if target.labels.is_some() {
                fields.add(&["metadata", "labels"]);
            }
        }
        let expressions = self.status.values().chain(&self.ready_when);
        for path in expressions.flat_map(|expression| expression.reads()) {
            match path {
                [variable, name, path @ ..] if variable == "objects" => {
                    if let Some(target) = self.objects.get(name) {
                        kept.entry(kind_of(target)).or_default().add(path);
                    }
                }
                [variable] if variable == "objects" => {
                    for fields in kept.values_mut() {
                        fields.add(&[""; 0]);
                    }
                }
                _ => {}
            }
        }
        let kept = kept.into_iter();
        kept.map(|(kind, fields)| (kind.to_owned(), Arc::new(fields)))
            .collect()
    }
}

fn kind_of(target: &Target) -> &str {
    target.kind.as_deref().unwrap_or_default()
}

/// Reports a name that is no identifier, or is taken.
fn check_name(
    name: &str,
    taken: &[&str],
    node: &Node,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<()> {
    let mut letters = name.chars();
    let is_identifier = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    let message = if !is_identifier {
        format!("`{name}` is not a name of letters, digits and `_`, such as `url`")
    } else if taken.contains(&name) {
        format!("`{name}` is a field that the operator sets; choose another name")
    } else {
        return Some(());
    };
    problems.push(problem(node, path, message));
    None
}

/// Returns what expressions can read: the spec and the metadata of the custom resource, and the objects.
fn variables(objects: &BTreeMap<String, Target>, spec: Type) -> Variables {
    let types = objects.iter().map(|(name, target)| {
        let built_in = built_in(target).unwrap_or(Type::Dyn);
        (name.clone(), built_in)
    });
    custom_resource(spec).with("objects", Type::object("objects", types))
}

/// Returns what expressions can read of a custom resource.
pub(super) fn custom_resource(spec: Type) -> Variables {
    let any = object_cel::built_in("v1", "ConfigMap");
    let metadata = match &any {
        Some(Type::Object(object)) => object.fields.get("metadata").cloned(),
        _ => None,
    };
    Variables::default()
        .with("spec", spec)
        .with("metadata", metadata.unwrap_or(Type::Dyn))
}

/// Versions of Kubernetes' own groups.
const VERSIONS: [&str; 14] = [
    "v1",
    "apps/v1",
    "batch/v1",
    "networking.k8s.io/v1",
    "autoscaling/v2",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "storage.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "autoscaling/v1",
];

/// Returns the type of a built-in kind; `None` if the target may select another one.
fn built_in(target: &Target) -> Option<Type> {
    let mut versions = VERSIONS.into_iter().filter(|api_version| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&target.group, group) && is(&target.version, version)
    });
    versions.find_map(|api_version| object_cel::built_in(api_version, kind_of(target)))
}

/// Parses the expressions of an entry.
struct Expressions<'a> {
    objects: &'a BTreeMap<String, Target>,
    variables: &'a Variables,
}

impl Expressions<'_> {
    /// Reads a field of the status: an expression, or a map with one.
    fn output(
        &self,
        node: &Node,
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Expression>> {
        if node.as_map().is_none() {
            let parsed = self.parse(node, false);
            let parsed = parsed.map_err(|message| problems.push(problem(node, path, message)));
            return Some(Arc::new(parsed.ok()?));
        }
        Fields::read(node, path, problems, |fields| {
            let is_sensitive = fields.optional("sensitive", boolean).unwrap_or(false);
            let parsed = fields.required("value", |value| self.parse(value, is_sensitive));
            parsed.map(Arc::new)
        })?
    }

    /// Reads an expression that is true or false.
    fn condition(&self, node: &Node) -> Result<Arc<Expression>, String> {
        let expression = self.parse(node, false)?;
        Ok(Arc::new(condition(expression)?))
    }

    fn parse(&self, node: &Node, is_sensitive: bool) -> Result<Expression, String> {
        let expression = expression(node, self.variables)?;
        if !is_sensitive && reads_secret(&expression, self.objects) {
            return Err(
                "the expression reads the data of a Secret; write {value: EXPRESSION, sensitive: true} if all who read the status may know it".to_owned(),
            );
        }
        Ok(expression)
    }
}

/// Returns whether an expression reads the data of a Secret, which an annotation may quote.
fn reads_secret(expression: &Expression, objects: &BTreeMap<String, Target>) -> bool {
    let is_secret = |target: &Target| kind_of(target) == "Secret";
    let is_read = |path: &[String]| match path {
        [first] if first == "objects" => objects.values().any(is_secret),
        [first, name, below @ ..] if first == "objects" => {
            let is_harmless = match below {
                [first, field, ..] if first == "metadata" => field != "annotations",
                [first, ..] => matches!(first.as_str(), "type" | "immutable" | "kind"),
                [] => false,
            };
            !is_harmless && objects.get(name).is_some_and(is_secret)
        }
        _ => false,
    };
    expression.reads().any(is_read)
}

/// Reads the columns of `kubectl get`, in the order of the file.
fn columns(node: &Node) -> Result<Vec<(String, String)>, String> {
    let mut columns = string_map(node)?;
    let is_path = |path: &&String| {
        let mut starts = [".spec.", ".status.", ".metadata."].iter();
        starts.any(|start| path.starts_with(start))
    };
    if let Some(path) = columns.values().find(|path| !is_path(path)) {
        return Err(format!(
            "`{path}` is not a JSON path in the custom resource, such as `.status.url`"
        ));
    }
    let entries = node.merged().unwrap_or_default().into_iter();
    let titles = entries.filter_map(|(title, _)| title.as_str());
    Ok(titles
        .filter_map(|title| columns.remove_entry(title))
        .collect())
}
