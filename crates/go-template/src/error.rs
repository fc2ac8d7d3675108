//! Errors of parsing, execution and functions, with Go's text and structured locations.

use std::error::Error;
use std::fmt;

use crate::hidden;
use bounded::BudgetError;

/// A location in the text of a template.
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
    /// Returns the location of byte `offset` in `text`, which was parsed under the name `file`.
    pub(crate) fn new(file: &str, text: &[u8], offset: usize) -> Self {
        let offset = offset.min(text.len());
        let (before, after) = text.split_at(offset);
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let rest = memchr::memchr(b'\n', after).unwrap_or(after.len());
        let line = text.get(start..offset + rest).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        Self {
            file: file.to_owned(),
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: offset - start,
            source_line: line.trim_end_matches('\r').to_owned(),
        }
    }

    /// Writes the line with a caret under the column.
    fn excerpt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let shown: String = self.source_line.chars().take(200).collect();
        writeln!(f, "  {number} | {shown}")?;
        let before = self.source_line.as_bytes().get(..self.column);
        let before = before.unwrap_or_default();
        // Keep tabs, so that the caret is aligned.
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

/// An error in the text of a template. Its `Display` is what Go prints. It is boxed to keep the
/// results of the parser small.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template: {}:{}: {}", .0.location.file, .0.location.line, .0.message)]
pub struct ParseError(Box<ParseErrorInner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParseErrorInner {
    location: Location,
    message: String,
}

impl ParseError {
    pub(crate) fn new(location: Location, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(ParseErrorInner { location, message }))
    }

    /// Returns the location of the error. The line is Go's; Go reports no column.
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// Returns the error without its location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Formats the error with its location and the line with a caret.
    pub fn report(&self) -> impl fmt::Display + '_ {
        Report(move |f| {
            writeln!(f, "{}\n  at {}", self.message(), self.location())?;
            self.location().excerpt(f)
        })
    }
}

/// An error of a function, including functions of the host. It is boxed to keep the results of
/// functions small.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FuncError(Box<FuncErrorInner>);

#[derive(Debug, thiserror::Error)]
enum FuncErrorInner {
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
    /// A message with the content of a value.
    #[error("{before}{value}{after}")]
    Value {
        before: &'static str,
        value: String,
        after: &'static str,
    },
    /// Go cannot call the method from a template.
    #[cfg_attr(
        not(feature = "sprig"),
        allow(dead_code, reason = "only the types of Sprig have such methods")
    )]
    #[error("{0}")]
    Signature(&'static str),
}

/// The longest message of a function, in bytes. Messages are copied several times.
const MAX_MESSAGE: usize = 64 << 10;

/// Cuts off the end of a message that is too long.
fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE)
            .rev()
            .find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str("...");
        message.shrink_to_fit();
    }
    message
}

impl FuncError {
    /// Creates an error from a message, like Go's `errors.New`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Box::new(FuncErrorInner::Message(shortened(message.into()))))
    }

    /// Creates the error for a method that templates cannot call because of its results.
    #[cfg(feature = "sprig")]
    pub(crate) fn signature(message: &'static str) -> Self {
        Self(Box::new(FuncErrorInner::Signature(message)))
    }

    /// Returns the message of such an error.
    pub(crate) fn wrong_signature(&self) -> Option<&'static str> {
        match &*self.0 {
            FuncErrorInner::Signature(message) => Some(message),
            _ => None,
        }
    }

    /// Creates an error whose message contains the content of a value, which
    /// [`RenderError::without_values`] leaves out. Texts in quotes are left out of every message.
    pub fn with_value(before: &'static str, value: impl Into<String>, after: &'static str) -> Self {
        Self(Box::new(FuncErrorInner::Value {
            before,
            value: shortened(value.into()),
            after,
        }))
    }

    /// Formats the error without the contents of values.
    fn hidden(&self) -> String {
        match &*self.0 {
            FuncErrorInner::Message(message) => hidden::quoted(message),
            FuncErrorInner::Parse(error) => {
                let Location { file, line, .. } = error.location();
                let message = hidden::token(error.message());
                format!("template: {file}:{line}: {message}")
            }
            FuncErrorInner::Render(error) => error.without_values().message(),
            FuncErrorInner::Context { context, error } => {
                format!("{}: {}", hidden::quoted(context), error.hidden())
            }
            FuncErrorInner::Value {
                before,
                value,
                after,
            } => format!("{before}{}{after}", hidden::sized(value.len())),
            FuncErrorInner::Budget(_) | FuncErrorInner::Host(_) | FuncErrorInner::Signature(_) => {
                self.to_string()
            }
        }
    }

    /// Wraps an error of the host's own type, which [`RenderError::host`] returns.
    pub fn host(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(FuncErrorInner::Host(Box::new(error))))
    }

    /// Prefixes the error with a description of the failed action, like Go's `fmt.Errorf("…: %w")`.
    #[must_use]
    pub fn context(self, context: impl Into<String>) -> Self {
        Self(Box::new(FuncErrorInner::Context {
            context: shortened(context.into()),
            error: self,
        }))
    }

    /// Returns the failed execution of a template without added context, or the error itself.
    pub(crate) fn into_render(self) -> Result<RenderError, Self> {
        match *self.0 {
            FuncErrorInner::Render(error) => Ok(error),
            FuncErrorInner::Context { error, .. } => error.into_render(),
            problem => Err(Self(Box::new(problem))),
        }
    }

    /// Returns whether the function exceeded a limit.
    pub fn is_limit(&self) -> bool {
        matches!(&*self.0, FuncErrorInner::Budget(_))
    }

    /// Returns the failed execution of a template, if the function executed one.
    pub fn render(&self) -> Option<&RenderError> {
        match &*self.0 {
            FuncErrorInner::Render(error) => Some(error),
            FuncErrorInner::Context { error, .. } => error.render(),
            _ => None,
        }
    }

    /// Returns the wrapped error.
    fn inner(&self) -> Option<&Self> {
        match &*self.0 {
            FuncErrorInner::Context { error, .. } => Some(error),
            FuncErrorInner::Render(error) => error.0.inner(),
            _ => None,
        }
    }
}

/// A limit of the render was exceeded.
impl From<BudgetError> for FuncError {
    fn from(error: BudgetError) -> Self {
        Self(Box::new(FuncErrorInner::Budget(error)))
    }
}

/// A text that the function tried to execute does not parse.
impl From<ParseError> for FuncError {
    fn from(error: ParseError) -> Self {
        Self(Box::new(FuncErrorInner::Parse(error)))
    }
}

/// A template that the function executed failed.
impl From<RenderError> for FuncError {
    fn from(error: RenderError) -> Self {
        Self(Box::new(FuncErrorInner::Render(error)))
    }
}

/// An error during the execution of a template. Its `Display` is what Go prints, with every
/// template between the outermost and the failing one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(pub(crate) Box<Failure>);

/// One level of a failed execution.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The template being executed.
    pub(crate) template: String,
    /// The failing node and its location; `None` if the template could not start.
    pub(crate) at: Option<(Location, String)>,
    /// The length of the text, if it was given to a function during the render.
    pub(crate) given: Option<usize>,
    pub(crate) cause: Cause,
    /// Number of failures from here to the innermost.
    pub(crate) levels: usize,
    /// Number of callers that were omitted, because a recursion has too many.
    pub(crate) left_out: usize,
}

#[derive(Debug)]
pub(crate) enum Cause {
    Message(String),
    /// A message with the content of a value, and the name of its type.
    Value {
        before: &'static str,
        value: String,
        type_name: String,
        after: &'static str,
    },
    Function {
        name: String,
        error: FuncError,
    },
    Budget(BudgetError),
    /// `ExecuteTemplate` with a name that is not in the set.
    NotAssociated {
        set: String,
    },
}

impl Cause {
    /// Returns the text without the location.
    fn message(&self, template: &str) -> String {
        match self {
            Self::Message(message) => message.clone(),
            Self::Budget(error) => error.to_string(),
            Self::Value {
                before,
                value,
                after,
                ..
            } => format!("{before}{value}{after}"),
            Self::Function { name, error } => format!("error calling {name}: {error}"),
            Self::NotAssociated { set } => {
                let (template, set) = (go_quote(template), go_quote(set));
                format!("no template {template} associated with template {set}")
            }
        }
    }

    /// Like [`Cause::message`], without the contents of values.
    fn hidden(&self, template: &str) -> String {
        match self {
            Self::Value {
                before,
                type_name,
                after,
                ..
            } => format!("{before}a value of type {type_name}{after}"),
            Self::Function { name, error } => {
                format!("error calling {name}: {}", error.hidden())
            }
            _ => self.message(template),
        }
    }
}

fn go_quote(text: &str) -> String {
    crate::go::strconv::quoted(text.as_bytes())
}

impl Failure {
    pub(crate) fn new(template: String, at: Option<(Location, String)>, cause: Cause) -> Self {
        let mut failure = Self {
            template,
            at,
            given: None,
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

/// One level of a failed render; [`RenderError::frames`] lists the outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The template being executed: a file, or the name of a definition in it.
    pub template: String,
    /// The location in it.
    pub location: Option<Location>,
    /// The part of the action that was being evaluated, as Go prints it.
    pub node: String,
    /// The length of the template's text in bytes, if it was given to a function during the render, as to
    /// Helm's `tpl`.
    pub given: Option<usize>,
}

impl RenderError {
    /// Returns the templates being executed, outermost first. Only both ends of a deep recursion
    /// are kept.
    pub fn frames(&self) -> Vec<Frame> {
        self.failures()
            .map(|failure| Frame {
                template: failure.template.clone(),
                location: failure.at.as_ref().map(|(location, _)| location.clone()),
                node: failure
                    .at
                    .as_ref()
                    .map_or_else(String::new, |(_, node)| node.clone()),
                given: failure.given,
            })
            .collect()
    }

    /// Returns the innermost error without locations.
    pub fn message(&self) -> String {
        let innermost = self.failures().last().unwrap_or(&self.0);
        innermost.cause.message(&innermost.template)
    }

    /// Returns the error of the host's own type `E` from anywhere in the chain.
    pub fn host<E: Error + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|error| match &*error.0 {
            FuncErrorInner::Host(error) => error.downcast_ref(),
            _ => None,
        })
    }

    /// Returns the exceeded limit, if that was the cause.
    pub fn budget(&self) -> Option<&BudgetError> {
        let direct = self.failures().find_map(|failure| match &failure.cause {
            Cause::Budget(error) => Some(error),
            _ => None,
        });
        direct.or_else(|| {
            self.causes().find_map(|error| match &*error.0 {
                FuncErrorInner::Budget(error) => Some(error),
                _ => None,
            })
        })
    }

    /// Formats the error with the innermost location, its line with a caret, and the chain of
    /// callers.
    pub fn report(&self) -> impl fmt::Display + '_ {
        report(self.message(), self.frames())
    }

    /// Returns the error for readers who must not see the contents of values.
    ///
    /// ```
    /// use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value};
    /// let mut set = TemplateSet::new("set", Funcs::new().into());
    /// set.parse("main", "{{ range . }}{{ end }}")?;
    /// let mut session = Session::new(Limits::default());
    /// let error = session
    ///     .execute(&set, "main", &Value::from("hunter2"), &mut Buffer::new())
    ///     .unwrap_err();
    /// assert_eq!(error.message(), "range can't iterate over hunter2");
    /// let hidden = "range can't iterate over a value of type string";
    /// assert_eq!(error.without_values().message(), hidden);
    /// # Ok::<(), go_template::ParseError>(())
    /// ```
    pub fn without_values(&self) -> WithoutValues<'_> {
        WithoutValues(self)
    }

    fn failures(&self) -> impl Iterator<Item = &Failure> {
        std::iter::successors(Some(&*self.0), |failure| {
            let error = failure.inner().and_then(FuncError::render);
            error.map(|error| &*error.0)
        })
    }

    fn causes(&self) -> impl Iterator<Item = &FuncError> {
        std::iter::successors(self.0.inner(), |error| error.inner())
    }
}

/// An error without the contents of values: texts in quotes, and the text given to functions such as
/// Helm's `tpl`, are replaced by their length. Names of fields, functions and templates stay.
#[derive(Clone, Copy, Debug)]
pub struct WithoutValues<'e>(&'e RenderError);

impl WithoutValues<'_> {
    /// Like [`RenderError::frames`]; a text that was given to a function is replaced by its length.
    pub fn frames(&self) -> Vec<Frame> {
        let mut frames = self.0.frames();
        for frame in &mut frames {
            let Some(length) = frame.given else { continue };
            frame.node = hidden::sized(length);
            if let Some(location) = &mut frame.location {
                location.source_line.clear();
            }
        }
        frames
    }

    /// Like [`RenderError::message`].
    pub fn message(&self) -> String {
        let innermost = self.0.failures().last().unwrap_or(&self.0.0);
        innermost.cause.hidden(&innermost.template)
    }

    /// Like [`RenderError::report`].
    pub fn report(&self) -> impl fmt::Display + use<> {
        report(self.message(), self.frames())
    }
}

/// Formats a message with the innermost location, its line with a caret, and the chain of callers.
fn report(message: String, frames: Vec<Frame>) -> impl fmt::Display + use<> {
    Report(move |f| {
        writeln!(f, "{message}")?;
        for (depth, frame) in frames.iter().rev().enumerate() {
            let what = if depth == 0 { "in" } else { "called from" };
            match &frame.location {
                Some(location) => {
                    let Frame { template, node, .. } = frame;
                    writeln!(f, "  {what} {template} at {location}: {node}")?;
                    if depth == 0 && !location.source_line.is_empty() {
                        location.excerpt(f)?;
                    }
                }
                None => writeln!(f, "  {what} {}", frame.template)?,
            }
        }
        Ok(())
    })
}

/// Implements `Display` by a closure.
struct Report<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Report<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}
