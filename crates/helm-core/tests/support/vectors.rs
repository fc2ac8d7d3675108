//! Function vectors: a template and Helm's output or error (layout: the folder's README).

use std::collections::BTreeMap;
use std::path::Path;

use helm_core::capabilities::{Capabilities, KubeVersion};
use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::release::Revision;
use helm_core::values::{self, Values};
use serde::Deserialize;
use serde_json::{Number, Value};

use super::{Outcome, guarded, run_all, wanted};

const CHART: &str = "apiVersion: v2\nname: chart\nversion: 0.1.0\nappVersion: \"1.2.3\"\n";
const MAIN: &str = "templates/main.yaml";

/// One line of a vector file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Vector {
    /// Family and hash.
    pub(crate) id: String,
    template: Option<String>,
    templates: BTreeMap<String, String>,
    values: Option<Values>,
    values_yaml: String,
    files: BTreeMap<String, String>,
    release: Release,
    kube_version: String,
    api_versions: Vec<String>,
    output: Option<String>,
    output_base64: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Release {
    name: String,
    namespace: String,
    revision: u32,
    is_install: Option<bool>,
    is_upgrade: bool,
}

/// Runs all `.jsonl` files of a folder.
pub(crate) fn run(folder: &Path) -> Vec<Outcome> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of vectors can be read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    let mut vectors = Vec::new();
    for path in files {
        let family = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("a vector file is text");
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let vector: Vector = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if wanted(&family, &vector.id) {
                vectors.push((family.clone(), vector));
            }
        }
    }
    run_all(&vectors, |(family, vector)| Outcome {
        group: family.clone(),
        id: vector.id.rsplit('/').next().unwrap_or_default().to_owned(),
        failure: guarded(|| check(vector)),
    })
}

/// Compares one vector with what the crate renders.
pub(crate) fn check(vector: &Vector) -> Result<(), String> {
    let expected = match (&vector.output, &vector.output_base64) {
        (Some(output), _) => Some(output.clone().into_bytes()),
        (None, Some(encoded)) => data_encoding::BASE64.decode(encoded.as_bytes()).ok(),
        (None, None) => None,
    };
    let template = vector.template.as_deref().unwrap_or_default();
    match (expected, render(vector)) {
        (None, Err(_)) => Ok(()),
        (Some(expected), Ok(found)) if expected == found => Ok(()),
        (Some(expected), Ok(found)) => Err(format!(
            "{template:?}\nexpected {:?}\nfound    {:?}",
            String::from_utf8_lossy(&expected),
            String::from_utf8_lossy(&found)
        )),
        (Some(expected), Err(error)) => Err(format!(
            "{template:?}\nexpected {:?}\nfailed   {error}",
            String::from_utf8_lossy(&expected)
        )),
        (None, Ok(found)) => Err(format!(
            "{template:?}\nfound    {:?}\nshould fail: {}",
            String::from_utf8_lossy(&found),
            vector.error.as_deref().unwrap_or_default()
        )),
    }
}

/// Renders the vector's template or, without one, all files under their names.
pub(crate) fn render(vector: &Vector) -> Result<Vec<u8>, String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let mut files = BTreeMap::from([("Chart.yaml", CHART)]);
    let given = vector.files.iter().chain(&vector.templates);
    files.extend(given.map(|(name, text)| (name.as_str(), text.as_str())));
    if let Some(template) = &vector.template {
        files.insert(MAIN, template);
    }
    let files = files.into_iter().map(|(name, text)| File::new(name, text));
    let chart = Chart::from_files(files).map_err(text)?;
    let user = match &vector.values {
        Some(values) => floats(values),
        None => values::read(vector.values_yaml.as_bytes()).map_err(text)?,
    };
    let compiled = CompiledChart::compile(&chart).map_err(text)?;
    let values = compiled.coalesce(user).map_err(text)?;
    let capabilities = capabilities(&vector.kube_version, &vector.api_versions)?;
    let mut input = RenderInput::new(release(&vector.release), &values).capabilities(&capabilities);
    // Helm's messages show values.
    input.values_in_errors = true;
    let mut output = compiled.render_files(&input).map_err(text)?;
    if vector.template.is_some() {
        let main = format!("{}/{MAIN}", chart.name());
        let found = output.files.into_iter().find(|(path, _)| *path == main);
        return Ok(found.map(|(_, text)| text).unwrap_or_default());
    }
    output.files.sort();
    let mut all = Vec::new();
    for (path, text) in output.files {
        all.extend(format!("--- {path}\n").into_bytes());
        all.extend(text);
        all.push(b'\n');
    }
    Ok(all)
}

/// Returns the capabilities with which the vectors were recorded.
pub(crate) fn capabilities(
    kube_version: &str,
    api_versions: &[String],
) -> Result<Capabilities, String> {
    let mut capabilities = Capabilities::default();
    let version = if kube_version.is_empty() {
        "v1.36.0"
    } else {
        kube_version
    };
    capabilities.kube_version = KubeVersion::parse(version).map_err(|error| error.to_string())?;
    capabilities.api_versions = capabilities.api_versions.with(api_versions);
    Ok(capabilities)
}

fn release(given: &Release) -> ReleaseInfo {
    let or = |text: &str, default: &str| {
        if text.is_empty() {
            default.to_owned()
        } else {
            text.to_owned()
        }
    };
    ReleaseInfo {
        name: or(&given.name, "release-name"),
        namespace: or(&given.namespace, "default"),
        revision: Revision(given.revision.max(1)),
        is_install: given.is_install.unwrap_or(!given.is_upgrade),
        is_upgrade: given.is_upgrade,
    }
}

/// Converts every number to a float, as in a values file.
fn floats(values: &Values) -> Values {
    values
        .iter()
        .map(|(key, value)| (key.clone(), float(value)))
        .collect()
}

fn float(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().and_then(Number::from_f64);
            float.map_or(Value::Null, Value::Number)
        }
        Value::Array(items) => Value::Array(items.iter().map(float).collect()),
        Value::Object(map) => Value::Object(floats(map)),
        other => other.clone(),
    }
}
