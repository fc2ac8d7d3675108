//! `.helmignore`: the files of a directory that do not belong to a chart.

use crate::chart::path_match::{self, PatternError};

/// An error in a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum IgnoreError {
    /// `**` is not supported.
    #[error("double-star (**) syntax is not supported")]
    DoubleStar,
    /// A malformed pattern, such as an unterminated one.
    #[error("rule {rule:?}")]
    Pattern {
        rule: String,
        #[source]
        error: PatternError,
    },
}

/// The rules of a `.helmignore` file.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    pattern: String,
    negated: bool,
    directories_only: bool,
    target: MatchTarget,
}

/// Part of a path that a pattern is matched against.
#[derive(Clone, Copy, Debug)]
enum MatchTarget {
    /// The whole path.
    Path,
    /// The last component of the path.
    Base,
}

impl Rules {
    /// Parses a `.helmignore` file.
    ///
    /// # Errors
    /// If a pattern is malformed.
    pub fn parse(text: &str) -> Result<Self, IgnoreError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rules = text
            .lines()
            .filter_map(|line| Rule::parse(line).transpose());
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// Adds the rule that Helm always applies: dot files in `templates/` are ignored.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.0.extend(Rule::parse("templates/.?*").ok().flatten());
        self
    }

    /// Returns whether the file or directory at `path` is ignored. A negated rule ignores
    /// everything that it does not match.
    pub fn ignores(&self, path: &str, is_directory: bool) -> bool {
        if matches!(path, "" | "." | "./") {
            return false;
        }
        for rule in &self.0 {
            let applies = is_directory || !rule.directories_only;
            let matches = applies && rule.matches(path);
            if matches != rule.negated {
                return true;
            }
        }
        false
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Option<Self>, IgnoreError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        if line.contains("**") {
            return Err(IgnoreError::DoubleStar);
        }
        path_match::matches(line, "abc").map_err(|error| IgnoreError::Pattern {
            rule: line.to_owned(),
            error,
        })?;
        let (negated, rule) = match line.strip_prefix('!') {
            Some(rule) => (true, rule),
            None => (false, line),
        };
        let (directories_only, rule) = match rule.strip_suffix('/') {
            Some(rule) => (true, rule),
            None => (false, rule),
        };
        let (pattern, target) = match rule.strip_prefix('/') {
            Some(rule) => (rule, MatchTarget::Path),
            None if rule.contains('/') => (rule, MatchTarget::Path),
            None => (rule, MatchTarget::Base),
        };
        Ok(Some(Self {
            pattern: pattern.to_owned(),
            negated,
            directories_only,
            target,
        }))
    }

    fn matches(&self, path: &str) -> bool {
        let subject = match self.target {
            MatchTarget::Path => path,
            MatchTarget::Base => path.rsplit('/').next().unwrap_or(path),
        };
        path_match::matches(&self.pattern, subject).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_as_in_helm() {
        for (rules, path, is_directory, ignored) in [
            ("*.txt", "a/b.txt", false, true),
            ("/*.txt", "a/b.txt", false, false),
            ("/*.txt", "b.txt", false, true),
            ("a/*.txt", "a/b.txt", false, true),
            ("a/*.txt", "c/a/b.txt", false, false),
            ("docs/", "docs", true, true),
            ("docs/", "docs", false, false),
            ("docs/", "a/docs", true, true),
            ("# a comment\n\n  .git  \n", ".git", true, true),
            ("!*.md", "x.md", false, false),
            ("!*.md", "x.txt", false, true),
            ("!*.md\nx.md", "x.md", false, true),
            ("!docs/", "docs", false, true),
            ("[a-c].x", "b.x", false, true),
            ("\u{feff}x", "x", false, true),
        ] {
            let parsed = Rules::parse(rules).unwrap();
            assert_eq!(
                parsed.ignores(path, is_directory),
                ignored,
                "{rules:?} {path}"
            );
        }
    }

    #[test]
    fn dot_files_of_templates_are_always_ignored() {
        let rules = Rules::default().with_defaults();
        assert!(rules.ignores("templates/.swp", false));
        assert!(!rules.ignores(".helmignore", false));
    }

    #[test]
    fn invalid_rules_are_errors() {
        assert_eq!(Rules::parse("a/**").unwrap_err(), IgnoreError::DoubleStar);
        assert!(Rules::parse("[a").is_err());
    }
}
