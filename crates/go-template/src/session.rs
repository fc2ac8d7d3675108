//! `Session`: one render of one or many templates, with its budget and the host's data.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Cause, Failure, FuncError, RenderError};
use crate::eval;
use crate::memo::Memo;
use crate::set::{Template, TemplateSet};
use crate::value::{Str, Value, break_cycles, watch_none};
use bounded::memory::Held;
use bounded::{Budget, Buffer, Limits, Stop};

thread_local! {
    static SESSIONS: Cell<usize> = const { Cell::new(0) };
}

/// Limits for the texts whose compiled form a session caches.
const MAX_CACHED_LENGTH: usize = 64 << 10;
const MAX_CACHED_TEXTS: usize = 1_024;
/// Longer buffers are not used again.
const MAX_RECYCLED: usize = 8 << 20;

/// Executes templates. One session renders all files of a chart: its limits apply to all of them
/// together, and functions share the host's data.
///
/// When the last session of a thread ends, maps that were written to during its lifetime are
/// emptied, to free maps that contain themselves; do not use them after the session.
///
/// ```
/// use std::sync::Arc;
/// use go_template::{Buffer, Funcs, Limits, Map, Session, TemplateSet, Value};
///
/// let mut set = TemplateSet::new("set", Arc::new(Funcs::new()));
/// set.parse("hello.txt", "plain text")?;
/// let mut out = Buffer::new();
/// let mut session = Session::new(Limits::default());
/// session.execute(&set, "hello.txt", &Value::Map(Map::new()), &mut out)?;
/// assert_eq!(&*out, b"plain text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    budget: Budget,
    host: Option<Box<dyn Any>>,
    buffers: Vec<Buffer>,
    arguments: Vec<Vec<Value>>,
    /// Templates parsed during the render, by name and text.
    texts: HashMap<(Str, Str), Arc<Template>>,
    /// The memory of `texts`.
    texts_held: Held,
    weak_secrets: bool,
    time: Option<SystemTime>,
    /// The ranges of the output that actions have printed, if somebody asks for them.
    printed: Option<Vec<Range<usize>>>,
    pub(crate) slots: Vec<Value>,
    /// Texts that templates have printed.
    pub(crate) memo: Memo,
}

impl Session {
    /// Starts a render and its clock.
    pub fn new(limits: Limits) -> Self {
        if SESSIONS.replace(SESSIONS.get() + 1) == 0 {
            watch_none();
        }
        Self {
            budget: Budget::new(limits),
            host: None,
            buffers: Vec::new(),
            arguments: Vec::new(),
            texts: HashMap::new(),
            texts_held: Held::default(),
            weak_secrets: false,
            time: None,
            printed: None,
            slots: Vec::new(),
            memo: Memo::default(),
        }
    }

    /// Makes `stop` end the render, in place of [`Limits::time`], for renders that are part of a
    /// larger task with a deadline.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.budget.set_stop(stop);
        self
    }

    /// Makes functions generate keys, certificates and password hashes that are fast and weak, for
    /// renders whose secrets nobody uses: RSA and DSA keys are replaced by keys on a curve.
    #[must_use]
    pub fn with_weak_secrets(mut self, weak: bool) -> Self {
        self.weak_secrets = weak;
        self
    }

    /// Returns whether secrets may be weak.
    #[cfg(feature = "crypto")]
    pub(crate) fn has_weak_secrets(&self) -> bool {
        self.weak_secrets
    }

    /// Sets the time that functions use instead of the system's clock, for output that is reproducible
    /// and for platforms without a clock, such as `wasm32-unknown-unknown`, where functions that need
    /// the time fail otherwise.
    #[must_use]
    pub fn with_time(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// Returns the time to use instead of the system's clock.
    #[cfg(feature = "sprig")]
    pub(crate) fn time(&self) -> Option<SystemTime> {
        self.time
    }

    /// Remembers what templates of `set` print when other templates execute them, so that one that gets the
    /// same data again is not executed again. Functions must return the same for the same arguments, or call
    /// [`Call::varies`](crate::Call::varies).
    #[must_use]
    pub fn remembering(mut self, set: &TemplateSet) -> Self {
        self.memo = Memo::new(set);
        self
    }

    /// Notes which parts of the output actions have printed, so that they can be told from the text of
    /// the template: see [`Session::printed`].
    #[must_use]
    pub fn noting_printed(mut self) -> Self {
        self.printed = Some(Vec::new());
        self
    }

    /// Returns the ranges of the output that actions have printed, in ascending order, after
    /// [`Session::noting_printed`]; all other output is the text of templates.
    ///
    /// ```
    /// use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value};
    /// let mut set = TemplateSet::new("set", Funcs::new().into());
    /// set.parse("x", "{{if true}}a, {{print \"b, c\"}}{{end}}")?;
    /// let (mut session, mut out) = (Session::new(Limits::default()).noting_printed(), Buffer::new());
    /// session.execute(&set, "x", &Value::Nil, &mut out)?;
    /// assert_eq!((&*out, session.printed()), (&b"a, b, c"[..], &[3..7][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn printed(&self) -> &[Range<usize>] {
        self.printed.as_deref().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn note_printed(&mut self, start: usize, end: usize) {
        if let Some(printed) = &mut self.printed
            && start < end
        {
            printed.push(start..end);
        }
    }

    /// Adds data that functions access through [`crate::Call::host`].
    #[must_use]
    pub fn with_host<T: 'static>(mut self, host: T) -> Self {
        self.host = Some(Box::new(host));
        self
    }

    /// Returns the host's data, if it is a `T`.
    pub fn host<T: 'static>(&self) -> Option<&T> {
        self.host.as_ref()?.downcast_ref()
    }

    /// Returns the host's data mutably, if it is a `T`.
    pub fn host_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.host.as_mut()?.downcast_mut()
    }

    /// Returns the budget of the render.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn memo_and_budget(&mut self) -> (&mut Memo, &Budget) {
        (&mut self.memo, &self.budget)
    }

    /// Executes the template `name` with `data` as dot, appending to `out`. Output before an error
    /// remains.
    ///
    /// # Errors
    /// If there is no such template, it fails, or a limit is exceeded ([`RenderError::budget`]).
    pub fn execute(
        &mut self,
        set: &TemplateSet,
        name: impl AsRef<[u8]>,
        data: &Value,
        out: &mut Buffer,
    ) -> Result<(), RenderError> {
        let name = name.as_ref();
        if let Some(template) = set.get(name) {
            return self.execute_template(set, template, data, out);
        }
        let set = set.name().to_string();
        let name = String::from_utf8_lossy(name).into_owned();
        let failure = Failure::new(name, None, Cause::NotAssociated { set });
        Err(RenderError(Box::new(failure)))
    }

    /// Executes a template with `data` as dot, appending to `out`. Template names are looked up in
    /// `set`.
    ///
    /// # Errors
    /// If it fails or a limit is exceeded ([`RenderError::budget`]).
    pub fn execute_template(
        &mut self,
        set: &TemplateSet,
        template: &Template,
        data: &Value,
        out: &mut Buffer,
    ) -> Result<(), RenderError> {
        eval::execute(self, set, template, data, out)
    }

    /// Parses `text` as a template on top of `set`.
    pub(crate) fn parse(
        &mut self,
        set: &TemplateSet,
        name: &Str,
        text: &Str,
    ) -> Result<(TemplateSet, Arc<Template>), FuncError> {
        let key = (name.clone(), text.clone());
        if let Some(template) = self.texts.get(&key)
            && template.is_like(set)
        {
            return Ok((set.clone(), Arc::clone(template)));
        }
        // Parsing 16 bytes takes about as long as one step.
        self.budget.step(text.len() as u64 / 16)?;
        let size = compiled_size(text);
        self.budget.memory(size)?;
        let mut layer = set.layer();
        let parsed = layer.parse_text(name.clone(), text.clone(), true)?;
        let template = layer.add(&parsed);
        // A text that defines nothing and does not name itself needs no separate layer.
        let names_itself = memchr::memmem::find(text.as_bytes(), name.as_bytes()).is_some();
        if layer.len() == 1 && !names_itself && text.len() <= MAX_CACHED_LENGTH {
            if self.texts.len() >= MAX_CACHED_TEXTS {
                self.texts.clear();
                self.texts_held.set(0);
            }
            self.texts_held.add(size);
            self.texts.insert(key, Arc::clone(&template));
            return Ok((set.clone(), template));
        }
        Ok((layer, template))
    }

    /// Returns an empty buffer; [`Session::recycle`] makes it available again.
    pub(crate) fn buffer(&mut self) -> Buffer {
        self.buffers.pop().unwrap_or_default()
    }

    /// Returns an empty argument list; [`Session::recycle_arguments`] makes it available again.
    pub(crate) fn arguments(&mut self) -> Vec<Value> {
        self.arguments.pop().unwrap_or_default()
    }

    pub(crate) fn recycle_arguments(&mut self, mut arguments: Vec<Value>) {
        arguments.clear();
        self.arguments.push(arguments);
    }

    pub(crate) fn recycle(&mut self, mut buffer: Buffer) {
        // A long text is rarely followed by another one.
        if buffer.capacity() <= MAX_RECYCLED {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// Returns about how much memory a compiled text takes.
fn compiled_size(text: &Str) -> usize {
    let actions = memchr::memmem::find_iter(text.as_bytes(), b"{{").count();
    text.len() * 4 + actions * 512
}

impl Drop for Session {
    fn drop(&mut self) {
        self.host = None;
        self.slots.clear();
        self.memo.forget();
        let left = SESSIONS.try_with(|sessions| {
            sessions.set(sessions.get().saturating_sub(1));
            sessions.get()
        });
        if left == Ok(0) {
            break_cycles();
        }
    }
}
