//! Texts that a session remembers: what is printed again, and what is executed again.
#![allow(
    clippy::indexing_slicing,
    clippy::unnecessary_wraps,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and functions have one signature"
)]

use std::sync::Arc;

use go_template::{
    Args, Buffer, Call, Func, FuncError, Funcs, Limits, List, Map, RenderError, Session,
    TemplateSet, Tree, TreeMap, Type, Value,
};

/// Number of calls of `count`.
#[derive(Default)]
struct Calls(i64);

fn include(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let name = args.str(0).clone();
    let data = args.take(1);
    call.execute(&name, &data, out)
}

fn tpl(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let text = args.str(0).clone();
    let (set, template) = call.parse(&"set".into(), &text)?;
    call.execute_in(&set, &template, args.get(1), out)
}

/// Counts its calls, which a function must not do without saying so: this shows what was executed.
fn count(call: &mut Call<'_>, _: &mut Args<'_>) -> Result<Value, FuncError> {
    let calls = call.host_mut::<Calls>().unwrap();
    calls.0 += 1;
    Ok(Value::Int(calls.0))
}

fn varying(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    call.varies();
    count(call, args)
}

fn long(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let length = usize::try_from(args.int(0)).unwrap();
    Ok(Value::from("x".repeat(length)))
}

fn dict(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let pairs = args.rest(0).chunks(2);
    let pairs = pairs.map(|pair| (pair[0].as_str().unwrap().clone(), pair[1].clone()));
    Ok(Value::Map(pairs.collect()))
}

fn list(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(Value::list(args.take_rest(0)))
}

fn set(_: &mut Call<'_>, args: &mut Args<'_>, _: &mut Buffer) -> Result<(), FuncError> {
    let (key, value) = (args.str(1).clone(), args.get(2).clone());
    args.map(0).unwrap().insert(key, value);
    Ok(())
}

fn sort(_: &mut Call<'_>, args: &mut Args<'_>, _: &mut Buffer) -> Result<(), FuncError> {
    if let Value::List(list) = args.get(0) {
        list.sort_strings();
    }
    Ok(())
}

static FUNCS: &[Func] = &[
    Func::text("include", &[Type::STRING, Type::ANY], include),
    Func::text("tpl", &[Type::STRING, Type::ANY], tpl),
    Func::value("count", &[], count),
    Func::value("varying", &[], varying),
    Func::value("long", &[Type::INT], long),
    Func::value("dict", &[], dict).variadic(Type::ANY),
    Func::value("list", &[], list).variadic(Type::ANY),
    Func::text("set", &[Type::MAP, Type::STRING, Type::ANY], set),
    Func::text("sort", &[Type::ANY], sort),
];

fn set_of(text: &str) -> TemplateSet {
    let mut set = TemplateSet::new("set", Arc::new(Funcs::new().with(FUNCS)));
    set.parse("main", text).unwrap();
    set
}

fn data() -> Map {
    let inner = TreeMap::new(Type::MAP, [("x".into(), Tree::Int(1))]);
    let values = TreeMap::new(Type::MAP, [("m".into(), Tree::Map(Arc::new(inner)))]);
    let own: Map = [("y", Value::Int(1))].into_iter().collect();
    [
        ("Values", Value::Map(Map::from_tree(Arc::new(values)))),
        ("own", Value::Map(own)),
        ("l", Value::List(List::strings(["b", "a"]))),
    ]
    .into_iter()
    .collect()
}

fn render_in(session: &mut Session, set: &TemplateSet, data: &Map) -> Result<String, RenderError> {
    let mut out = Buffer::new();
    session.execute(set, "main", &Value::Map(data.clone()), &mut out)?;
    Ok(String::from_utf8(out.into_vec()).unwrap())
}

fn session(set: &TemplateSet) -> Session {
    let session = Session::new(Limits::default()).with_host(Calls::default());
    session.remembering(set)
}

fn remembering(session: Session, set: &TemplateSet, remembers: bool) -> Session {
    if remembers {
        session.remembering(set)
    } else {
        session
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let set = set_of(text);
    let rendered = render_in(&mut session(&set), &set, &data()).unwrap();
    assert_eq!(rendered, expected, "{text}");
}

/// Checks lines with the expected text and the template.
#[track_caller]
fn check_all(cases: &str) {
    for case in cases.trim_start().lines() {
        let (expected, text) = case.split_once(' ').unwrap();
        check(text, expected);
    }
}

#[test]
fn a_template_is_executed_once_for_the_same_data() {
    let counted = |uses: &str, expected: &str| {
        let count = r#"{{define "t"}}{{count}}{{end}}"#;
        check(&[count, uses].concat(), expected);
    };
    counted(
        r#"{{include "t" .}}{{include "t" $}}{{template "t" .}}"#,
        "111",
    );
    counted(
        r#"{{include "t" 1}}{{include "t" 1}}{{include "t" 2}}"#,
        "112",
    );
    let data = r#"{{include "t" (dict "a" .Values.m "b" (list "x" 2 true) "c" (dict "d" 1.5))}}"#;
    let other = r#"{{include "t" (dict "a" .Values.m "b" (list "x" 2 true) "c" (dict "d" 2.5))}}"#;
    counted(&[data, data, other].concat(), "112");
}

#[test]
fn nothing_is_remembered_unless_it_is_asked_for() {
    let set = set_of(r#"{{define "t"}}{{count}}{{end}}{{include "t" .}}{{include "t" .}}"#);
    let mut session = Session::new(Limits::default()).with_host(Calls::default());
    assert_eq!(render_in(&mut session, &set, &data()).unwrap(), "12");
}

#[test]
fn types_of_data_are_told_apart() {
    check(
        r#"{{define "t"}}{{printf "%T" .}},{{end}}{{include "t" 1}}{{include "t" 1.0}}{{include "t" "1"}}{{include "t" true}}{{include "t" nil}}{{include "t" (list 1)}}{{include "t" (list "1")}}"#,
        "int,float64,string,bool,<nil>,[]interface {},[]interface {},",
    );
}

#[test]
fn a_write_to_what_a_template_read_executes_it_again() {
    let text = |write: &str| {
        format!(
            r#"{{{{define "t"}}}}{{{{count}}}}{{{{end}}}}{{{{include "t" .}}}}{write}{{{{include "t" .}}}}"#
        )
    };
    for write in [
        r#"{{set . "z" 1}}"#,
        r#"{{set .Values "z" 1}}"#,
        r#"{{set .Values.m "x" 2}}"#,
        r#"{{set .own "y" 2}}"#,
        "{{sort .l}}",
    ] {
        check(&text(write), "12");
    }
    check(&text(r#"{{$d := dict "a" 1}}{{set $d "b" 2}}"#), "11");
}

#[test]
fn a_map_of_a_template_that_is_part_of_the_data_is_watched() {
    // As the data itself, in a list, in a dictionary, and put into the values later.
    check_all(
        r#"
12 {{define "t"}}{{.a}}{{end}}{{$d := dict "a" 1}}{{include "t" $d}}{{set $d "a" 2}}{{include "t" $d}}
12 {{define "t"}}{{(index . 0).a}}{{end}}{{$d := dict "a" 1}}{{include "t" (list $d)}}{{set $d "a" 2}}{{include "t" (list $d)}}
12 {{define "t"}}{{.d.e.a}}{{end}}{{$e := dict "a" 1}}{{$d := dict "e" $e}}{{include "t" (dict "d" $d)}}{{set $e "a" 2}}{{include "t" (dict "d" $d)}}
12 {{define "t"}}{{.Values.d.a}}{{end}}{{$d := dict "a" 1}}{{set .Values "d" $d}}{{include "t" .}}{{set $d "a" 2}}{{include "t" .}}
012 {{define "t"}}{{(index .Values.d 0).a}}{{end}}{{include "t" (dict "Values" (dict "d" (list (dict "a" 0))))}}{{$d := dict "a" 1}}{{set .Values "d" (list $d)}}{{include "t" .}}{{set $d "a" 2}}{{include "t" .}}"#,
    );
}

#[test]
fn a_template_that_writes_is_executed_each_time() {
    check_all(
        r#"
xx {{define "t"}}{{set . "n" (print .n "x")}}{{end}}{{$d := dict "n" ""}}{{include "t" $d}}{{include "t" $d}}{{$d.n}}
xx {{define "t"}}{{set .acc "n" (print .acc.n "x")}}{{end}}{{$d := dict "n" ""}}{{include "t" (dict "acc" $d)}}{{include "t" (dict "acc" $d)}}{{$d.n}}
<nil>xx {{define "t"}}{{set .Values "n" (print .Values.n "x")}}{{end}}{{include "t" .}}{{include "t" .}}{{.Values.n}}
xx {{define "t"}}{{range .}}{{set . "n" (print .n "x")}}{{end}}{{end}}{{$d := dict "n" ""}}{{$l := list $d}}{{include "t" $l}}{{include "t" $l}}{{$d.n}}"#,
    );
}

#[test]
fn what_varies_is_executed_each_time() {
    check_all(
        r#"
12 {{define "t"}}{{varying}}{{end}}{{include "t" .}}{{include "t" .}}
12 {{define "in"}}{{varying}}{{end}}{{define "t"}}{{template "in"}}{{end}}{{include "t" .}}{{include "t" .}}"#,
    );
}

#[test]
fn the_content_of_a_varying_map_is_read_each_time() {
    let set = set_of(
        r#"{{define "t"}}{{count}}{{end}}{{define "name"}}{{.Template.Name}}{{count}}{{end}}{{define "all"}}{{range .}}{{printf "%v" .}}{{end}}{{count}}{{end -}}
{{include "t" .}} {{include "name" .}} {{include "all" .}}"#,
    );
    let root: Map = [("a", Value::Int(7))].into_iter().collect();
    let mut session = session(&set);
    let mut render = |name: &str| {
        let about = TreeMap::new(Type::MAP, [("Name".into(), Tree::Str(name.into()))]);
        root.insert_varying("Template", Map::from_tree(Arc::new(about)));
        render_in(&mut session, &set, &root).unwrap()
    };
    assert_eq!(render("one"), "1 one2 map[Name:one]73");
    assert_eq!(render("two"), "1 two4 map[Name:two]75");
}

#[test]
fn templates_of_another_set_are_executed() {
    let text = r#"{{define "t"}}{{count}}{{end}}{{include "t" .}}{{tpl "{{define `t`}}other{{end}}{{include `t` .}}" .}}{{include "t" .}}{{tpl "{{include `t` .}}" .}}"#;
    check(text, "1other11");
}

#[test]
fn failures_are_not_remembered_and_have_the_same_error() {
    let set = set_of(r#"{{define "t"}}{{index .l 5}}{{end}}{{include "t" .}}"#);
    let mut session = session(&set);
    let mut error = || {
        render_in(&mut session, &set, &data())
            .unwrap_err()
            .to_string()
    };
    let (first, second) = (error(), error());
    assert!(first.contains("index out of range: 5"), "{first}");
    assert_eq!(first, second);
}

#[test]
fn nothing_is_kept_in_memory_that_a_render_needs() {
    let set = set_of(
        r#"{{define "t"}}{{count}}{{end -}}
{{include "t" 1}}{{include "t" 1}}{{$x := long 200000}}{{include "t" 2}}{{include "t" 2}}{{include "t" 1}}"#,
    );
    let limits = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let session = Session::new(limits).with_host(Calls::default());
    let mut session = session.remembering(&set);
    assert_eq!(render_in(&mut session, &set, &data()).unwrap(), "11234");
}

#[test]
fn a_text_that_is_used_again_takes_as_many_steps_and_writes_as_much() {
    let text = |times: usize| {
        let include = r#"{{include "t" .}}"#.repeat(times);
        let nested = r#"{{define "in"}}text{{end}}{{define "t"}}{{range 100}}{{end}}{{include "in" 1}}{{end}}"#;
        set_of(&format!("{nested}{include}"))
    };
    let steps = |times: usize, remembers: bool| {
        let set = text(times);
        let mut session = remembering(Session::new(Limits::default()), &set, remembers);
        render_in(&mut session, &set, &data()).unwrap();
        (session.budget().steps(), session.budget().written())
    };
    assert!(steps(2, true).0 > 200);
    assert_eq!(steps(5, true), steps(5, false));
}

#[test]
fn deep_recursion_ends_as_without_a_memo() {
    // The text for the lower half is known before the whole is executed.
    let set = set_of(
        r#"{{define "t"}}{{if .n}}{{include "t" (dict "n" (slice .n 1))}}{{end}}{{end}}{{include "t" (dict "n" .half)}}{{include "t" (dict "n" .whole)}}"#,
    );
    let texts = [("half", 30), ("whole", 60)];
    let root: Map = texts
        .map(|(key, length)| (key, Value::from("x".repeat(length))))
        .into_iter()
        .collect();
    let result = |depth: usize, remembers: bool| {
        let limits = Limits {
            depth,
            ..Limits::default()
        };
        let mut session = remembering(Session::new(limits), &set, remembers);
        render_in(&mut session, &set, &root).map_err(|error| error.budget().cloned())
    };
    for depth in [40, 61, 62, 63, 80] {
        assert_eq!(result(depth, true), result(depth, false), "{depth}");
    }
}
