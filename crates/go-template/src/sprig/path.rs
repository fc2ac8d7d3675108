//! Slash-separated paths: Go's `path`, and `path/filepath` on Unix.

use super::{Answer, STRING};
use crate::func::{Args, Call, Func};
use crate::value::Value;

pub(super) static FUNCS: &[Func] = &[
    Func::value("base", &[STRING], base_name),
    Func::value("clean", &[STRING], clean_path),
    Func::value("dir", &[STRING], directory),
    Func::value("ext", &[STRING], extension),
    Func::value("isAbs", &[STRING], is_absolute),
    Func::value("osBase", &[STRING], base_name),
    Func::value("osClean", &[STRING], clean_path),
    Func::value("osDir", &[STRING], directory),
    Func::value("osExt", &[STRING], extension),
    Func::value("osIsAbs", &[STRING], is_absolute),
];

fn base_name(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::from(base(args.str(0).as_bytes())))
}

fn clean_path(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::from(clean(args.str(0).as_bytes())))
}

fn directory(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let path = args.str(0).as_bytes();
    let slash = path.iter().rposition(|&c| c == b'/').map_or(0, |at| at + 1);
    Ok(Value::from(clean(path.get(..slash).unwrap_or_default())))
}

/// Returns the text after the last dot of the last element, including the dot.
fn extension(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let path = args.str(0).as_bytes();
    let found = path.iter().rposition(|&c| c == b'.' || c == b'/');
    let tail = found
        .and_then(|at| path.get(at..))
        .filter(|tail| tail.starts_with(b"."));
    Ok(Value::from(tail.unwrap_or_default()))
}

fn is_absolute(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::Bool(args.str(0).as_bytes().starts_with(b"/")))
}

fn base(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let end = path.iter().rposition(|&c| c != b'/').map_or(0, |at| at + 1);
    let path = path.get(..end).unwrap_or_default();
    if path.is_empty() {
        return b"/";
    }
    path.rsplit(|&c| c == b'/').next().unwrap_or(path)
}

/// Returns the shortest equivalent path, like Go's `path.Clean`.
fn clean(path: &[u8]) -> Vec<u8> {
    let rooted = path.starts_with(b"/");
    let mut kept: Vec<&[u8]> = Vec::new();
    for element in path.split(|&c| c == b'/') {
        match element {
            b"" | b"." => {}
            b".." => match kept.last() {
                Some(&last) if last != b".." => {
                    kept.pop();
                }
                _ if rooted => {}
                _ => kept.push(element),
            },
            _ => kept.push(element),
        }
    }
    let mut out = if rooted { vec![b'/'] } else { Vec::new() };
    out.extend(kept.join(&b'/'));
    if out.is_empty() {
        out.push(b'.');
    }
    out
}
