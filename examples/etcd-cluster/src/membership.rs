//! Asks etcd who its members are, and changes them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Time limit of a request. etcd itself gives up after about seven seconds without a quorum.
const REQUEST_WITHIN: Duration = Duration::from_secs(8);
/// Time limit for a member to state its status, which needs no other member.
const STATUS_WITHIN: Duration = Duration::from_secs(2);

/// gRPC codes with which etcd refuses a change for the time being: `FAILED_PRECONDITION` (a learner
/// is not in sync, too few members have started) and `UNAVAILABLE` (no leader, or a member was not
/// connected in the last seconds).
const NOT_NOW: [i64; 2] = [9, 14];

/// The id that etcd gives a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// An entry of etcd's member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id of the member.
    pub id: MemberId,
    /// URL at which other members reach the member, as it was added: the only name that a member
    /// has before it starts.
    pub peer_url: String,
    /// Whether it has ever started.
    pub started: bool,
    /// Whether it receives the data without a vote yet.
    pub learner: bool,
}

/// Status of a member, by its own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// The release that it runs, such as `3.6.8`.
    pub version: String,
    /// Id of the member.
    pub id: MemberId,
    /// The leader that it follows.
    pub leader: Option<MemberId>,
    /// Whether it is a learner.
    pub learner: bool,
}

/// View that a member list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Newest view, which a majority of the members confirms.
    Agreed,
    /// View of the member alone, which may be out of date.
    Local,
}

/// Error of a request to etcd.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// etcd refuses it in its present state; the same request may succeed later.
    #[error("etcd at {endpoint} refuses to {action} for now: {message}")]
    NotNow {
        /// Client URL of the member.
        endpoint: String,
        /// Requested action, as a verb.
        action: &'static str,
        /// etcd's message.
        message: String,
    },
    /// etcd rejects it.
    #[error("etcd at {endpoint} cannot {action}: HTTP {status}: {message}")]
    Rejected {
        /// Client URL of the member.
        endpoint: String,
        /// Requested action, as a verb.
        action: &'static str,
        /// HTTP status code.
        status: u16,
        /// etcd's message.
        message: String,
    },
    /// There is no answer, or not one of etcd.
    #[error("cannot {action} at {endpoint}")]
    Request {
        /// Client URL of the member.
        endpoint: String,
        /// Requested action, as a verb.
        action: &'static str,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}

/// Reads and changes the members of an etcd cluster through the client URL of one of them.
///
/// [`Gateway`] is the implementation; a test may wrap it, to translate addresses for example.
pub trait Membership: Send + Sync + 'static {
    /// Returns the members.
    fn list(
        &self,
        endpoint: &str,
        consistency: Consistency,
    ) -> impl Future<Output = Result<Vec<Member>, MembershipError>> + Send;

    /// Adds a member without a vote, and returns all members including it.
    fn add_learner(
        &self,
        endpoint: &str,
        peer_url: &str,
    ) -> impl Future<Output = Result<Vec<Member>, MembershipError>> + Send;

    /// Gives a learner its vote. etcd refuses until it has nearly all of the data.
    fn promote(
        &self,
        endpoint: &str,
        id: MemberId,
    ) -> impl Future<Output = Result<(), MembershipError>> + Send;

    /// Removes a member. etcd refuses if the others would have no quorum.
    fn remove(
        &self,
        endpoint: &str,
        id: MemberId,
    ) -> impl Future<Output = Result<(), MembershipError>> + Send;

    /// Asks a member about itself.
    fn status(
        &self,
        endpoint: &str,
    ) -> impl Future<Output = Result<MemberStatus, MembershipError>> + Send;
}

/// etcd's v3 API as JSON, which every etcd serves at its client URL.
#[derive(Debug, Clone)]
pub struct Gateway {
    client: reqwest::Client,
}

impl Default for Gateway {
    fn default() -> Self {
        // Members are in the same cluster, where no proxy is between them and the operator.
        let client = reqwest::Client::builder().no_proxy().build();
        Self {
            client: client.unwrap_or_default(),
        }
    }
}

impl Gateway {
    async fn post<T: DeserializeOwned>(
        &self,
        (endpoint, path): (&str, &str),
        action: &'static str,
        within: Duration,
        body: &Value,
    ) -> Result<T, MembershipError> {
        let failed = |source| MembershipError::Request {
            endpoint: endpoint.to_owned(),
            action,
            source,
        };
        let request = self.client.post(format!("{endpoint}{path}"));
        let answer = request.json(body).timeout(within).send().await;
        let answer = answer.map_err(failed)?;
        let status = answer.status();
        if status.is_success() {
            return answer.json().await.map_err(failed);
        }
        let text = answer.text().await.map_err(failed)?;
        let refusal = serde_json::from_str(&text).unwrap_or(Refusal {
            code: 0,
            message: text,
        });
        let (endpoint, message) = (endpoint.to_owned(), refusal.message);
        Err(if NOT_NOW.contains(&refusal.code) {
            MembershipError::NotNow {
                endpoint,
                action,
                message,
            }
        } else {
            MembershipError::Rejected {
                endpoint,
                action,
                status: status.as_u16(),
                message,
            }
        })
    }
}

impl Membership for Gateway {
    async fn list(
        &self,
        endpoint: &str,
        consistency: Consistency,
    ) -> Result<Vec<Member>, MembershipError> {
        let target = (endpoint, "/v3/cluster/member/list");
        let body = json!({"linearizable": consistency == Consistency::Agreed});
        let answer = self.post(target, "list the members", REQUEST_WITHIN, &body);
        answer.await.map(Members::into_members)
    }

    async fn add_learner(
        &self,
        endpoint: &str,
        peer_url: &str,
    ) -> Result<Vec<Member>, MembershipError> {
        let target = (endpoint, "/v3/cluster/member/add");
        let body = json!({"peerURLs": [peer_url], "isLearner": true});
        let answer = self.post(target, "add a member", REQUEST_WITHIN, &body);
        answer.await.map(Members::into_members)
    }

    async fn promote(&self, endpoint: &str, id: MemberId) -> Result<(), MembershipError> {
        let target = (endpoint, "/v3/cluster/member/promote");
        let body = json!({"ID": Id(id)});
        let answer = self.post(target, "promote a member", REQUEST_WITHIN, &body);
        answer.await.map(|_: Value| ())
    }

    async fn remove(&self, endpoint: &str, id: MemberId) -> Result<(), MembershipError> {
        let target = (endpoint, "/v3/cluster/member/remove");
        let body = json!({"ID": Id(id)});
        let answer = self.post(target, "remove a member", REQUEST_WITHIN, &body);
        answer.await.map(|_: Value| ())
    }

    async fn status(&self, endpoint: &str) -> Result<MemberStatus, MembershipError> {
        let target = (endpoint, "/v3/maintenance/status");
        let body = json!({});
        let answer = self.post(target, "state the status", STATUS_WITHIN, &body);
        let answer: Status = answer.await?;
        Ok(MemberStatus {
            version: answer.version,
            id: answer.header.member_id.0,
            leader: Some(answer.leader.0).filter(|leader| leader.0 != 0),
            learner: answer.is_learner,
        })
    }
}

// JSON of the gateway: 64-bit numbers are texts, and what is zero or empty is left out.

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    code: i64,
    message: String,
}

/// A member id as JSON.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Id(MemberId);

impl Default for Id {
    fn default() -> Self {
        Self(MemberId(0))
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0.0.to_string()
    }
}

impl TryFrom<String> for Id {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(MemberId).map(Self)
    }
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    members: Vec<Entry>,
}

impl Members {
    fn into_members(self) -> Vec<Member> {
        let member = |entry: Entry| Member {
            id: entry.id.0,
            peer_url: entry.peer_urls.into_iter().next().unwrap_or_default(),
            started: !entry.name.is_empty(),
            learner: entry.is_learner,
        };
        self.members.into_iter().map(member).collect()
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "ID")]
    id: Id,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

#[derive(Deserialize)]
struct Status {
    header: Header,
    version: String,
    #[serde(default)]
    leader: Id,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    member_id: Id,
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::time::Duration;

    use hybrid_operator_test::{Program, binary_or_skip, wait};

    use super::{Consistency, Gateway, Member, MemberId, Membership, MembershipError};

    const LIMIT: Duration = Duration::from_secs(30);

    /// The addresses of a member on loopback.
    struct Address {
        name: &'static str,
        client: String,
        peer: String,
    }

    impl Address {
        fn free(name: &'static str) -> Self {
            // Both listeners are open at the same time, so the ports differ.
            let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let urls = listeners.each_ref().map(|listener| {
                let address = listener.local_addr().unwrap();
                format!("http://{address}")
            });
            let [client, peer] = urls;
            Self { name, client, peer }
        }

        /// Starts an etcd; `others` are the members before it.
        fn start(&self, binary: &Path, dir: &Path, others: &[&Self]) -> Program {
            let members = others.iter().copied().chain([self]);
            let initial: Vec<String> = members
                .map(|member| format!("{}={}", member.name, member.peer))
                .collect();
            let state = if others.is_empty() { "new" } else { "existing" };
            let flag = |name: &str, value: &str| format!("--{name}={value}");
            let flags = [
                flag("name", self.name),
                flag("data-dir", &dir.join(self.name).display().to_string()),
                flag("listen-client-urls", &self.client),
                flag("advertise-client-urls", &self.client),
                flag("listen-peer-urls", &self.peer),
                flag("initial-advertise-peer-urls", &self.peer),
                flag("initial-cluster", &initial.join(",")),
                flag("initial-cluster-state", state),
                "--unsafe-no-fsync".to_owned(),
            ];
            let log = dir.join(format!("{}.log", self.name));
            Program::start(binary, "etcd", &flags, &log).unwrap()
        }
    }

    async fn follows_a_leader(gateway: &Gateway, address: &Address) -> MemberId {
        let led = async || {
            let status = gateway.status(&address.client).await;
            let status = status.map_err(|error| error.to_string())?;
            status.leader.ok_or_else(|| "no leader".to_owned())
        };
        wait::until(LIMIT, address.name, led).await.unwrap()
    }

    #[tokio::test]
    async fn a_member_is_added_as_a_learner_promoted_and_removed() {
        let Some(binary) = binary_or_skip().await.unwrap() else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(Address::free);
        let gateway = Gateway::default();
        let _one = one.start(&binary, dir.path(), &[]);
        let first = follows_a_leader(&gateway, &one).await;
        let agreed = async || gateway.list(&one.client, Consistency::Agreed).await;
        let alone = agreed().await.unwrap();
        assert_eq!(alone.len(), 1);
        assert_eq!(alone[0].id, first);
        assert!(alone[0].started && !alone[0].learner);
        assert_eq!(alone[0].peer_url, one.peer);

        let members = gateway.add_learner(&one.client, &two.peer).await.unwrap();
        assert_eq!(members.len(), 2);
        let mut members = members.iter();
        let added = members.find(|member| member.peer_url == two.peer).unwrap();
        assert!(!added.started && added.learner);
        // etcd does not give a vote to a member without the data.
        let early = gateway.promote(&one.client, added.id).await.unwrap_err();
        assert!(matches!(early, MembershipError::NotNow { .. }), "{early}");
        assert!(early.to_string().contains("in sync with leader"), "{early}");

        let _two = two.start(&binary, dir.path(), &[&one]);
        assert_eq!(follows_a_leader(&gateway, &two).await, first);
        assert!(gateway.status(&two.client).await.unwrap().learner);
        let promoted = async || gateway.promote(&one.client, added.id).await;
        wait::until(LIMIT, "the promotion", promoted).await.unwrap();
        // A member publishes its name in its own time. The agreed list is given once this member has
        // applied its promotion, so its status is not that of before.
        let both_vote = async || {
            let members = gateway.list(&two.client, Consistency::Agreed).await;
            let members = members.map_err(|error| error.to_string())?;
            let vote = |member: &Member| member.started && !member.learner;
            if members.len() == 2 && members.iter().all(vote) {
                return Ok(());
            }
            Err(format!("{members:?}"))
        };
        wait::until(LIMIT, "two voters", both_vote).await.unwrap();
        let status = gateway.status(&two.client).await.unwrap();
        assert_eq!((status.id, status.learner), (added.id, false));

        let removed = async || gateway.remove(&one.client, added.id).await;
        wait::until(LIMIT, "the removal", removed).await.unwrap();
        let again = gateway.remove(&one.client, added.id).await.unwrap_err();
        let is_unknown = matches!(again, MembershipError::Rejected { status: 404, .. });
        assert!(is_unknown, "{again}");
        assert_eq!(agreed().await.unwrap(), alone);
    }

    #[tokio::test]
    async fn without_a_majority_only_the_local_member_list_is_served() {
        let Some(binary) = binary_or_skip().await.unwrap() else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(Address::free);
        let gateway = Gateway::default();
        let _one = one.start(&binary, dir.path(), &[]);
        follows_a_leader(&gateway, &one).await;
        let members = gateway.add_learner(&one.client, &two.peer).await.unwrap();
        let added = members.iter().find(|member| !member.started).unwrap().id;
        let mut process = two.start(&binary, dir.path(), &[&one]);
        let promoted = async || gateway.promote(&one.client, added).await;
        wait::until(LIMIT, "the promotion", promoted).await.unwrap();

        process.kill();
        let leaderless = async || {
            let status = gateway.status(&one.client).await;
            status.is_ok_and(|status| status.leader.is_none())
        };
        wait::until(LIMIT, "the loss of the leader", leaderless)
            .await
            .unwrap();
        let members = gateway.list(&one.client, Consistency::Local).await.unwrap();
        assert_eq!(members.len(), 2);
        let refused = gateway.list(&one.client, Consistency::Agreed).await;
        assert!(
            matches!(refused, Err(MembershipError::NotNow { .. })),
            "{refused:?}"
        );
        let silent = gateway.status(&two.client).await;
        assert!(
            matches!(silent, Err(MembershipError::Request { .. })),
            "{silent:?}"
        );
    }
}
