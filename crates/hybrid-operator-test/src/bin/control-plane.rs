//! `control-plane`: builds and runs the control plane for tests, from the command line and the
//! Makefile.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use go_programs::CONTROL_PLANE;
use hybrid_operator_test::control_plane::{ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  control-plane build                      build it in advance, so that the first test does not wait
  control-plane up                         run an empty cluster until ctrl-c
  control-plane up --dir target/demo       the same, with kubeconfig and logs in target/demo
  control-plane up --user dev:developers   add a user, with dev.kubeconfig
  control-plane path                       print the path of the binary";

/// Run a Kubernetes control plane for tests, without containers: etcd, kube-apiserver,
/// kube-controller-manager, kube-scheduler and kwok.
///
/// The binary is built once from Go sources, in Cargo's target directory or in `CONTROL_PLANE_DIR`;
/// `CONTROL_PLANE_BIN` names an existing one.
#[derive(Parser)]
#[command(name = "control-plane", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the binary if needed, and print its path. Needs Go.
    Build,
    /// Start an empty cluster, print `export KUBECONFIG=...`, and run until ctrl-c.
    Up {
        /// Directory of state, logs and credentials [default: a new one in the cache]
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Write an audit log of all requests to DIR/audit.log
        #[arg(long)]
        audit: bool,
        /// Add a user, with credentials in DIR/NAME.kubeconfig; can be repeated
        #[arg(long, value_name = "NAME[:GROUP,...]", value_parser = parse_user)]
        user: Vec<(String, Vec<String>)>,
    },
    /// Print the path of the binary; fail if it is not built.
    Path,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Build => print_line(&CONTROL_PLANE.ensure()?.display()),
        Command::Path => match CONTROL_PLANE.find()? {
            Some(path) => print_line(&path.display()),
            None => anyhow::bail!(
                "the control plane is not built; build it with `control-plane build` (it will be {})",
                CONTROL_PLANE.built_path().display()
            ),
        },
        Command::Up { dir, audit, user } => {
            up(Options {
                dir,
                audit,
                users: user,
                ..Options::default()
            })
            .await
        }
    }
}

async fn up(options: Options) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let plane = tokio::select! {
        plane = ControlPlane::start(options) => plane.context("cannot start the control plane")?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    print_line(&format_args!(
        "export KUBECONFIG={}",
        plane.kubeconfig_path().display()
    ))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    plane.stop();
    Ok(())
}

fn parse_user(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, groups) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() {
        return Err("the name of the user is missing; use NAME or NAME:GROUP,...".to_owned());
    }
    let groups = groups
        .split(',')
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    Ok((name.to_owned(), groups))
}

fn print_line(line: &dyn std::fmt::Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}
