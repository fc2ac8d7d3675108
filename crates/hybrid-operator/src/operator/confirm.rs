//! Asks before an operator outside of a Pod changes a cluster that is not of this machine: a kubeconfig may name
//! another cluster than its user has in mind.

use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::Path;

use kube::config::Kubeconfig;
use kube_objects::client;

/// Nobody has agreed to the cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfirmed {
    #[error("nothing was changed in {0}; name another cluster with --kubeconfig")]
    Denied(String),
    #[error("cannot ask about the cluster; add --yes")]
    Ask(#[from] io::Error),
}

/// Asks if the cluster is not local; without a terminal, it is logged. A kubeconfig that cannot be used is reported later.
pub(super) async fn confirm(kubeconfig: Option<&Path>) -> Result<(), NotConfirmed> {
    let Ok(config) = client::config(kubeconfig).await else {
        return Ok(());
    };
    if client::is_local(&config.cluster_url) {
        return Ok(());
    }
    let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let context = read.ok().and_then(|file| file.current_context);
    let context = context.map(|name| format!(" (context {name})"));
    let cluster = format!("{}{}", config.cluster_url, context.unwrap_or_default());
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        tracing::warn!(
            cluster,
            "the cluster is not one of this machine, and there is no terminal to ask whether it is meant"
        );
        return Ok(());
    }
    ask(&cluster, &mut io::stdin().lock(), &mut io::stderr().lock())
}

fn ask(cluster: &str, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), NotConfirmed> {
    write!(
        output,
        "The operator changes {cluster}, which is not a cluster of this machine. Continue? [y/N] "
    )?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(NotConfirmed::Denied(cluster.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{NotConfirmed, ask};

    #[test]
    fn only_a_yes_is_one() {
        let answer = |text: &str| {
            let mut shown = Vec::new();
            let answer = ask("https://prod/", &mut text.as_bytes(), &mut shown);
            let shown = String::from_utf8(shown).unwrap();
            assert!(shown.contains("https://prod/"), "{shown}");
            answer
        };
        for text in ["y\n", "Yes\n", "YES"] {
            assert!(answer(text).is_ok(), "{text}");
        }
        for text in ["", "\n", "n\n", "no\n", "yes please\n"] {
            let denied = answer(text);
            assert!(matches!(denied, Err(NotConfirmed::Denied(_))), "{text}");
        }
    }
}
