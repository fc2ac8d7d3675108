//! Converts `{{kind}}` between `{{version}}`, the hub of its conversions, and `{{spoke}}`.
//!
//! What only one of them can express must survive the way there and back: keep it in an annotation,
//! for example. One object that cannot be converted makes lists of the kind fail.

use hybrid_operator::webhook::Webhooks;

use crate::api::{ {{~imports~}} };

/// Adds the conversion.
pub(super) fn add(webhooks: Webhooks) -> Webhooks {
    webhooks.convert::<{{version}}::{{kind}}, {{spoke}}::{{kind}}>()
}

impl From<{{spoke}}::{{kind}}> for {{version}}::{{kind}} {
    fn from(object: {{spoke}}::{{kind}}) -> Self {
        // All fields are named, so that the compiler finds those that are added later.
        let {{spoke}}::{{kind}}Spec { size } = object.spec;
        Self {
            metadata: object.metadata,
            spec: {{version}}::{{kind}}Spec { size },
            status: object.status.map(Into::into),
        }
    }
}

impl From<{{version}}::{{kind}}> for {{spoke}}::{{kind}} {
    fn from(object: {{version}}::{{kind}}) -> Self {
        let {{version}}::{{kind}}Spec { size } = object.spec;
        Self {
            metadata: object.metadata,
            spec: {{spoke}}::{{kind}}Spec { size },
            status: object.status.map(Into::into),
        }
    }
}

impl From<{{spoke}}::{{kind}}Status> for {{version}}::{{kind}}Status {
    fn from(status: {{spoke}}::{{kind}}Status) -> Self {
        let {{spoke}}::{{kind}}Status {
            ready_pods,
            observed_generation,
            conditions,
        } = status;
        Self {
            ready_pods,
            observed_generation,
            conditions,
        }
    }
}

impl From<{{version}}::{{kind}}Status> for {{spoke}}::{{kind}}Status {
    fn from(status: {{version}}::{{kind}}Status) -> Self {
        let {{version}}::{{kind}}Status {
            ready_pods,
            observed_generation,
            conditions,
        } = status;
        Self {
            ready_pods,
            observed_generation,
            conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{ {{~imports~}} };

    #[test]
    fn nothing_is_lost_on_the_way_there_and_back() {
        let spec = {{version}}::{{kind}}Spec { size: 2 };
        let mut object = {{version}}::{{kind}}::new("sample", spec);
        object.status = Some({{version}}::{{kind}}Status {
            ready_pods: 1,
            observed_generation: Some(3),
            conditions: Vec::new(),
        });
        let there = {{spoke}}::{{kind}}::from(object.clone());
        let back = {{version}}::{{kind}}::from(there);
        assert_eq!((back.spec, back.status), (object.spec, object.status));
    }
}
