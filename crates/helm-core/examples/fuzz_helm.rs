//! Compares random renders with Helm's own engine, for a time: expressions of the template language, YAML texts,
//! and charts with changed values. Prints each difference, and what is needed to repeat it.
//!
//! Started by `make fuzz-helm`. `HELM_ENGINE` is the program of `fuzz/helm`; `MINUTES` (default 10), `SEED` and
//! `CHARTS`, a folder of charts besides those of the repository, may be set. The exit code is 1 on a difference
//! that is not known (`docs/contributing/limits.md`).
//! Only the fact of an error is compared, not its message: a text with several errors may name another one.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a development tool"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use helm_core::chart::File;
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::values::{self, Values};
use helm_core::{Chart, CompiledChart};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Differences that are printed; further ones are counted.
const SHOWN: usize = 20;
/// The byte-order mark.
const MARK: char = '\u{feff}';
const CHART_YAML: &str = "apiVersion: v2\nname: fuzz\nversion: 0.1.0\n";

/// Functions whose result depends on nothing but their arguments, with the kinds of these: `s`tring,
/// `i`nteger, `f`loat, `l`ist, `d`ict, `a`ny.
const FUNCTIONS: &str = "\
    abbrev:is add:ii append:la atoi:s b64dec:s b64enc:s cat:aa ceil:f coalesce:aa compact:l \
    concat:ll contains:ss deepCopy:a deepEqual:aa default:aa dict:sa dig:sad div:ii divf:ff \
    empty:a eq:ii first:l float64:a floor:f fromJson:s fromYaml:s get:ds has:al hasKey:ds \
    hasPrefix:ss html:a indent:is index:li initial:l int:a int64:a join:sl kebabcase:s kindOf:a \
    last:l len:l list:aaa lower:s lt:ii max:ii merge:dd mod:ii mul:ii nindent:is not:a omit:ds \
    pick:ds plural:ssi prepend:la print:aa quote:a regexFindAll:ssi regexReplaceAll:sss repeat:is \
    replace:sss rest:l reverse:l round:fi semverCompare:ss sha256sum:s slice:lii snakecase:s \
    sortAlpha:l splitList:ss squote:a sub:ii substr:iis ternary:aab title:s toJson:a \
    toPrettyJson:a toString:a toStrings:l toToml:d toYaml:a trim:s trimAll:ss trimSuffix:ss \
    trunc:is typeOf:a uniq:l until:i untilStep:iii upper:s urlquery:s without:la wrap:is printf:Fa";
/// Contents of texts in templates, with `¦` between them, as in the two lists below.
const STRINGS: &str = "\
    ¦a¦a b¦1.2.3¦>= 1.0¦x-1¦é¦a,b¦{\\\"k\\\": [1]}¦k: [1, 2]¦[¦12¦0x1f¦true¦a\\nb¦(a|b)+¦A1b2¦\
    <&>¦~1";
const FORMATS: &str = "\
    %v¦%d¦%s¦%q¦%5.2f¦%+v¦%#v¦%T¦%x¦%t¦%-4s|¦%%¦%!";
const YAML: &str = "\
    a¦b: ¦c:¦- ¦? ¦: ¦{¦}¦[¦]¦, ¦&x ¦*x¦<<: ¦<<: *x¦!!str ¦!!int ¦!!float ¦!!binary ¦!t ¦# c¦\n¦\
    \n¦\n  ¦\n    ¦ ¦---\n¦...\n¦\t¦'q'¦\"q\"¦|\n¦>-\n¦~¦yes¦010¦0x1f¦1e3¦.inf¦12:30¦é¦\u{feff}¦\
    \r\n¦2001-01-01¦\"\\u0041\"¦%YAML 1.1\n¦@¦`";

/// A pseudo-random generator (xorshift), which a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % limit.max(1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.below(from.len()))
            .copied()
            .unwrap_or_default()
    }

    /// Picks a part of a list with `¦` between its parts.
    fn pick_of(&mut self, list: &'static str) -> &'static str {
        let parts: Vec<&str> = list.split('¦').collect();
        self.pick(&parts)
    }

    fn int(&mut self) -> i64 {
        // Larger ones would make Helm print or keep as many bytes.
        const INTS: [i64; 9] = [0, 1, 2, 3, 5, -1, 10, 100, 1000];
        INTS.get(self.below(INTS.len())).copied().unwrap_or(0)
    }

    fn expression(&mut self, kind: char, depth: usize) -> String {
        if depth > 0 && self.below(3) > 0 {
            return format!("({})", self.call(depth - 1));
        }
        match kind {
            's' => format!("\"{}\"", self.pick_of(STRINGS)),
            'F' => format!("\"{}\"", self.pick_of(FORMATS)),
            'i' => self.int().to_string(),
            'f' => format!("{}.5", self.int()),
            'b' => self.pick(&["true", "false"]).to_owned(),
            'l' => match self.below(3) {
                0 => ".Values.list".to_owned(),
                1 => "(list 1 \"b\" nil 2.5)".to_owned(),
                _ => "(until 4)".to_owned(),
            },
            'd' => match self.below(3) {
                0 => ".Values.map".to_owned(),
                1 => "(dict \"a\" 1 \"k\" (list 1))".to_owned(),
                _ => "(dict)".to_owned(),
            },
            _ => match self.below(7) {
                0 => "nil".to_owned(),
                1 => ".Values.any".to_owned(),
                2 => ".Values.missing".to_owned(),
                other => {
                    let kind = "sifld".chars().nth(other % 5).unwrap_or('s');
                    self.expression(kind, 0)
                }
            },
        }
    }

    fn call(&mut self, depth: usize) -> String {
        let known = FUNCTIONS
            .split(' ')
            .nth(self.below(FUNCTIONS.split(' ').count()));
        let known = known.and_then(|known| known.split_once(':'));
        let (name, kinds) = known.unwrap_or(("list", ""));
        let mut text = name.to_owned();
        for kind in kinds.chars() {
            // Sometimes an argument of another kind.
            let kind = if self.below(12) == 0 { 'a' } else { kind };
            let argument = self.expression(kind, depth);
            let _ = write!(text, " {argument}");
        }
        text
    }

    fn template(&mut self) -> String {
        let call = self.call(2);
        match self.below(6) {
            0 => format!("{{{{ if {call} }}}}yes{{{{ else }}}}no{{{{ end }}}}"),
            1 => format!("{{{{ range $k, $v := {call} }}}}{{{{ $k }}}}={{{{ $v }}}},{{{{ end }}}}"),
            2 => format!("{{{{ with {call} }}}}{{{{ . | toJson }}}}{{{{ end }}}}"),
            3 => {
                let function =
                    self.pick(&["quote", "toYaml", "toJson", "toString", "len", "upper"]);
                format!("{{{{ {call} | {function} }}}}")
            }
            _ => format!("{{{{ {call} }}}}"),
        }
    }

    fn yaml(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(12) {
            text.push_str(self.pick_of(YAML));
        }
        text
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => json!(self.int()),
            2 => json!(f64::from(u16::try_from(self.below(1000)).unwrap_or(0)) / 8.0),
            3 => json!(self.below(2) == 0),
            4 => json!(self.pick_of(STRINGS)),
            5 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let mut map = serde_json::Map::new();
                for _ in 0..self.below(4) {
                    map.insert(self.pick_of(STRINGS).to_owned(), self.value(depth - 1));
                }
                Value::Object(map)
            }
        }
    }
}

/// A chart to render.
enum Source {
    /// The texts of its files.
    Texts(BTreeMap<String, String>),
    /// The directory or archive of the chart, and the user's values.
    Path(PathBuf, Map<String, Value>),
}

/// Output of a render, by path, or its error.
type Answer = Result<BTreeMap<String, Vec<u8>>, String>;

impl Source {
    fn of_template(template: String, values: &Value) -> Self {
        let files = [
            ("Chart.yaml", CHART_YAML.to_owned()),
            ("values.yaml", values.to_string()),
            ("templates/case.txt", template),
        ];
        Self::Texts(files.map(|(name, text)| (name.to_owned(), text)).into())
    }

    /// Returns the next chart to render.
    fn random(random: &mut Random, charts: &[PathBuf]) -> Self {
        match random.below(64) {
            0..32 => {
                let list: Value = (0..random.below(5)).map(|_| random.value(1)).collect();
                let map =
                    json!({"k": random.value(2), "a": random.value(1), "x-1": random.value(0)});
                let values = json!({"list": list, "map": map, "any": random.value(3)});
                Self::of_template(random.template(), &values)
            }
            32..63 => {
                let function = random.pick(&["fromYaml", "fromYamlArray"]);
                let template = format!("{{{{ {function} .Values.text | toJson }}}}");
                Self::of_template(template, &json!({"text": random.yaml()}))
            }
            _ => match charts.get(random.below(charts.len())) {
                Some(path) => Self::Path(path.clone(), random.changes(path)),
                None => Self::of_template(random.template(), &json!({})),
            },
        }
    }

    /// Renders the chart here.
    fn render(&self) -> Answer {
        let text = |error: &dyn Error| error.to_string();
        let (chart, user) = match self {
            Self::Texts(files) => {
                let files = files
                    .iter()
                    .map(|(name, text)| File::new(name.as_str(), text));
                (Chart::from_files(files), Values::new())
            }
            Self::Path(path, changes) => {
                let user = values::read(Value::Object(changes.clone()).to_string().as_bytes());
                (Chart::load(path), user.map_err(|error| text(&error))?)
            }
        };
        let chart = chart.map_err(|error| text(&error))?;
        let compiled = CompiledChart::compile(&chart).map_err(|error| text(&error))?;
        let values = compiled.coalesce(user).map_err(|error| text(&error))?;
        let input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
        let output = compiled
            .render_files(&input)
            .map_err(|error| text(&error))?;
        let files = output.files.into_iter();
        Ok(files.collect())
    }

    /// Returns whether a text has a byte-order mark after its first character. Go's reader drops the first character
    /// of each line while its buffer begins with such a mark.
    fn has_later_mark(&self) -> bool {
        let Self::Texts(files) = self else {
            return false;
        };
        let values = files
            .get("values.yaml")
            .and_then(|text| serde_json::from_str(text).ok());
        let values: Value = values.unwrap_or_default();
        let text = values.get("text").and_then(Value::as_str);
        text.is_some_and(|text| text.char_indices().any(|(at, c)| at > 0 && c == MARK))
    }

    fn question(&self) -> Value {
        match self {
            Self::Texts(files) => json!({"files": files}),
            Self::Path(path, values) => json!({"path": path, "values": values}),
        }
    }
}

impl Random {
    /// Returns values that differ from those of a chart in up to four places.
    fn changes(&mut self, path: &Path) -> Map<String, Value> {
        let mut changes = Map::new();
        let Ok(chart) = Chart::load(path) else {
            return changes;
        };
        let own = serde_json::to_value(chart.values()).unwrap_or_default();
        for _ in 0..=self.below(4) {
            let mut at = &own;
            let mut keys = Vec::new();
            while let Value::Object(map) = at {
                if map.is_empty() || (!keys.is_empty() && self.below(5) == 0) {
                    break;
                }
                let Some((key, below)) = map.iter().nth(self.below(map.len())) else {
                    break;
                };
                keys.push(key.clone());
                at = below;
            }
            // Mostly a value of the same type.
            let value = match at {
                Value::Bool(is) if self.below(4) > 0 => json!(!is),
                Value::String(_) if self.below(4) > 0 => json!(self.pick_of(STRINGS)),
                Value::Number(_) if self.below(4) > 0 => json!(self.int()),
                _ => self.value(2),
            };
            insert(&mut changes, &keys, value);
        }
        changes
    }
}

/// Sets a nested value.
fn insert(map: &mut Map<String, Value>, keys: &[String], value: Value) {
    match keys {
        [] => {}
        [key] => {
            map.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let below = map.entry(key.clone()).or_insert_with(|| json!({}));
            if let Value::Object(below) = below {
                insert(below, rest, value);
            }
        }
    }
}

/// Helm's engine in a process. It ends when its input does.
struct Helm {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    files: BTreeMap<String, String>,
    error: Option<String>,
}

impl Helm {
    fn start(program: &Path) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = process.stdout.take().ok_or("no output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    fn render(&mut self, source: &Source) -> Result<Answer, Box<dyn Error>> {
        writeln!(self.input, "{}", source.question())?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            let status = self.process.wait()?;
            return Err(format!("Helm's engine ended ({status}) by {}", source.question()).into());
        }
        let answered: Answered = serde_json::from_str(&line)?;
        if let Some(error) = answered.error {
            return Ok(Err(error));
        }
        let mut files = BTreeMap::new();
        for (path, text) in answered.files {
            files.insert(path, BASE64.decode(text.as_bytes())?);
        }
        Ok(Ok(files))
    }
}

/// Returns whether two renders print the same. Files that print nothing may be left out.
fn are_alike(ours: &Answer, helms: &Answer) -> bool {
    let printed = |files: &BTreeMap<String, Vec<u8>>| {
        let mut files = files.clone();
        files.retain(|_, text| !text.trim_ascii().is_empty());
        files
    };
    match (ours, helms) {
        (Ok(ours), Ok(helms)) => printed(ours) == printed(helms),
        (ours, helms) => ours.is_err() && helms.is_err(),
    }
}

/// Returns the part of an answer that differs from another one, shortened.
fn shown(answer: &Answer, other: &Answer) -> String {
    let text = match (answer, other) {
        (Err(error), _) => format!("error: {error}"),
        (Ok(files), Err(_)) => format!("{} files", files.len()),
        (Ok(files), Ok(others)) => files
            .iter()
            .find(|(path, text)| others.get(*path) != Some(text))
            .map(|(path, text)| format!("{path}: {:?}", String::from_utf8_lossy(text)))
            .unwrap_or_default(),
    };
    text.chars().take(1000).collect()
}

/// Returns the charts in folders, which are directories or archives.
fn charts_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let entries = folders
        .iter()
        .filter_map(|path| std::fs::read_dir(path).ok());
    let mut charts: Vec<PathBuf> = entries
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.join("Chart.yaml").exists() || path.extension().is_some_and(|e| e == "tgz")
        })
        .collect();
    charts.sort();
    charts
}

fn run() -> Result<bool, Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let program = variable("HELM_ENGINE").ok_or("set HELM_ENGINE, or use make fuzz-helm")?;
    let minutes: f64 = variable("MINUTES").map_or(Ok(10.0), |text| text.parse())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = variable("SEED").map_or(Ok(now.as_secs() | 1), |text| text.parse())?;
    let folders: Vec<PathBuf> = ["helm-charts", "crates/helm-core/tests/charts"]
        .into_iter()
        .map(PathBuf::from)
        .chain(variable("CHARTS").map(PathBuf::from))
        .collect();
    let charts = charts_in(&folders);
    let mut helm = Helm::start(Path::new(&program))?;
    let end = Instant::now() + Duration::try_from_secs_f64(60.0 * minutes)?;
    let mut random = Random(seed);
    let (mut total, mut errors, mut known, mut wrong) = (0_usize, 0_usize, 0_usize, 0_usize);
    eprintln!("SEED={seed}, {} charts", charts.len());
    while Instant::now() < end {
        let source = Source::random(&mut random, &charts);
        let (ours, helms) = (source.render(), helm.render(&source)?);
        total += 1;
        errors += usize::from(helms.is_err());
        // What differs between two renders of Helm is random.
        if are_alike(&ours, &helms) || !are_alike(&helm.render(&source)?, &helms) {
            continue;
        }
        if source.has_later_mark() {
            known += 1;
            continue;
        }
        wrong += 1;
        if wrong <= SHOWN {
            println!(
                "{}\n  here: {}\n  Helm: {}",
                source.question(),
                shown(&ours, &helms),
                shown(&helms, &ours)
            );
        }
    }
    println!(
        "{total} renders, {errors} of them errors of Helm; {wrong} differ, and {known} with a byte-order mark within a \
         text, which are known"
    );
    Ok(wrong == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
