//! A channel of the last value, as that of tokio. It wakes those that wait in the order in which they began to;
//! tokio's order is random, and does not follow from a seed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Poll, Waker};

/// Changes the value. Clones share it.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Sees the value. A clone has seen what the original has seen.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Version that it has seen.
    seen: u64,
}

#[derive(Debug)]
struct Shared<T> {
    state: RwLock<State<T>>,
    waiting: Mutex<Waiting>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    version: u64,
}

/// Waiting tasks, in their order.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// The value, which does not change while this exists. It must not be held while something is awaited.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

/// All senders are gone, and the value does not change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("channel closed")
    }
}

impl std::error::Error for Closed {}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// Creates a channel with a first value, which the receiver has seen.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    async fn changed(&self, seen: &mut u64) -> Result<(), Closed> {
        let mut place = Place {
            waiting: &self.waiting,
            number: None,
        };
        poll_fn(|context| {
            // Before the look, so that no change comes between them.
            place.take(context.waker());
            let version = self.read().version;
            if version != *seen {
                *seen = version;
                return Poll::Ready(Ok(()));
            }
            match self.senders.load(Ordering::Acquire) {
                0 => Poll::Ready(Err(Closed)),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

/// A place among those that wait, which is given up when it is dropped.
struct Place<'a> {
    waiting: &'a Mutex<Waiting>,
    number: Option<u64>,
}

impl Place<'_> {
    fn take(&mut self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self
            .number
            .filter(|number| waiting.wakers.contains_key(number));
        let number = kept.unwrap_or(waiting.next);
        if kept.is_none() {
            waiting.next += 1;
        }
        waiting.wakers.insert(number, waker.clone());
        self.number = Some(number);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.wakers.remove(&number);
        }
    }
}

impl<T> Sender<T> {
    /// Creates a channel with a first value and without receivers.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            state: RwLock::new(State { value, version: 0 }),
            waiting: Mutex::default(),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
        }))
    }

    /// Returns a receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::AcqRel);
        let seen = self.0.read().version;
        Receiver {
            shared: Arc::clone(&self.0),
            seen,
        }
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.receivers.load(Ordering::Acquire)
    }

    /// Returns the value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Replaces the value; returns the former one.
    pub fn send_replace(&self, value: T) -> T {
        let mut value = value;
        self.send_modify(|present| std::mem::swap(present, &mut value));
        value
    }

    /// Changes the value.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value, and wakes receivers only if the function returns `true`. Returns that.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        let is_modified = modify(&mut state.value);
        if is_modified {
            state.version += 1;
        }
        drop(state);
        if is_modified {
            self.0.wake();
        }
        is_modified
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Returns the value. It does not count as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Returns the value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.read();
        self.seen = state.version;
        Ref(state)
    }

    /// Lets the present value count as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().version;
    }

    /// Waits until the value differs from the one that was seen last, and lets it count as seen.
    ///
    /// # Errors
    /// If all senders are gone.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.changed(&mut self.seen).await
    }

    /// Waits until the value is as wanted. It may be from the beginning.
    ///
    /// # Errors
    /// If all senders are gone before.
    pub async fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, Closed> {
        let Self { shared, seen } = self;
        let shared: &Shared<T> = shared;
        loop {
            {
                let state = shared.read();
                *seen = state.version;
                if wanted(&state.value) {
                    return Ok(Ref(state));
                }
            }
            shared.changed(seen).await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        Self {
            shared: Arc::clone(&self.shared),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Wake};

    /// Writes its number down when it is woken.
    struct Noting(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Noting {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn those_that_wait_are_woken_in_their_order() {
        let sender = Sender::new(0);
        let mut receivers: Vec<_> = (0..50).map(|_| sender.subscribe()).collect();
        let mut waiting: Vec<Pin<Box<_>>> = receivers
            .iter_mut()
            .map(|receiver| Box::pin(receiver.changed()))
            .collect();
        let woken = Arc::default();
        let poll = |waiting: &mut Pin<Box<_>>, number| {
            let waker = Arc::new(Noting(number, Arc::clone(&woken))).into();
            Future::poll(Pin::as_mut(waiting), &mut Context::from_waker(&waker))
        };
        for (number, waiting) in waiting.iter_mut().enumerate() {
            assert!(poll(waiting, number).is_pending());
        }
        // Somebody that looks again keeps its place, and one that gives up leaves it.
        assert!(poll(&mut waiting[20], 20).is_pending());
        drop(waiting.remove(10));
        sender.send_replace(1);
        let expected: Vec<_> = (0..50).filter(|number| *number != 10).collect();
        assert_eq!(*woken.lock().unwrap(), expected);
        for waiting in &mut waiting {
            assert_eq!(poll(waiting, 0), Poll::Ready(Ok(())));
        }
    }

    #[test]
    fn a_change_is_seen_once_and_the_end_wakes() {
        let (sender, mut receiver) = channel(1);
        let mut context = Context::from_waker(Waker::noop());
        sender.send_modify(|value| *value = 2);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(*receiver.borrow(), 2);
        assert_eq!(
            pin!(receiver.changed()).poll(&mut context),
            Poll::Ready(Ok(()))
        );
        assert!(pin!(receiver.changed()).poll(&mut context).is_pending());
        assert_eq!(sender.send_replace(3), 2);
        assert_eq!(*receiver.borrow_and_update(), 3);
        assert!(pin!(receiver.changed()).poll(&mut context).is_pending());
        sender.send_replace(4);
        receiver.mark_unchanged();
        let other = sender.clone();
        assert_eq!(sender.receiver_count(), 1);
        drop(sender);
        let woken = Arc::default();
        let waker = Arc::new(Noting(7, Arc::clone(&woken))).into();
        {
            let mut wanted = pin!(receiver.wait_for(|value| *value == 5));
            let mut noting = Context::from_waker(&waker);
            assert!(wanted.as_mut().poll(&mut noting).is_pending());
            drop(other);
            assert_eq!(*woken.lock().unwrap(), [7]);
            assert!(matches!(wanted.poll(&mut noting), Poll::Ready(Err(Closed))));
        }
        let Poll::Ready(Ok(value)) =
            pin!(receiver.wait_for(|value| *value == 4)).poll(&mut context)
        else {
            panic!("the last value stays");
        };
        assert_eq!(*value, 4);
    }
}
