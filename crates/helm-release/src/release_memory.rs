//! The memory of the container, of which releases get a part.
//!
//! An owner is not trusted, so the memory that its release takes is counted: what the templates compute, the
//! texts that they print, the objects that these are parsed into, records that are read, with their hooks, and files of
//! `crds/`. [`ReleaseMemory`] limits the sum over all reconciles.
//!
//! # Flow
//! A reconcile has a [`Share`]. Its first render gets a small share, for which it waits its turn. A render that needs
//! more is repeated with the large share, which one reconcile has at a time; others wait for it a few seconds, and try
//! again later. After the last render the share shrinks to what the result takes. It is returned when the reconcile
//! ends.
//!
//! # Guarantees
//! * Without a memory limit of the container, nothing waits and nothing is refused here.
//! * A reconcile waits for a share only without one, so that reconciles never wait for each other in a circle.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helm_core::engine::RenderLimits;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The part of the container's memory for all small shares.
const SMALL_PART: usize = 4;
/// The part of the container's memory for the large share.
const LARGE_PART: usize = 2;
/// Number of small shares.
const SMALL_SHARES: usize = 4;
/// Memory that a reconcile takes for each byte of the objects that its render returns. They exist up to twice, beside
/// those of the former revision, while they are sent and recorded; and allocators keep half of what is freed.
const PER_RENDERED_BYTE: usize = 8;
/// Memory that a reconcile takes for each byte of the manifest in a record, which is parsed into objects.
const PER_RECORDED_BYTE: usize = 8;
/// Time that a reconcile waits for the large share.
const TURN: Duration = Duration::from_secs(10);
/// Bytes of a permit.
const PERMIT: usize = 1 << 10;

/// Another reconcile has the large share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the release needs more memory than other large releases leave at the moment; it is tried again"
)]
pub struct MemoryInUse;

/// Reason why a render got no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryError {
    /// Limit reached: the render had all the memory that one may take.
    TooLarge {
        /// The memory limit of the container, in bytes.
        container: usize,
    },
    /// Another reconcile has the large share.
    InUse(MemoryInUse),
}

/// The memory for the releases of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct ReleaseMemory(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    container: usize,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

impl Parts {
    fn of(container: usize) -> Self {
        let parts = |size, shares: usize| {
            let permits = usize::try_from(permits(bytes(container, size))).unwrap_or(0);
            Arc::new(Semaphore::new(permits.saturating_mul(shares)))
        };
        Self {
            container,
            small: parts(Size::Small, SMALL_SHARES),
            large: parts(Size::Large, 1),
        }
    }

    async fn acquire(&self, size: Size) -> Option<OwnedSemaphorePermit> {
        let permits = permits(bytes(self.container, size));
        // The semaphores are never closed.
        match size {
            Size::Small => Arc::clone(&self.small)
                .acquire_many_owned(permits)
                .await
                .ok(),
            Size::Large => {
                let turn = Arc::clone(&self.large).acquire_many_owned(permits);
                timeout(TURN, turn).await.ok().and_then(Result::ok)
            }
        }
    }
}

fn bytes(container: usize, size: Size) -> usize {
    match size {
        Size::Small => container / SMALL_PART / SMALL_SHARES,
        Size::Large => container / LARGE_PART,
    }
}

/// Returns the memory that a reconcile takes for each byte that templates compute: buffers of texts grow by copying,
/// and allocators keep some of what is freed. In a small share it is mostly values, which do not grow.
fn per_computed_byte(size: Size) -> usize {
    match size {
        Size::Small => 2,
        Size::Large => 3,
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT)).unwrap_or(u32::MAX)
}

impl ReleaseMemory {
    /// Divides the memory of the container that the process runs in.
    pub fn of_container() -> Self {
        let limit = container_limit(Path::new("/"));
        if let Some(limit) = limit {
            let large = bytes(limit, Size::Large);
            tracing::info!(
                container = %mebibytes(limit),
                largest_release = %mebibytes(large),
                "limiting the memory of releases"
            );
        }
        Self::within(limit)
    }

    /// Divides this many bytes; nothing is limited without a number.
    pub(crate) fn within(limit: Option<usize>) -> Self {
        Self(limit.map(|container| Arc::new(Parts::of(container))))
    }

    /// Returns the share of a reconcile, which is empty at first.
    pub(crate) fn share(&self) -> Share {
        Share {
            parts: self.0.clone(),
            held: Mutex::default(),
        }
    }
}

/// The memory of a render whose result is only looked at. It is returned when this is dropped.
#[derive(Debug)]
pub struct Trial {
    /// Limits of the render.
    pub limits: RenderLimits,
    _share: Share,
}

impl ReleaseMemory {
    /// Waits for a small share, for a render with these limits. A render that needs more memory is not worth
    /// the large share.
    ///
    /// # Errors
    /// [`MemoryInUse`]
    pub async fn trial(&self, limits: RenderLimits) -> Result<Trial, MemoryInUse> {
        let share = self.share();
        let memory = share.limits().await?.render.min(limits.memory);
        Ok(Trial {
            limits: RenderLimits { memory, ..limits },
            _share: share,
        })
    }
}

/// Returns a number of bytes as it is written in manifests.
pub(crate) fn mebibytes(bytes: usize) -> String {
    format!("{}Mi", bytes >> 20)
}

/// Limits of a render, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenderMemory {
    /// Memory for what templates compute and print.
    pub(crate) render: usize,
    /// Texts and objects of the result.
    pub(crate) result: usize,
}

/// The part of a [`ReleaseMemory`] that a reconcile has.
#[derive(Debug)]
pub(crate) struct Share {
    parts: Option<Arc<Parts>>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    permit: Option<OwnedSemaphorePermit>,
    /// The size of the permit, unless it has shrunk.
    size: Option<Size>,
    /// Bytes that the results of renders and the records take.
    needed: usize,
}

impl Held {
    fn permits(&self) -> usize {
        let permit = self.permit.as_ref();
        permit.map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Returns what is not needed.
    fn shrink(&mut self) {
        let spare = self.permits().saturating_sub(self.needed.div_ceil(PERMIT));
        if let Some(permit) = &mut self.permit {
            drop(permit.split(spare));
        }
        self.size = None;
    }
}

impl Share {
    /// Exchanges what is held for a share of this size.
    async fn exchange(&self, parts: &Parts, size: Size) -> Result<(), MemoryInUse> {
        let former = self.held.lock().permit.take();
        drop(former);
        let permit = parts.acquire(size).await;
        let mut held = self.held.lock();
        held.size = permit.is_some().then_some(size);
        held.permit = permit;
        held.size.map(drop).ok_or(MemoryInUse)
    }

    /// Returns the limits of the next render, after waiting for a small share if there is none.
    pub(crate) async fn limits(&self) -> Result<RenderMemory, MemoryInUse> {
        let Some(parts) = &self.parts else {
            return Ok(RenderMemory {
                render: usize::MAX,
                result: usize::MAX,
            });
        };
        let size = self.held.lock().size;
        if size.is_none() {
            self.exchange(parts, Size::Small).await?;
        }
        let size = size.unwrap_or(Size::Small);
        let share = bytes(parts.container, size);
        Ok(RenderMemory {
            render: share / per_computed_byte(size),
            result: share / PER_RENDERED_BYTE,
        })
    }

    /// Exchanges the small share for the large one, because a render needs more. Waits for it, but not for long.
    pub(crate) async fn grow(&self) -> Result<(), MemoryError> {
        let Some(parts) = &self.parts else {
            return Ok(());
        };
        if self.held.lock().size == Some(Size::Large) {
            let container = parts.container;
            return Err(MemoryError::TooLarge { container });
        }
        let exchanged = self.exchange(parts, Size::Large).await;
        exchanged.map_err(MemoryError::InUse)
    }

    /// Counts the result of a render, of which only the largest counts.
    pub(crate) fn rendered(&self, bytes: usize) {
        let mut held = self.held.lock();
        held.needed = held.needed.max(bytes.saturating_mul(PER_RENDERED_BYTE));
    }

    /// Returns what the results of the renders do not need.
    pub(crate) fn shrink(&self) {
        self.held.lock().shrink();
    }

    /// Counts the manifest and the hooks of a record that has been read, or a file of `crds/`, before they are parsed.
    /// Waits if there is not enough memory for them.
    ///
    /// # Errors
    /// [`MemoryInUse`]. A record is never too large, so that a release can be uninstalled by an operator with
    /// less memory than it was installed by.
    pub(crate) async fn read(&self, manifest: usize) -> Result<(), MemoryInUse> {
        let Some(parts) = &self.parts else {
            return Ok(());
        };
        let (needed, permits) = {
            let mut held = self.held.lock();
            let more = manifest.saturating_mul(PER_RECORDED_BYTE);
            held.needed = held.needed.saturating_add(more);
            (held.needed, held.permits())
        };
        if needed.div_ceil(PERMIT) > permits && !self.has_all() {
            let fits = needed <= bytes(parts.container, Size::Small);
            let size = if fits { Size::Small } else { Size::Large };
            self.exchange(parts, size).await?;
        }
        self.shrink();
        Ok(())
    }

    /// Returns whether the whole large share is held.
    fn has_all(&self) -> bool {
        let large = |parts: &Arc<Parts>| permits(bytes(parts.container, Size::Large));
        let permits = self.held.lock().permits();
        self.parts
            .as_ref()
            .is_none_or(|parts| usize::try_from(large(parts)).is_ok_and(|large| permits >= large))
    }
}

/// No container has as much: version 1 of control groups says "no limit" with such a number.
const NO_LIMIT: usize = 1 << 60;

/// Returns the smallest memory limit of the control groups that the process is in, of version 1 or 2.
fn container_limit(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next(), parts.next());
        let (mount, file) = match controllers {
            Some("") => ("sys/fs/cgroup", "memory.max"),
            Some(controllers) if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let mount = root.join(mount);
        let group = Path::new(group.unwrap_or_default().trim_start_matches('/'));
        // In a container, the group may be named as on the host, and the mount be the group itself.
        let folders = group.ancestors().map(|group| mount.join(group));
        let texts = folders.filter_map(|folder| fs::read_to_string(folder.join(file)).ok());
        texts.filter_map(|text| text.trim().parse().ok()).collect()
    });
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const CONTAINER: usize = 128 << 20;

    #[tokio::test]
    async fn without_a_limit_of_the_container_nothing_is_limited() {
        let share = ReleaseMemory::within(None).share();
        let limits = share.limits().await.unwrap();
        assert_eq!((limits.render, limits.result), (usize::MAX, usize::MAX));
        assert_eq!(share.grow().await, Ok(()));
        assert_eq!(share.read(usize::MAX).await, Ok(()));
    }

    #[tokio::test]
    async fn the_limits_of_a_render_leave_room_for_all_shares() {
        let share = ReleaseMemory::within(Some(CONTAINER)).share();
        let small = share.limits().await.unwrap();
        assert_eq!((small.render, small.result), (4 << 20, 1 << 20));
        share.grow().await.unwrap();
        let large = share.limits().await.unwrap();
        assert_eq!((large.render >> 20, large.result), (21, 8 << 20));
        let container = CONTAINER;
        assert_eq!(share.grow().await, Err(MemoryError::TooLarge { container }));
    }

    #[tokio::test(start_paused = true)]
    async fn one_reconcile_has_the_large_share_and_others_wait_for_a_few_seconds() {
        let memory = ReleaseMemory::within(Some(CONTAINER));
        let (first, second) = (memory.share(), memory.share());
        for share in [&first, &second] {
            share.limits().await.unwrap();
        }
        first.grow().await.unwrap();
        let asked = Instant::now();
        assert_eq!(second.grow().await, Err(MemoryError::InUse(MemoryInUse)));
        assert_eq!(asked.elapsed(), TURN);
        // What the result does not need is for others, but not all of it.
        first.rendered(1 << 20);
        first.shrink();
        assert_eq!(second.grow().await, Err(MemoryError::InUse(MemoryInUse)));
        drop(first);
        assert_eq!(second.grow().await, Ok(()));
    }

    #[tokio::test]
    async fn small_shares_are_for_as_many_reconciles_as_fit() {
        let memory = ReleaseMemory::within(Some(CONTAINER));
        let shares: Vec<Share> = (0..=SMALL_SHARES).map(|_| memory.share()).collect();
        let (last, others) = shares.split_last().unwrap();
        for share in others {
            share.limits().await.unwrap();
        }
        let mut waiting = std::pin::pin!(last.limits());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        for share in others {
            share.rendered(1000);
            share.shrink();
        }
        assert!(futures::poll!(waiting.as_mut()).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_counted_and_never_too_large() {
        let memory = ReleaseMemory::within(Some(CONTAINER));
        let (large, other) = (memory.share(), memory.share());
        large.read(1 << 30).await.unwrap();
        large.read(1 << 30).await.unwrap();
        assert_eq!(other.read(10 << 20).await, Err(MemoryInUse));
        let small = memory.share();
        assert_eq!(small.read(1000).await, Ok(()));
        drop(large);
        assert_eq!(other.read(10 << 20).await, Ok(()));
    }

    /// Returns the limit of a process in these groups, of which files have these numbers.
    fn limit_of(groups: Option<&str>, files: &[(&str, &str)]) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        let files = files
            .iter()
            .map(|(name, number)| (format!("sys/fs/cgroup/{name}"), *number));
        let groups = groups.map(|groups| ("proc/self/cgroup".to_owned(), groups));
        for (name, text) in files.chain(groups) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        container_limit(root.path())
    }

    #[test]
    fn the_limit_of_the_container_is_read_in_both_versions_of_control_groups() {
        let two = Some("0::/pod/one");
        let one = Some("5:cpu,memory:/docker/x\n4:pids:/docker/x\n0::/");
        let (pod, all) = ("pod/one/memory.max", "memory.max");
        let limit = "memory/memory.limit_in_bytes";
        for (groups, files, expected) in [
            // Version 2, as a container sees it, and with a namespace of its own.
            (two, &[(pod, "1000")][..], Some(1000)),
            (Some("0::/"), &[(all, "1000")], Some(1000)),
            // The smallest one of all groups above counts.
            (
                two,
                &[(pod, "max"), ("pod/memory.max", "500"), (all, "700")],
                Some(500),
            ),
            (two, &[(pod, "max")], None),
            // Version 1, whose group may be named as on the host.
            (one, &[(limit, "2000")], Some(2000)),
            (Some("5:memory:/"), &[(limit, "9223372036854771712")], None),
            (None, &[], None),
        ] {
            assert_eq!(limit_of(groups, files), expected, "{groups:?} {files:?}");
        }
    }
}
