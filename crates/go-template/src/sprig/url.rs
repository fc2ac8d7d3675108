//! URLs as dictionaries, and the host name lookup that Helm disables.

use super::{Answer, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::url::{Url, UserInfo, parse_user_info};
use crate::value::{Kind, Map, Type, Value};
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::text("getHostByName", &[Type::STRING], get_host_by_name),
    Func::text("urlJoin", &[Type::MAP], url_join),
    Func::value("urlParse", &[Type::STRING], url_parse),
];

/// Returns nothing, as in Helm without DNS: rendering must not depend on the network.
fn get_host_by_name(_: &mut Call<'_>, _: &mut Args<'_>, _: &mut Buffer) -> Text {
    Ok(())
}

fn url_parse(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let url = Url::parse(args.str(0).as_bytes());
    let url = url.map_err(|error| FuncError::new(format!("unable to parse url: {error}")))?;
    let hostname = url.hostname().to_vec();
    let user = url.user.as_ref().map(UserInfo::text).unwrap_or_default();
    let entries = [
        ("fragment", url.fragment),
        ("host", url.host),
        ("hostname", hostname),
        ("opaque", url.opaque),
        ("path", url.path),
        ("query", url.query),
        ("scheme", url.scheme),
        ("userinfo", user),
    ];
    let entries = entries.map(|(key, text)| (key, Value::from(text)));
    Ok(Value::Map(Map::from_entries(Type::MAP, entries)))
}

fn url_join(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let map = args.map(0);
    let part = |key: &str| -> Result<Vec<u8>, FuncError> {
        match map.and_then(|map| map.get(key)) {
            None => Ok(Vec::new()),
            Some(Value::Nil) => Err(FuncError::new(super::NIL_DEREFERENCE)),
            Some(value) => match value.as_str() {
                Some(text) if value.kind() == Kind::String => Ok(text.as_bytes().to_vec()),
                _ => {
                    let kind = value.kind().name();
                    Err(FuncError::new(format!(
                        "unable to parse {key} key, must be of type string, but {kind} found"
                    )))
                }
            },
        }
    };
    let mut url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        user: None,
    };
    let user = part("userinfo")?;
    if !user.is_empty() {
        url.user = parse_user_info(&user).map_err(|error| {
            FuncError::new(format!("unable to parse userinfo in dict: {error}"))
        })?;
    }
    out.extend(url.text());
    Ok(())
}
