//! The dot of templates: `.Chart`, `.Release`, `.Capabilities` and their Go types.

use std::sync::Arc;

use go_template::{
    Args, Call, Field, FuncError, List, Map, Method, Object, Str, Tree, TreeMap, Type, TypeInfo,
    Value,
};
use serde_json::Value as Json;

use super::ReleaseInfo;
use super::include::RenderState;
use super::values_object::VALUES_TYPE;
use crate::capabilities::{Capabilities, HelmVersion, KubeVersion};
use crate::chart::{Chart, Dependency, Maintainer};
use crate::values::tree::from_json;

const fn renamed(name: &'static str, json: &'static str) -> Field {
    Field {
        name,
        json: Some(json),
    }
}

// === .Capabilities ===

static CAPABILITIES: TypeInfo = TypeInfo::structure(
    "common.Capabilities",
    &[
        Field::new("KubeVersion"),
        Field::new("APIVersions"),
        Field::new("HelmVersion"),
    ],
);
static CAPABILITIES_POINTER: TypeInfo = TypeInfo {
    methods: &[Method::new("Copy", &[], copy)],
    ..TypeInfo::pointer("*common.Capabilities", Type::new(&CAPABILITIES))
};

static KUBE_VERSION: TypeInfo = TypeInfo {
    methods: &[
        Method::new("GitVersion", &[], git_version),
        Method::new("String", &[], kube_version_string),
    ],
    pointer_text: Some(comparable),
    ..TypeInfo::structure(
        "common.KubeVersion",
        &[
            Field::new("Version"),
            Field::new("normalizedVersion"),
            Field::new("Major"),
            Field::new("Minor"),
        ],
    )
};

static VERSION_SET: TypeInfo = TypeInfo {
    named: true,
    methods: &[Method::new("Has", &[Type::STRING], has)],
    ..TypeInfo::slice("common.VersionSet", Type::STRING)
};
const VERSION_SET_TYPE: Type = Type::new(&VERSION_SET);

static BUILD_INFO: TypeInfo = TypeInfo::structure(
    "version.BuildInfo",
    &[
        renamed("Version", "version,omitempty"),
        renamed("GitCommit", "git_commit,omitempty"),
        renamed("GitTreeState", "git_tree_state,omitempty"),
        renamed("GoVersion", "go_version,omitempty"),
        renamed("KubeClientVersion", "kube_client_version"),
    ],
);

pub(crate) fn capabilities(capabilities: &Capabilities) -> Value {
    let versions = capabilities.api_versions.texts().iter().cloned();
    let versions = versions.map(Value::Str).collect();
    let fields = vec![
        kube_version(&capabilities.kube_version),
        Value::List(List::new(VERSION_SET_TYPE, versions)),
        build_info(&capabilities.helm_version),
    ];
    Value::Object(Object::structure(Type::new(&CAPABILITIES_POINTER), fields))
}

fn kube_version(version: &KubeVersion) -> Value {
    let fields = vec![
        Value::from(version.version()),
        Value::from(version.normalized().unwrap_or_default()),
        Value::from(version.major()),
        Value::from(version.minor()),
    ];
    Value::Object(Object::structure(Type::new(&KUBE_VERSION), fields))
}

fn build_info(version: &HelmVersion) -> Value {
    let fields = [
        &version.version,
        &version.git_commit,
        &version.git_tree_state,
        &version.go_version,
        &version.kube_client_version,
    ];
    let fields = fields
        .into_iter()
        .map(|field| Value::from(field.as_str()))
        .collect();
    Value::Object(Object::structure(Type::new(&BUILD_INFO), fields))
}

fn copy(_: &mut Call<'_>, value: &Value, _: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(value.clone())
}

fn field(value: &Value, name: &str) -> Str {
    let Value::Object(object) = value else {
        return Str::EMPTY;
    };
    object
        .field(name)
        .and_then(|value| value.as_str().cloned())
        .unwrap_or_default()
}

fn git_version(_: &mut Call<'_>, value: &Value, _: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(Value::Str(field(value, "Version")))
}

fn kube_version_string(
    _: &mut Call<'_>,
    value: &Value,
    _: &mut Args<'_>,
) -> Result<Value, FuncError> {
    Ok(Value::Str(comparable(value)))
}

fn comparable(value: &Value) -> Str {
    let normalized = field(value, "normalizedVersion");
    if normalized.is_empty() {
        field(value, "Version")
    } else {
        normalized
    }
}

fn has(call: &mut Call<'_>, value: &Value, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let wanted = args.str(0);
    let Value::List(versions) = value else {
        return Ok(Value::Bool(false));
    };
    let found = versions
        .iter()
        .any(|version| version.as_str() == Some(wanted));
    if let Some(host) = call.host_mut::<RenderState>() {
        host.reads
            .api_versions
            .insert(wanted.to_string_lossy().into_owned(), found);
    }
    Ok(Value::Bool(found))
}

// === .Release ===

pub(crate) fn release(release: &ReleaseInfo) -> Value {
    Value::Map(Map::from_entries(
        Type::MAP,
        [
            ("Name", Value::from(release.name.as_str())),
            ("Namespace", Value::from(release.namespace.as_str())),
            ("IsUpgrade", Value::Bool(release.is_upgrade)),
            ("IsInstall", Value::Bool(release.is_install)),
            ("Revision", Value::Int(i64::from(release.revision.0))),
            ("Service", Value::from("Helm")),
        ],
    ))
}

/// Returns `.Template` for the file at `path`.
pub(crate) fn template(path: &str, base_path: &str) -> Tree {
    let entries = [
        (Str::from_static("Name"), Tree::Str(Str::from(path))),
        (
            Str::from_static("BasePath"),
            Tree::Str(Str::from(base_path)),
        ),
    ];
    Tree::from(TreeMap::new(VALUES_TYPE, entries))
}

// === .Chart ===

/// Returns `.Chart`: the metadata under the names of Go's fields.
pub(crate) fn chart(chart: &Chart, is_root: bool) -> Tree {
    let metadata = chart.metadata();
    let annotations = metadata.annotations.iter();
    let annotations = annotations.map(|(key, value)| (Str::from(key), text(value)));
    let entries = [
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", list(&metadata.sources, |source| text(source))),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", list(&metadata.keywords, |word| text(word))),
        ("Maintainers", list(&metadata.maintainers, maintainer)),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", Tree::Bool(metadata.deprecated)),
        (
            "Annotations",
            if metadata.annotations.is_empty() {
                Tree::NilOf(Type::STRING_MAP)
            } else {
                Tree::from(TreeMap::new(Type::STRING_MAP, annotations))
            },
        ),
        ("KubeVersion", text(&metadata.kube_version)),
        ("Dependencies", list(&metadata.dependencies, dependency)),
        ("Type", text(&metadata.chart_type)),
        ("IsRoot", Tree::Bool(is_root)),
    ];
    map(entries)
}

fn text(text: &str) -> Tree {
    Tree::Str(Str::from(text))
}

fn list<T>(items: &[T], convert: fn(&T) -> Tree) -> Tree {
    Tree::from(items.iter().map(convert).collect::<Vec<_>>())
}

fn map<const N: usize>(entries: [(&'static str, Tree); N]) -> Tree {
    let entries = entries
        .into_iter()
        .map(|(key, value)| (Str::from_static(key), value));
    Tree::from(TreeMap::new(Type::MAP, entries))
}

fn maintainer(maintainer: &Maintainer) -> Tree {
    map([
        ("Name", text(&maintainer.name)),
        ("Email", text(&maintainer.email)),
        ("URL", text(&maintainer.url)),
    ])
}

fn dependency(dependency: &Dependency) -> Tree {
    map([
        ("Name", text(&dependency.name)),
        ("Version", text(&dependency.version)),
        ("Repository", text(&dependency.repository)),
        ("Condition", text(&dependency.condition)),
        ("Tags", list(&dependency.tags, |tag| text(tag))),
        ("Enabled", Tree::Bool(dependency.enabled)),
        ("ImportValues", list(&dependency.import_values, import)),
        ("Alias", text(&dependency.alias)),
    ])
}

/// Converts an import; a pair of paths is a `map[string]string` once it was processed.
fn import(import: &Json) -> Tree {
    let tree = from_json(import);
    match &tree {
        Tree::Map(pair) if pair.iter().all(|(_, value)| matches!(value, Tree::Str(_))) => {
            let entries = pair.iter().map(|(key, value)| (key.clone(), value.clone()));
            Tree::Map(Arc::new(TreeMap::new(Type::STRING_MAP, entries)))
        }
        _ => tree,
    }
}

#[cfg(test)]
mod tests {
    use go_template::Kind;

    use super::*;

    #[test]
    fn capabilities_have_go_types() {
        let value = capabilities(&Capabilities::default());
        let Value::Object(object) = value else {
            panic!()
        };
        assert_eq!(object.go_type().name(), "*common.Capabilities");
        let versions = object.field("APIVersions").unwrap();
        assert_eq!(versions.go_type().map(Type::kind), Some(Kind::Slice));
    }
}
