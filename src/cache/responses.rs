//! Conversations that a later request continues by the id of their last answer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long a conversation is kept.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Bytes of JSON that are kept in all.
const CAPACITY_BYTES: usize = 32 << 20;

/// The conversations behind `previous_response_id`, for an hour after each answer and up to
/// 32 MiB; beyond that those go first that were longest not asked for. All threads may use it.
#[derive(Debug)]
pub(crate) struct ResponseStore(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    capacity: usize,
    by_id: HashMap<String, Entry>,
    bytes: usize,
    /// Counts uses, to tell the latest from the oldest.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    namespace: String,
    items: Arc<Vec<Value>>,
    bytes: usize,
    made: Instant,
    last_use: u64,
}

impl ResponseStore {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Entries::new(CAPACITY_BYTES)))
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        *self.entries() = Entries::new(CAPACITY_BYTES);
    }

    /// Keeps the items of a conversation, the answer's included, for those who name the same
    /// namespace. One that alone is larger than the store is not kept.
    pub(crate) fn put(&self, namespace: &str, id: &str, items: Vec<Value>) {
        self.entries().put(namespace, id, items, Instant::now());
    }

    /// The items of a conversation.
    pub(crate) fn get(&self, namespace: &str, id: &str) -> Option<Arc<Vec<Value>>> {
        self.entries().get(namespace, id, Instant::now())
    }

    /// The items of these ids, out of all conversations of the namespace.
    pub(crate) fn find(&self, namespace: &str, ids: &HashSet<&str>) -> HashMap<String, Value> {
        self.entries().find(namespace, ids, Instant::now())
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No code of others runs under the lock, and each change leaves the entries consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            by_id: HashMap::new(),
            bytes: 0,
            uses: 0,
        }
    }

    fn put(&mut self, namespace: &str, id: &str, items: Vec<Value>, now: Instant) {
        let bytes = namespace.len() + id.len() + items.iter().map(size).sum::<usize>();
        self.remove(id);
        self.expire(now);
        if bytes > self.capacity {
            return;
        }
        while self.bytes + bytes > self.capacity {
            let Some(oldest) = self.oldest() else { break };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        let entry = Entry {
            namespace: namespace.to_owned(),
            items: Arc::new(items),
            bytes,
            made: now,
            last_use: self.uses,
        };
        self.by_id.insert(id.to_owned(), entry);
    }

    fn get(&mut self, namespace: &str, id: &str, now: Instant) -> Option<Arc<Vec<Value>>> {
        self.expire(now);
        self.uses += 1;
        let entry = self.by_id.get_mut(id);
        let entry = entry.filter(|entry| entry.namespace == namespace)?;
        entry.last_use = self.uses;
        Some(Arc::clone(&entry.items))
    }

    fn find(
        &mut self,
        namespace: &str,
        ids: &HashSet<&str>,
        now: Instant,
    ) -> HashMap<String, Value> {
        self.expire(now);
        let entries = self.by_id.values_mut();
        let mut entries: Vec<&mut Entry> = entries
            .filter(|entry| entry.namespace == namespace)
            .collect();
        // A conversation that goes on is the latest of those that hold its items.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.last_use));
        let mut found = HashMap::new();
        for entry in entries {
            if found.len() == ids.len() {
                break;
            }
            let before = found.len();
            for item in entry.items.iter() {
                if let Some(id) = item["id"].as_str()
                    && ids.contains(id)
                    && !found.contains_key(id)
                {
                    found.insert(id.to_owned(), item.clone());
                }
            }
            if found.len() > before {
                self.uses += 1;
                entry.last_use = self.uses;
            }
        }
        found
    }

    fn expire(&mut self, now: Instant) {
        let mut freed = 0;
        self.by_id.retain(|_, entry| {
            let stays = now.saturating_duration_since(entry.made) < LIFETIME;
            freed += if stays { 0 } else { entry.bytes };
            stays
        });
        self.bytes -= freed;
    }

    fn oldest(&self) -> Option<String> {
        let oldest = self.by_id.iter().min_by_key(|(_, entry)| entry.last_use);
        oldest.map(|(id, _)| id.clone())
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Bytes that a value takes as JSON.
fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("a counter takes everything");
    counter.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const CAPACITY: usize = 4000;

    #[test]
    fn a_conversation_is_kept_for_an_hour() {
        let mut entries = Entries::new(CAPACITY);
        let start = Instant::now();
        entries.put("n", "a", vec![json!("hi")], start);
        assert_eq!(entries.get("other", "a", start), None);
        let almost = start + LIFETIME - Duration::from_secs(1);
        assert_eq!(*entries.get("n", "a", almost).unwrap(), [json!("hi")]);
        assert_eq!(entries.get("n", "a", start + LIFETIME), None);
        assert_eq!((entries.bytes, entries.by_id.len()), (0, 0));
    }

    #[test]
    fn an_item_is_found_in_any_conversation_of_its_namespace() {
        let mut entries = Entries::new(CAPACITY);
        let now = Instant::now();
        let item = |id: &str| json!({"id": id, "text": "x".repeat(CAPACITY / 4)});
        entries.put("n", "a", vec![json!("hi"), item("one")], now);
        entries.put("n", "b", vec![item("two"), json!({"id": 3})], now);
        entries.put("other", "c", vec![item("three")], now);
        let ids = HashSet::from(["one", "three", "four"]);
        let found = entries.find("n", &ids, now);
        assert_eq!(found, HashMap::from([("one".to_owned(), item("one"))]));
        // Whatever was found in is in use.
        entries.put("n", "d", vec![item("four"), item("five")], now);
        assert!(entries.get("n", "b", now).is_none());
        assert!(entries.get("n", "a", now).is_some());
        assert!(entries.find("n", &ids, now + LIFETIME).is_empty());
    }

    #[test]
    fn what_was_longest_not_asked_for_goes_first() {
        let mut entries = Entries::new(CAPACITY);
        let now = Instant::now();
        let third = vec![json!("x".repeat(CAPACITY / 3 - 100))];
        for id in ["a", "b", "c"] {
            entries.put("n", id, third.clone(), now);
        }
        assert!(entries.get("n", "a", now).is_some());
        entries.put("n", "d", third.clone(), now);
        assert!(entries.get("n", "b", now).is_none());
        assert!(
            ["a", "c", "d"]
                .iter()
                .all(|id| entries.get("n", id, now).is_some())
        );
        entries.put("n", "e", vec![json!("x".repeat(CAPACITY))], now);
        assert!(entries.get("n", "e", now).is_none());
        assert_eq!(entries.by_id.len(), 3);
    }

    proptest! {
        /// Beside a list in the order of use.
        #[test]
        fn it_keeps_what_a_list_would_keep(
            steps in prop::collection::vec((0_u8..8, 0_usize..4, any::<bool>(), 0_u64..1000), 1..60)
        ) {
            let mut entries = Entries::new(CAPACITY);
            let mut model: Vec<(String, usize, Instant)> = Vec::new();
            let mut now = Instant::now();
            for (name, quarter, is_put, seconds) in steps {
                now += Duration::from_secs(seconds);
                let id = name.to_string();
                model.retain(|(_, _, made)| now.duration_since(*made) < LIFETIME);
                let position = model.iter().position(|(other, ..)| *other == id);
                if is_put {
                    let items = vec![json!("x".repeat(CAPACITY / 4 * quarter))];
                    let bytes = id.len() + size(&items[0]);
                    entries.put("", &id, items, now);
                    if let Some(position) = position {
                        model.remove(position);
                    }
                    model.push((id, bytes, now));
                    while model.iter().map(|(_, bytes, _)| bytes).sum::<usize>() > CAPACITY {
                        model.remove(0);
                    }
                } else {
                    prop_assert_eq!(entries.get("", &id, now).is_some(), position.is_some());
                    if let Some(position) = position {
                        let used = model.remove(position);
                        model.push(used);
                    }
                }
                let bytes: usize = model.iter().map(|(_, bytes, _)| bytes).sum();
                prop_assert_eq!(entries.bytes, bytes);
                prop_assert_eq!(entries.by_id.len(), model.len());
            }
        }
    }
}
