//! `create api`: the files of one kind, of a chart or native.

use serde_json::{Value, json};

use super::template::render;
use super::{ChartSource, Draft, Plugin, ScaffoldError, add_project_file, edit, names, version};
use crate::generate::{self, ChartApi};
use crate::project::{Api, ProjectFile, Resource, WATCHES, plural as regular_plural};
use crate::rbac::write::{RoleScope, binding};

/// Names of a kind.
#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names, reason = "the name that Kubernetes uses")]
pub(crate) struct Kind {
    /// API group without the domain.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// Plural name, if the user gave one.
    pub(crate) plural: Option<String>,
    /// Whether custom resources are in a namespace.
    pub(crate) namespaced: bool,
}

impl Kind {
    pub(crate) fn check(&self) -> Result<(), names::NameError> {
        names::check_group(&self.group)?;
        names::check_version(&self.version)?;
        names::check_kind(&self.kind)?;
        self.plural.as_deref().map_or(Ok(()), names::check_plural)
    }

    pub(super) fn lower(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    pub(super) fn plural(&self) -> String {
        let plural = self.plural.clone();
        plural.unwrap_or_else(|| regular_plural(&self.kind))
    }

    /// Returns the entry of `PROJECT`.
    fn resource(&self, domain: &str) -> Resource {
        let plural = self.plural.clone();
        Resource {
            api: Some(Api {
                crd_version: "v1".to_owned(),
                namespaced: self.namespaced,
                other: std::collections::BTreeMap::new(),
            }),
            domain: Some(domain.to_owned()).filter(|domain| !domain.is_empty()),
            group: Some(self.group.clone()),
            kind: self.kind.clone(),
            version: self.version.clone(),
            plural: plural.filter(|plural| *plural != regular_plural(&self.kind)),
            ..Resource::default()
        }
    }

    /// Returns the data for the templates.
    pub(super) fn data(&self, group: &str, project_name: &str) -> Value {
        let kind = &self.kind;
        json!({
            "project_name": project_name,
            "full_group": group,
            "version": self.version,
            "kind": kind,
            "lower": self.lower(),
            "sample": names::sample(&self.lower(), "sample"),
            "plural": self.plural(),
            "module": names::module(kind),
            "namespaced": self.namespaced,
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
            // Whether the declarations of these functions are longer than a line of 100 columns.
            "reconcile_wraps": kind.len() > 6,
            "complete_wraps": kind.len() > 11,
            "types_with_spec": format!("{{{kind}, {kind}Spec}}"),
            "types_with_status": format!("{{{kind}, {kind}Status}}"),
        })
    }
}

/// Adds a kind that a chart serves.
pub(crate) fn create_chart_kind(
    draft: &mut Draft,
    file: &mut ProjectFile,
    kind: &Kind,
    source: &ChartSource,
) -> Result<(), ScaffoldError> {
    if !Plugin::of(file)?.has_charts() {
        return Err(ScaffoldError::WrongLayout(
            "this project has no charts: it was created with --plugins native; use --native, or create a project with --plugins hybrid",
        ));
    }
    kind.check()?;
    let directory = source.directory();
    let wanted = Resource {
        chart: Some(directory.clone()),
        chart_source: source.origin.clone(),
        ..kind.resource(&file.domain)
    };
    let group = wanted.full_group();
    names::check_definition(&kind.plural(), &group)?;
    add_resource(file, wanted)?;
    for (path, data) in source.files() {
        draft.add(path, data)?;
    }
    for path in source.outdated(draft.root())? {
        draft.delete(path)?;
    }
    let plural = kind.plural();
    let api = ChartApi {
        group: &group,
        version: &kind.version,
        kind: &kind.kind,
        plural: &plural,
        namespaced: kind.namespaced,
        chart: &source.chart,
        directory: &directory,
    };
    let failed = |what| {
        move |error: anyhow::Error| ScaffoldError::Generate {
            what,
            cause: format!("{error:#}"),
        }
    };
    let crd = generate::crd(&api).map_err(failed("the CRD"))?;
    let role = generate::role(&api).map_err(failed("the role"))?;
    let sample = generate::sample(&api).map_err(failed("the sample"))?;
    let data = kind.data(&group, &file.project_name);
    let chart = source.chart.name().to_lowercase();
    let binding = bind("chart", &chart);
    let roles = format!("charts/{chart}");
    draft.add(crd_file(&group, kind), crd)?;
    add_sample(draft, kind, sample)?;
    add_config(draft, kind, &data, &roles, [role, binding])?;
    let (version, name) = (&kind.version, &kind.kind);
    let entry =
        format!("- group: {group}\n  version: {version}\n  kind: {name}\n  chart: {directory}");
    draft.edit(WATCHES, &entry, |text| {
        edit::append_watch(text, (&group, version, name), &directory)
    })?;
    add_project_file(draft, file)
}

/// Adds a native kind, or another version of one: its type if `resource`, its controller if
/// `controller`, or else if no other version has it.
pub(crate) fn create_native_kind(
    draft: &mut Draft,
    file: &mut ProjectFile,
    kind: &Kind,
    resource: bool,
    controller: Option<bool>,
) -> Result<(), ScaffoldError> {
    if !Plugin::of(file)?.has_code() {
        return Err(ScaffoldError::WrongLayout(
            "this project has no code: it was created with --plugins helm; leave out --native, or create a project with --plugins hybrid",
        ));
    }
    kind.check()?;
    names::check_native_kind(&kind.kind)?;
    let group = kind.resource(&file.domain).full_group();
    let kind = &version::like_others(file, &group, kind)?;
    names::check_definition(&kind.plural(), &group)?;
    let controller = version::gets_controller(file, &group, kind, controller)?;
    let data = kind.data(&group, &file.project_name);
    if resource {
        let types = format!("src/api/{}.rs", kind.version);
        let wanted = Resource {
            controller,
            path: Some(types.clone()),
            ..kind.resource(&file.domain)
        };
        add_resource(file, wanted)?;
        add_type(draft, kind, &types, &data)?;
        add_manifests(draft, file, kind, &group, data.clone())?;
    } else {
        native_resource(file, kind, &group)?.controller |= controller;
    }
    if controller {
        add_controller(draft, file, kind, &data)?;
    }
    add_project_file(draft, file)
}

/// Adds the manifests of a native kind. Those of a further version are its part of the CRD, and a
/// sample.
fn add_manifests(
    draft: &mut Draft,
    file: &ProjectFile,
    kind: &Kind,
    group: &str,
    mut data: Value,
) -> Result<(), ScaffoldError> {
    let crd = render("native/crd.yaml", &data)?;
    let crd = canonical(&crd).map_err(|source| ScaffoldError::Yaml {
        path: "native/crd.yaml".into(),
        source,
    })?;
    let versions: Vec<&Resource> = version::entries(file, group, &kind.kind).collect();
    let first = versions
        .first()
        .map_or(&kind.version, |first| &first.version);
    let is_first = *first == kind.version;
    if versions.len() > 1 {
        version::add_to_crd(draft, &crd_file(group, kind), &crd)?;
    } else {
        draft.add(crd_file(group, kind), crd)?;
    }
    if !is_first && let Some(fields) = data.as_object_mut() {
        // Two samples of one name would be one object.
        let name = names::sample(&kind.lower(), &format!("{}-sample", kind.version));
        fields.insert("sample".to_owned(), name.into());
    }
    add_sample(draft, kind, render("native/sample.yaml", &data)?)?;
    if !is_first {
        return Ok(());
    }
    let role = render("native/role.yaml", &data)?;
    let binding = bind("native", &kind.lower());
    let roles = format!("native/{}", kind.lower());
    add_config(draft, kind, &data, &roles, [role, binding])
}

/// Returns the entry of a native kind in `PROJECT`.
pub(super) fn native_resource<'a>(
    file: &'a mut ProjectFile,
    kind: &Kind,
    group: &str,
) -> Result<&'a mut Resource, ScaffoldError> {
    let mut resources = file.resources.iter_mut();
    let found = resources.find(|resource| {
        resource.full_group() == group
            && resource.kind == kind.kind
            && resource.version == kind.version
            && resource.path.is_some()
    });
    found.ok_or_else(|| ScaffoldError::NoSuchKind {
        kind: kind.kind.clone(),
        group: group.to_owned(),
        version: kind.version.clone(),
    })
}

/// Adds an entry to `PROJECT`, unless it has the same entry already. A native kind may have several
/// versions.
fn add_resource(file: &mut ProjectFile, wanted: Resource) -> Result<(), ScaffoldError> {
    let group = wanted.full_group();
    let is_native = wanted.path.is_some();
    let clash = file.resources.iter_mut().find(|present| {
        let same_group = present.full_group() == group;
        let both_native = is_native && present.path.is_some();
        let other_version = same_group && both_native && present.version != wanted.version;
        // Native types of one name would clash, whatever their group.
        present.kind == wanted.kind && (same_group || both_native) && !other_version
    });
    let Some(present) = clash else {
        file.resources.push(wanted);
        return Ok(());
    };
    let same = present.version == wanted.version
        && present.full_group() == group
        && present.chart == wanted.chart
        && present.path == wanted.path
        && present.plural == wanted.plural
        && present.api == wanted.api;
    if same {
        present.controller |= wanted.controller;
        present.chart_source = wanted.chart_source;
        return Ok(());
    }
    let what = match (&present.chart, &present.path) {
        (Some(chart), _) => format!("{} with the chart {chart}", present.version),
        (None, Some(path)) => format!("{} in {path}", present.version),
        (None, None) => present.version.clone(),
    };
    Err(ScaffoldError::KindExists {
        kind: wanted.kind,
        group: present.full_group(),
        present: what,
    })
}

fn crd_file(group: &str, kind: &Kind) -> String {
    format!("config/crd/bases/{group}_{}.yaml", kind.plural())
}

fn add_sample(draft: &mut Draft, kind: &Kind, sample: String) -> Result<(), ScaffoldError> {
    let file = format!("{}_{}_{}.yaml", kind.group, kind.version, kind.lower());
    draft.add(format!("config/samples/{file}"), sample)?;
    list(draft, "samples", &file)
}

/// Lists the CRD of a kind, and adds its role, the binding of the role, and roles for users.
fn add_config(
    draft: &mut Draft,
    kind: &Kind,
    data: &Value,
    roles: &str,
    [role, binding]: [String; 2],
) -> Result<(), ScaffoldError> {
    let lower = kind.lower();
    let group = data.get("full_group").and_then(Value::as_str);
    let crd = crd_file(group.unwrap_or_default(), kind);
    list(draft, "crd", crd.trim_start_matches("config/crd/"))?;
    let mut roles = vec![
        (format!("{roles}_role.yaml"), role),
        (format!("{roles}_role_binding.yaml"), binding),
    ];
    for (level, template) in [
        ("admin", "kind/admin_role.yaml"),
        ("editor", "kind/editor_role.yaml"),
        ("viewer", "kind/viewer_role.yaml"),
    ] {
        roles.push((
            format!("{lower}_{level}_role.yaml"),
            render(template, data)?,
        ));
    }
    for (path, text) in roles {
        draft.add(format!("config/rbac/{path}"), text)?;
        list(draft, "rbac", &path)?;
    }
    Ok(())
}

/// Returns the binding of the role of a chart or of a native kind.
fn bind(what: &str, name: &str) -> String {
    let role = format!("{what}-{name}-role");
    binding(
        RoleScope::Cluster,
        &format!("{what}-{name}-rolebinding"),
        &role,
    )
}

/// Adds a file to the resources of a kustomization.
pub(super) fn list(draft: &mut Draft, folder: &str, path: &str) -> Result<(), ScaffoldError> {
    let file = format!("config/{folder}/kustomization.yaml");
    draft.edit(&file, &format!("resources:\n- {path}"), |text| {
        edit::append_to_list(text, "resources", path)
    })
}

/// Adds the types of a kind to the module of its version.
fn add_type(draft: &mut Draft, kind: &Kind, path: &str, data: &Value) -> Result<(), ScaffoldError> {
    let types = render("native/type.rs", data)?;
    let text = match draft.read(path)? {
        None => render("native/version.rs", data)? + &types,
        Some(present) if present.contains(&format!("pub struct {}Spec", kind.kind)) => present,
        Some(mut present) => {
            for (name, path) in [
                ("Condition", "hybrid_operator::native::Condition"),
                ("CustomResource", "kube::CustomResource"),
                ("JsonSchema", "schemars::JsonSchema"),
                ("Serialize", "serde::{Deserialize, Serialize}"),
            ] {
                if !imports(&present, name) {
                    let added = edit::insert_use(&present, path);
                    present = added.ok_or_else(|| ScaffoldError::NoPlace {
                        path: format!("src/api/{}.rs", kind.version),
                        line: format!("use {path};"),
                    })?;
                }
            }
            present + &types
        }
    };
    draft.edit_or_add(path, text)?;
    let line = format!("pub mod {};", kind.version);
    draft.edit("src/api/mod.rs", &line, |text| {
        Some(edit::insert_sorted(text, "pub mod ", &line))
    })
}

/// Returns whether a `use` declaration of Rust code names something.
fn imports(code: &str, name: &str) -> bool {
    let declarations = code.split("\nuse ").skip(1);
    declarations
        .filter_map(|rest| rest.split(';').next())
        .any(|path| {
            path.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == name)
        })
}

/// Adds a controller, and runs it in the program.
fn add_controller(
    draft: &mut Draft,
    file: &ProjectFile,
    kind: &Kind,
    data: &Value,
) -> Result<(), ScaffoldError> {
    let module = names::module(&kind.kind);
    for (name, template) in [
        ("desired", "native/desired.rs"),
        ("mod", "native/controller.rs"),
        ("status", "native/status.rs"),
    ] {
        let path = format!("src/controllers/{module}/{name}.rs");
        draft.add(path, render(template, data)?)?;
    }
    let line = format!("pub mod {module};");
    draft.edit("src/controllers/mod.rs", &line, |text| {
        Some(edit::insert_sorted(text, "pub mod ", &line))
    })?;
    let path = format!("controllers::{module}");
    add_to_main(
        draft,
        file,
        &path,
        &format!(".with({module}::controller())"),
    )
}

/// Imports something of the project into `main.rs`, and adds a call before `.main()`.
pub(super) fn add_to_main(
    draft: &mut Draft,
    file: &ProjectFile,
    path: &str,
    call: &str,
) -> Result<(), ScaffoldError> {
    let path = format!("{}::{path}", file.project_name.replace('-', "_"));
    let lines = format!("use {path};\n{call}   // before .main()");
    draft.edit("src/main.rs", &lines, |text| {
        // Whoever has written the call already has also imported what it needs.
        if text.contains(call) {
            return Some(text.to_owned());
        }
        edit::insert_before(&edit::insert_use(text, &path)?, ".main()", call)
    })
}

/// Returns YAML in the form in which CRDs are generated from types.
fn canonical(text: &str) -> Result<String, go_yaml::Error> {
    go_yaml::to_string(&go_yaml::from_str::<Value>(text)?)
}
