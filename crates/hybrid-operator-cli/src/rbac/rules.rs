//! Rules of a role, with the reason for each, and how they are written.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// Resource or path that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A resource, which may have a subresource.
    Resource {
        group: String,
        /// Plural name, such as `deployments` or `deployments/status`.
        resource: String,
        /// Names of the objects; empty for all.
        names: Vec<String>,
    },
    /// A path that is not a resource, such as `/metrics`.
    Url(String),
}

impl Subject {
    /// Returns all objects of a resource.
    pub(crate) fn resource(group: &str, resource: &str) -> Self {
        Self::named(group, resource, Vec::new())
    }

    /// Returns the objects of a resource with these names; all, if there are none.
    pub(crate) fn named(group: &str, resource: &str, names: Vec<String>) -> Self {
        Self::Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            names,
        }
    }

    /// Returns whether permission for this subject includes permission for `other`.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Resource {
                    group,
                    resource,
                    names,
                },
                Self::Resource {
                    group: other_group,
                    resource: other_resource,
                    names: other_names,
                },
            ) => {
                (group == "*" || group == other_group)
                    && (resource == "*" || resource == other_resource)
                    && (names.is_empty() || names == other_names)
            }
            (one, other) => one == other,
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resource {
                group,
                resource,
                names,
            } => {
                f.write_str(resource)?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                if !names.is_empty() {
                    write!(f, " ({})", names.join(", "))?;
                }
                Ok(())
            }
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Verbs for one subject, and why they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) subject: Subject,
    pub(crate) verbs: BTreeSet<String>,
    /// Reasons, for `--explain`.
    pub(crate) why: Vec<String>,
}

impl Grant {
    pub(crate) fn new(subject: Subject, verbs: &[&str], why: impl Into<String>) -> Self {
        Self {
            subject,
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            why: vec![why.into()],
        }
    }
}

/// Grants with a common reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// Comment above the rules, without `#`.
    pub(crate) comment: String,
    pub(crate) grants: Vec<Grant>,
}

/// The rules of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    sections: Vec<Section>,
}

impl Rules {
    /// Adds grants under a comment. What earlier sections already grant is left out.
    pub(crate) fn add(&mut self, comment: &str, grants: impl IntoIterator<Item = Grant>) {
        let mut section = Section {
            comment: comment.to_owned(),
            grants: Vec::new(),
        };
        for mut grant in grants {
            for known in self.grants() {
                if known.subject.includes(&grant.subject) {
                    let all = known.verbs.contains("*");
                    grant
                        .verbs
                        .retain(|verb| !all && !known.verbs.contains(verb));
                }
            }
            if grant.verbs.is_empty() {
                continue;
            }
            let mut same = section.grants.iter_mut();
            match same.find(|known| known.subject == grant.subject) {
                Some(known) => {
                    known.verbs.append(&mut grant.verbs);
                    known.why.append(&mut grant.why);
                }
                None => section.grants.push(grant),
            }
        }
        if !section.grants.is_empty() {
            self.sections.push(section);
        }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.sections.iter().flat_map(|section| &section.grants)
    }

    /// Returns whether a rule names a subject. Wildcards name nothing: what they include is not
    /// known to be needed.
    pub(crate) fn mentions(&self, subject: &Subject) -> bool {
        self.grants().any(|grant| {
            let unnamed = match subject {
                Subject::Resource {
                    group, resource, ..
                } => Subject::resource(group, resource),
                url @ Subject::Url(_) => url.clone(),
            };
            grant.subject == *subject || grant.subject == unnamed
        })
    }

    /// Returns the rules as YAML, each section under its comment.
    pub(crate) fn to_yaml(&self) -> String {
        let mut text = String::new();
        for section in &self.sections {
            for line in section.comment.lines() {
                let _ = writeln!(text, "# {line}");
            }
            for rule in merged(&section.grants) {
                rule.write(&mut text);
            }
        }
        text
    }
}

/// A rule as RBAC has it: several resources of one group with the same verbs.
#[derive(Debug)]
struct Rule {
    group: Option<String>,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: Vec<String>,
}

fn merged(grants: &[Grant]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for grant in grants {
        let verbs: Vec<String> = if grant.verbs.contains("*") {
            vec!["*".to_owned()]
        } else {
            grant.verbs.iter().cloned().collect()
        };
        let (group, resource, names) = match &grant.subject {
            Subject::Resource {
                group,
                resource,
                names,
            } => (Some(group.clone()), resource, names.clone()),
            Subject::Url(url) => (None, url, Vec::new()),
        };
        let same = rules
            .iter_mut()
            .find(|rule| rule.group == group && rule.names == names && rule.verbs == verbs);
        match same {
            Some(rule) => rule.resources.push(resource.clone()),
            None => rules.push(Rule {
                group,
                resources: vec![resource.clone()],
                names,
                verbs,
            }),
        }
    }
    rules
}

impl Rule {
    fn write(&self, text: &mut String) {
        let resources = flow(&self.resources);
        let _ = match &self.group {
            Some(group) => writeln!(
                text,
                "- apiGroups: {}\n  resources: {resources}",
                flow(std::slice::from_ref(group))
            ),
            None => writeln!(text, "- nonResourceURLs: {resources}"),
        };
        if !self.names.is_empty() {
            let _ = writeln!(text, "  resourceNames: {}", flow(&self.names));
        }
        let _ = writeln!(text, "  verbs: {}", flow(&self.verbs));
    }
}

/// Returns a list in YAML's flow style.
fn flow(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| scalar(item)).collect();
    format!("[{}]", items.join(", "))
}

/// Returns a text as a scalar of a flow list, quoted if it could be read as something else.
pub(super) fn scalar(text: &str) -> String {
    let is_name = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-./_".contains(c));
    // A word such as `no` or a number is read as another type.
    let reads_back = go_yaml::from_str::<Value>(text).is_ok_and(|value| value == text);
    if is_name && reads_back {
        text.to_owned()
    } else {
        // Every string of JSON is one of YAML.
        Value::from(text).to_string()
    }
}

/// Returns the grants of the `rules` of a Role or `ClusterRole`.
pub(crate) fn grants_of(rules: &Value, why: &str) -> Vec<Grant> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule.get(field).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(ToOwned::to_owned).collect()
    };
    let mut grants = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        let verbs: BTreeSet<String> = texts(rule, "verbs").into_iter().collect();
        let mut names = texts(rule, "resourceNames");
        names.sort();
        let mut add = |subject| {
            grants.push(Grant {
                subject,
                verbs: verbs.clone(),
                why: vec![why.to_owned()],
            });
        };
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                add(Subject::named(&group, &resource, names.clone()));
            }
        }
        texts(rule, "nonResourceURLs")
            .into_iter()
            .map(Subject::Url)
            .for_each(add);
    }
    grants
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_verbs_of_a_group_are_one_rule_and_repetitions_are_left_out() {
        let mut rules = Rules::default();
        let secrets = Subject::resource("", "secrets");
        rules.add("Records.", [Grant::new(secrets, &["get", "list"], "a")]);
        rules.add(
            "Objects.",
            [
                Grant::new(Subject::resource("", "secrets"), &["get"], "b"),
                Grant::new(Subject::resource("", "pods"), &["get", "create"], "b"),
                Grant::new(Subject::resource("apps", "deployments"), &["get"], "b"),
                Grant::new(Subject::resource("", "services"), &["create", "get"], "b"),
                Grant::new(Subject::Url("/metrics".to_owned()), &["*", "get"], "b"),
            ],
        );
        let expected = "\
# Records.
- apiGroups: [\"\"]
  resources: [secrets]
  verbs: [get, list]
# Objects.
- apiGroups: [\"\"]
  resources: [pods, services]
  verbs: [create, get]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get]
- nonResourceURLs: [/metrics]
  verbs: [\"*\"]
";
        assert_eq!(rules.to_yaml(), expected);
    }

    #[test]
    fn what_is_written_reads_back() {
        let input = json!([
            {"apiGroups": ["", "no"], "resources": ["a/b", "*"], "verbs": ["*"], "resourceNames": ["1", "x:y"]},
            {"nonResourceURLs": ["/a/*"], "verbs": ["get"]},
        ]);
        let mut rules = Rules::default();
        rules.add("x", grants_of(&input, ""));
        let written: Value = go_yaml::from_str(&rules.to_yaml()).unwrap();
        let mut again = Rules::default();
        again.add("x", grants_of(&written, ""));
        assert_eq!(again, rules);
        assert_eq!(rules.grants().count(), 5);
    }
}
