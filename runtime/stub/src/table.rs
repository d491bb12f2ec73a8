//! Handles: numbers that stand for objects, so that one that is no more is an error and not a crash.

use crate::{
    code::{Code, INVALID_HANDLE},
    counters::Counter,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Locks, also after another thread's panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Objects of one kind by handle.
pub struct Table<T> {
    objects: Mutex<Option<HashMap<usize, Arc<T>>>>,
    counter: Counter,
}

static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

impl<T> Table<T> {
    pub const fn new(counter: Counter) -> Table<T> {
        Table { objects: Mutex::new(None), counter }
    }

    /// Adds an object, and gives its handle.
    pub fn add(&self, object: Arc<T>) -> usize {
        let handle = NEXT.fetch_add(16, Relaxed);
        lock(&self.objects).get_or_insert_default().insert(handle, object);
        self.counter.add(1);
        handle
    }

    pub fn get(&self, handle: usize) -> Result<Arc<T>, Code> {
        lock(&self.objects).as_ref().and_then(|o| o.get(&handle)).cloned().ok_or(INVALID_HANDLE)
    }

    /// All objects there are now.
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.objects).iter().flat_map(HashMap::values).cloned().collect()
    }

    pub fn remove(&self, handle: usize) -> Result<Arc<T>, Code> {
        let removed = lock(&self.objects).as_mut().and_then(|o| o.remove(&handle)).ok_or(INVALID_HANDLE)?;
        self.counter.sub(1);
        Ok(removed)
    }
}
