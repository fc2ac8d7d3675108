//! `make demo`: shows the operator step by step on a real API server.
//!
//! Every step uses a Rust client, and prints the equivalent kubectl command. The operator needs
//! none of this.
#![allow(clippy::print_stdout, reason = "the demo prints to the terminal")]

mod cluster;
mod screen;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use cluster::Cluster;
use screen::Screen;
use serde_json::json;

/// Show the memcached operator on a Kubernetes control plane.
#[derive(Parser)]
struct Args {
    /// Keep everything running at the end, until ctrl-c.
    #[arg(long)]
    keep: bool,
    /// Use the cluster of this kubeconfig instead of starting one.
    #[arg(long)]
    kubeconfig: Option<std::path::PathBuf>,
}

const LIMIT: Duration = Duration::from_mins(1);
const MEMCACHED: &str = "memcacheds/memcached-sample";
const BACKUP: &str = "memcachedbackups/memcachedbackup-sample";
const DEPLOYMENT: &str = "deployments/memcached-sample";

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let screen = Screen::new();

    screen.step("A Kubernetes control plane");
    let cluster = Cluster::start(args.kubeconfig.as_deref(), &screen).await?;

    screen.step("The custom resource definitions, and the operator");
    screen.command("kubectl apply -k config/crd");
    cluster
        .apply_file("config/crd/bases/cache.example.com_memcacheds.yaml")
        .await?;
    cluster
        .apply_file("config/crd/bases/cache.example.com_memcachedbackups.yaml")
        .await?;
    screen.command("target/debug/memcached-operator run --watches-file ./watches.yaml");
    let operator = cluster.start_operator().await?;

    create(&cluster, &screen).await?;
    upgrade(&cluster, &screen).await?;
    repair(&cluster, &screen).await?;
    if args.keep {
        leave_running(&cluster, &screen).await?;
    } else {
        delete(&cluster, &screen).await?;
    }
    operator.stop(LIMIT).await?;
    cluster.stop();
    Ok(())
}

/// Applies the samples and waits until they are ready.
async fn create(cluster: &Cluster, screen: &Screen) -> Result<()> {
    screen.step("Two custom resources: the values of a chart, and the input of a Rust controller");
    screen.command("kubectl apply -k config/samples");
    Screen::file("config/samples/cache_v1alpha1_memcached.yaml")?;
    let started = Instant::now();
    cluster
        .apply_file("config/samples/cache_v1alpha1_memcached.yaml")
        .await?;
    cluster
        .apply_file("config/samples/cache_v1alpha1_memcachedbackup.yaml")
        .await?;
    screen.command("kubectl wait --for=condition=Ready memcached/memcached-sample memcachedbackup/memcachedbackup-sample");
    for resource in [MEMCACHED, BACKUP] {
        cluster
            .until(resource, LIMIT, "ready", |object| is_ready(object, 1))
            .await?;
    }
    screen.note(&format!(
        "both ready after {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    screen.table(
        "kubectl get memcached",
        &cluster.table("memcacheds", None).await?,
    );
    screen.table(
        "kubectl get memcachedbackup",
        &cluster.table("memcachedbackups", None).await?,
    );

    screen.step("What the chart created: a real Helm release");
    show_release(cluster, screen).await?;
    screen.note(&format!("replicas: {} and MEMCACHED_MEMORY: {} come from the custom resource, everything else from the chart",
        cluster.field(DEPLOYMENT, "/spec/replicas").await?,
        cluster.field("configmaps/memcached-sample", "/data/MEMCACHED_MEMORY").await?));

    screen.step("What the Rust controller created: copies of what the chart deployed");
    screen.command(
        "kubectl get memcachedbackup memcachedbackup-sample -o jsonpath='{.status.source}'",
    );
    Screen::text(&cluster.field(BACKUP, "/status/source").await?.to_string());
    screen.command(
        "kubectl get memcachedbackup memcachedbackup-sample -o jsonpath='{.status.nodes}'",
    );
    Screen::text(&cluster.field(BACKUP, "/status/nodes").await?.to_string());
    Ok(())
}

/// Changes a value, which upgrades the release.
async fn upgrade(cluster: &Cluster, screen: &Screen) -> Result<()> {
    screen.step("An upgrade: one value changes");
    let patch = json!({"spec": {"replicaCount": 3}});
    screen.command(&format!(
        "kubectl patch memcached memcached-sample --type merge -p '{patch}'"
    ));
    let started = Instant::now();
    cluster.merge(MEMCACHED, &patch).await?;
    cluster
        .until(MEMCACHED, LIMIT, "revision 2", |object| is_ready(object, 2))
        .await?;
    cluster
        .until(DEPLOYMENT, LIMIT, "3 ready replicas", |object| {
            object.pointer("/status/readyReplicas") == Some(&json!(3))
        })
        .await?;
    screen.note(&format!(
        "upgraded and ready after {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    screen.table(
        "kubectl get memcached",
        &cluster.table("memcacheds", None).await?,
    );
    Ok(())
}

/// Scales the Deployment, which the operator scales back.
async fn repair(cluster: &Cluster, screen: &Screen) -> Result<()> {
    screen.step("Drift: somebody scales the Deployment manually");
    screen.command("kubectl scale deployment memcached-sample --replicas=7");
    let started = Instant::now();
    cluster
        .merge(
            "deployments/memcached-sample/scale",
            &json!({"spec": {"replicas": 7}}),
        )
        .await?;
    cluster
        .until(DEPLOYMENT, LIMIT, "3 replicas again", |object| {
            object.pointer("/spec/replicas") == Some(&json!(3))
                && object
                    .pointer("/metadata/generation")
                    .and_then(serde_json::Value::as_i64)
                    > Some(3)
        })
        .await?;
    screen.note(&format!(
        "back at 3 replicas after {:.0} ms",
        started.elapsed().as_secs_f64() * 1e3
    ));
    Ok(())
}

/// Keeps everything running until ctrl-c.
async fn leave_running(cluster: &Cluster, screen: &Screen) -> Result<()> {
    screen.step("Left running");
    Screen::text(&format!(
        "export KUBECONFIG={}",
        cluster.kubeconfig().display()
    ));
    screen.note("ctrl-c stops the operator and the control plane");
    tokio::signal::ctrl_c()
        .await
        .context("cannot wait for ctrl-c")?;
    Ok(())
}

/// Deletes the samples and waits until the release is gone. Kubernetes' garbage collector deletes what the Rust
/// controller created.
async fn delete(cluster: &Cluster, screen: &Screen) -> Result<()> {
    screen.step("Deletion uninstalls the release");
    screen.command("kubectl delete -k config/samples");
    let started = Instant::now();
    cluster.delete(BACKUP).await?;
    cluster.delete(MEMCACHED).await?;
    for resource in [MEMCACHED, DEPLOYMENT] {
        cluster.until_gone(resource, LIMIT).await?;
    }
    screen.note(&format!(
        "the release is gone after {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    show_release(cluster, screen).await?;
    Ok(())
}

/// Shows the objects and the records of the sample's release.
async fn show_release(cluster: &Cluster, screen: &Screen) -> Result<()> {
    let selector = "app.kubernetes.io/instance=memcached-sample";
    for kind in ["deployments", "services", "configmaps", "serviceaccounts"] {
        let table = cluster.table(kind, Some(selector)).await?;
        screen.table(&format!("kubectl get {kind} -l {selector}"), &table);
    }
    let records = cluster.table("secrets", Some("owner=helm")).await?;
    screen.table("kubectl get secrets -l owner=helm", &records);
    Ok(())
}

/// Returns whether a custom resource is `Ready` at its current generation, and its release (if it
/// has one) has at least this revision.
fn is_ready(object: &serde_json::Value, revision: i64) -> bool {
    let generation = object.pointer("/metadata/generation");
    let ready = object
        .pointer("/status/conditions")
        .and_then(|conditions| conditions.as_array())
        .into_iter()
        .flatten()
        .any(|c| c.get("type") == Some(&json!("Ready")) && c.get("status") == Some(&json!("True")));
    let release = object
        .pointer("/status/release/revision")
        .and_then(serde_json::Value::as_i64);
    ready
        && object.pointer("/status/observedGeneration") == generation
        && release.is_none_or(|found| found >= revision)
}
