//! Adapts sets of fields to a type whose maps or lists became atomic since.

use crate::api_server::fields::path::{Path, PathElement};
use crate::api_server::fields::schema::{Form, Ref, Relationship, Schema};
use crate::api_server::fields::set::FieldSet;

/// Returns the set with fields of what is atomic now replaced by the whole.
pub(in crate::api_server::fields) fn reconcile(
    schema: &Schema,
    type_: &Ref,
    fields: &FieldSet,
) -> FieldSet {
    let mut walk = Walk {
        schema,
        path: Path::new(),
        atomic: FieldSet::default(),
    };
    walk.value(type_, Some(fields), false);
    if walk.atomic.is_empty() {
        return fields.clone();
    }
    fields.without_subtrees(&walk.atomic).union(&walk.atomic)
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    atomic: FieldSet,
}

impl Walk<'_> {
    /// Visits a node. `is_whole` is whether the set has the node itself and nothing below it.
    fn value(&mut self, type_: &Ref, fields: Option<&FieldSet>, is_whole: bool) {
        let form = self
            .schema
            .resolve(type_)
            .and_then(super::super::schema::Resolved::form);
        match form {
            None | Some(Form::Scalar(_)) => {}
            Some(Form::List(list, relationship)) => {
                if !is_whole && relationship == Relationship::Atomic {
                    self.atomic.insert(&self.path);
                } else if let Some(fields) = fields {
                    self.children(fields, |_| Some(&list.of));
                }
            }
            Some(Form::Map(map, _)) if map.is_of_anything() => {}
            Some(Form::Map(map, relationship)) => {
                let Some(fields) = fields else { return };
                if !is_whole && relationship == Relationship::Atomic {
                    if !fields.is_empty() {
                        self.atomic.insert(&self.path);
                    }
                } else {
                    self.children(fields, |element| match element {
                        PathElement::Field(name) => map.field_type(name),
                        _ => map.others.as_ref(),
                    });
                }
            }
        }
    }

    fn children<'t>(
        &mut self,
        fields: &FieldSet,
        type_of: impl Fn(&PathElement) -> Option<&'t Ref>,
    ) {
        for element in fields.elements() {
            let Some(type_) = type_of(element) else {
                continue;
            };
            let below = fields.child(element);
            self.path.push(element.clone());
            self.value(type_, below, below.is_none() && fields.has(element));
            self.path.pop();
        }
    }
}
