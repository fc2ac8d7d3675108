//! `include`, `tpl`, `required`, `fail`, `lookup`: functions that use the state of the render.

use bounded::Buffer;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use go_template::{Args, Call, Func, FuncError, Map, Str, Type, Value};
use memchr::memmem::{Finder, find_iter};

use super::lookup::{Lookup, LookupAnswer, LookupKey, MAX_KEY_LENGTH, MAX_LOOKUPS};
use super::{HostNames, strip};
use crate::capabilities::CapabilityReads;
use crate::values::tree::from_json;

pub(crate) static FUNCS: &[Func] = &[
    Func::text("include", &[Type::STRING, Type::ANY], include),
    Func::text("tpl", &[Type::STRING, Type::ANY], tpl),
    Func::value("required", &[Type::STRING, Type::ANY], required),
    Func::text("fail", &[Type::STRING], fail),
    Func::value(
        "lookup",
        &[Type::STRING, Type::STRING, Type::STRING, Type::STRING],
        lookup,
    ),
    Func::value("getHostByName", &[Type::STRING], get_host_by_name),
];

/// The longest message of `fail` and `required`, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

/// Limit on the number of nested inclusions of one template.
const MAX_RECURSION: usize = 1000;

/// State that the functions of one render share.
pub(crate) struct RenderState {
    /// The names that are being included, outermost first.
    included: Vec<Str>,
    /// Number of calls of `tpl` that are being executed.
    tpl_depth: usize,
    lookup: Arc<dyn Lookup>,
    host_names: Option<HostNames>,
    /// The objects that were looked up.
    pub(crate) lookups: BTreeSet<LookupKey>,
    /// The lookups that are not in the snapshot.
    pub(crate) unknown: BTreeSet<LookupKey>,
    /// The capabilities that were read.
    pub(crate) reads: CapabilityReads,
    /// Whether a text passed to `tpl` mentions the Kubernetes version.
    pub(crate) reads_version: bool,
}

impl RenderState {
    pub(crate) fn new(lookup: Arc<dyn Lookup>, host_names: Option<HostNames>) -> Self {
        Self {
            included: Vec::new(),
            tpl_depth: 0,
            lookup,
            host_names,
            lookups: BTreeSet::new(),
            unknown: BTreeSet::new(),
            reads: CapabilityReads::default(),
            reads_version: false,
        }
    }
}

/// Returns whether a template's text may read the Kubernetes version.
pub(crate) fn names_version(text: &[u8]) -> bool {
    static KUBE_VERSION: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("KubeVersion"));
    const CAPABILITIES: &[u8] = b".Capabilities";
    KUBE_VERSION.find(text).is_some()
        || find_iter(text, CAPABILITIES).any(|at| {
            let after = text.get(at + CAPABILITIES.len()..).unwrap_or_default();
            !(after.starts_with(b".APIVersions") || after.starts_with(b".HelmVersion"))
        })
}

/// An error message from the chart's author, given to `required` or `fail`.
#[derive(Debug, thiserror::Error)]
#[error("HELM_ERR_START{0}HELM_ERR_END")]
pub(crate) struct Warning(pub(crate) String);

/// The templates look up more than [`MAX_LOOKUPS`] objects.
#[derive(Debug, thiserror::Error)]
#[error("more than {MAX_LOOKUPS} different objects are looked up")]
pub(crate) struct TooManyLookups;

/// The caller cannot look up an object.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LookupFailed(String);

/// Returns a text without the marks that Helm puts around an author's message.
pub(crate) fn without_marks(text: &str) -> String {
    text.replace("HELM_ERR_START", "")
        .replace("HELM_ERR_END", "")
}

fn warning(message: &Str) -> FuncError {
    let end = message.len().min(MAX_MESSAGE);
    let message = message.slice(0, end).to_string_lossy().into_owned();
    FuncError::host(Warning(message))
}

fn include(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let Value::Str(name) = args.take(0) else {
        return Ok(());
    };
    let data = args.take(1);
    if let Some(host) = call.host_mut::<RenderState>() {
        // Count occurrences of the name only if the nesting is deep enough to exceed the limit.
        if host.included.len() > MAX_RECURSION {
            let times = host.included.iter().filter(|included| **included == name);
            if times.count() > MAX_RECURSION {
                return Err(FuncError::new(format!(
                    "rendering template has a nested reference name: {name}: unable to execute \
                     template"
                )));
            }
        }
        host.included.push(name.clone());
    }
    let result = call.execute(&name, &data, out);
    if let Some(host) = call.host_mut::<RenderState>() {
        host.included.pop();
    }
    result
}

fn tpl(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let Value::Str(text) = args.take(0) else {
        return Ok(());
    };
    let data = args.take(1);
    let start = out.len();
    if memchr::memmem::find(text.as_bytes(), b"{{").is_some() {
        execute(call, &text, &data, out)?;
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    strip::no_values(out, start);
    Ok(())
}

/// Executes a text as a template that can use the templates of the set.
fn execute(
    call: &mut Call<'_>,
    text: &Str,
    data: &Value,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    if let Some(host) = call.host_mut::<RenderState>() {
        host.reads_version = host.reads_version || names_version(text.as_bytes());
    }
    let name = call.templates().name().clone();
    let (set, template) = call
        .parse(&name, text)
        .map_err(|error| error.context(format!("cannot parse template {}", quoted(text))))?;
    // Templates that the text includes or defines belong to the call, too.
    if let Some(host) = call.host_mut::<RenderState>() {
        host.tpl_depth += 1;
    }
    let result = call.execute_in(&set, &template, data, out);
    if let Some(host) = call.host_mut::<RenderState>() {
        host.tpl_depth = host.tpl_depth.saturating_sub(1);
    }
    result.map_err(|error| {
        error.context(format!(
            "error during tpl function execution for {}",
            quoted(text)
        ))
    })
}

fn quoted(text: &Str) -> String {
    let quoted = go_template::go::strconv::quote(text.as_bytes());
    String::from_utf8_lossy(&quoted).into_owned()
}

fn required(_: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let is_missing = match args.get(1) {
        Value::Nil | Value::Invalid => true,
        Value::Str(text) => text.is_empty(),
        _ => false,
    };
    if is_missing {
        Err(warning(args.str(0)))
    } else {
        Ok(args.take(1))
    }
}

fn fail(_: &mut Call<'_>, args: &mut Args<'_>, _: &mut Buffer) -> Result<(), FuncError> {
    Err(warning(args.str(0)))
}

fn get_host_by_name(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    call.varies();
    let host_names = call.host::<RenderState>().and_then(|host| host.host_names);
    let Some(resolve) = host_names else {
        return Ok(Value::Str(Str::from("")));
    };
    let name = args.str(0).to_string_lossy();
    match resolve(&name) {
        Ok(address) => Ok(Value::Str(Str::from(address.as_str()))),
        Err(error) => Err(FuncError::new(format!("cannot resolve {name:?}: {error}"))),
    }
}

fn lookup(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    // The answer can be another one in `tpl`.
    call.varies();
    // Keys are kept, so reject long keys and too many keys first.
    let length: usize = (0..4).map(|index| args.str(index).len()).sum();
    if length > MAX_KEY_LENGTH {
        return Err(FuncError::new(format!(
            "cannot look up a name of {length} bytes, more than {MAX_KEY_LENGTH}"
        )));
    }
    let text = |index: usize| args.str(index).to_string_lossy().into_owned();
    let key = LookupKey {
        api_version: text(0),
        kind: text(1),
        namespace: text(2),
        name: text(3),
    };
    let Some(host) = call.host_mut::<RenderState>() else {
        return Ok(Value::Map(Map::new()));
    };
    if !host.lookups.contains(&key) {
        if host.lookups.len() >= MAX_LOOKUPS {
            return Err(FuncError::host(TooManyLookups));
        }
        host.lookups.insert(key.clone());
    }
    let answer = if host.tpl_depth > 0 {
        host.lookup.get_in_tpl(&key)
    } else {
        host.lookup.get(&key)
    };
    match answer {
        LookupAnswer::Found(object) => {
            call.budget().range(nodes(&object))?;
            Ok(Value::from(&from_json(&object)))
        }
        LookupAnswer::Absent => Ok(Value::Map(Map::new())),
        LookupAnswer::Unknown => {
            // The render continues, so that one round finds as many keys as possible.
            if !host.unknown.contains(&key) {
                if host.lookup.fetched() + host.unknown.len() >= MAX_LOOKUPS {
                    return Err(FuncError::host(TooManyLookups));
                }
                host.unknown.insert(key);
            }
            Ok(Value::Map(Map::new()))
        }
        LookupAnswer::Failed(message) => Err(FuncError::host(LookupFailed(message))),
    }
}

/// Returns the number of values in an object.
fn nodes(object: &serde_json::Value) -> usize {
    match object {
        serde_json::Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        serde_json::Value::Object(map) => 1 + map.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}
