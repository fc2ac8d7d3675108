//! The subschemas that references may lead to.
//!
//! The library that checks values resolves a reference against the innermost `$id` around it that the dialect of its
//! document honours. Here it is resolved against each `$id` around it, so that the result contains what the library
//! finds, in whatever dialect.

use std::collections::HashMap;
use std::rc::Rc;

use bounded::{Budget, BudgetError};
use serde_json::{Map, Value};
use url::Url;

use super::documents::Document;
use super::violation::unescaped;

/// Limit on the URLs against which a reference is resolved.
const MAX_BASES: usize = 64;

/// Error in the references of a schema.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReferenceError {
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error("more than {MAX_BASES} $id apply to one subschema")]
    Bases,
}

/// The identifiers around a subschema with what they identify, the outermost first.
#[derive(Clone)]
pub(super) struct Scope<'d>(Rc<[(Url, &'d Value)]>);

/// A subschema that a reference may lead to.
#[derive(Clone)]
pub(super) struct Target<'d> {
    pub(super) schema: &'d Value,
    /// The scope around it, without its own identifiers.
    pub(super) scope: Scope<'d>,
}

impl<'d> Scope<'d> {
    /// Returns the scope at the top of a document.
    pub(super) fn of_document(document: &'d Document) -> Self {
        Self(Rc::new([(document.url.clone(), &document.value)]))
    }

    /// Returns the scope within a subschema.
    pub(super) fn within(&self, schema: &'d Value) -> Result<Self, ReferenceError> {
        let Some(fields) = schema.as_object() else {
            return Ok(self.clone());
        };
        let mut new: Vec<(Url, &'d Value)> = Vec::new();
        for id in ids(fields) {
            for (base, _) in self.0.iter() {
                let Ok(mut url) = base.join(id) else { continue };
                url.set_fragment(None);
                let is_known =
                    |(known, of): &(Url, &'d Value)| *known == url && std::ptr::eq(*of, schema);
                if !self.0.iter().chain(&new).any(is_known) {
                    new.push((url, schema));
                }
            }
        }
        if new.is_empty() {
            return Ok(self.clone());
        }
        if self.0.len() + new.len() > MAX_BASES {
            return Err(ReferenceError::Bases);
        }
        Ok(Self(self.0.iter().cloned().chain(new).collect()))
    }

    /// Returns each identified subschema around.
    fn around(&self) -> impl Iterator<Item = Target<'d>> + '_ {
        self.0.iter().map(|(_, schema)| {
            let outer = self
                .0
                .iter()
                .take_while(|(_, of)| !std::ptr::eq(*of, *schema));
            // The URL of the document is outside of its own identifiers.
            let outer = outer.count().max(1);
            Target {
                schema,
                scope: Self(self.0.iter().take(outer).cloned().collect()),
            }
        })
    }
}

/// Returns the identifiers of a subschema that name a document, and not only an anchor.
fn ids(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    ["$id", "id"]
        .into_iter()
        .filter_map(|keyword| fields.get(keyword)?.as_str())
        .filter(|id| !id.is_empty() && !id.starts_with('#'))
}

/// All subschemas of some documents that references can name.
pub(super) struct Names<'d> {
    documents: HashMap<Url, Vec<Target<'d>>>,
    anchors: HashMap<&'d str, Vec<Target<'d>>>,
    /// The subschemas with `$recursiveAnchor`.
    recursive: Vec<Target<'d>>,
}

impl<'d> Names<'d> {
    pub(super) fn of(documents: &'d [Document], budget: &Budget) -> Result<Self, ReferenceError> {
        let mut names = Self {
            documents: HashMap::new(),
            anchors: HashMap::new(),
            recursive: Vec::new(),
        };
        for document in documents {
            let scope = Scope::of_document(document);
            let target = Target {
                schema: &document.value,
                scope: scope.clone(),
            };
            let known = names.documents.entry(document.url.clone());
            known.or_default().push(target);
            names.collect(&document.value, &scope, budget)?;
        }
        Ok(names)
    }

    fn collect(
        &mut self,
        schema: &'d Value,
        outer: &Scope<'d>,
        budget: &Budget,
    ) -> Result<(), ReferenceError> {
        match schema {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| budget.descend(|| self.collect(item, outer, budget))),
            Value::Object(fields) => {
                let scope = outer.within(schema)?;
                let target = || Target {
                    schema,
                    scope: outer.clone(),
                };
                for (url, _) in scope.0.iter().skip(outer.0.len()) {
                    let known = self.documents.entry(url.clone());
                    known.or_default().push(target());
                }
                for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                    let text = fields.get(keyword).and_then(Value::as_str);
                    let name = match (keyword, text) {
                        ("$id" | "id", Some(id)) => id.split_once('#').map(|(_, name)| name),
                        (_, name) => name,
                    };
                    if let Some(name) = name.filter(|name| !name.is_empty()) {
                        self.anchors.entry(name).or_default().push(target());
                    }
                }
                if fields.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
                    self.recursive.push(target());
                }
                let mut below = fields.values();
                below.try_for_each(|value| budget.descend(|| self.collect(value, &scope, budget)))
            }
            _ => Ok(()),
        }
    }

    /// Returns what a reference in a scope may lead to. There is nothing for what is no part of the documents:
    /// the schemas of dialects, and URNs, for which everything is valid.
    pub(super) fn resolve(
        &self,
        keyword: &str,
        reference: &Value,
        scope: &Scope<'d>,
    ) -> Result<Vec<Target<'d>>, ReferenceError> {
        let reference = reference.as_str().unwrap_or_default();
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = unescaped(fragment);
        let mut targets = Vec::new();
        if keyword == "$recursiveRef" {
            targets.extend_from_slice(&self.recursive);
        }
        if !fragment.is_empty() && !fragment.starts_with('/') {
            // An anchor counts wherever it is: a dynamic one may be that of any document.
            let named = self.anchors.get(fragment.as_str());
            targets.extend(named.into_iter().flatten().cloned());
            return Ok(targets);
        }
        let mut documents = Vec::new();
        if document.is_empty() {
            documents.extend(scope.around());
        } else {
            for (base, _) in scope.0.iter() {
                let url = base.join(document).ok();
                let named = url.and_then(|url| self.documents.get(&url));
                documents.extend(named.into_iter().flatten().cloned());
            }
        }
        for target in documents {
            targets.extend(target.below(&fragment)?);
        }
        Ok(targets)
    }
}

impl Target<'_> {
    /// Returns what is at a JSON pointer.
    fn below(self, pointer: &str) -> Result<Option<Self>, ReferenceError> {
        let Self {
            mut schema,
            mut scope,
        } = self;
        for step in super::violation::steps(pointer) {
            scope = scope.within(schema)?;
            let found = match schema {
                Value::Object(fields) => fields.get(&step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
                _ => None,
            };
            let Some(found) = found else { return Ok(None) };
            schema = found;
        }
        Ok(Some(Self { schema, scope }))
    }
}
