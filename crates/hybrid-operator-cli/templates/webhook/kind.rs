//! The webhooks of `{{kind}}`.

{{#if defaulting}}
use std::collections::BTreeMap;

{{/if}}
use hybrid_operator::webhook::{Denied, Request, Webhooks};
{{#if validation}}
use kube::ResourceExt;
{{/if}}

use crate::api::{{version}}::{{kind}};
{{#if defaulting}}

/// The application that the objects belong to, as a label.
const PART_OF: &str = "{{project_name}}";
{{/if}}

/// Adds the webhooks of the kind.
pub(super) fn add(webhooks: Webhooks) -> Webhooks {
    webhooks{{#if defaulting}}.mutate(complete){{/if}}{{#if validation}}.validate(check){{/if}}
}
{{#if defaulting}}

/// Fills in what an object leaves open, before it is validated and stored. Must give the same result
/// for an object that it has filled in before.
{{#if complete_wraps}}
async fn complete(
    mut object: {{kind}},
    _: Request<{{kind}}>,
) -> Result<{{kind}}, Denied> {
{{else}}
async fn complete(mut object: {{kind}}, _: Request<{{kind}}>) -> Result<{{kind}}, Denied> {
{{/if}}
    let labels: &mut BTreeMap<_, _> = object.metadata.labels.get_or_insert_default();
    let key = "app.kubernetes.io/part-of".to_owned();
    labels.entry(key).or_insert_with(|| PART_OF.to_owned());
    Ok(object)
}
{{/if}}
{{#if validation}}

/// Denies objects that cannot work. What the schema can check needs no code.
async fn check(request: Request<{{kind}}>) -> Result<(), Denied> {
    // Objects that are being deleted may always lose their finalizers.
    let object = request.object();
    if object.metadata.deletion_timestamp.is_none() && object.name_any().len() > 63 {
        let message = "must have at most 63 characters, because it is also the value of a label";
        return Err(Denied::invalid("metadata.name", message));
    }
    Ok(())
}
{{/if}}
