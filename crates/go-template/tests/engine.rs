//! Templates that execute templates: host functions, nested sets, errors, budgets, threads.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unnecessary_wraps,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and functions have one signature"
)]

use std::sync::Arc;

use go_template::{
    Args, BudgetError, Buffer, Call, Func, FuncError, Funcs, Limits, List, Map, MissingKey,
    RenderError, Session, TemplateSet, Type, Value,
};

fn include(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let name = args.str(0).clone();
    call.execute(&name, args.get(1), out)
}

fn tpl(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let text = args.str(0).clone();
    let (set, template) = call.parse(&"gotpl".into(), &text)?;
    call.execute_in(&set, &template, args.get(1), out)
        .map_err(|error| error.context(format!("error during tpl function execution for {text:?}")))
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0} is needed")]
struct Needed(String);

fn lookup(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let known = call.host_mut::<Vec<String>>().unwrap();
    let name = args.str(0).to_string();
    if known.contains(&name) {
        return Ok(Value::from("found"));
    }
    known.push(name.clone());
    Err(FuncError::host(Needed(name)))
}

fn dict(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let pairs = args.rest(0).chunks(2);
    let pairs = pairs.map(|pair| (pair[0].as_str().unwrap().clone(), pair[1].clone()));
    Ok(Value::Map(pairs.collect()))
}

fn set(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    args.map(0)
        .unwrap()
        .insert(args.str(1).clone(), args.get(2).clone());
    Ok(args.take(0))
}

fn double(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(Value::list(vec![args.get(0).clone(), args.take(0)]))
}

static FUNCS: &[Func] = &[
    Func::text("include", &[Type::STRING, Type::ANY], include),
    Func::text("tpl", &[Type::STRING, Type::ANY], tpl),
    Func::value("lookup", &[Type::STRING], lookup),
    Func::value("dict", &[], dict).variadic(Type::ANY),
    Func::value("set", &[Type::MAP, Type::STRING, Type::ANY], set),
    Func::value("double", &[Type::ANY], double),
];

fn set_of(files: &[(&str, &str)]) -> TemplateSet {
    let mut set = TemplateSet::new("gotpl", Funcs::new().with(FUNCS).into());
    for (name, text) in files {
        set.parse(*name, *text).unwrap();
    }
    set
}

fn render_with(set: &TemplateSet, limits: Limits) -> Result<String, RenderError> {
    let data: Map = [
        ("s", Value::from("str")),
        ("l", Value::List(List::strings(["a", "b"]))),
    ]
    .into_iter()
    .collect();
    execute(set, limits, &Value::Map(data))
}

fn execute(set: &TemplateSet, limits: Limits, data: &Value) -> Result<String, RenderError> {
    let mut out = Buffer::new();
    let mut session = Session::new(limits).with_host(Vec::<String>::new());
    session.execute(set, "main", data, &mut out)?;
    Ok(String::from_utf8(out.into_vec()).unwrap())
}

fn render(text: &str) -> Result<String, RenderError> {
    render_with(&set_of(&[("main", text)]), Limits::default())
}

#[test]
fn sets_and_compiled_templates_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<TemplateSet>();
    shared::<Funcs>();
    shared::<RenderError>();
    let set = set_of(&[("main", "{{ range .l }}{{ . }}{{ end }}")]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(render_with(&set, Limits::default()).unwrap(), "ab"));
        }
    });
}

#[test]
fn include_and_tpl_use_the_templates_of_their_set() {
    let text = r#"{{ define "t" }}<{{ .s }}>{{ end -}}
{{ include "t" . }}{{ include "t" . | print "x" }}
{{- tpl "{{ define `u` }}[{{ . }}]{{ end }}{{ include `u` .s }}{{ include `t` . }}" . }}
{{- tpl "{{ define `t` }}new{{ end }}{{ include `t` . }}{{ template `t` }}" . }}{{ include "t" . }}"#;
    assert_eq!(render(text).unwrap(), "<str>x<str>[str]<str>newnew<str>");
    assert!(render("{{ tpl `{{ define \"u\" }}{{ end }}` . }}{{ include `u` . }}").is_err());
}

#[test]
fn called_template_does_not_see_variables_of_the_caller() {
    let text = r#"{{ define "t" }}{{ $x := 2 }}{{ $ }}{{ . }}{{ end }}{{ $x := 1 -}}
{{ include "t" 5 }}{{ $x }}{{ include "t" nil }}"#;
    assert_eq!(render(text).unwrap(), "551<no value><no value>");
}

#[test]
fn error_names_every_template_between_the_file_and_the_failure() {
    let set = set_of(&[
        ("helpers", "\n{{ define \"t\" }}\n\t{{ .s.nope }}{{ end }}"),
        ("main", "first\n  {{ tpl \"{{ include `t` . }}\" . }}"),
    ]);
    let error = render_with(&set, Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "template: main:2:5: executing \"main\" at <tpl \"{{ include `t` . }}\" .>: \
         error calling tpl: error during tpl function execution for \"{{ include `t` . }}\": \
         template: gotpl:1:3: executing \"gotpl\" at <include `t` .>: error calling include: \
         template: helpers:3:6: executing \"t\" at <.s.nope>: \
         can't evaluate field nope in type interface {}"
    );
    let message = "can't evaluate field nope in type interface {}";
    assert_eq!(error.message(), message);
    let frames = error.frames().into_iter();
    let places: Vec<_> = frames
        .map(|frame| (frame.template, frame.location.unwrap().line))
        .collect();
    let wanted = [("main", 2), ("gotpl", 1), ("t", 3)];
    assert_eq!(
        places,
        wanted.map(|(template, line)| (template.to_owned(), line))
    );
    insta::assert_snapshot!(error.report(), @r#"
    can't evaluate field nope in type interface {}
      in t at helpers:3:6: .s.nope
      3 | 	{{ .s.nope }}{{ end }}
        | 	     ^
      called from gotpl at gotpl:1:3: include `t` .
      called from main at main:2:5: tpl "{{ include `t` . }}" .
    "#);
}

#[test]
fn parse_error_has_a_line() {
    let mut set = set_of(&[]);
    let error = set.parse("main", "a\n{{ if .x }}\n{{ nope }}").unwrap_err();
    insta::assert_snapshot!(error.report(), @r#"
    function "nope" not defined
      at main:3:3
      3 | {{ nope }}
        |    ^
    "#);
    let error = render("{{ tpl \"{{ if }}\" . }}").unwrap_err().to_string();
    assert!(error.ends_with("error calling tpl: template: gotpl:1: missing value for if"));
}

#[test]
fn missing_template_is_named() {
    let error = render("{{ include `nope` . }}").unwrap_err();
    let wanted = "error calling include: template: no template \"nope\" associated with template \
                  \"gotpl\"";
    assert!(error.to_string().ends_with(wanted));
}

#[test]
fn host_error_is_returned_unchanged() {
    let error = render("{{ tpl `{{ lookup \"secret\" }}` . }}").unwrap_err();
    assert_eq!(error.host::<Needed>(), Some(&Needed("secret".to_owned())));
    assert!(error.host::<std::io::Error>().is_none());
}

#[test]
fn strict_sets_reject_missing_keys() {
    let strict = set_of(&[("main", "{{ .nope }}")]).missing_key(MissingKey::Error);
    let error = render_with(&strict, Limits::default()).unwrap_err();
    assert_eq!(error.message(), "map has no entry for key \"nope\"");
}

#[test]
fn arguments_are_checked_against_go_types() {
    let cases = "
include 1 .       | expected string; found 1
include .l .      | wrong type for value; expected string; got []string
include .nope .   | wrong type for value; expected string; got interface {}
include (.nope) . | invalid value; expected string
include nil .     | cannot assign nil to string
include `x`       | wrong number of args for include: want 2 got 1
set .l `a` 1      | wrong type for value; expected map[string]interface {}; got []string";
    for case in cases.trim_start().lines() {
        let (call, message) = case.split_once(" | ").unwrap();
        let error = render(&format!("{{{{ {call} }}}}")).unwrap_err();
        assert_eq!(error.message(), message, "{case}");
    }
}

fn limited(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

fn over(text: &str, limits: Limits) -> BudgetError {
    let error = render_with(&set_of(&[("main", text)]), limits).unwrap_err();
    error
        .budget()
        .unwrap_or_else(|| panic!("no budget error: {error}"))
        .clone()
}

#[test]
fn endless_recursion_is_stopped() {
    let limit = Limits::default().depth;
    let depth = BudgetError::Depth { limit };
    for text in [
        "{{ define `t` }}{{ template `t` }}{{ end }}{{ template `t` }}",
        "{{ define `t` }}{{ include `t` . }}{{ end }}{{ include `t` . }}",
        "{{ define `t` }}{{ tpl `{{ include \"t\" . }}` . }}{{ end }}{{ include `t` . }}",
    ] {
        assert_eq!(over(text, Limits::default()), depth, "{text}");
    }
}

#[test]
fn error_in_a_deep_recursion_names_both_ends() {
    let text = "{{ define `t` }}{{ include `t` . }}{{ end }}{{ include `t` . }}";
    let error = render(text).unwrap_err();
    assert_eq!(error.frames().len(), 32);
    let text = error.to_string();
    assert!(
        text.len() < 10_000 && text.contains("(4969 more): template: main:1:19"),
        "{text}"
    );
}

#[test]
fn thousand_nested_includes_are_allowed() {
    let text = "{{ define `t` }}{{ if .l }}{{ with .l }}{{ end }}{{ end }}{{ if lt (len .n) 1000 }}\
                {{ include `t` (dict `l` .l `n` (print .n `x`)) }}{{ else }}end{{ end }}{{ end }}\
                {{ include `t` (dict `l` .l `n` ``) }}";
    assert_eq!(render(text).unwrap(), "end");
}

#[test]
fn work_output_and_sizes_are_limited() {
    let endless = "{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}";
    let long = "{{ range 1000 }}0123456789{{ end }}";
    let doubling = "{{ $x := `x` }}{{ range 20 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}";
    let error = over(endless, limited(|to| to.steps = 100_000));
    assert_eq!(error, BudgetError::Steps { limit: 100_000 });
    let error = over(long, limited(|to| to.output = 1_000));
    assert_eq!(error, BudgetError::Output { limit: 1_000 });
    let (length, limit) = (11, 10);
    let error = over("{{ range 11 }}{{ end }}", limited(|to| to.range = limit));
    assert_eq!(error, BudgetError::Range { length, limit });
    let error = over(doubling, limited(|to| to.string = 1_000));
    assert_eq!(error, BudgetError::String { limit: 1_000 });
}

#[test]
fn printing_cyclic_or_deeply_nested_values_is_an_error() {
    let nesting = BudgetError::Nesting {
        limit: Limits::default().nesting,
    };
    for text in [
        "{{ $d := dict `a` 1 }}{{ $_ := set $d `self` $d }}{{ $d }}",
        "{{ $d := dict `a` 1 }}{{ $_ := set $d `self` $d }}{{ printf `%#v` $d | len }}",
        "{{ $d := dict `a` 1 }}{{ $_ := set $d `self` $d }}{{ range $d }}{{ html . }}{{ end }}",
        "{{ $l := 1 }}{{ range 30000 }}{{ $l = dict `l` $l }}{{ end }}{{ print $l }}",
    ] {
        assert_eq!(over(text, Limits::default()), nesting, "{text}");
    }
    // Shared values that are never printed cost nothing.
    let text = "{{ $l := 1 }}{{ range 200 }}{{ $l = double $l }}{{ end }}{{ len $l }}";
    assert_eq!(render(text).unwrap(), "2");
}

#[test]
fn maps_are_shared_and_trees_are_not_changed() {
    let text = "{{ $a := dict `x` 1 }}{{ $b := $a }}{{ $_ := set $b `x` 2 }}{{ $a.x }}\
                {{ range $k, $v := $a }}{{ $_ := set $a `y` 3 }}{{ $k }}{{ end }}{{ $a.y }}";
    assert_eq!(render(text).unwrap(), "2x3");
}

#[test]
fn function_values_can_be_called() {
    let double = FUNCS.iter().find(|func| func.name() == "double").unwrap();
    let data: Map = [("f", Value::Func(std::rc::Rc::new(double.clone())))]
        .into_iter()
        .collect();
    let run = |text: &str| {
        let (set, data) = (set_of(&[("main", text)]), Value::Map(data.clone()));
        execute(&set, Limits::default(), &data).map_err(|error| error.message())
    };
    assert_eq!(run("{{ call .f 1 }}").unwrap(), "[1 1]");
    assert_eq!(run("{{ 1 | call .f }}").unwrap(), "[1 1]");
    let message = "error calling call: wrong number of args for .f: got 0 want 1";
    assert_eq!(run("{{ call .f }}").unwrap_err(), message);
    let message = run("{{ .f }}").unwrap_err();
    assert!(message.starts_with("can't print {{.f}} of type func"));
    assert_eq!(run("{{ if .f }}yes{{ end }}").unwrap(), "yes");
}

#[test]
fn host_closures_can_capture_data() {
    let answer = Arc::new(42);
    let closure = Func::closure("answer", &[], Arc::new(move |_, _| Ok(Value::Int(*answer))));
    let mut funcs = Funcs::new();
    funcs.insert(closure);
    let mut set = TemplateSet::new("gotpl", funcs.into());
    set.parse("main", "{{ answer }}").unwrap();
    assert_eq!(render_with(&set, Limits::default()).unwrap(), "42");
}
