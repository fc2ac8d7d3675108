//! The same history leads to the same requests: in two runs of a process, and in two processes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::{Child, Command, Stdio};

use super::{SIMULATION, seeds};

/// Number of histories of a run without `REPLAYS`.
const HISTORIES: u64 = 4;

/// Seeds `FROM..TO` whose hashes the second process prints, or whose lines if `WHOLE` is set.
const SECOND: &str = "REPLAYS_OF_THE_SECOND_PROCESS";
const WHOLE: &str = "REPLAYS_WHOLE";

/// Precedes each line of the second process that is for the first one.
const MARK: &str = "replayed: ";

#[test]
fn a_history_has_the_same_requests_in_each_run_and_in_each_process() {
    if let Some(seeds) = seeds(SECOND) {
        return print_traces(seeds);
    }
    let seeds = seeds("REPLAYS").unwrap_or(0..HISTORIES);
    let second = start(&format!("{}..{}", seeds.start, seeds.end), false);
    let simulation = &*SIMULATION;
    let mut hashes = BTreeMap::new();
    let mut different = Vec::new();
    let mut writes = 0;
    for seed in seeds.clone() {
        let history = simulation.history(seed);
        let first = simulation.trace(&history).unwrap();
        let is_write = |line: &&String| line.contains(" PATCH /") && line.contains(" process-");
        writes += first.iter().filter(is_write).count();
        let again = simulation.trace(&history).unwrap();
        if let Some(difference) = difference(&first, &again) {
            println!("seed {seed}, in the same process: {difference}");
            different.push(seed);
        }
        hashes.insert(seed, hash(&first));
    }
    let mut others: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines_of(second) {
        let (seed, hash) = line.split_once(' ').unwrap();
        others.insert(seed.parse().unwrap(), hash.parse().unwrap());
    }
    for (seed, hash) in &hashes {
        if others.get(seed) == Some(hash) {
            continue;
        }
        let second = lines_of(start(&format!("{seed}..{}", seed + 1), true));
        let first = simulation.trace(&simulation.history(*seed)).unwrap();
        let difference = difference(&first, &second);
        let difference = difference
            .as_deref()
            .unwrap_or("not when they are repeated");
        println!("seed {seed}, in another process: {difference}");
        different.push(*seed);
    }
    println!("{} histories, each in three runs", hashes.len());
    assert!(
        different.is_empty(),
        "the runs of these seeds differ: {different:?}"
    );
    assert_eq!(hashes.len(), others.len());
    assert!(writes > 0, "the programs have written nothing");
}

/// Prints the traces of seeds, the last one first, so that what earlier histories leave in the process differs.
fn print_traces(seeds: std::ops::Range<u64>) {
    let simulation = &*SIMULATION;
    // The harness of tests leaves a line open.
    println!();
    for seed in seeds.rev() {
        let trace = simulation.trace(&simulation.history(seed)).unwrap();
        if std::env::var_os(WHOLE).is_none() {
            println!("{MARK}{seed} {}", hash(&trace));
            continue;
        }
        for line in trace {
            println!("{MARK}{line}");
        }
    }
}

/// Starts this test in a process of its own.
fn start(seeds: &str, is_whole: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "replay::a_history_has_the_same_requests_in_each_run_and_in_each_process";
    command.args(["--exact", test, "--nocapture"]);
    command.env(SECOND, seeds).stdout(Stdio::piped());
    if is_whole {
        command.env(WHOLE, "1");
    }
    command.spawn().unwrap()
}

fn lines_of(process: Child) -> Vec<String> {
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "the second process has failed");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(MARK));
    lines.map(str::to_owned).collect()
}

fn hash(trace: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    trace.hash(&mut hasher);
    hasher.finish()
}

/// Returns the first lines that differ, with the line before.
fn difference(one: &[String], other: &[String]) -> Option<String> {
    let count = one.len().max(other.len());
    let at = (0..count).find(|at| one.get(*at) != other.get(*at))?;
    let line = |trace: &[String], at: usize| {
        let line = trace.get(at).map_or("nothing", String::as_str);
        line.chars().take(600).collect::<String>()
    };
    let before = at.checked_sub(1).map(|at| line(one, at));
    Some(format!(
        "line {at} of {count}\n  after {}\n  one   {}\n  other {}",
        before.unwrap_or_default(),
        line(one, at),
        line(other, at)
    ))
}
