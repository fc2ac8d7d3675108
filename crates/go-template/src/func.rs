//! Functions that templates call: their declaration, arguments and context.
//!
//! A function declares the Go types of its parameters. Number and types of arguments are checked
//! before it runs, with Go's messages, so that its code only reads them through [`Args`]. There are
//! two kinds: a [`ValueFn`] returns a [`Value`], a [`TextFn`] appends a string to a buffer. Prefer
//! the latter wherever Go's function returns a string: if the call ends an action, the buffer is
//! the output itself and nothing is copied.
//!
//! ```
//! use go_template::{Args, Buffer, Call, Func, FuncError, Funcs, Type, Value};
//!
//! fn add1(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
//!     Ok(Value::Int(args.int(0) + 1))
//! }
//! fn upper(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
//!     out.extend(args.str(0).as_bytes().to_ascii_uppercase());
//!     Ok(())
//! }
//! static FUNCS: &[Func] = &[
//!     Func::value("add1", &[Type::INT], add1),
//!     Func::text("upper", &[Type::STRING], upper),
//! ];
//! let funcs = Funcs::new().with(FUNCS);
//! assert!(funcs.get("upper").is_some() && funcs.get("printf").is_some());
//! ```

use std::fmt;
use std::sync::Arc;

use crate::error::FuncError;
use crate::eval;
use crate::session::Session;
use crate::set::{Template, TemplateSet};
use crate::value::table::Table;
use crate::value::{Map, Number, Str, Type, Value, vary};
use bounded::{Budget, Buffer};

/// A function that returns a value.
pub type ValueFn = fn(&mut Call<'_>, &mut Args<'_>) -> Result<Value, FuncError>;

/// A function that appends a string to the buffer. After an error the appended text is ignored.
pub type TextFn = fn(&mut Call<'_>, &mut Args<'_>, &mut Buffer) -> Result<(), FuncError>;

/// A function that returns a value and captures data.
pub type Closure = dyn Fn(&mut Call<'_>, &mut Args<'_>) -> Result<Value, FuncError> + Send + Sync;

#[derive(Clone)]
pub(crate) enum Run {
    Value(ValueFn),
    Text(TextFn),
    Closure(Arc<Closure>),
    /// Builtins that the evaluator handles itself.
    And,
    Or,
    Call,
}

/// A function with its signature.
#[derive(Clone)]
pub struct Func {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Type],
    pub(crate) variadic: Option<Type>,
    pub(crate) run: Run,
}

impl Func {
    /// Creates a function with fixed parameters that returns a value.
    pub const fn value(name: &'static str, params: &'static [Type], run: ValueFn) -> Self {
        Self::new(name, params, Run::Value(run))
    }

    /// Creates a function with fixed parameters that returns a string.
    pub const fn text(name: &'static str, params: &'static [Type], run: TextFn) -> Self {
        Self::new(name, params, Run::Text(run))
    }

    /// Creates a function with fixed parameters that captures data.
    pub fn closure(name: &'static str, params: &'static [Type], run: Arc<Closure>) -> Self {
        Self::new(name, params, Run::Closure(run))
    }

    pub(crate) const fn special(name: &'static str, params: &'static [Type], run: Run) -> Self {
        Self::new(name, params, run).variadic(Type::REFLECT)
    }

    const fn new(name: &'static str, params: &'static [Type], run: Run) -> Self {
        Self {
            name,
            params,
            variadic: None,
            run,
        }
    }

    /// Adds a variadic parameter of type `elem` (`...elem`).
    #[must_use]
    pub const fn variadic(mut self, elem: Type) -> Self {
        self.variadic = Some(elem);
        self
    }

    /// Returns the name that templates call it by.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the type of parameter `index`, including variadic ones.
    pub(crate) fn param(&self, index: usize) -> Type {
        let fixed = self.params.get(index).copied();
        fixed.or(self.variadic).unwrap_or(Type::ANY)
    }
}

impl fmt::Debug for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, params, variadic) = (self.name, self.params, self.variadic);
        write!(f, "func {name}({params:?}, {variadic:?})")
    }
}

/// Index of a function among those that a template was compiled with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuncId(u32);

/// The functions that templates can call, by name. Built once, then shared.
#[derive(Clone, Debug)]
pub struct Funcs {
    table: Table<Func>,
}

impl Funcs {
    /// Creates the set of Go's predefined functions: `and`, `printf`, `index` and so on.
    pub fn new() -> Self {
        let mut funcs = Self {
            table: Table::default(),
        };
        funcs.extend(crate::builtin::FUNCS);
        funcs
    }

    /// Adds `more` functions; a function replaces an earlier one of the same name.
    #[must_use]
    pub fn with(mut self, more: &[Func]) -> Self {
        self.extend(more);
        self
    }

    /// Adds `more` functions; a function replaces an earlier one of the same name.
    pub fn extend(&mut self, more: &[Func]) {
        for func in more {
            self.insert(func.clone());
        }
    }

    /// Adds a function, replacing an earlier one of the same name.
    pub fn insert(&mut self, func: Func) {
        self.table.insert(Str::from_static(func.name), func);
    }

    /// Removes a function.
    pub fn remove(&mut self, name: &str) {
        self.table.remove(name.as_bytes());
    }

    /// Returns the function `name`.
    pub fn get(&self, name: &str) -> Option<&Func> {
        self.find(name.as_bytes()).map(|(_, func)| func)
    }

    /// Returns the function `name` and its index.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(FuncId, &Func)> {
        let position = self.table.find(crate::value::table::hash(name), name)?;
        let id = FuncId(u32::try_from(position).ok()?);
        Some((id, &self.table.entry(position)?.value))
    }

    /// Returns the function with that index.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "a template shares the functions that it was compiled with, which do not change"
    )]
    pub(crate) fn at(&self, id: FuncId) -> &Func {
        &self.table.entries()[id.0 as usize].value
    }

    /// Returns all names in unspecified order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.table.entries().iter().map(|entry| entry.value.name)
    }
}

impl Default for Funcs {
    fn default() -> Self {
        Self::new()
    }
}

/// The arguments of a call. Their number and types were checked against the declared parameters, so
/// reading an argument as its declared type always succeeds; reading it as another type, or reading
/// a missing one, returns the zero value.
///
/// A nil for an `interface {}` parameter is [`Value::Nil`]; for a map, slice or pointer parameter
/// it is [`Value::NilOf`] that type; for any other parameter the call has failed before.
#[derive(Debug)]
pub struct Args<'a> {
    values: &'a mut [Value],
}

impl<'a> Args<'a> {
    /// Wraps arguments that are already checked or need no check.
    pub fn new(values: &'a mut [Value]) -> Self {
        Self { values }
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns argument `index`, or nil if it is missing.
    #[inline]
    pub fn get(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(Value::NIL)
    }

    /// Takes argument `index` without copying it.
    pub fn take(&mut self, index: usize) -> Value {
        let value = self.values.get_mut(index);
        value.map(std::mem::take).unwrap_or_default()
    }

    /// Returns argument `index`, declared as a string.
    #[inline]
    pub fn str(&self, index: usize) -> &Str {
        const EMPTY: &Str = &Str::EMPTY;
        self.get(index).as_str().unwrap_or(EMPTY)
    }

    /// Returns argument `index`, declared as an integer.
    pub fn int(&self, index: usize) -> i64 {
        let number = self.get(index).number();
        number.and_then(Number::to_i64).unwrap_or(0)
    }

    /// Returns argument `index`, declared as a bool.
    pub fn bool(&self, index: usize) -> bool {
        matches!(self.get(index), Value::Bool(true))
    }

    /// Returns argument `index`, declared as a map, or `None` for a nil map.
    pub fn map(&self, index: usize) -> Option<&Map> {
        self.get(index).as_map()
    }

    /// Returns the arguments from `index` on, such as the variadic ones.
    pub fn rest(&self, index: usize) -> &[Value] {
        self.values.get(index..).unwrap_or_default()
    }

    /// Returns all arguments.
    pub fn all(&self) -> &[Value] {
        self.values
    }

    /// Takes the arguments from `index` on.
    pub fn take_rest(&mut self, index: usize) -> Vec<Value> {
        let rest = self.values.get_mut(index..).unwrap_or_default();
        rest.iter_mut().map(std::mem::take).collect()
    }
}

/// The context of a running function: the host's data, the templates, the budget.
pub struct Call<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) set: &'a TemplateSet,
    pub(crate) template: &'a Template,
}

impl<'a> Call<'a> {
    /// Returns the templates visible to the running template; in a nested set, that set.
    pub fn templates(&self) -> &'a TemplateSet {
        self.set
    }

    /// Returns the calling template.
    pub fn template(&self) -> &'a Template {
        self.template
    }

    /// Returns the host's data, if it is a `T`.
    pub fn host<T: 'static>(&self) -> Option<&T> {
        self.session.host()
    }

    /// Returns the host's data mutably, if it is a `T`.
    pub fn host_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.session.host_mut()
    }

    /// Returns the budget of the render.
    pub fn budget(&self) -> &Budget {
        self.session.budget()
    }

    /// Says that the function's result can be another one for the same arguments, or that it has an effect.
    /// What the templates that call it print is not remembered
    /// ([`Session::remembering`](crate::Session::remembering)).
    pub fn varies(&mut self) {
        vary();
    }

    /// Returns the session, for functions that execute templates of other sets.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }

    /// Returns the time to use instead of the system's clock.
    #[cfg(feature = "sprig")]
    pub(crate) fn time(&self) -> Option<std::time::SystemTime> {
        self.session.time()
    }

    /// Executes the template `name` of the current set, appending to `out` (`ExecuteTemplate`).
    ///
    /// # Errors
    /// If there is no such template, or it fails.
    pub fn execute(&mut self, name: &Str, data: &Value, out: &mut Buffer) -> Result<(), FuncError> {
        let Some(template) = self.set.get(name) else {
            return Ok(self.session.execute(self.set, name, data, out)?);
        };
        let executed = eval::execute_or_recall(self.session, self.set, template, data, out);
        Ok(executed?)
    }

    /// Executes a template of another set, appending to `out`.
    ///
    /// # Errors
    /// If the template fails.
    pub fn execute_in(
        &mut self,
        set: &TemplateSet,
        template: &Template,
        data: &Value,
        out: &mut Buffer,
    ) -> Result<(), FuncError> {
        Ok(self.session.execute_template(set, template, data, out)?)
    }

    /// Parses `text` as a template `name` on top of the current set, for [`Call::execute_in`], as
    /// Helm's `tpl` does. A session parses each text only once.
    ///
    /// # Errors
    /// If the text is not a template, or parsing it exceeds a limit.
    pub fn parse(
        &mut self,
        name: &Str,
        text: &Str,
    ) -> Result<(TemplateSet, Arc<Template>), FuncError> {
        self.session.parse(self.set, name, text)
    }

    /// Calls a function after checking arguments against its parameters.
    ///
    /// # Errors
    /// If an argument has the wrong type, or the function fails.
    pub fn invoke(&mut self, func: &Func, args: &mut [Value]) -> Result<Value, FuncError> {
        eval::invoke(self, func, args)
    }
}
