//! Plays the kubelet for Pods of etcd: runs a real etcd for each Pod, on free ports of loopback, with
//! the flags of the Pod. Addresses in flags, requests and answers are translated.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use etcd_cluster::membership::{
    Consistency, Gateway, Member, MemberId, MemberStatus, Membership, MembershipError,
};
use futures::StreamExt;
use hybrid_operator_test::Program;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::ResourceExt;
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::world::eventually;

/// Pause before processes that have ended are started again, as the kubelet does with containers.
const RESTART: Duration = Duration::from_millis(200);

/// Where the members of a cluster are on loopback.
#[derive(Clone, Default)]
pub(super) struct Loopback {
    gateway: Gateway,
    addresses: Arc<Mutex<Addresses>>,
    processes: Arc<Mutex<BTreeMap<String, Process>>>,
}

/// Original addresses, such as `db-x.db.namespace.svc:2380`, and their ports on loopback.
#[derive(Default)]
struct Addresses {
    ports: BTreeMap<String, Port>,
}

/// A port that only sockets with `SO_REUSEPORT` can be bound to, such as those of an etcd with
/// `--socket-reuse-port`: no other program gets it before etcd has started, or while it is restarted.
struct Port {
    number: u16,
    /// Does not listen, so that all connections are etcd's.
    _reserved: TcpSocket,
}

impl Port {
    fn reserve() -> std::io::Result<Self> {
        let reserved = TcpSocket::new_v4()?;
        reserved.set_reuseport(true)?;
        reserved.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self {
            number: reserved.local_addr()?.port(),
            _reserved: reserved,
        })
    }
}

impl Addresses {
    fn port(&mut self, original: &str) -> u16 {
        let port = self.ports.entry(original.to_owned());
        port.or_insert_with(|| Port::reserve().unwrap()).number
    }

    /// Translates the addresses in a text.
    fn local(&mut self, text: &str) -> String {
        let mut parts = text.split("http://");
        let first = parts.next().unwrap_or_default().to_owned();
        let parts = parts.map(|part| {
            let end = part.find(',').unwrap_or(part.len());
            let (address, rest) = part.split_at(end);
            format!("{}{rest}", self.port(address))
        });
        let parts: Vec<String> = std::iter::once(first).chain(parts).collect();
        parts.join("http://127.0.0.1:")
    }

    /// Translates an address back.
    fn original(&self, url: &str) -> String {
        let mut ports = self.ports.iter();
        let found = ports.find(|(_, port)| url == format!("http://127.0.0.1:{}", port.number));
        found.map_or_else(
            || url.to_owned(),
            |(original, _)| format!("http://{original}"),
        )
    }
}

/// The etcd of a Pod.
struct Process {
    uid: String,
    image: String,
    flags: Vec<String>,
    program: Program,
    client_url: String,
    _dir: tempfile::TempDir,
    log: PathBuf,
}

impl Loopback {
    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn local(&self, url: &str) -> String {
        self.addresses().local(url)
    }

    fn originals(&self, members: Vec<Member>) -> Vec<Member> {
        let addresses = self.addresses();
        let original = |member: Member| Member {
            peer_url: addresses.original(&member.peer_url),
            ..member
        };
        members.into_iter().map(original).collect()
    }
}

/// etcd at the addresses on loopback. All processes are of one release: the one that they report is
/// that of the image with which they were started.
impl Membership for Loopback {
    async fn list(
        &self,
        endpoint: &str,
        consistency: Consistency,
    ) -> Result<Vec<Member>, MembershipError> {
        let members = self
            .gateway
            .list(&self.local(endpoint), consistency)
            .await?;
        Ok(self.originals(members))
    }

    async fn add_learner(
        &self,
        endpoint: &str,
        peer_url: &str,
    ) -> Result<Vec<Member>, MembershipError> {
        let (endpoint, peer_url) = (self.local(endpoint), self.local(peer_url));
        let members = self.gateway.add_learner(&endpoint, &peer_url).await?;
        Ok(self.originals(members))
    }

    async fn promote(&self, endpoint: &str, id: MemberId) -> Result<(), MembershipError> {
        self.gateway.promote(&self.local(endpoint), id).await
    }

    async fn remove(&self, endpoint: &str, id: MemberId) -> Result<(), MembershipError> {
        self.gateway.remove(&self.local(endpoint), id).await
    }

    async fn status(&self, endpoint: &str) -> Result<MemberStatus, MembershipError> {
        let local = self.local(endpoint);
        let status = self.gateway.status(&local).await?;
        let processes = self.processes();
        let process = processes
            .values()
            .find(|process| process.client_url == local);
        let tag = process.and_then(|process| process.image.rsplit_once(":v"));
        let version = tag.map_or(status.version, |(_, version)| version.to_owned());
        Ok(MemberStatus { version, ..status })
    }
}

/// A change of the image of a running Pod.
#[derive(Debug, Clone)]
pub(super) struct Upgrade {
    /// Whether all other members were healthy when this one was stopped.
    pub(super) others_were_healthy: bool,
    /// The new image.
    #[expect(dead_code, reason = "shown by a failing test")]
    pub(super) image: String,
}

/// Runs the Pods of a namespace until it is dropped.
pub(super) struct Kubelet {
    loopback: Loopback,
    upgrades: Arc<Mutex<Vec<Upgrade>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
        self.loopback.processes().clear();
    }
}

impl Kubelet {
    /// Starts it; the data of the members is in directories below `root`.
    pub(super) fn start(binary: PathBuf, root: PathBuf, pods: Api<Pod>) -> Self {
        let loopback = Loopback::default();
        let upgrades = Arc::<Mutex<Vec<Upgrade>>>::default();
        let worker = Worker {
            binary,
            root,
            loopback: loopback.clone(),
            upgrades: Arc::clone(&upgrades),
        };
        let task = tokio::spawn(worker.run(pods));
        Self {
            loopback,
            upgrades,
            task,
        }
    }

    /// Returns how to reach the members.
    pub(super) fn loopback(&self) -> Loopback {
        self.loopback.clone()
    }

    pub(super) fn upgrades(&self) -> Vec<Upgrade> {
        let upgrades = self.upgrades.lock();
        upgrades.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether there is a process for a Pod of this name.
    pub(super) fn runs(&self, name: &str) -> bool {
        self.loopback.processes().contains_key(name)
    }

    /// Kills the etcd of a Pod; it is started again.
    pub(super) fn kill(&self, name: &str) {
        if let Some(process) = self.loopback.processes().get_mut(name) {
            process.program.kill();
        }
    }

    /// Returns the members as a majority of them confirms, with the addresses of their Pods.
    pub(super) async fn members(&self) -> Vec<Member> {
        let list = async || {
            for url in self.client_urls() {
                let gateway = &self.loopback.gateway;
                if let Ok(members) = gateway.list(&url, Consistency::Agreed).await {
                    return Some(self.loopback.originals(members));
                }
            }
            None
        };
        eventually("the member list", list).await
    }

    /// Returns whether the cluster has so many voting members, each with a process that follows a
    /// leader, and no others.
    pub(super) async fn is_whole(&self, size: usize) -> bool {
        let members = self.members().await;
        let voters = members
            .iter()
            .filter(|member| member.started && !member.learner);
        let urls = self.client_urls();
        if members.len() != size || voters.count() != size || urls.len() != size {
            return false;
        }
        let healthy =
            futures::stream::iter(urls).all(async |url| is_healthy(&self.loopback, &url).await);
        healthy.await
    }

    fn client_urls(&self) -> Vec<String> {
        let processes = self.loopback.processes();
        processes
            .values()
            .map(|process| process.client_url.clone())
            .collect()
    }

    /// Stores a value.
    pub(super) async fn put(&self, key: &str, value: &str) {
        let body =
            json!({"key": BASE64.encode(key.as_bytes()), "value": BASE64.encode(value.as_bytes())});
        let put = async || {
            let url = self.client_urls().into_iter().next().ok_or("no member")?;
            post(&url, "/v3/kv/put", &body).await.map_err(|_| "refused")
        };
        eventually("the write", put).await;
    }

    /// Returns the value that a member has by itself.
    pub(super) async fn get(&self, member: &str, key: &str) -> Option<String> {
        let url = self.loopback.processes()[member].client_url.clone();
        let body = json!({"key": BASE64.encode(key.as_bytes()), "serializable": true});
        let answer = async || post(&url, "/v3/kv/range", &body).await;
        let answer = eventually("the read", answer).await;
        let value = answer["kvs"][0]["value"].as_str()?;
        let value = BASE64.decode(value.as_bytes()).unwrap();
        Some(String::from_utf8(value).unwrap())
    }

    /// Returns the output of all processes, for a test that fails.
    pub(super) fn logs(&self) -> String {
        let processes = self.loopback.processes();
        let log = |(name, process): (&String, &Process)| {
            let log = process.program.log();
            let lines: Vec<&str> = log.lines().rev().take(10).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            format!("--- {name}\n{}\n", lines.join("\n"))
        };
        processes.iter().map(log).collect()
    }
}

async fn post(url: &str, path: &str, body: &Value) -> Result<Value, reqwest::Error> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let request = client.post(format!("{url}{path}"));
    let answer = request
        .timeout(Duration::from_secs(5))
        .json(body)
        .send()
        .await?;
    answer.error_for_status()?.json().await
}

async fn is_healthy(loopback: &Loopback, client_url: &str) -> bool {
    let status = loopback.gateway.status(client_url).await;
    status.is_ok_and(|status| status.leader.is_some())
}

/// The task of a [`Kubelet`].
struct Worker {
    binary: PathBuf,
    root: PathBuf,
    loopback: Loopback,
    upgrades: Arc<Mutex<Vec<Upgrade>>>,
}

impl Worker {
    async fn run(self, pods: Api<Pod>) {
        let mut events = watcher(pods, watcher::Config::default()).boxed();
        let mut restarts = tokio::time::interval(RESTART);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                        self.applied(&pod).await;
                    }
                    Some(Ok(watcher::Event::Delete(pod))) => {
                        self.loopback.processes().remove(&pod.name_any());
                    }
                    // The watcher starts again after an error.
                    Some(_) => {}
                    None => return,
                },
                _ = restarts.tick() => self.restart_ended(),
            }
        }
    }

    /// Starts the etcd of a new Pod, or restarts it with its data if the image has changed.
    async fn applied(&self, pod: &Pod) {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let image = container.image.clone().unwrap_or_default();
        let running = self.loopback.processes().get(&name).map(|process| {
            let others = process.image != image;
            (process.uid.clone(), others)
        });
        match running {
            Some((present, false)) if present == uid => {}
            Some((present, true)) if present == uid => self.upgrade(&name, image).await,
            _ => {
                let args = container.args.clone().unwrap_or_default();
                self.create(name, uid, image, &args);
            }
        }
    }

    fn create(&self, name: String, uid: String, image: String, args: &[String]) {
        let dir = tempfile::tempdir_in(&self.root).unwrap();
        let own: BTreeMap<String, String> = args.iter().filter_map(|arg| flag(arg)).collect();
        let flags = self.translated(&own, &dir.path().join("data"));
        let log = dir.path().join("log");
        let process = Process {
            uid,
            image,
            program: Program::start(&self.binary, "etcd", &flags, &log).unwrap(),
            flags,
            client_url: self.loopback.local(&own["advertise-client-urls"]),
            _dir: dir,
            log,
        };
        self.loopback.processes().insert(name, process);
    }

    /// Translates the flags of a Pod. What listens on all addresses of the Pod listens where others
    /// expect it.
    fn translated(&self, own: &BTreeMap<String, String>, data: &Path) -> Vec<String> {
        let translated = |(flag, value): (&String, &String)| {
            let value = match flag.as_str() {
                "data-dir" => data.display().to_string(),
                "listen-peer-urls" => self.loopback.local(&own["initial-advertise-peer-urls"]),
                "listen-client-urls" => self.loopback.local(&own["advertise-client-urls"]),
                _ => self.loopback.local(value),
            };
            format!("--{flag}={value}")
        };
        let flags = own.iter().map(translated);
        flags.chain(OWN_FLAGS.map(ToOwned::to_owned)).collect()
    }

    async fn upgrade(&self, name: &str, image: String) {
        let others: Vec<String> = {
            let processes = self.loopback.processes();
            let others = processes.iter().filter(|(other, _)| *other != name);
            others
                .map(|(_, process)| process.client_url.clone())
                .collect()
        };
        let healthy =
            futures::stream::iter(others).all(async |url| is_healthy(&self.loopback, &url).await);
        let upgrade = Upgrade {
            others_were_healthy: healthy.await,
            image: image.clone(),
        };
        if let Some(process) = self.loopback.processes().get_mut(name) {
            process.program.kill();
            process.image = image;
            self.restart(process);
        }
        let upgrades = self.upgrades.lock();
        upgrades
            .unwrap_or_else(PoisonError::into_inner)
            .push(upgrade);
    }

    fn restart_ended(&self) {
        for process in self.loopback.processes().values_mut() {
            if process.program.exit_status().is_some() {
                self.restart(process);
            }
        }
    }

    fn restart(&self, process: &mut Process) {
        let program = Program::start(&self.binary, "etcd", &process.flags, &process.log);
        process.program = program.unwrap();
    }
}

/// The ports are reserved, nothing has to survive a power cut, and a busy machine delays heartbeats.
const OWN_FLAGS: [&str; 5] = [
    "--socket-reuse-port",
    "--unsafe-no-fsync",
    "--heartbeat-interval=200",
    "--election-timeout=2000",
    "--log-level=warn",
];

/// Splits `--name=value`.
fn flag(arg: &str) -> Option<(String, String)> {
    let (name, value) = arg.strip_prefix("--")?.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}
