//! What can go wrong: parsing, executing, and in functions; with Go's text and structured places.

use std::error::Error;
use std::fmt;

use crate::budget::BudgetError;

/// A place in the text of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name that the text was parsed under, usually its path.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 0 as Go counts.
    pub column: usize,
    /// The text of the line.
    pub source_line: String,
}

impl Location {
    /// The place of byte `offset` in `text`, which was parsed under the name `file`.
    pub(crate) fn new(file: &str, text: &[u8], offset: usize) -> Self {
        let offset = offset.min(text.len());
        let (before, after) = text.split_at(offset);
        let start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let rest = after
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(after.len());
        let line = text.get(start..offset + rest).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: offset - start,
            source_line: String::from_utf8_lossy(line)
                .trim_end_matches('\r')
                .to_owned(),
        }
    }

    /// The line with a caret under the column, for people.
    fn excerpt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let shown: String = self.source_line.chars().take(200).collect();
        writeln!(f, "  {number} | {shown}")?;
        let before = self
            .source_line
            .as_bytes()
            .get(..self.column)
            .unwrap_or_default();
        // Tabs stay tabs, so that the caret stands under what it means.
        let indent: String = String::from_utf8_lossy(before)
            .chars()
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        writeln!(f, "  {:width$} | {indent}^", "", width = number.len())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A text that is no template. Its `Display` is what Go prints. It is one word, so that what the
/// parser answers stays small.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template: {}:{}: {}", .0.location.file, .0.location.line, .0.message)]
pub struct ParseError(Box<Mistake>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mistake {
    location: Location,
    message: String,
}

impl ParseError {
    pub(crate) fn new(location: Location, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Mistake { location, message }))
    }

    /// Where the parser stood. The line is Go's; Go has no column.
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Message, place, and the line with a caret.
    pub fn report(&self) -> impl fmt::Display + '_ {
        Report(move |f| {
            writeln!(f, "{}\n  at {}", self.message(), self.location())?;
            self.location().excerpt(f)
        })
    }
}

/// Why a function failed. Functions of the host return these too; it is one word, so that the
/// results of functions stay small.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FuncError(Box<Problem>);

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Message(String),
    #[error(transparent)]
    Budget(BudgetError),
    #[error(transparent)]
    Parse(ParseError),
    #[error(transparent)]
    Render(RenderError),
    #[error(transparent)]
    Host(Box<dyn Error + Send + Sync>),
    #[error("{context}: {error}")]
    Context { context: String, error: FuncError },
}

impl FuncError {
    /// A message, as Go's `errors.New`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Problem::Message(message.into())))
    }

    /// An error of the host's own type, which it finds again with [`RenderError::host`].
    pub fn host(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(Problem::Host(Box::new(error))))
    }

    /// The same failure, with what was being done before its text: Go's `fmt.Errorf("…: %w")`.
    #[must_use]
    pub fn context(self, context: impl Into<String>) -> Self {
        Self(Box::new(Problem::Context {
            context: context.into(),
            error: self,
        }))
    }

    /// The failed execution of a template, without what was said about it, or the error itself.
    pub(crate) fn into_render(self) -> Result<RenderError, Self> {
        match *self.0 {
            Problem::Render(error) => Ok(error),
            Problem::Context { error, .. } => error.into_render(),
            problem => Err(Self(Box::new(problem))),
        }
    }

    /// The failed execution of a template, if the function executed one.
    pub fn render(&self) -> Option<&RenderError> {
        match &*self.0 {
            Problem::Render(error) => Some(error),
            Problem::Context { error, .. } => error.render(),
            _ => None,
        }
    }

    /// The next failure that this one wraps.
    fn inner(&self) -> Option<&Self> {
        match &*self.0 {
            Problem::Context { error, .. } => Some(error),
            Problem::Render(error) => error.0.inner(),
            _ => None,
        }
    }
}

/// A limit of the render was reached.
impl From<BudgetError> for FuncError {
    fn from(error: BudgetError) -> Self {
        Self(Box::new(Problem::Budget(error)))
    }
}

/// A text that the function was to execute is no template.
impl From<ParseError> for FuncError {
    fn from(error: ParseError) -> Self {
        Self(Box::new(Problem::Parse(error)))
    }
}

/// A template that the function executed failed.
impl From<RenderError> for FuncError {
    fn from(error: RenderError) -> Self {
        Self(Box::new(Problem::Render(error)))
    }
}

/// A template that failed while it was executed. Its `Display` is what Go prints, with every
/// template between the outermost and the failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(pub(crate) Box<Failure>);

/// One level of a failed execution.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The template that was executing.
    pub(crate) template: String,
    /// The node that failed and where it stands; none when the template could not begin.
    pub(crate) at: Option<(Location, String)>,
    pub(crate) cause: Cause,
    /// How many failures there are from here to the innermost.
    pub(crate) levels: usize,
    /// How many callers of this one are not kept, since a recursion has so many of them.
    pub(crate) left_out: usize,
}

#[derive(Debug)]
pub(crate) enum Cause {
    Message(String),
    Function {
        name: String,
        error: FuncError,
    },
    Budget(BudgetError),
    /// `ExecuteTemplate` of a name that the set does not have.
    NotAssociated {
        set: String,
    },
}

impl Cause {
    /// The text without the place.
    fn message(&self, template: &str) -> String {
        match self {
            Self::Message(message) => message.clone(),
            Self::Budget(error) => error.to_string(),
            Self::Function { name, error } => format!("error calling {name}: {error}"),
            Self::NotAssociated { set } => {
                let (template, set) = (go_quote(template), go_quote(set));
                format!("no template {template} associated with template {set}")
            }
        }
    }
}

fn go_quote(text: &str) -> String {
    String::from_utf8_lossy(&crate::go::strconv::quote(text.as_bytes())).into_owned()
}

impl Failure {
    pub(crate) fn new(template: String, at: Option<(Location, String)>, cause: Cause) -> Self {
        let mut failure = Self {
            template,
            at,
            cause,
            levels: 1,
            left_out: 0,
        };
        let inner = failure.inner().and_then(FuncError::render);
        failure.levels += inner.map_or(0, |error| error.0.levels);
        failure
    }

    fn inner(&self) -> Option<&FuncError> {
        match &self.cause {
            Cause::Function { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_out > 0 {
            write!(f, "({} more): ", self.left_out)?;
        }
        match (&self.at, &self.cause) {
            (Some((location, node)), _) => {
                let name = go_quote(&self.template);
                write!(f, "template: {location}: executing {name} at <{node}>: ")?;
            }
            (None, Cause::NotAssociated { .. }) => f.write_str("template: ")?,
            (None, _) => write!(f, "template: {}: ", self.template)?,
        }
        f.write_str(&self.cause.message(&self.template))
    }
}

/// One level of a failed render, outermost first in [`RenderError::frames`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The template that was executing: a file, or the name of a definition in it.
    pub template: String,
    /// Where it was.
    pub location: Option<Location>,
    /// The part of the action that was being evaluated, as Go prints it.
    pub node: String,
}

impl RenderError {
    /// The templates that were executing, outermost first. Of a deep recursion only the ends are
    /// kept.
    pub fn frames(&self) -> Vec<Frame> {
        self.failures()
            .map(|failure| Frame {
                template: failure.template.clone(),
                location: failure.at.as_ref().map(|(location, _)| location.clone()),
                node: failure
                    .at
                    .as_ref()
                    .map(|(_, node)| node.clone())
                    .unwrap_or_default(),
            })
            .collect()
    }

    /// What went wrong at the innermost place, without the places.
    pub fn message(&self) -> String {
        let innermost = self.failures().last().unwrap_or(&self.0);
        innermost.cause.message(&innermost.template)
    }

    /// The error of the host's own type `E`, wherever in the chain it is.
    pub fn host<E: Error + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|error| match &*error.0 {
            Problem::Host(error) => error.downcast_ref(),
            _ => None,
        })
    }

    /// The limit that was reached, if that was the cause.
    pub fn budget(&self) -> Option<&BudgetError> {
        let direct = self.failures().find_map(|failure| match &failure.cause {
            Cause::Budget(error) => Some(error),
            _ => None,
        });
        direct.or_else(|| {
            self.causes().find_map(|error| match &*error.0 {
                Problem::Budget(error) => Some(error),
                _ => None,
            })
        })
    }

    /// Message, innermost place, its line with a caret, and the chain of callers, for people.
    pub fn report(&self) -> impl fmt::Display + '_ {
        Report(move |f| {
            writeln!(f, "{}", self.message())?;
            let frames = self.frames();
            for (depth, frame) in frames.iter().rev().enumerate() {
                let what = if depth == 0 { "in" } else { "called from" };
                match &frame.location {
                    Some(location) => {
                        writeln!(
                            f,
                            "  {what} {} at {location}: {}",
                            frame.template, frame.node
                        )?;
                        if depth == 0 {
                            location.excerpt(f)?;
                        }
                    }
                    None => writeln!(f, "  {what} {}", frame.template)?,
                }
            }
            Ok(())
        })
    }

    fn failures(&self) -> impl Iterator<Item = &Failure> {
        std::iter::successors(Some(&*self.0), |failure| {
            failure
                .inner()
                .and_then(FuncError::render)
                .map(|error| &*error.0)
        })
    }

    fn causes(&self) -> impl Iterator<Item = &FuncError> {
        std::iter::successors(self.0.inner(), |error| error.inner())
    }
}

/// `Display` by a closure.
struct Report<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Report<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}
