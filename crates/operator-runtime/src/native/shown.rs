//! The custom resources of native controllers, for a program that shows them to people.

use std::any::Any;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use serde::Serialize;

use super::builder::group_version_kind;
use crate::controller::{Key, ObjectCache, QueueHandle, TypedObject};
use crate::manager::ControllerContext;

/// A cached custom resource.
pub trait ShownObject: Send + Sync {
    /// Returns the custom resource as JSON.
    fn json(&self) -> Vec<u8>;
}

impl<K: Serialize + Send + Sync> ShownObject for K {
    fn json(&self) -> Vec<u8> {
        // Its keys are texts.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The cached custom resources of a controller, without those that cannot be decoded.
pub trait ShownObjects: Send + Sync {
    /// Returns all of them. What has not changed is the same allocation as before.
    fn all(&self) -> Vec<(Key, Arc<dyn ShownObject>)>;
    /// Returns one of them.
    fn get(&self, key: &Key) -> Option<Arc<dyn ShownObject>>;
}

impl<K: TypedObject> ShownObjects for ObjectCache<K> {
    fn all(&self) -> Vec<(Key, Arc<dyn ShownObject>)> {
        let objects = self.list(None).into_iter();
        objects
            .map(|object| (Key::of(&*object), object as Arc<dyn ShownObject>))
            .collect()
    }

    fn get(&self, key: &Key) -> Option<Arc<dyn ShownObject>> {
        Some(Self::get(self, key)?)
    }
}

/// A native controller that runs.
pub struct ShownController {
    /// The kind of the custom resources.
    pub kind: GroupVersionKind,
    /// The cached custom resources.
    pub objects: Arc<dyn ShownObjects>,
    /// The turns of the custom resources.
    pub queue: QueueHandle,
}

/// A setting of the manager that shows each native controller while what it returns is held.
#[derive(Clone)]
pub struct ShowControllers(Arc<Begin>);

type Begin = dyn Fn(ShownController) -> Box<dyn Any + Send> + Send + Sync;

impl ShowControllers {
    /// Calls a function for each controller that begins to run.
    pub fn new<G: Any + Send>(
        begin: impl Fn(ShownController) -> G + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |controller| Box::new(begin(controller))))
    }
}

/// Shows a controller until the result is dropped, if the manager has the setting.
pub(super) fn show<K: TypedObject>(
    context: &ControllerContext,
    objects: &ObjectCache<K>,
    queue: &QueueHandle,
) -> Option<Box<dyn Any + Send>> {
    let ShowControllers(begin) = context.settings()?;
    Some(begin(ShownController {
        kind: group_version_kind::<K>(),
        objects: Arc::new(objects.clone()),
        queue: queue.clone(),
    }))
}
