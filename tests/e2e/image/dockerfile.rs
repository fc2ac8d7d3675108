//! Reads Dockerfiles as far as those of this repository go; everything else is refused.

/// A stage: its name, the image that it begins with, and its instructions.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: Option<String>,
    pub(super) base: String,
    pub(super) steps: Vec<Step>,
}

/// An instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Text of the shell.
    Run(String),
    /// Sources, of another stage or of the project, and the destination.
    Copy {
        from: Option<String>,
        sources: Vec<String>,
        to: String,
    },
    /// A variable that the engine sets, or its default.
    Arg(String, Option<String>),
    Label(Vec<(String, String)>),
    Env(String, String),
    Workdir(String),
    User(String),
    Entrypoint(Vec<String>),
}

/// Returns the stages of a Dockerfile.
pub(super) fn parse(text: &str) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    // The arguments before the first stage, with their defaults.
    let mut arguments: Vec<(String, String)> = Vec::new();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let text = lines.join("\n").replace("\\\n", "");
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim();
        if name == "FROM" {
            let words: Vec<&str> = rest.split_whitespace().collect();
            // The processor of the engine, which is that of this machine.
            let words = words
                .strip_prefix(&["--platform=$BUILDPLATFORM"])
                .unwrap_or(&words);
            let (base, name) = match words {
                [base] => (base, None),
                [base, "AS", name] => (base, Some((*name).to_owned())),
                _ => panic!("not known here: {line}"),
            };
            let argument = base.strip_prefix('$').map(|name| {
                let mut known = arguments.iter();
                known.find(|(known, _)| known == name).unwrap().1.clone()
            });
            stages.push(Stage {
                name,
                base: argument.unwrap_or_else(|| (*base).to_owned()),
                steps: Vec::new(),
            });
            continue;
        }
        if let Some(stage) = stages.last_mut() {
            stage.steps.push(step(name, rest));
        } else {
            assert_eq!(name, "ARG", "not known here: {line}");
            let (name, default) = rest.split_once('=').unwrap();
            arguments.push((name.to_owned(), default.to_owned()));
        }
    }
    stages
}

fn step(name: &str, rest: &str) -> Step {
    match name {
        "RUN" => {
            assert!(!rest.starts_with(['-', '[']), "not known here: RUN {rest}");
            Step::Run(rest.to_owned())
        }
        "COPY" => {
            let mut words: Vec<&str> = rest.split_whitespace().collect();
            let from = words.first().and_then(|word| word.strip_prefix("--from="));
            let from = from.map(ToOwned::to_owned);
            if from.is_some() {
                words.remove(0);
            }
            assert!(!words[0].starts_with('-'), "not known here: COPY {rest}");
            let to = words.pop().unwrap().to_owned();
            let sources = words.into_iter().map(ToOwned::to_owned).collect();
            Step::Copy { from, sources, to }
        }
        "ARG" => match rest.split_once('=') {
            Some((name, default)) => Step::Arg(name.to_owned(), Some(default.to_owned())),
            None => Step::Arg(rest.to_owned(), None),
        },
        "LABEL" => Step::Label(labels(rest)),
        "ENV" => {
            let (name, value) = rest.split_once('=').unwrap();
            let quoted = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'));
            let has_one = quoted.is_some() || !value.contains(' ');
            let value = quoted.unwrap_or(value);
            assert!(
                has_one && !value.contains('"'),
                "not known here: ENV {rest}"
            );
            Step::Env(name.to_owned(), value.to_owned())
        }
        "WORKDIR" => Step::Workdir(rest.to_owned()),
        "USER" => Step::User(rest.to_owned()),
        "ENTRYPOINT" => Step::Entrypoint(serde_json::from_str(rest).unwrap()),
        other => panic!("not known here: {other}"),
    }
}

/// Returns the labels of an instruction, whose values are in quotes.
fn labels(mut rest: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"').unwrap();
        labels.push((name.trim().to_owned(), value.to_owned()));
        rest = after;
    }
    assert_eq!(rest.trim(), "", "not known here: LABEL {rest}");
    labels
}

#[test]
fn stages_instructions_and_continued_lines_are_read() {
    let stages = parse(
        "# x\nARG BASE=b\nFROM --platform=$BUILDPLATFORM a:1 AS build\nARG A\nENV B=\"b c\"\nRUN one \\\n && two\n\nFROM $BASE\nARG R=1\nLABEL a=\"b c\" d=\"$R\"\nCOPY --from=build /x /y z/\nUSER 7\nENTRYPOINT [\"/p\", \"q\"]\n",
    );
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (stages[0].name.as_deref(), stages[0].base.as_str()),
        (Some("build"), "a:1")
    );
    assert_eq!(stages[1].base, "b");
    assert_eq!(
        stages[0].steps,
        [
            Step::Arg("A".to_owned(), None),
            Step::Env("B".to_owned(), "b c".to_owned()),
            Step::Run("one  && two".to_owned()),
        ]
    );
    assert_eq!(
        stages[1].steps,
        [
            Step::Arg("R".to_owned(), Some("1".to_owned())),
            Step::Label(vec![
                ("a".to_owned(), "b c".to_owned()),
                ("d".to_owned(), "$R".to_owned())
            ]),
            Step::Copy {
                from: Some("build".to_owned()),
                sources: words(&["/x", "/y"]),
                to: "z/".to_owned()
            },
            Step::User("7".to_owned()),
            Step::Entrypoint(words(&["/p", "q"])),
        ]
    );
}
