//! The blocks of a document, and whether outputs are what they show.

/// Commands and what they print.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Block {
    /// The terminal of its own in which the command runs.
    pub(super) terminal: Option<String>,
    /// None if this is what an earlier command of the terminal prints.
    pub(super) commands: Vec<String>,
    /// `None` if the document does not show it.
    pub(super) output: Option<String>,
}

pub(super) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = document.lines();
    // Whether the line before ended a block of commands.
    let mut follows = false;
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            follows = false;
            continue;
        };
        let text: Vec<&str> = lines
            .by_ref()
            .take_while(|l| !l.starts_with("```"))
            .collect();
        let (language, terminal) = match info.split_once(' ') {
            Some((language, terminal)) => (language, Some(terminal.to_owned())),
            None => (info, None),
        };
        match language {
            "sh" => blocks.push(Block {
                terminal,
                commands: commands(&text),
                output: None,
            }),
            "text" if terminal.is_some() => blocks.push(Block {
                terminal,
                commands: Vec::new(),
                output: Some(text.join("\n")),
            }),
            "" if follows => {
                if let Some(block) = blocks.last_mut() {
                    block.output = Some(text.join("\n"));
                }
            }
            _ => {}
        }
        follows = language == "sh";
    }
    blocks
}

/// Splits lines into commands: one each, unless a line ends with a backslash or begins a document.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut command = (*line).to_owned();
        let mut add = |command: &mut String| {
            let line = lines.next()?;
            command.push('\n');
            command.push_str(line);
            Some(*line)
        };
        while command.ends_with('\\') && add(&mut command).is_some() {}
        if let Some((_, rest)) = command.clone().split_once("<<") {
            let end = rest.split_whitespace().next().unwrap_or_default();
            let end = end.trim_matches(['\'', '"', '-']);
            while add(&mut command).is_some_and(|line| line != end) {}
        }
        commands.push(command);
    }
    commands
}

/// Returns how many lines of `shown` are `printed`; `None` if other lines are shown.
pub(super) fn shown_of(shown: &[String], printed: &[String]) -> Option<usize> {
    match (shown, printed) {
        ([any, shown @ ..], _) if any == "..." => {
            let mut rests = (0..=printed.len()).map(|skipped| &printed[skipped..]);
            Some(1 + rests.find_map(|rest| shown_of(shown, rest))?)
        }
        (_, []) => Some(0),
        ([line, shown @ ..], [same, printed @ ..]) if line == same => {
            Some(1 + shown_of(shown, printed)?)
        }
        _ => None,
    }
}

/// Returns the number of lines of `printed` until all lines of `shown` were there, in this order.
/// If some are not, returns the first of these.
pub(super) fn found_in(shown: &[String], printed: &[String]) -> Result<usize, String> {
    let mut rest = printed.iter();
    for line in shown {
        if !rest.any(|printed| printed == line) {
            return Err(line.clone());
        }
    }
    Ok(printed.len() - rest.len())
}

#[test]
fn commands_are_single_lines_continued_lines_and_documents() {
    let readme =
        "```sh\n# a comment\none \\\n  more\ncat <<END\ntext\nEND\nlast\n```\n```\nout\n```\n";
    let block = Block {
        terminal: None,
        commands: ["one \\\n  more", "cat <<END\ntext\nEND", "last"]
            .map(str::to_owned)
            .to_vec(),
        output: Some("out".to_owned()),
    };
    assert_eq!(blocks(readme), [block]);
}

#[test]
fn terminals_have_a_command_and_several_outputs() {
    let document = "```sh web\nserve\n```\n```\nup\n```\ntext\n```text web\n^Cdown\n```\n";
    let block = |commands: &[&str], output: &str| Block {
        terminal: Some("web".to_owned()),
        commands: commands
            .iter()
            .map(|command| (*command).to_owned())
            .collect(),
        output: Some(output.to_owned()),
    };
    assert_eq!(
        blocks(document),
        [block(&["serve"], "up"), block(&[], "^Cdown")]
    );
}

#[test]
fn three_dots_stand_for_any_lines() {
    let lines =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    for (shown, printed, taken) in [
        ("a b", "a b", Some(2)),
        ("a b c", "a b", Some(2)),
        ("a ... d e", "a b c d", Some(3)),
        ("... c", "c", Some(2)),
        ("a ...", "a b c", Some(2)),
        ("a ...", "a", Some(2)),
        ("a b", "a c", None),
        ("a", "a b", None),
        ("a ... e", "a b c", Some(2)),
    ] {
        assert_eq!(shown_of(&lines(shown), &lines(printed)), taken, "{shown}");
    }
    assert_eq!(found_in(&lines("b d"), &lines("a b c d e")), Ok(4));
    assert_eq!(
        found_in(&lines("d b"), &lines("a b c d e")),
        Err("b".to_owned())
    );
}
