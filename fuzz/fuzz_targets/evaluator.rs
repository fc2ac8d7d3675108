//! Renders any text as the only template of a chart, with every function that Helm has.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput, RenderLimits};
use helm_core::values::Values;
use libfuzzer_sys::fuzz_target;

const CHART: &str = "apiVersion: v2\nname: c\nversion: 1.2.3\nappVersion: '4'\n";
const VALUES: &str = "i: 5\nf: -1.5e300\nb: true\nn: null\ns: héllo wörld\ne: ''\n\
    l: [1, two, {three: 3}, [4]]\nm: {a: 1, b: {c: [x, y]}, '9': z}\nv: 1.2.3-rc.1\n\
    t: '{{ .Values.s | upper }}'\nd: '2024-02-29T12:30:45Z'\nu: https://u:p@example.com:80/a?b=c#d\n";
const NAMES: &str =
    "{{ define \"one\" }}<{{ . }}>{{ end }}{{ define \"loop\" }}{{ include \"loop\" . }}{{ end }}";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    vec![
        File::new("Chart.yaml", CHART),
        File::new("values.yaml", VALUES),
        File::new("templates/_names.tpl", NAMES),
        File::new("files/a.txt", "one\ntwo\n"),
    ]
});

fuzz_target!(|text: &[u8]| {
    let main = File::new("templates/main.yaml", text);
    let files = FILES.iter().cloned().chain([main]);
    let Ok(chart) = Chart::from_files(files) else {
        return;
    };
    let Ok(compiled) = CompiledChart::compile(&chart) else {
        return;
    };
    let Ok(values) = compiled.coalesce(Values::new()) else {
        return;
    };
    let mut input = RenderInput::new(ReleaseInfo::new("r", "ns"), &values);
    input.limits = RenderLimits {
        // The other limits are those of production.
        time: Some(Duration::from_secs(5)),
        ..RenderLimits::default()
    };
    match compiled.render(&input) {
        Ok(rendered) => drop(rendered.objects()),
        Err(error) => drop((error.to_string(), error.excerpt().len())),
    }
});
