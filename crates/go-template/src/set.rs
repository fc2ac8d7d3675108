//! `TemplateSet`: templates by name with their functions, like Go's associated templates.

use std::sync::Arc;

use crate::ast::{self, At, Pos};
use crate::code::{Body, Code};
use crate::compile::Compiler;
use crate::delimiters::Delimiters;
use crate::error::{Location, ParseError};
use crate::func::Funcs;
use crate::parse;
use crate::value::table::{Table, hash};
use crate::value::{Name, Str};

/// The result of a missing map key (`Option("missingkey=…")`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// No value: `<no value>`.
    Invalid,
    /// The zero value of the map's element type, which for `interface {}` is nil. Used by Helm.
    #[default]
    Zero,
    /// An error.
    Error,
}

/// A text that templates were parsed from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: Str,
    pub(crate) text: Str,
    /// Shared with the same text under other names.
    pub(crate) code: Arc<Code>,
    pub(crate) delimiters: Delimiters,
    /// Whether the text was given to a function during a render.
    pub(crate) is_given: bool,
}

/// A compiled template.
#[derive(Debug)]
pub struct Template {
    pub(crate) name: Str,
    pub(crate) source: Arc<Source>,
    pub(crate) body: Body,
    pub(crate) funcs: Arc<Funcs>,
    /// Start of the template in the text.
    start: Pos,
}

impl Template {
    /// Returns its name: that of the file or of the definition.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// Returns whether it was compiled with the functions and delimiters of `set`.
    pub(crate) fn is_like(&self, set: &TemplateSet) -> bool {
        Arc::ptr_eq(&self.funcs, &set.0.funcs) && self.source.delimiters == set.0.delimiters
    }

    /// Returns the node `at` as Go prints it. The tree is rebuilt from the text.
    #[cold]
    pub(crate) fn describe(&self, at: At) -> String {
        let text = self.source.text.as_bytes();
        let language = (&*self.funcs, &self.source.delimiters);
        let tree = parse::tree(&self.source.name, text, language, self.start);
        let node = ast::describe(&tree, text, at).unwrap_or_default();
        String::from_utf8_lossy(&node).into_owned()
    }

    /// Returns the whole text that it was parsed from.
    pub fn text(&self) -> &Str {
        &self.source.text
    }

    /// Returns the name of the text that it was parsed from, usually a file's path.
    pub fn file(&self) -> &Str {
        &self.source.name
    }
}

/// The templates of one text, parsed once and added to any number of sets. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use go_template::{Funcs, TemplateSet};
/// let funcs = Arc::new(Funcs::new());
/// let parsed = TemplateSet::new("a", Arc::clone(&funcs)).parse_detached("x.txt", "text")?;
/// let mut set = TemplateSet::new("b", funcs);
/// set.add(&parsed);
/// assert!(set.contains("x.txt"));
/// # Ok::<(), go_template::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ParsedTemplates {
    main: Arc<Template>,
    /// Templates, each with whether it is empty.
    templates: Arc<[(Arc<Template>, bool)]>,
}

impl ParsedTemplates {
    /// Returns the template of the whole text.
    pub fn main(&self) -> &Arc<Template> {
        &self.main
    }

    /// Returns what the same text gives under another name, and shares the code. Returns `None` if the text defines
    /// a template with its own name, or with the new one: the result depends on the name then.
    ///
    /// ```
    /// use go_template::{Funcs, TemplateSet};
    /// let set = TemplateSet::new("set", Funcs::new().into());
    /// let parsed = set.parse_detached("a/x.tpl", r#"{{define "name"}}web{{end}}"#)?;
    /// let copy = parsed.under("b/x.tpl").unwrap();
    /// assert_eq!(copy.main().name().to_string(), "b/x.tpl");
    /// assert!(parsed.under("name").is_none());
    /// # Ok::<(), go_template::ParseError>(())
    /// ```
    #[must_use]
    pub fn under(&self, name: impl Into<Str>) -> Option<Self> {
        let name = name.into();
        let old = &self.main.source;
        let source = Arc::new(Source {
            name,
            text: old.text.clone(),
            code: Arc::clone(&old.code),
            delimiters: old.delimiters.clone(),
            is_given: old.is_given,
        });
        let mut main = None;
        let mut templates = Vec::with_capacity(self.templates.len());
        for (template, is_empty) in &*self.templates {
            let is_main = Arc::ptr_eq(template, &self.main);
            if !is_main && (template.name == old.name || template.name == source.name) {
                return None;
            }
            let renamed = Arc::new(Template {
                name: if is_main {
                    &source.name
                } else {
                    &template.name
                }
                .clone(),
                source: Arc::clone(&source),
                body: template.body,
                funcs: Arc::clone(&template.funcs),
                start: template.start,
            });
            if is_main {
                main = Some(Arc::clone(&renamed));
            }
            templates.push((renamed, *is_empty));
        }
        Some(Self {
            main: main?,
            templates: templates.into(),
        })
    }
}

/// Templates that can call each other by name, with the functions that they use. A set is immutable
/// once shared: clones are cheap, and parsing into a clone does not affect the original.
///
/// ```
/// use std::sync::Arc;
/// use go_template::{Funcs, TemplateSet};
/// let mut set = TemplateSet::new("set", Arc::new(Funcs::new()));
/// set.parse("a.txt", "plain text")?;
/// let mut nested = set.layer();
/// nested.parse("b.txt", "")?;
/// assert!(nested.contains("a.txt") && nested.contains("b.txt") && !set.contains("b.txt"));
/// # Ok::<(), go_template::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TemplateSet(Arc<Layer>);

#[derive(Debug)]
struct Layer {
    below: Option<TemplateSet>,
    own: Table<Arc<Template>>,
    funcs: Arc<Funcs>,
    missing_key: MissingKey,
    delimiters: Delimiters,
    name: Str,
}

impl TemplateSet {
    /// Creates an empty set whose templates may call `funcs`. Its name appears only in the error
    /// for a missing template.
    pub fn new(name: impl Into<Str>, funcs: Arc<Funcs>) -> Self {
        Self(Arc::new(Layer {
            below: None,
            own: Table::default(),
            funcs,
            missing_key: MissingKey::default(),
            delimiters: Delimiters::default(),
            name: name.into(),
        }))
    }

    /// Returns the name of the set.
    pub fn name(&self) -> &Str {
        &self.0.name
    }

    /// Returns the same templates with the given rule for missing map keys.
    #[must_use]
    pub fn missing_key(&self, missing_key: MissingKey) -> Self {
        let mut layer = self.new_layer();
        layer.missing_key = missing_key;
        Self(Arc::new(layer))
    }

    /// Returns the same templates with other texts that enclose the actions of what is parsed next
    /// (Go's `Delims`). An empty text stands for the default, `{{` or `}}`.
    ///
    /// ```
    /// use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value};
    /// let mut set = TemplateSet::new("set", Funcs::new().into()).delimiters("<%", "%>");
    /// set.parse("page", "<% printf \"%d\" 3 %> {{ text }}")?;
    /// let mut out = Buffer::new();
    /// Session::new(Limits::default()).execute(&set, "page", &Value::Nil, &mut out)?;
    /// assert_eq!(&*out, b"3 {{ text }}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn delimiters(&self, left: impl Into<Str>, right: impl Into<Str>) -> Self {
        let mut layer = self.new_layer();
        layer.delimiters = Delimiters::new(left.into(), right.into());
        Self(Arc::new(layer))
    }

    /// Returns a set on top of this one: it has the same templates, and templates parsed into it do
    /// not affect this set (Go's `Clone`).
    #[must_use]
    pub fn layer(&self) -> Self {
        Self(Arc::new(self.new_layer()))
    }

    fn new_layer(&self) -> Layer {
        Layer {
            below: Some(self.clone()),
            own: Table::default(),
            funcs: Arc::clone(&self.0.funcs),
            missing_key: self.0.missing_key,
            delimiters: self.0.delimiters.clone(),
            name: self.0.name.clone(),
        }
    }

    /// Parses `text` as the template `name`, together with the templates that it defines, and adds
    /// them (Go's `New(name).Parse(text)`). An empty template does not replace an earlier one of
    /// the same name, but is still returned.
    ///
    /// # Errors
    /// If the text is not a template. The set stays as it was.
    pub fn parse(
        &mut self,
        name: impl Into<Str>,
        text: impl Into<Str>,
    ) -> Result<Arc<Template>, ParseError> {
        let parsed = self.parse_detached(name, text)?;
        Ok(self.add(&parsed))
    }

    /// Parses `text` like [`TemplateSet::parse`] without adding it. The result can be added to any
    /// set with the same functions.
    ///
    /// # Errors
    /// If the text is not a template.
    pub fn parse_detached(
        &self,
        name: impl Into<Str>,
        text: impl Into<Str>,
    ) -> Result<ParsedTemplates, ParseError> {
        self.parse_text(name.into(), text.into(), false)
    }

    /// Parses a text; `is_given` says that it was given to a function during a render.
    pub(crate) fn parse_text(
        &self,
        name: Str,
        text: Str,
        is_given: bool,
    ) -> Result<ParsedTemplates, ParseError> {
        let funcs = &self.0.funcs;
        let compiler = Compiler::new(text.as_bytes());
        let language = (&**funcs, &self.0.delimiters);
        let (definitions, compiler) = parse::parse(&name, text.as_bytes(), language, compiler)?;
        let code = compiler.finish();
        let source = Arc::new(Source {
            name,
            text,
            code: Arc::new(code),
            delimiters: self.0.delimiters.clone(),
            is_given,
        });
        let templates = definitions.into_iter().map(|definition| {
            let template = Template {
                name: definition.name,
                source: Arc::clone(&source),
                funcs: Arc::clone(funcs),
                start: definition.start,
                body: definition.template,
            };
            (Arc::new(template), definition.is_empty)
        });
        let templates: Arc<[_]> = templates.collect();
        let mut all = templates.iter();
        let Some((main, _)) = all.find(|(template, _)| template.name == source.name) else {
            let bytes = source.text.as_bytes();
            let location = Location::new(&source.name.to_string_lossy(), bytes, bytes.len());
            return Err(ParseError::new(location, "the text defines no template"));
        };
        Ok(ParsedTemplates {
            main: Arc::clone(main),
            templates,
        })
    }

    /// Adds parsed templates and returns the one of the whole text. An empty template does not
    /// replace an earlier one of the same name.
    pub fn add(&mut self, parsed: &ParsedTemplates) -> Arc<Template> {
        for (template, is_empty) in &*parsed.templates {
            self.insert(template, *is_empty);
        }
        Arc::clone(&parsed.main)
    }

    fn insert(&mut self, template: &Arc<Template>, is_empty: bool) {
        let name = Name::new(template.name.clone());
        if is_empty && self.find(&name).is_some() {
            return;
        }
        if Arc::get_mut(&mut self.0).is_none() {
            *self = self.layer();
        }
        if let Some(layer) = Arc::get_mut(&mut self.0) {
            let (key, template) = (name.key().clone(), Arc::clone(template));
            layer.own.insert_hashed(name.hash(), key, template);
        }
    }

    /// Returns whether both are handles to the same set.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the number of templates added to this layer.
    pub(crate) fn len(&self) -> usize {
        self.0.own.len()
    }

    /// Returns the template `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Arc<Template>> {
        let name = name.as_ref();
        self.find_hashed(hash(name), name)
    }

    /// Returns whether there is a template `name`.
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    #[inline]
    pub(crate) fn find(&self, name: &Name) -> Option<&Arc<Template>> {
        self.find_hashed(name.hash(), name.key().as_bytes())
    }

    /// Returns the template `name`, given its hash.
    #[inline]
    fn find_hashed(&self, hash: u32, name: &[u8]) -> Option<&Arc<Template>> {
        let mut set = self;
        loop {
            let own = &set.0.own;
            if let Some(position) = own.find(hash, name) {
                return own.entry(position).map(|entry| &entry.value);
            }
            set = set.0.below.as_ref()?;
        }
    }

    /// Returns the functions.
    pub fn funcs(&self) -> &Arc<Funcs> {
        &self.0.funcs
    }

    pub(crate) fn missing(&self) -> MissingKey {
        self.0.missing_key
    }
}
