//! Adds files to the resources of a `kustomization.yaml`, keeping its text and comments.

use serde_json::Value;

/// Error changing a `kustomization.yaml`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KustomizationError {
    #[error("it is not valid YAML")]
    Parse(#[source] go_yaml::Error),
    #[error(
        "its 'resources' are not one entry per line; write them as '- FILE' on lines of their own, or add {} to them",
        files.join(", ")
    )]
    Layout { files: Vec<String> },
}

/// Returns the file with `wanted` added to its resources where they are missing. An entry is added
/// after the last one of the same directory, else at the end; entries in the project's root with
/// the same ending as wanted ones, such as `_viewer_role.yaml`, are their neighbours.
pub(crate) fn with_resources(text: &str, wanted: &[String]) -> Result<String, KustomizationError> {
    let value: Value = go_yaml::from_str(text).map_err(KustomizationError::Parse)?;
    let present = value.get("resources").and_then(Value::as_array);
    let present: Vec<&str> = present
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|file| {
            !present.contains(&file.trim_start_matches("./")) && !present.contains(&file.as_str())
        })
        .collect();
    if missing.is_empty() {
        return Ok(text.to_owned());
    }
    let layout = || KustomizationError::Layout {
        files: missing.iter().map(|file| (*file).clone()).collect(),
    };
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    if value.get("resources").is_none_or(Value::is_null) {
        lines.retain(|line| line.trim_end() != "resources:");
        lines.push("resources:".to_owned());
        lines.extend(missing.iter().map(|file| format!("- {file}")));
    } else {
        for file in &missing {
            let (at, indent) = place(&lines, file).ok_or_else(layout)?;
            lines.insert(at, format!("{indent}- {file}"));
        }
    }
    let changed = lines.join("\n") + "\n";
    // The result must be what was meant, whatever the layout.
    let result: Value = go_yaml::from_str(&changed).map_err(KustomizationError::Parse)?;
    let now = result.get("resources").and_then(Value::as_array);
    let has =
        |file: &str| now.is_some_and(|now| now.iter().any(|entry| entry.as_str() == Some(file)));
    let kept = present.iter().all(|file| has(file));
    if kept && missing.iter().all(|file| has(file)) {
        Ok(changed)
    } else {
        Err(layout())
    }
}

/// Returns the index of the line before which an entry is added, and its indentation.
fn place(lines: &[String], file: &str) -> Option<(usize, String)> {
    let directory = |file: &str| {
        file.rsplit_once('/')
            .map(|(directory, _)| directory.to_owned())
    };
    let wanted = directory(file);
    let start = lines
        .iter()
        .position(|line| line.trim_end() == "resources:")?;
    let mut last = None;
    let mut last_alike = None;
    for (index, line) in lines.iter().enumerate().skip(start + 1) {
        let trimmed = line.trim_start();
        let Some(entry) = trimmed.strip_prefix("- ") else {
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            // The next field.
            break;
        };
        let entry = entry.split(" #").next().unwrap_or_default().trim();
        let entry = entry.trim_matches(['"', '\'']);
        let indent = line.get(..line.len() - trimmed.len()).unwrap_or_default();
        let place = (index + 1, indent.to_owned());
        if directory(entry) == wanted {
            last_alike = Some(place.clone());
        }
        last = Some(place);
    }
    last_alike.or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, files: &[&str]) -> String {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        with_resources(text, &files).unwrap()
    }

    #[test]
    fn entries_go_to_their_neighbours_and_comments_stay() {
        let text = "resources:\n- a.yaml\n# Charts.\n- charts/a.yaml # one\n# Users.\n- u.yaml\npatches: []\n";
        let expected = "resources:\n- a.yaml\n# Charts.\n- charts/a.yaml # one\n- charts/b.yaml\n- charts/c.yaml\n\
                        # Users.\n- u.yaml\n- v.yaml\n- native/x.yaml\npatches: []\n";
        let found = with(
            text,
            &[
                "charts/a.yaml",
                "charts/b.yaml",
                "charts/c.yaml",
                "v.yaml",
                "native/x.yaml",
            ],
        );
        assert_eq!(found, expected);
        assert_eq!(with(&found, &["charts/b.yaml", "v.yaml"]), found);
    }

    #[test]
    fn empty_files_and_lists_get_a_list() {
        assert_eq!(with("", &["a.yaml"]), "resources:\n- a.yaml\n");
        let expected = "# Mine.\nresources:\n- a.yaml\n";
        assert_eq!(with("# Mine.\nresources:\n", &["a.yaml"]), expected);
        let expected = "resources:\n  - a.yaml\n  - b.yaml\n";
        assert_eq!(with("resources:\n  - a.yaml\n", &["b.yaml"]), expected);
    }

    #[test]
    fn a_list_on_one_line_is_refused() {
        let error = with_resources("resources: [a.yaml]\n", &["b.yaml".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("b.yaml"), "{error}");
    }
}
