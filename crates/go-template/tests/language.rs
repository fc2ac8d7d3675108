//! The language alone: everything here works without Sprig, cryptography and time zones.
#![allow(
    clippy::unnecessary_wraps,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and functions have one signature"
)]

use std::sync::Arc;

use go_template::{
    Args, Buffer, Call, Func, FuncError, Funcs, Limits, Map, Session, TemplateSet, Type, Value,
};

fn shout(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    out.extend(args.str(0).as_bytes().to_ascii_uppercase());
    Ok(())
}

fn render(text: &str) -> Result<String, String> {
    let funcs = Funcs::new().with(&[Func::text("shout", &[Type::STRING], shout)]);
    render_in(TemplateSet::new("set", Arc::new(funcs)), text)
}

/// Returns a set whose actions stand between these texts.
fn delimited(left: &str, right: &str) -> TemplateSet {
    TemplateSet::new("set", Arc::new(Funcs::new())).delimiters(left, right)
}

fn render_in(mut set: TemplateSet, text: &str) -> Result<String, String> {
    set.parse("main", text).map_err(|error| error.to_string())?;
    let names = Value::list(vec!["a".into(), "b".into()]);
    let data: Map = [("names", names), ("n", Value::Int(3))]
        .into_iter()
        .collect();
    let mut out = Buffer::new();
    Session::new(Limits::default())
        .execute(&set, "main", &Value::Map(data), &mut out)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out.into_vec()).unwrap())
}

#[test]
fn actions_pipelines_and_definitions_work_without_sprig() {
    let cases = [
        (
            "{{ range $i, $n := .names }}{{ $i }}={{ $n }} {{ end }}",
            "0=a 1=b ",
        ),
        (
            "{{ if and (gt .n 2) (eq (len .names) 2) }}yes{{ else }}no{{ end }}",
            "yes",
        ),
        (
            "{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .n }}",
            "<3>",
        ),
        (
            "{{ with index .names 1 }}{{ printf \"%q %5.2f\" . 1.5 }}{{ end }}",
            "\"b\"  1.50",
        ),
        (
            "{{ html \"<a>\" }} {{ urlquery \"a b\" }} {{ slice \"abc\" 1 }}",
            "&lt;a&gt; a+b bc",
        ),
        ("{{ shout \"hello\" }}", "HELLO"),
    ];
    for (text, want) in cases {
        assert_eq!(render(text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn function_that_is_not_there_is_the_error_of_go() {
    let error = render("{{ upper \"a\" }}").unwrap_err();
    assert_eq!(error, "template: main:1: function \"upper\" not defined");
}

#[test]
fn delimiters_of_any_form_enclose_actions() {
    let cases = [
        (
            "<%",
            "%>",
            "a <%- /* c */%><% if eq .n 3 %> {{b}}<% end -%> <% \"%>\" %>",
            "a {{b}}%>",
        ),
        ("{", "}", "{.n}{/* c */}{`}`}", "3}"),
        ("[[[", "]]]", "[[ [[[ .n ]]] ]]", "[[ 3 ]]"),
        ("$", "END", "$ .n END $- 1 -END 2", "312"),
        ("(", " )", "( .n ) ( len .names )", "3 2"),
        ("", "", "{{ .n }}", "3"),
    ];
    for (left, right, text, want) in cases {
        let rendered = render_in(delimited(left, right), text);
        assert_eq!(rendered.as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn errors_name_the_action_between_own_delimiters() {
    let error = |text: &str| render_in(delimited("<%", "%>"), text).unwrap_err();
    let undefined = "template: main:1: function \"x\" not defined";
    assert_eq!(error("{{ <% x %>"), undefined);
    assert_eq!(
        error("{{ <% index .a 1 %>"),
        "template: main:1:6: executing \"main\" at <index .a 1>: error calling index: index of untyped \
         nil"
    );
}
