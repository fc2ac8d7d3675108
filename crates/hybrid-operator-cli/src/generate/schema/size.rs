//! Cuts a CRD that is too large: descriptions first, then what is deep.

use serde_json::{Map, Value, json};

/// Size of a CRD as JSON, in bytes. `kubectl apply` keeps a copy in an annotation, for which the API
/// server allows 256 KiB.
pub(crate) const LIMIT: usize = 240 * 1024;

/// Longest description after the first cut, in characters.
const SHORT: usize = 100;

/// Cuts schemas until the CRD is below `limit`, and returns what was cut.
pub(crate) fn cut(crd: &mut Value, limit: usize) -> Option<String> {
    if size(crd) <= limit {
        return None;
    }
    for_each_spec(crd, shorten);
    if size(crd) <= limit {
        return Some(format!("descriptions are cut to {SHORT} characters"));
    }
    for depth in [4, 3, 2, 1] {
        for_each_spec(crd, |spec| drop_descriptions(spec, depth));
        if size(crd) <= limit {
            return Some(format!("fields below level {depth} have no descriptions"));
        }
    }
    for depth in [8, 7, 6, 5, 4, 3, 2, 1] {
        for_each_spec(crd, |spec| open(spec, depth));
        if size(crd) <= limit {
            return Some(format!(
                "fields below level {depth} are neither described nor validated"
            ));
        }
    }
    Some("it is too large even with one level of fields".to_owned())
}

/// Returns the size as JSON.
pub(crate) fn size(crd: &Value) -> usize {
    crd.to_string().len()
}

fn for_each_spec(crd: &mut Value, mut change: impl FnMut(&mut Value)) {
    let versions = crd.pointer_mut("/spec/versions");
    for version in versions.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(spec) = version.pointer_mut("/schema/openAPIV3Schema/properties/spec") {
            change(spec);
        }
    }
}

/// Calls a function for each schema directly below one.
fn for_each_below(schema: &mut Map<String, Value>, mut call: impl FnMut(&mut Value)) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(&mut call);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name) {
            call(below);
        }
    }
}

fn shorten(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    if let Some(Value::String(text)) = schema.get_mut("description")
        && let Some((at, _)) = text.char_indices().nth(SHORT)
    {
        text.truncate(at);
        text.push_str(" ...");
    }
    for_each_below(schema, shorten);
}

fn drop_descriptions(schema: &mut Value, depth: usize) {
    let Value::Object(schema) = schema else {
        return;
    };
    for_each_below(schema, |below| {
        if depth == 0
            && let Value::Object(below) = below
        {
            below.remove("description");
        }
        drop_descriptions(below, depth.saturating_sub(1));
    });
}

fn open(schema: &mut Value, depth: usize) {
    let Value::Object(schema) = schema else {
        return;
    };
    for_each_below(schema, |below| {
        let nested = ["properties", "items", "additionalProperties"];
        if depth == 1 && nested.iter().any(|name| below.get(name).is_some()) {
            *below = json!({"nullable": true, "x-kubernetes-preserve-unknown-fields": true});
        } else {
            open(below, depth.saturating_sub(1));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd() -> Value {
        let leaf = json!({"type": "string", "description": "x".repeat(300)});
        let mut spec = json!({"type": "object", "properties": {"leaf": leaf}});
        for level in 0..6 {
            spec = json!({"type": "object", "description": format!("level {level}"),
                "properties": {"below": spec, "leaf": leaf}});
        }
        json!({"spec": {"versions": [
            {"schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}]}})
    }

    #[test]
    fn descriptions_are_cut_before_fields() {
        let whole = size(&crd());
        for (limit, wanted) in [
            (1800, "descriptions are cut to 100 characters"),
            (1300, "have no descriptions"),
            (700, "neither described nor validated"),
        ] {
            let mut crd = crd();
            let said = cut(&mut crd, limit).unwrap();
            assert!(said.contains(wanted), "{limit}: {said}, {}", size(&crd));
            assert!(size(&crd) <= limit, "{limit}: {}", size(&crd));
        }
        assert_eq!(cut(&mut crd(), whole), None);
        let said = cut(&mut crd(), 10).unwrap();
        assert!(said.starts_with("it is too large"), "{said}");
    }
}
