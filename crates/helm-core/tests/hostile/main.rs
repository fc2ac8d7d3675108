//! No chart can kill, hang or blow up the process, and neither can a lack of threads.
//!
//! Each hostile input runs in a child process: this test program, started again with a limit on its
//! address space and a deadline. The child must end by itself, with an error that names the limit,
//! and its memory must stay close to the limit of a render.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and the child prints its result"
)]

mod inputs;

use std::process::Command;
use std::sync::Mutex;
use std::thread;

use inputs::{Input, inputs};

/// Names the input that a child process runs.
const INPUT: &str = "HOSTILE_INPUT";
/// Seconds of processor time that a child may take. A render may take ten.
const PROCESSOR_TIME: &str = "40";
/// Seconds after which a child is ended that does nothing, also on a busy machine.
const DEADLINE: &str = "300";
/// The memory that a child may take, in MiB: the limit of a render, what a child takes that does nothing,
/// and an allowance for what is not counted exactly.
const MEMORY: u64 = 256 + 160;
/// The address space of a child, in KiB; it includes memory that was only reserved.
const ADDRESS_SPACE: &str = "2500000";

/// The inputs of this group run in a process that cannot start threads.
const WITHOUT_THREADS: &str = "threads";
/// The size of the stack of a new thread in such a process, in bytes: more than its address space.
const STACK_OF_A_THREAD: &str = "4000000000";

/// Runs one input. This is the child's part, and does nothing without [`INPUT`].
#[test]
fn child() {
    let Ok(name) = std::env::var(INPUT) else {
        return;
    };
    let mut inputs = inputs().into_iter();
    let input = inputs.find(|input| input.name == name).unwrap();
    // The result of a chart's own text may be long.
    let result = match (input.run)() {
        Ok(text) => format!("ok: {}", text.chars().take(200).collect::<String>()),
        Err(error) => format!("error: {error}"),
    };
    println!("{result}\npeak: {}", peak());
}

/// Returns the highest resident memory of this process, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap() / 1024
}

/// Runs an input in a child process. Returns what is wrong with the result.
fn run(input: &Input) -> Result<(), String> {
    let program = std::env::current_exe().unwrap();
    let child = Command::new("timeout")
        .args(["--signal=KILL", DEADLINE, "sh", "-c"])
        .arg("ulimit -c 0; ulimit -v \"$0\"; ulimit -t \"$1\"; shift; exec \"$@\"")
        .args([ADDRESS_SPACE, PROCESSOR_TIME])
        .arg(program)
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(INPUT, &input.name)
        .envs((input.group == WITHOUT_THREADS).then_some(("RUST_MIN_STACK", STACK_OF_A_THREAD)))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    let Some((_, result)) = out.split_once("error: ").or_else(|| out.split_once("ok: ")) else {
        let stderr = String::from_utf8_lossy(&child.stderr);
        let err: String = stderr.lines().rev().take(3).collect::<Vec<_>>().join(" | ");
        return Err(format!("killed the process ({}): {err}", child.status));
    };
    let (message, peak) = result.rsplit_once("peak: ").unwrap();
    let peak: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    if let Some(part) = input.wanted.iter().find(|part| !message.contains(*part)) {
        let shown: String = message.chars().take(600).collect();
        return Err(format!("no {part:?} in {shown:?}"));
    }
    if peak > MEMORY {
        return Err(format!("took {peak} MiB of memory, more than {MEMORY}"));
    }
    Ok(())
}

/// Runs the inputs of a group, two at a time.
fn check(group: &str) {
    let only = std::env::var("ONLY").unwrap_or_default();
    let inputs = Mutex::new(inputs().into_iter());
    let next = || {
        let is_chosen = |input: &Input| input.group == group && input.name.contains(&only);
        inputs.lock().unwrap().find(is_chosen)
    };
    let run_all = || {
        let chosen = std::iter::from_fn(next);
        let wrong =
            chosen.filter_map(|input| Some(format!("{}: {}", input.name, run(&input).err()?)));
        wrong.collect::<Vec<_>>()
    };
    let wrong = thread::scope(|scope| {
        let other = scope.spawn(run_all);
        [run_all(), other.join().unwrap()].concat()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn shared_values_that_unfold_to_2_to_the_40_are_stopped() {
    check("unfolding");
}

#[test]
fn deep_nesting_is_stopped_at_any_point_of_the_stack() {
    check("nesting");
}

#[test]
fn documents_that_expand_are_stopped() {
    check("yaml");
}

#[test]
fn costly_regular_expressions_are_stopped() {
    check("regex");
}

#[test]
fn long_texts_and_slow_functions_are_stopped() {
    check("text");
}

#[test]
fn a_process_that_cannot_start_threads_renders_all_the_same() {
    check(WITHOUT_THREADS);
}

#[test]
fn hostile_schemas_archives_and_flags_are_stopped() {
    check("chart");
}
