//! Compares the charts in `tests/charts` with the recorded output of Helm.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use helm_core::chart::File;
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::values::{self, Values};
use helm_core::{Chart, CompiledChart};

fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut charts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    charts.retain(|path| path.is_dir());
    charts.sort();
    charts
}

/// Returns what `helm template` prints.
fn template(folder: &Path, user: Values) -> Result<String, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let compiled = CompiledChart::load(folder).map_err(|error| text(&error))?;
    let values = compiled.coalesce(user).map_err(|error| text(&error))?;
    let input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
    let rendered = compiled.render(&input).map_err(|error| text(&error))?;
    let mut text = format!("{}\n", rendered.manifest().trim());
    for hook in rendered.hooks() {
        for part in ["---\n# Source: ", &hook.path, "\n", &hook.manifest, "\n"] {
            text.push_str(part);
        }
    }
    Ok(text)
}

#[test]
fn own_charts_render_as_in_helm() {
    let mut cases = 0;
    for folder in folders() {
        for entry in std::fs::read_dir(folder.join("expected")).unwrap() {
            let path = entry.unwrap().path();
            let id = path.file_stem().unwrap().to_string_lossy().into_owned();
            let user = match id.as_str() {
                "default" => Values::new(),
                id => values::read_file(folder.join(format!("ci/{id}-values.yaml"))).unwrap(),
            };
            let case = format!("{} {id}", folder.display());
            let found = template(&folder, user);
            if path.extension().unwrap() == "error" {
                assert!(found.is_err(), "{case}: Helm rejects it");
            } else {
                let expected = std::fs::read_to_string(&path).unwrap();
                assert_eq!(found.as_deref(), Ok(expected.as_str()), "{case}");
            }
            cases += 1;
        }
    }
    assert_eq!(cases, 34);
}

#[test]
fn a_template_reads_only_the_chart_and_its_values() {
    let render = |template: &str| {
        let files = [
            File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            File::new("templates/map.yaml", template),
        ];
        let chart = Chart::from_files(files).unwrap();
        let compiled = CompiledChart::compile(&chart).map_err(|error| error.to_string())?;
        let values = compiled.coalesce(Values::new()).unwrap();
        let input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
        let rendered = compiled.render(&input).map_err(|error| error.to_string())?;
        Ok::<_, String>(rendered.manifest().to_owned())
    };
    for name in ["../../../etc/hostname", "/etc/hostname", "Chart.yaml/.."] {
        let manifest = render(&format!("found: {{{{ .Files.Get {name:?} | quote }}}}")).unwrap();
        assert!(manifest.contains("found: \"\""), "{name}: {manifest}");
    }
    for function in ["env", "expandenv"] {
        let error = render(&format!("found: {{{{ {function} \"HOME\" }}}}")).unwrap_err();
        let unknown = format!("function \"{function}\" not defined");
        assert!(error.contains(&unknown), "{error}");
    }
    let manifest = render("found: {{ getHostByName \"localhost\" | quote }}").unwrap();
    assert!(manifest.contains("found: \"\""), "{manifest}");
}
