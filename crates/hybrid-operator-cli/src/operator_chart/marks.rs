//! Words that stand for actions of templates while objects are values. Pure.

/// The name of the release and the chart, before the names of all objects.
pub(super) const PREFIX: &str = "zzPREFIXzz";
pub(super) const NAMESPACE: &str = "zzNAMESPACEzz";
/// The namespace of a `range` over the watched ones.
pub(super) const WATCHED: &str = "zzWATCHEDzz";
pub(super) const RELEASE: &str = "zzRELEASEzz";
pub(super) const MANAGED_BY: &str = "zzMANAGEDBYzz";
pub(super) const CHART: &str = "zzCHARTzz";
pub(super) const ACCOUNT: &str = "zzACCOUNTzz";
pub(super) const IMAGE: &str = "zzIMAGEzz";
pub(super) const PULL_POLICY: &str = "zzPULLPOLICYzz";
pub(super) const REPLICAS: &str = "zzREPLICASzz";
/// As the value of a field: the arguments of values, and the name of the webhooks' Service.
pub(super) const ARGS: &str = "zzARGSzz";
/// Alone as a list item: the environment that values add.
pub(super) const ENVIRONMENT: &str = "zzENVIRONMENTzz";
/// As the value of a field: the field with a value of the chart, or nothing if that is empty.
const WITH: &str = "zzWITH.";
const END: &str = "zz";
/// As the name of an annotation: that CRDs are kept.
pub(super) const KEEP: &str = "zzKEEPzz";

/// Returns the value of a field that is a value of the chart.
pub(super) fn with(path: &str) -> String {
    format!("{WITH}{path}{END}")
}

/// Replaces the words.
pub(super) struct Marks {
    chart: String,
}

impl Marks {
    pub(super) fn new(chart: &str) -> Self {
        Self {
            chart: chart.to_owned(),
        }
    }

    /// Replaces the name of the chart in text that is a template already.
    pub(super) fn named(&self, template: &str) -> String {
        template.replace("CHARTNAME", &self.chart)
    }

    /// Returns YAML as a template: its braces are text, and the words are actions.
    pub(super) fn template(&self, yaml: &str) -> String {
        let mut text = String::new();
        for line in yaml.replace("{{", "{{ \"{{\" }}").lines() {
            self.line(line, &mut text);
        }
        text
    }

    fn line(&self, line: &str, text: &mut String) {
        let content = line.trim_start_matches(' ');
        let indent = line.get(..line.len() - content.len()).unwrap_or_default();
        let width = indent.len();
        let mut add = |lines: &[String]| {
            for line in lines {
                text.push_str(indent);
                text.push_str(line);
                text.push('\n');
            }
        };
        if content == format!("- {ENVIRONMENT}") {
            add(&[
                "{{- with $.Values.watchNamespaces }}".to_owned(),
                "- name: WATCH_NAMESPACE".to_owned(),
                "  value: {{ join \",\" . | quote }}".to_owned(),
                "{{- end }}".to_owned(),
                "{{- with $.Values.env }}".to_owned(),
                format!("{{{{- toYaml . | nindent {width} }}}}"),
                "{{- end }}".to_owned(),
            ]);
        } else if let Some(dash) = content.strip_suffix(&format!("args: {ARGS}")) {
            // As the first field of a container it has the dash of the list's item.
            let inner = width + dash.len();
            let webhooks = format!("- --webhook-service-name={PREFIX}-webhook");
            add(&[
                format!("{dash}args:"),
                format!(
                    "{}{{{{- toYaml $.Values.args | nindent {inner} }}}}",
                    " ".repeat(dash.len())
                ),
                format!("{}{}", " ".repeat(dash.len()), self.words(&webhooks)),
            ]);
        } else if content.starts_with(KEEP) {
            add(&[
                "{{- if $.Values.crds.keep }}".to_owned(),
                "helm.sh/resource-policy: keep".to_owned(),
                "{{- end }}".to_owned(),
            ]);
        } else if let Some((field, path)) = with_parts(content) {
            // The first field of a list's item has the dash.
            let inner = width + 2 + if field.starts_with("- ") { 2 } else { 0 };
            add(&[
                format!("{{{{- with $.Values.{path} }}}}"),
                format!("{field}:"),
                format!("  {{{{- toYaml . | nindent {inner} }}}}"),
                "{{- end }}".to_owned(),
            ]);
        } else {
            add(&[self.words(content)]);
        }
    }

    fn words(&self, content: &str) -> String {
        let chart = &self.chart;
        let mut content = content.to_owned();
        for (word, action) in [
            (PREFIX, format!("{{{{ include \"{chart}.fullname\" $ }}}}")),
            (NAMESPACE, "{{ $.Release.Namespace | quote }}".to_owned()),
            (WATCHED, "{{ . | quote }}".to_owned()),
            (RELEASE, "{{ $.Release.Name | quote }}".to_owned()),
            (MANAGED_BY, "{{ $.Release.Service }}".to_owned()),
            (CHART, format!("{{{{ include \"{chart}.chart\" $ }}}}")),
            (
                ACCOUNT,
                format!("{{{{ include \"{chart}.serviceAccountName\" $ }}}}"),
            ),
            (
                IMAGE,
                format!("{{{{ include \"{chart}.image\" $ | quote }}}}"),
            ),
            (PULL_POLICY, "{{ $.Values.image.pullPolicy }}".to_owned()),
            (REPLICAS, "{{ $.Values.replicas }}".to_owned()),
        ] {
            content = content.replace(word, &action);
        }
        content
    }
}

/// Returns the name of a field and the path of the value that it has.
fn with_parts(content: &str) -> Option<(&str, &str)> {
    let (field, value) = content.split_once(": ")?;
    let path = value.strip_prefix(WITH)?.strip_suffix(END)?;
    Some((field, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_text_and_words_are_actions() {
        let marks = Marks::new("shop");
        for (yaml, wanted) in [
            ("a: '{{ $labels.b }}'\n", "a: '{{ \"{{\" }} $labels.b }}'\n"),
            (
                "name: zzPREFIXzz-a\n",
                "name: {{ include \"shop.fullname\" $ }}-a\n",
            ),
            (
                "  resources: zzWITH.resourceszz\n",
                "  {{- with $.Values.resources }}\n  resources:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n",
            ),
            (
                "  - args: zzARGSzz\n",
                "  - args:\n    {{- toYaml $.Values.args | nindent 4 }}\n    - --webhook-service-name={{ include \"shop.fullname\" $ }}-webhook\n",
            ),
        ] {
            assert_eq!(marks.template(yaml), wanted);
        }
    }
}
