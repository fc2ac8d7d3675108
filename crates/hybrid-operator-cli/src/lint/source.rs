//! Rules about the text of templates and the files of a chart.

use helm_core::chart::Chart;

use super::{Finding, Severity};
use crate::template_source::{TemplateFile, Token, TokenKind};

/// Functions with another result each time.
const RANDOM: &str = "\
    randAlphaNum randAlpha randAscii randNumeric randBytes randInt uuidv4 shuffle bcrypt \
    htpasswd encryptAES";
/// Functions that make keys.
const CERTIFICATES: &[&str] = &[
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
];
/// Functions that read the clock.
const CLOCK: &[&str] = &["now", "ago"];

pub(super) fn findings(chart: &Chart, files: &[TemplateFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        // Notes are written once per change of the release; they are no objects.
        let is_notes = file.path.ends_with("NOTES.txt");
        for action in &file.source.actions {
            for (call, arguments) in action.calls() {
                findings.extend(call_finding(file, call, arguments).filter(|_| !is_notes));
            }
        }
    }
    findings.extend(not_rendered(files));
    other_files_of_crds(chart, "", &mut findings);
    if chart.schema().is_none() && !chart.values().is_empty() {
        findings.push(Finding {
            file: "values.yaml".to_owned(),
            line: 1,
            id: "missing-schema",
            severity: Severity::Warning,
            message: "the chart has no values.schema.json: the API server accepts custom resources with any spec, and mistakes show only when the release fails".to_owned(),
            help: "add values.schema.json; 'hybrid-operator generate crds' makes the custom resource definition from it".to_owned(),
        });
    }
    let definitions = chart.crds();
    if let Some(first) = definitions.first() {
        let path = first
            .path()
            .strip_prefix(chart.name())
            .unwrap_or(first.path());
        findings.push(Finding {
            file: path.trim_start_matches('/').to_owned(),
            line: 1,
            id: "crds-directory",
            severity: Severity::Note,
            message: format!(
                "{} definitions in crds/ are created if they are missing, and neither upgraded nor deleted, as in Helm",
                definitions.len()
            ),
            help: "set 'crds: createReplace' in watches.yaml to upgrade them, or 'crds: skip' if something else installs them".to_owned(),
        });
    }
    findings
}

/// Finds documents of templates that are not rendered and that no template includes as a whole file.
fn not_rendered(files: &[TemplateFile]) -> Vec<Finding> {
    let texts = || {
        let actions = files.iter().flat_map(|file| &file.source.actions);
        actions.flat_map(|action| &action.tokens)
    };
    let is_included = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut texts = texts().filter(|token| token.kind == TokenKind::Text);
        texts.any(|token| token.text.rsplit('/').next() == Some(name))
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.is_rendered) {
        let documents = file.source.documents_outside_of_definitions();
        if documents.is_empty() || is_included(&file.path) {
            continue;
        }
        findings.extend(documents.iter().map(|document| Finding {
            file: file.path.clone(),
            line: document.kind_line,
            id: "dropped-document",
            severity: Severity::Warning,
            message: format!(
                "this {} is not installed, as in Helm: of library charts, and of templates whose name begins with '_', only what 'define' names is used",
                document.kinds.first().map_or("document", String::as_str)
            ),
            help: "move it to a template of another name in a chart that is no library, or 'define' and include it".to_owned(),
        }));
    }
    findings
}

/// Finds objects in files of `crds/` that are not read because of their extension.
fn other_files_of_crds(chart: &Chart, directory: &str, findings: &mut Vec<Finding>) {
    let read = ["yaml", "yml", "json"];
    for file in chart.files() {
        let extension = file.name().rsplit_once('.').map_or("", |(_, end)| end);
        let is_read = read.iter().any(|one| extension.eq_ignore_ascii_case(one));
        let is_prose = ["md", "txt"]
            .iter()
            .any(|one| extension.eq_ignore_ascii_case(one));
        if !file.name().starts_with("crds/") || is_read || is_prose {
            continue;
        }
        let text = String::from_utf8_lossy(file.data());
        let Some(line) = text.lines().position(|line| line.starts_with("kind:")) else {
            continue;
        };
        findings.push(Finding {
            file: format!("{directory}{}", file.name()),
            line: line + 1,
            id: "dropped-document",
            severity: Severity::Warning,
            message: "the objects of this file are not installed, as in Helm: of crds/, only files that end with .yaml, .yml or .json are read".to_owned(),
            help: "rename the file".to_owned(),
        });
    }
    for dependency in chart.dependencies() {
        let directory = format!("{directory}charts/{}/", dependency.name());
        other_files_of_crds(dependency, &directory, findings);
    }
}

pub(super) fn is_random(function: &str) -> bool {
    RANDOM.split(' ').any(|random| random == function)
}

fn call_finding(file: &TemplateFile, call: &Token, arguments: &[Token]) -> Option<Finding> {
    let name = call.text.as_str();
    let (id, severity, message, help) = if is_random(name) {
        (
            "random-value",
            Severity::Warning,
            format!(
                "'{name}' gives another value in each render: the operator renders only when the inputs change, so the value is kept until the next change of the spec or chart, and is new then"
            ),
            "let the values provide it (valuesFrom a Secret), or keep the present one with 'lookup'",
        )
    } else if CERTIFICATES.contains(&name) {
        (
            "certificate",
            Severity::Warning,
            format!(
                "'{name}' makes a new key in each render: each change of the spec or chart replaces it, and between changes nothing renews it before it expires"
            ),
            "let cert-manager issue it, or let the values provide it",
        )
    } else if CLOCK.contains(&name) {
        (
            "clock",
            Severity::Warning,
            format!(
                "'{name}' reads the clock: the operator renders only when the inputs change, so the time is that of the last change"
            ),
            "remove it; to restart Pods with a change of configuration, use a checksum of the configuration",
        )
    } else if name == "lookup" {
        let mut texts = arguments.iter().map(|token| token.text.as_str());
        let what = texts.nth(1).unwrap_or("objects");
        (
            "lookup",
            Severity::Note,
            format!(
                "'lookup' reads {what} from the cluster: this works, but a later change of what it read changes the release only with the next change of its inputs"
            ),
            "set 'dryRunOption: server' in watches.yaml to make the results inputs; 'hybrid-operator generate rbac' grants the reading",
        )
    } else {
        return None;
    };
    Some(Finding {
        file: file.path.clone(),
        line: call.line,
        id,
        severity,
        message,
        help: help.to_owned(),
    })
}
