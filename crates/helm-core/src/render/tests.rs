use super::*;
use crate::chart::File;
use crate::rows::rows;

fn rendered(files: &[(&str, impl AsRef<[u8]>)]) -> Result<Rendered, RenderError> {
    let metadata = "apiVersion: v2\nname: c\nversion: 0.1.0\n";
    let chart = Chart::from_files([File::new("Chart.yaml", metadata)]).unwrap();
    let files = files.iter();
    let files = files.map(|(path, text)| ((*path).to_owned(), text.as_ref().to_vec()));
    let output = Output {
        files: files.collect(),
        ..Output::default()
    };
    Rendered::assemble(output, &chart, false, &Limits::default(), &Stop::default())
}

/// Renders one file.
fn rendered_text(text: impl AsRef<[u8]>) -> Result<Rendered, RenderError> {
    rendered(&[("c/templates/x.yaml", text)])
}

#[test]
fn documents_are_sorted_by_kind_and_keep_their_white_space() {
    let several = "kind: Service\n\n---\n# only a comment\n---\nkind: Secret\n";
    let rendered = rendered(&[
        ("c/templates/b.yaml", several),
        ("c/templates/a.yaml", "\n\nkind: Zebra"),
        ("c/templates/empty.yaml", " \n"),
    ])
    .unwrap();
    assert_eq!(
        rendered.manifest(),
        "---\n# Source: c/templates/b.yaml\nkind: Secret\n\n\
             ---\n# Source: c/templates/b.yaml\nkind: Service\n\n\n\
             ---\n# Source: c/templates/b.yaml\n# only a comment\n\n\
             ---\n# Source: c/templates/a.yaml\nkind: Zebra\n"
    );
}

#[test]
fn hooks_are_extracted_with_their_annotations() {
    let hook = "kind: Job\nmetadata:\n  name: 7\n  annotations:\n    helm.sh/hook: Pre-Install, \
                    test-success\n    helm.sh/hook-weight: -5\n    \
                    helm.sh/hook-delete-policy: hook-succeeded,x\n";
    let unknown = "kind: Job\nmetadata:\n  annotations:\n    helm.sh/hook: crd-install\n";
    let rendered = rendered(&[
        ("c/templates/h.yaml", hook),
        ("c/templates/u.yaml", unknown),
        ("c/templates/v.yaml", "kind: Zebra\n...\nkind: Job\n"),
    ]);
    let rendered = rendered.unwrap();
    assert!(!rendered.manifest().contains("\nkind: Job\nmetadata"));
    let dropped = |template: &str, cause| Dropped {
        template: format!("c/templates/{template}.yaml"),
        kind: "Job".to_owned(),
        cause,
    };
    let unknown = DropCause::UnknownEvent("crd-install".to_owned());
    assert_eq!(
        rendered.dropped(),
        [dropped("u", unknown), dropped("v", DropCause::AfterEnd)]
    );
    let [found] = rendered.hooks() else {
        panic!("{:?}", rendered.hooks())
    };
    assert_eq!((found.name.as_str(), found.weight), ("7", -5));
    assert_eq!(found.events, [HookEvent::PreInstall, HookEvent::Test]);
    let other = DeletePolicy::Other("x".to_owned());
    assert_eq!(found.delete_policies, [DeletePolicy::HookSucceeded, other]);
    assert_eq!(found.manifest, hook);
}

// The answers of Helm 4.3.1.
#[test]
fn scalars_of_a_head_are_texts_as_in_go() {
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 20240101.1, \
                    annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: WEIGHT}}\n";
    for (weight, expected) in [("1e3", 1000), ("1e6", 0), ("5.0", 5), (".inf", 0)] {
        let text = hook.replace("WEIGHT", weight);
        let rendered = rendered_text(&text).unwrap();
        let [found] = rendered.hooks() else {
            panic!("{:?}", rendered.hooks())
        };
        assert_eq!(found.name.as_str(), "2.0240102e+07");
        assert_eq!(found.weight, expected);
    }
    for text in [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: .inf}\n",
        "apiVersion: .nan\nkind: -.Inf\nmetadata: {name: a, annotations: {a: .inf}}\n",
        "apiVersion: v1\nkind: A\nmetadata: {name: &x .inf, annotations: {a: *x}}\n",
    ] {
        let rendered = rendered_text(text).unwrap();
        let manifest = rendered.manifest();
        assert!(manifest.ends_with(&format!("{text}\n")), "{text}");
        // It cannot be sent as JSON.
        let error = rendered.objects().unwrap_err().to_string();
        assert!(error.contains("document 1 (c/templates/x.yaml)"), "{error}");
    }
    for body in [
        "metadata: {name: a}\ndata: {x: .inf}",
        "metadata: {name: a, labels: {x: .nan}}",
        "metadata: {name: &x .inf}\nother: *x",
    ] {
        let text = format!("apiVersion: v1\nkind: ConfigMap\n{body}\n");
        let error = rendered_text(&text).unwrap_err();
        assert!(error.to_string().contains("unsupported value"), "{error}");
    }
    let unknown = hook.replace("pre-install", ".inf");
    let rendered = rendered_text(&unknown).unwrap();
    assert_eq!(rendered.dropped().len(), 1);
}

#[test]
fn notes_are_the_charts_own() {
    let rendered = rendered(&[
        ("c/templates/NOTES.txt", "hello"),
        ("c/charts/d/templates/NOTES.txt", "not me"),
    ]);
    assert_eq!(rendered.unwrap().notes(), "hello");
}

#[test]
fn memory_of_objects_is_limited_while_they_are_read() {
    let object = |data: &str| {
        let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n";
        rendered_text(format!("{head}{data}")).unwrap()
    };
    let within = |rendered: &Rendered, memory| {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        rendered.objects_within(&limits)
    };
    let (objects, bytes) = within(&object("  a: b\n"), 1 << 20).unwrap();
    assert_eq!(objects.len(), 1);
    assert!((500..4000).contains(&bytes), "{bytes}");
    // Small texts that become large objects.
    let list = format!("  l: [{}]\n", "1,".repeat(50_000));
    let map: Vec<String> = (0..5000).map(|n| format!("  k{n}: v\n")).collect();
    let anchor = format!("  a: &a {}\n", "x".repeat(1000));
    let aliases = format!("{anchor}  b: [{}]\n", "*a,".repeat(2000));
    for data in [list, map.concat(), aliases] {
        let rendered = object(&data);
        let (_, bytes) = within(&rendered, 256 << 20).unwrap();
        assert!(bytes > 5 * data.len(), "{bytes} {}", data.len());
        let error = within(&rendered, bytes / 2).unwrap_err();
        assert!(
            matches!(error.limit(), Some(BudgetError::Memory { limit }) if *limit == bytes / 2),
            "{error}"
        );
    }
}

#[test]
fn yaml_errors_name_template_document_and_line() {
    let text = "\n# One.\na: 1\n---\n---\n\n# Two.\nb: 2\nc: d: e\n";
    let error = rendered_text(text).unwrap_err();
    let message = error.to_string();
    let place = "line 9, column 5 of what";
    for part in ["c/templates/x.yaml", place, "its document 2"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    let error = rendered_text(b"a: 1\n---\nb: \xff\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 3, column 4 of what"), "{error}");
}

#[test]
fn incomplete_objects_are_errors_that_name_template_document_and_line() {
    let good = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n\n";
    let hook = "annotations: {helm.sh/hook: test}";
    for [document, wanted] in rows(
        r"
        apiVersion: v1\nkind: Secret                   | Secret has no metadata.name
        kind: Pod                                      | Pod has no apiVersion
        apiVersion: v1                                 | the object has no kind
        apiVersion: v1\nkind: Pod\nmetadata: {HOOK}    | Pod has no metadata.name
        apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret}]         | Secret has no metadata.name
        apiVersion: v1\nkind: SecretList\nmetadata: {HOOK}\nitems: [{metadata: {}}] | Secret has no metadata.name
        apiVersion: v1\nkind: List\nitems: [{metadata: {name: a}}]                  | List has no apiVersion
        ",
    ) {
        let text = format!(
            "{good}{}",
            document.replace("HOOK", hook).replace(r"\n", "\n")
        );
        let rendered = rendered_text(&text).unwrap();
        let message = rendered.objects().unwrap_err().to_string();
        let place = "document 2 that c/templates/x.yaml";
        for part in [place, "line 6 of its output", wanted] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
    let deployment = "annotations: {helm.sh/hook: post-upgrade}";
    for [document, problem] in rows(
        r"
        List\nitems: [null]                                     | item 1 of the List is not an object
        List\nitems: [{apiVersion: v1, kind: List, items: []}]  | item 1 of the List is a list, too
        SecretList\nmetadata: {annotations: {a: b}}\nitems: [{metadata: {name: a}}] | the SecretList has the unknown field metadata.annotations
        SecretList\nmetadata: {DEPLOYMENT}\nitems: [{metadata: {name: a}}]          | the SecretList has the unknown field metadata.annotations
        List\nmetadata: {DEPLOYMENT}\nitems: [null]             | item 1 of the List is not an object
        // It fails when it is to run.
        SecretList\nmetadata: {HOOK}\nitems: [{metadata: {name: a}}] |
        ",
    ) {
        let document = document.replace("HOOK", hook);
        let document = document
            .replace("DEPLOYMENT", deployment)
            .replace(r"\n", "\n");
        let text = format!("{good}apiVersion: v1\nkind: {document}");
        let rendered = rendered_text(&text).unwrap();
        let error = rendered.objects().err().map(|error| error.to_string());
        let wanted = (!problem.is_empty()).then(|| {
            format!("document 2 that c/templates/x.yaml renders, at line 6 of its output, cannot be created: {problem}")
        });
        assert_eq!(error, wanted, "{document}");
    }
    for named in [
        "Pod\nmetadata: {generateName: a-}",
        "Pod\nmetadata: {generateName: a-, HOOK}",
        "Pod\nmetadata: {name: b, HOOK}",
        "List\nmetadata: {HOOK}\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: b}}]",
        "PodList\nmetadata: {HOOK}\nitems: [{metadata: {name: b}}]",
    ] {
        let named = named.replace("HOOK", hook);
        let text = format!("{good}apiVersion: v1\nkind: {named}");
        let rendered = rendered_text(&text).unwrap();
        assert!(rendered.objects().is_ok(), "{named}");
    }
}

#[test]
fn malformed_documents_are_errors_that_name_the_template() {
    for (text, column) in [
        ("a: b: c", 5),
        ("- a", 1),
        ("text", 1),
        ("metadata: x", 11),
        ("kind: {}", 7),
        ("metadata: {name: []}", 18),
        ("metadata: {annotations: {a: b, c: [1]}}", 35),
    ] {
        let text = format!("a: 1\n---\n# one\n{text}\n");
        let error = rendered_text(&text).unwrap_err();
        let message = error.to_string();
        let start = "YAML parse error on c/templates/x.yaml: ";
        assert!(message.starts_with(start), "{message}");
        let place = format!("(line 4, column {column} of what");
        assert!(message.contains(&place), "{message}");
        let line = format!("  4 | {}\n", text.lines().last().unwrap());
        assert!(error.excerpt().starts_with(&line), "{}", error.excerpt());
    }
    assert!(rendered_text("Kind: 3\nmetadata: null").is_ok());
}
