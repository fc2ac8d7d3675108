//! Constraints such as `>=1.2, <2 || ~3.1`: parsing, and checking of versions.

use std::cmp::Ordering;

use super::version::compare_identifiers;
use super::{Parts, Version, split};
use crate::go::strconv::quoted;

/// Maximum length of a constraint, in bytes.
const MAX_LENGTH: usize = 512;
/// Maximum number of alternatives (`||`).
const MAX_GROUPS: usize = 32;

/// An error in the text of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseConstraintError {
    /// A malformed group.
    #[error("improper constraint: {0}")]
    Improper(String),
    /// An invalid version in the constraint.
    #[error("constraint parser error")]
    Version,
    /// The text is too long.
    #[error("constraint string is too long (max {MAX_LENGTH} bytes)")]
    TooLong,
    /// There are too many alternatives.
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
}

/// Alternative constraints; a version must satisfy one of them.
///
/// ```
/// use go_template::go::semver::{Constraints, Version};
/// let constraints = Constraints::new(b">=1.19-0 <2")?;
/// assert!(constraints.check(&Version::new(b"v1.29.3+k3s1")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Constraints {
    groups: Vec<Group>,
}

/// Constraints that must all be satisfied.
#[derive(Debug, Clone)]
struct Group {
    constraints: Vec<Constraint>,
    /// Whether one of them names a prerelease, so that all of them accept prereleases.
    prereleases: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    Tilde,
    Caret,
}

/// The first part of the version that is missing or a wildcard; the parts after it are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    None,
    Patch,
    Minor,
    Major,
}

#[derive(Debug, Clone)]
struct Constraint {
    operator: Operator,
    version: Version,
    wildcard: Wildcard,
}

impl Constraints {
    /// Parses constraints, like `semver.NewConstraint`.
    ///
    /// # Errors
    /// If the text is not a constraint.
    pub fn new(text: &[u8]) -> Result<Self, ParseConstraintError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseConstraintError::TooLong);
        }
        let text = rewrite_ranges(text);
        let groups = split_groups(&text);
        if groups.len() > MAX_GROUPS {
            return Err(ParseConstraintError::TooManyGroups);
        }
        let groups = groups.into_iter().map(Group::new).collect::<Result<_, _>>();
        Ok(Self { groups: groups? })
    }

    /// Returns whether the version satisfies one of the alternatives.
    pub fn check(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            let release = version.prerelease.is_empty();
            let mut constraints = group.constraints.iter();
            (release || group.prereleases) && constraints.all(|one| one.check(version))
        })
    }
}

/// Rewrites `1.2 - 2.3` into `>= 1.2, <= 2.3`.
fn rewrite_ranges(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(&first) = rest.first() {
        if let Some((low, high, after)) = match_range(rest) {
            out.extend_from_slice(b">= ");
            out.extend_from_slice(low);
            out.extend_from_slice(b", <= ");
            out.extend_from_slice(high);
            out.push(b' ');
            rest = after;
        } else {
            out.push(first);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out
}

/// Matches two versions separated by a hyphen with spaces, and returns the rest.
fn match_range(s: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (low, rest) = match_version(skip_spaces(s))?;
    let rest = skip_some_spaces(rest)?.strip_prefix(b"-")?;
    let (high, rest) = match_version(skip_some_spaces(rest)?)?;
    Some((low, high, skip_spaces(rest)))
}

fn match_version(s: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = split(s, in_constraint)?;
    Some(s.split_at(s.len() - rest.len()))
}

/// Returns whether a byte may occur in a number of a constraint. The bar is an oversight in the
/// library; it causes an error later.
fn in_constraint(c: u8) -> bool {
    c.is_ascii_digit() || matches!(c, b'x' | b'X' | b'*' | b'|')
}

fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\n' | b'\r' | b'\x0C')
}

fn skip_spaces(s: &[u8]) -> &[u8] {
    let spaces = s.iter().take_while(|&&c| is_space(c)).count();
    s.get(spaces..).unwrap_or_default()
}

fn skip_some_spaces(s: &[u8]) -> Option<&[u8]> {
    Some(skip_spaces(s)).filter(|rest| rest.len() < s.len())
}

/// Splits at `||`.
fn split_groups(text: &[u8]) -> Vec<&[u8]> {
    let mut groups = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"||") {
        let (group, after) = rest.split_at(at);
        groups.push(group);
        rest = after.get(2..).unwrap_or_default();
    }
    groups.push(rest);
    groups
}

impl Group {
    fn new(text: &[u8]) -> Result<Self, ParseConstraintError> {
        let improper = || ParseConstraintError::Improper(quoted(text));
        let mut found = Vec::new();
        let mut rest = skip_spaces(text);
        loop {
            let (operator, after) = match_operator(rest);
            let (parts, after) = split(skip_spaces(after), in_constraint).ok_or_else(improper)?;
            found.push((operator, parts));
            rest = skip_spaces(after);
            if rest.is_empty() {
                break;
            }
            // Constraints are separated by spaces or a comma.
            match rest.strip_prefix(b",") {
                Some(after) => rest = skip_spaces(after),
                None if rest.len() < after.len() => {}
                None => return Err(improper()),
            }
        }
        let constraints = found
            .into_iter()
            .map(|(operator, parts)| Constraint::new(operator, &parts))
            .collect::<Result<Vec<_>, _>>()?;
        let prereleases = constraints
            .iter()
            .any(|one| !one.version.prerelease.is_empty());
        Ok(Self {
            constraints,
            prereleases,
        })
    }
}

fn match_operator(s: &[u8]) -> (Operator, &[u8]) {
    match s {
        [b'!', b'=', rest @ ..] => (Operator::NotEqual, rest),
        [b'>', b'=', rest @ ..] | [b'=', b'>', rest @ ..] => (Operator::GreaterEqual, rest),
        [b'<', b'=', rest @ ..] | [b'=', b'<', rest @ ..] => (Operator::LessEqual, rest),
        [b'~', b'>', rest @ ..] | [b'~', rest @ ..] => (Operator::Tilde, rest),
        [b'>', rest @ ..] => (Operator::Greater, rest),
        [b'<', rest @ ..] => (Operator::Less, rest),
        [b'^', rest @ ..] => (Operator::Caret, rest),
        [b'=', rest @ ..] => (Operator::Equal, rest),
        _ => (Operator::Equal, s),
    }
}

impl Constraint {
    fn new(operator: Operator, parts: &Parts<'_>) -> Result<Self, ParseConstraintError> {
        let open = |part: &[u8]| matches!(part, b"" | b"x" | b"X" | b"*");
        let Parts {
            major,
            minor,
            patch,
            prerelease,
            metadata,
        } = *parts;
        let (wildcard, numbers) = if open(major) {
            (Wildcard::Major, [&b"0"[..], b"0", b"0"])
        } else if open(minor) {
            (Wildcard::Minor, [major, b"0", b"0"])
        } else if open(patch) {
            (Wildcard::Patch, [major, minor, b"0"])
        } else {
            (Wildcard::None, [major, minor, patch])
        };
        let mut text = numbers.join(&b'.');
        if !prerelease.is_empty() {
            text.push(b'-');
            text.extend_from_slice(prerelease);
        }
        if wildcard == Wildcard::None && !metadata.is_empty() {
            text.push(b'+');
            text.extend_from_slice(metadata);
        }
        let version = Version::new(&text).map_err(|_| ParseConstraintError::Version)?;
        Ok(Self {
            operator,
            version,
            wildcard,
        })
    }

    /// Returns whether the version satisfies the constraint, given that prereleases were already
    /// checked.
    fn check(&self, version: &Version) -> bool {
        match self.operator {
            Operator::Equal if self.wildcard == Wildcard::None => {
                version.compare(&self.version).is_eq()
            }
            Operator::Equal | Operator::Tilde => self.check_tilde(version),
            Operator::NotEqual => self.check_not_equal(version),
            Operator::Greater => self.check_greater(version),
            Operator::Less => version.compare(&self.version).is_lt(),
            Operator::GreaterEqual => version.compare(&self.version).is_ge(),
            Operator::LessEqual => self.check_less_equal(version),
            Operator::Caret => self.check_caret(version),
        }
    }

    fn check_not_equal(&self, version: &Version) -> bool {
        let own = &self.version;
        if self.wildcard == Wildcard::None {
            return version.compare(own).is_ne();
        }
        if own.major != version.major
            || own.minor != version.minor && self.wildcard != Wildcard::Minor
        {
            return true;
        }
        match self.wildcard {
            Wildcard::Minor => false,
            Wildcard::Patch => {
                let prereleases = !version.prerelease.is_empty() || !own.prerelease.is_empty();
                prereleases && compare_identifiers(&version.prerelease, &own.prerelease).is_ne()
            }
            _ => own.patch != version.patch || version.compare(own).is_ne(),
        }
    }

    fn check_greater(&self, version: &Version) -> bool {
        let own = &self.version;
        if self.wildcard == Wildcard::None {
            return version.compare(own).is_gt();
        }
        match version.major.cmp(&own.major) {
            Ordering::Greater => true,
            Ordering::Less => false,
            // `>11` means 12 and later, `>11.1` means 11.2 and later.
            Ordering::Equal => match self.wildcard {
                Wildcard::Minor => false,
                Wildcard::Patch => version.minor > own.minor,
                _ => version.compare(own).is_gt(),
            },
        }
    }

    fn check_less_equal(&self, version: &Version) -> bool {
        let own = &self.version;
        if self.wildcard == Wildcard::None {
            return version.compare(own).is_le();
        }
        // `<=11` includes all of 11, `<=11.1` all of 11.1.
        match version.major.cmp(&own.major) {
            Ordering::Greater => false,
            Ordering::Less => true,
            Ordering::Equal => version.minor <= own.minor || self.wildcard == Wildcard::Minor,
        }
    }

    fn check_tilde(&self, version: &Version) -> bool {
        let own = &self.version;
        if version.compare(own).is_lt() {
            return false;
        }
        // `~0.0.0` and `*` accept every version that is not lower.
        let open = matches!(self.wildcard, Wildcard::None | Wildcard::Major);
        if (own.major, own.minor, own.patch) == (0, 0, 0) && open {
            return true;
        }
        own.major == version.major
            && (own.minor == version.minor || self.wildcard == Wildcard::Minor)
    }

    fn check_caret(&self, version: &Version) -> bool {
        let own = &self.version;
        if version.compare(own).is_lt() {
            return false;
        }
        if own.major > 0 || self.wildcard == Wildcard::Minor {
            return own.major == version.major;
        }
        if version.major > 0 {
            return false;
        }
        if own.minor > 0 || self.wildcard == Wildcard::Patch {
            return own.minor == version.minor;
        }
        version.minor == 0 && own.patch == version.patch
    }
}
