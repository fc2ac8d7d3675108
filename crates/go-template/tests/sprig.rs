//! Tests of the host's settings for Sprig's functions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use go_template::{Buffer, Funcs, Limits, Map, Session, TemplateSet, Value, sprig};

fn render(text: &str) -> Result<String, String> {
    let mut set = TemplateSet::new("set", Arc::new(Funcs::new().with(&sprig::FUNCS)));
    set.parse("main", text).map_err(|error| error.to_string())?;
    let time = UNIX_EPOCH + Duration::from_secs(1_720_000_000);
    let mut out = Buffer::new();
    Session::new(Limits::default())
        .with_time(time)
        .execute(&set, "main", &Value::Map(Map::new()), &mut out)
        .map_err(|error| error.message())?;
    Ok(String::from_utf8(out.into_vec()).unwrap())
}

#[test]
fn functions_use_the_time_of_the_session() {
    let cases = [
        ("{{ now }}", "2024-07-03 09:46:40 +0000 UTC"),
        ("{{ date \"15:04\" nil }}", "09:46"),
        ("{{ ago (toDate \"2006\" \"2024\") }}", "4425h46m40s"),
        ("{{ htmlDateInZone \"x\" \"UTC\" }}", "2024-07-03"),
    ];
    for (text, want) in cases {
        assert_eq!(render(text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
#[cfg(not(feature = "time-zones"))]
fn time_zone_that_is_not_built_in_is_an_error() {
    let text = "{{ dateInZone \"15:04\" now \"Europe/Berlin\" }}";
    assert_eq!(
        render(text).unwrap_err(),
        "error calling dateInZone: the time zone \"Europe/Berlin\" needs the feature time-zones of the \
         crate go-template"
    );
}
