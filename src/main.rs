//! The memcached operator: the charts of `watches.yaml` and the controller of `MemcachedBackup` in
//! one manager. See `crates/hybrid-operator/src/helm/mod.rs` for how charts are run.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hybrid_operator::helm;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{RunArgs, double_dashes};
use hybrid_operator::telemetry::logs;
use memcached_operator::controllers::memcached_backup;

/// Runs memcached on Kubernetes: a chart and a Rust controller in one manager.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  memcached-operator run --watches-file ./watches.yaml"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator.
    Run(Box<RunArgs>),
}

fn main() -> ExitCode {
    let Command::Run(args) = Cli::parse_from(double_dashes(std::env::args_os())).command;
    match run(*args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(args: RunArgs) -> anyhow::Result<()> {
    let options = args.options(|name| std::env::var(name).ok());
    logs::start(&options.logs);

    let charts = helm::load(&options.watches_file)?;
    let mut manager = Manager::new(options).with(memcached_backup::controller());
    for chart in charts {
        manager = manager.with(chart);
    }
    Ok(manager.run().await?)
}

#[expect(clippy::print_stderr, reason = "errors go to standard error")]
fn print_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
