//! Runs the demo, and compares what it prints with the page about it.

use std::process::Command;

use hybrid_operator_test::shared_or_skip;

use crate::transcript::{prints, programs};
use crate::world::{output, root};

/// Runs a command in the root of the repository, which must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let command = command
        .current_dir(root())
        // For test programs only: with another value, everything is compiled again.
        .env_remove("RUSTC_BOOTSTRAP")
        .env_remove("KUBECONFIG");
    output(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_prints_what_its_page_shows() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    // With the features of the tests, so that these compile nothing again.
    let build = [
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--example",
        "demo",
    ];
    run(Command::new(env!("CARGO")).args(build));
    let printed = run(&mut Command::new(programs().join("examples/demo")));
    let page = std::fs::read_to_string(root().join("docs/tutorial/start.md")).unwrap();
    let (_, shown) = page.split_once("```console\n$ make demo\n").unwrap();
    let (shown, _) = shown.split_once("\n```").unwrap();
    if let Err(line) = prints(&timeless(&printed), &timeless(shown)) {
        panic!(
            "the demo does not print this line of docs/tutorial/start.md next: {line}\n{printed}"
        );
    }
    // The page leaves out nothing but what it says.
    let steps = |text: &str| text.lines().filter(|line| is_step(line)).count();
    assert_eq!(steps(&printed), steps(shown), "{printed}");
}

fn is_step(line: &str) -> bool {
    line.split_once(". ")
        .is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// Returns a text without the measured times in remarks: `# ready after 0.3 s`.
fn timeless(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" after ") {
        Some((what, _)) if line.starts_with('#') => format!("{what} after\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}
