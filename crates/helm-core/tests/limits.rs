//! Limits on renders that would take too long or use too much memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use helm_core::capabilities::Capabilities;
use helm_core::chart::{Chart, File};
use helm_core::engine::{
    Cancel, CompiledChart, Lookup, LookupAnswer, LookupKey, MAX_LOOKUPS, ReleaseInfo, RenderError,
    RenderInput, Snapshot,
};
use helm_core::manifest::{MAX_OBJECTS, ManifestError, parse_objects};
use helm_core::values::{self, Coalesced, Values};

fn chart(template: &str) -> (CompiledChart, Coalesced) {
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
        File::new("templates/a.yaml", template),
    ])
    .unwrap();
    let compiled = CompiledChart::compile(&chart).unwrap();
    let values = compiled.coalesce(Values::new()).unwrap();
    (compiled, values)
}

fn input(values: &Coalesced) -> RenderInput<'_> {
    RenderInput::new(ReleaseInfo::new("r", "ns"), values)
}

/// Renders a template, whose lookups are recorded.
fn failure(template: &str) -> RenderError {
    let (compiled, values) = chart(template);
    let input = input(&values).lookup(Snapshot::default());
    compiled.render(&input).unwrap_err()
}

/// Answers every lookup and signals that the template reached it.
struct Signal(mpsc::SyncSender<()>);

impl Lookup for Signal {
    fn get(&self, _: &LookupKey) -> LookupAnswer {
        let _ = self.0.try_send(());
        LookupAnswer::Absent
    }
}

/// Loops that take minutes.
const ENDLESS: &[&str] = &[
    "{{ range until 10000000 }}{{ end }}",
    "{{ range until 10000 }}{{ range until 10000 }}{{ $x := . }}{{ end }}{{ end }}",
    "{{ range until 1000000 }}{{ $x := repeat 100000 \"x\" }}{{ end }}",
    "{{ range until 1000000 }}{{ $x := until 100000 }}{{ end }}",
    "{{ range until 1000000 }}{{ $x := derivePassword 1 \"long\" \"p\" \"u\" \"s\" }}{{ end }}",
    "{{ range until 1000000 }}{{ $x := bcrypt \"p\" }}{{ end }}",
    "{{ range until 50 }}{{ $x := genPrivateKey \"rsa\" }}{{ end }}",
    "{{ range until 50 }}{{ $x := genCA \"n\" 1 }}{{ end }}",
    "{{ $t := repeat 100000 \"ab\" }}{{ range until 1000000 }}{{ $x := regexMatch \"(a|b)*c\" $t }}{{ end }}",
    "{{ define \"t\" }}{{ range until 1000000 }}{{ $x := sha256sum \"x\" }}{{ end }}{{ end }}{{ $x := include \"t\" . }}",
];

#[test]
fn cancelled_render_stops_inside_every_kind_of_loop() {
    for body in ENDLESS {
        let (compiled, values) = chart(&format!(
            "{{{{ $x := lookup \"v1\" \"Secret\" \"ns\" \"a\" }}}}{body}"
        ));
        let (sender, begun) = mpsc::sync_channel(1);
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let mut input = input(&values).lookup(Signal(sender)).cancel(cancel.clone());
            // Only cancellation can end it.
            input.limits.time = None;
            input.limits.steps = u64::MAX;
            let render = scope.spawn(move || compiled.render(&input));
            begun.recv_timeout(Duration::from_mins(1)).unwrap();
            cancel.cancel();
            let error = render.join().unwrap().unwrap_err();
            assert!(matches!(error, RenderError::Cancelled), "{body}: {error}");
            assert_eq!(error.reason(), "Cancelled");
        });
    }
}

#[test]
fn cancelled_render_requests_no_lookups() {
    let (compiled, values) = chart("{{ lookup \"v1\" \"Secret\" \"ns\" \"a\" }}");
    let cancel = Cancel::new();
    cancel.cancel();
    let input = input(&values).lookup(Snapshot::default()).cancel(cancel);
    let error = compiled.render(&input).unwrap_err();
    assert!(matches!(error, RenderError::Cancelled), "{error}");
}

/// Cancels the render during the lookup, the last action of the templates.
struct CancelsLast(Cancel, AtomicBool);

impl Lookup for CancelsLast {
    fn get(&self, _: &LookupKey) -> LookupAnswer {
        self.0.cancel();
        self.1.store(true, Ordering::Relaxed);
        LookupAnswer::Absent
    }
}

#[test]
fn sorting_rendered_documents_can_be_cancelled() {
    let (compiled, values) =
        chart("kind: A\n---\nkind: B\n# {{ lookup \"v1\" \"A\" \"\" \"\" }}\n");
    let cancel = Cancel::new();
    let lookup = CancelsLast(cancel.clone(), AtomicBool::new(false));
    let input = input(&values).lookup(lookup).cancel(cancel);
    // The templates end before they check the handle again.
    assert!(compiled.render_files(&input).is_ok());
    let error = compiled.render(&input).unwrap_err();
    assert!(matches!(error, RenderError::Cancelled), "{error}");
}

#[test]
fn time_limit_error_names_the_template() {
    let (compiled, values) = chart(ENDLESS[1]);
    let mut input = input(&values);
    input.limits.time = Some(Duration::from_millis(1));
    let error = compiled.render(&input).unwrap_err();
    let RenderError::Execution { message, .. } = &error else {
        panic!("{error}")
    };
    assert!(message.contains("c/templates/a.yaml:1"), "{message}");
    let limit = "the templates take longer than 1ms (limit `time`)";
    assert!(message.contains(limit), "{message}");
}

#[test]
fn lookups_of_one_round_are_limited() {
    let exactly = format!(
        "{{{{ range until {MAX_LOOKUPS} }}}}{{{{ lookup \"v1\" \"Secret\" \"ns\" (print .) }}}}\
         {{{{ lookup \"v1\" \"Secret\" \"ns\" (print .) }}}}{{{{ end }}}}"
    );
    let RenderError::NeedsLookup(keys) = failure(&exactly) else {
        panic!()
    };
    assert_eq!(keys.len(), MAX_LOOKUPS);

    let (compiled, values) = chart(&exactly.replace("1000", "1001"));
    for error in [
        compiled.render(&input(&values).lookup(Snapshot::default())),
        // Lookups are recorded without a cluster as well.
        compiled.render(&input(&values)),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, RenderError::TooManyLookups), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("more than 1000 different objects"),
            "{message}"
        );
    }
}

#[test]
fn lookups_of_all_rounds_together_are_limited() {
    let (compiled, values) = chart(
        "{{ range until 400 }}{{ lookup \"v1\" \"Secret\" \"ns\" (randAlphaNum 20) }}{{ end }}",
    );
    let mut snapshot = Snapshot::default();
    let mut asked = 0;
    loop {
        let input = input(&values).lookup(snapshot.clone());
        match compiled.render(&input).unwrap_err() {
            RenderError::NeedsLookup(keys) => {
                asked += keys.len();
                assert!(asked <= MAX_LOOKUPS, "{asked}");
                for key in keys {
                    snapshot.insert(key, LookupAnswer::Absent);
                }
            }
            RenderError::TooManyLookups => break,
            error => panic!("{error}"),
        }
    }
    assert_eq!(asked, 800);
}

#[test]
fn long_lookup_keys_are_rejected() {
    let error = failure("{{ lookup `v1` `Secret` `ns` (repeat 100000 `x`) }}").to_string();
    let wanted = "cannot look up a name of 100010 bytes";
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn number_of_objects_in_a_manifest_is_limited() {
    let head = "{apiVersion: v1, kind: List, items: [";
    let item = "{apiVersion: v1, kind: Secret, metadata: {name: a}},";
    let list = |count| format!("{head}{}]}}", item.repeat(count));
    let most = parse_objects(&list(MAX_OBJECTS)).unwrap();
    assert_eq!(most.len(), MAX_OBJECTS);
    let error = parse_objects(&list(MAX_OBJECTS + 1)).unwrap_err();
    assert!(matches!(error, ManifestError::TooMany), "{error}");

    let template =
        |count: usize| format!("{{{{ range until {count} }}}}---\nkind: A\n{{{{ end }}}}");
    let (compiled, values) = chart(&template(MAX_OBJECTS));
    assert!(compiled.render(&input(&values)).is_ok());
    let error = failure(&template(MAX_OBJECTS + 1));
    let is_limit = matches!(error, RenderError::Object(ManifestError::TooMany));
    assert!(is_limit, "{error}");
    let message = error.to_string();
    assert!(message.contains("more than 100000 objects"), "{message}");
}

#[test]
fn weak_secrets_are_used_like_strong_ones() {
    let (compiled, values) = chart(
        r#"{{- $ca := genCA "ca" 1 }}
{{- $signed := genSignedCert "a" (list "127.0.0.1") (list "a.b") 1 $ca }}
{{- $own := genSelfSignedCert "a" list list 1 }}
{{- $custom := buildCustomCert (b64enc $ca.Cert) (b64enc $ca.Key) }}
{{- $again := genSignedCertWithKey "b" list list 1 $custom (genPrivateKey "rsa") }}
kind: Secret
keys:
{{- range list $ca.Key $signed.Key $own.Key $again.Key (genPrivateKey "rsa") (genPrivateKey "dsa") }}
- {{ . | splitList "\n" | first | quote }}
{{- end }}
certificates:
{{- range list $ca.Cert $signed.Cert $own.Cert $again.Cert }}
- {{ . | splitList "\n" | first | quote }}
{{- end }}
password: {{ htpasswd "u" "p" }} {{ bcrypt "p" }}
derived: {{ derivePassword 1 "long" "p" "u" "s" }}
"#,
    );
    let render = |weak| {
        let mut input = input(&values);
        input.weak_secrets = weak;
        compiled.render(&input).unwrap().manifest().to_owned()
    };
    let weak = render(true);
    assert_eq!(weak.matches("BEGIN EC PRIVATE KEY").count(), 6, "{weak}");
    assert_eq!(weak.matches("BEGIN CERTIFICATE").count(), 4, "{weak}");
    assert_eq!(weak.matches("$2a$04$").count(), 2, "{weak}");
    let (compiled, values) =
        chart("kind: {{ cat (bcrypt \"p\") (genPrivateKey \"rsa\") | quote }}");
    let rendered = compiled.render(&input(&values)).unwrap();
    let strong = rendered.manifest();
    for part in ["$2a$10$", "BEGIN RSA"] {
        assert!(strong.contains(part), "{strong}");
    }
}

/// Accepts only types that can be moved to another thread.
fn movable<T: Send + 'static>() {}

/// Inputs of a render can be moved to another thread without much copying.
#[test]
fn render_inputs_can_be_moved_to_another_thread() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<CompiledChart>();
    shared::<Coalesced>();
    shared::<Capabilities>();
    shared::<Snapshot>();
    shared::<ReleaseInfo>();
    shared::<Cancel>();
    movable::<Result<helm_core::Rendered, RenderError>>();
}

/// Refuses lookups during a call of `tpl`.
struct RefusesTexts;

impl Lookup for RefusesTexts {
    fn get(&self, _: &LookupKey) -> LookupAnswer {
        LookupAnswer::Found("seen".into())
    }

    fn get_in_tpl(&self, _: &LookupKey) -> LookupAnswer {
        LookupAnswer::Failed("refused".to_owned())
    }
}

#[test]
fn lookups_of_a_text_given_to_tpl_are_told_from_those_of_the_chart() {
    let quoted = r#"{{ lookup \"v1\" \"Secret\" \"ns\" \"a\" }}"#;
    let of_chart = r"
the chart: LOOKUP
an included template: DEFINE{{ include `x` . }}
after tpl: {{ tpl `{{ 1 }}` . }}LOOKUP
the arguments of tpl: {{ tpl (lookup `v1` `Secret` `ns` `a`) . }}
";
    let of_texts = r#"
tpl: {{ tpl "QUOTED" . }}
a template included by tpl: DEFINE{{ tpl `{{ include "x" . }}` . }}
a template called by tpl: DEFINE{{ tpl `{{ template "x" . }}` . }}
a template defined by tpl: {{ tpl "{{ define `y` }}QUOTED{{ end }}{{ include `y` . }}" . }}
tpl within tpl: DEFINE{{ tpl `{{ tpl "{{ include \"x\" . }}" . }}` . }}
after a tpl within tpl: DEFINE{{ tpl `{{ tpl "{{ 1 }}" . }}{{ include "x" . }}` . }}
"#;
    for (cases, refused) in [(of_chart, false), (of_texts, true)] {
        for case in cases.trim().lines() {
            let (what, template) = case.split_once(": ").unwrap();
            let template = template
                .replace("DEFINE", "{{ define \"x\" }}LOOKUP{{ end }}")
                .replace("LOOKUP", "{{ lookup `v1` `Secret` `ns` `a` }}")
                .replace("QUOTED", quoted);
            let (compiled, values) = chart(&template);
            let result = compiled.render_files(&input(&values).lookup(RefusesTexts));
            assert_eq!(result.is_err(), refused, "{what}: {template}");
            if let Err(error) = result {
                assert!(error.to_string().contains("refused"), "{what}: {error}");
            }
        }
    }
}

/// Here these limits are lower than Helm's 10,000.
#[test]
fn values_and_manifests_nest_a_thousand_levels_and_flags_with_json_127() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (levels, fits) in [(998, true), (1_001, false)] {
        let text = format!("a: {}", nested(levels));
        let read = values::read(text.as_bytes());
        assert_eq!(read.is_ok(), fits, "{levels}");
        let (compiled, values) = chart(&text);
        let rendered = compiled.render(&input(&values));
        assert_eq!(rendered.is_ok(), fits, "{levels}");
    }
    for (levels, fits) in [(127, true), (128, false)] {
        let flag = format!("a={}", nested(levels));
        let read = values::set_json(&flag, &mut Values::new());
        assert_eq!(read.is_ok(), fits, "{levels}");
    }
}
