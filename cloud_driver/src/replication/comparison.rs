//! Two listings side by side: pure, page by page, in constant memory but for a bounded list of what only the replica has.

use super::{is_named_by_contents, is_never_copied};
use crate::metadata_object::{JOURNAL_PREFIX, KEPT_ROOTS_PREFIX};
use crate::node_object::NODES_PREFIX;
use crate::store::{ListedObject, ObjectStore, Result};
use std::collections::{BTreeMap, VecDeque};

/// What one LIST asks for.
const PAGE_KEYS: usize = 1000;
/// What only the replica has, at the most; the rest is found by the next comparison, if there is one.
const EXTRAS_MAX: usize = 1000;

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After<'k>(Option<&'k str>);

/// A page of one listing.
#[derive(Debug, Default)]
pub struct Page {
    objects: Vec<ListedObject>,
    is_last: bool,
}

/// The page behind a key, if it is wanted.
pub async fn list(store: &dyn ObjectStore, wanted: Option<After<'_>>) -> Result<Page> {
    let Some(After(after)) = wanted else {
        return Ok(Page::default());
    };
    let objects = store.list("", after, PAGE_KEYS).await?;
    let is_last = objects.len() < PAGE_KEYS;
    Ok(Page { objects, is_last })
}

/// How far two listings are compared.
#[derive(Debug, Default)]
pub struct Compared {
    primary: Listing,
    replica: Listing,
    extras: Vec<String>,
    /// Of each kind of metadata the primary's first and last.
    metadata: BTreeMap<&'static str, (String, String)>,
}

#[derive(Debug, Default)]
struct Listing {
    waiting: VecDeque<ListedObject>,
    after: Option<String>,
    is_whole: bool,
}

impl Listing {
    /// Nothing: there is enough to go on with.
    fn wanted(&self) -> Option<After<'_>> {
        (self.waiting.is_empty() && !self.is_whole).then_some(After(self.after.as_deref()))
    }

    fn take(&mut self, page: Page) {
        if let Some(last) = page.objects.last() {
            self.after = Some(last.key.clone());
        }
        self.is_whole |= page.is_last;
        self.waiting.extend(page.objects);
    }
}

impl Compared {
    /// Where the primary's next page begins, if it is wanted.
    pub fn of_primary(&self) -> Option<After<'_>> {
        self.primary.wanted()
    }

    /// Where the replica's next page begins, if it is wanted.
    pub fn of_replica(&self) -> Option<After<'_>> {
        self.replica.wanted()
    }

    /// One page of each further. What the replica lacks, or has otherwise, comes to `lacking`, and what is not named by its
    /// contents always. True: that was all.
    pub fn take(&mut self, of_primary: Page, of_replica: Page, lacking: &mut Vec<ListedObject>) -> bool {
        self.primary.take(of_primary);
        self.replica.take(of_replica);
        loop {
            let (primary, replica) = (self.primary.waiting.front(), self.replica.waiting.front());
            match (primary, replica) {
                (Some(primary), Some(replica)) if primary.key == replica.key => {
                    let is_alike = primary.size_bytes == replica.size_bytes && is_named_by_contents(&primary.key);
                    self.replica.waiting.pop_front();
                    self.pop_primary(lacking, !is_alike);
                }
                (Some(primary), Some(replica)) if primary.key < replica.key => self.pop_primary(lacking, true),
                (Some(_), None) if self.replica.is_whole => self.pop_primary(lacking, true),
                (Some(_), Some(_)) => self.pop_replica(),
                (None, Some(_)) if self.primary.is_whole => self.pop_replica(),
                _ => break,
            }
        }
        let is_over = |listing: &Listing| listing.is_whole && listing.waiting.is_empty();
        is_over(&self.primary) && is_over(&self.replica)
    }

    /// What may be removed once the replica's root is the primary's. An object that has been put into the replica and not into the
    /// primary yet is extra too, so only such as cannot come any more: objects of nodes, whose names are random numbers; parts of the
    /// journal before the primary's first; copies of roots before its last. Packs are never removed.
    pub fn extras(&self) -> impl Iterator<Item = &String> {
        let is_over = |key: &String| {
            let first_and_last = |prefix: &str| self.metadata.get(prefix);
            let key = key.as_str();
            if key.starts_with(NODES_PREFIX) {
                true
            } else if key.starts_with(JOURNAL_PREFIX) {
                first_and_last(JOURNAL_PREFIX).is_some_and(|(first, _)| key < first.as_str())
            } else if key.starts_with(KEPT_ROOTS_PREFIX) {
                first_and_last(KEPT_ROOTS_PREFIX).is_some_and(|(_, last)| key < last.as_str())
            } else {
                false
            }
        };
        self.extras.iter().filter(move |key| is_over(key))
    }

    fn pop_primary(&mut self, lacking: &mut Vec<ListedObject>, is_lacking: bool) {
        let Some(object) = self.primary.waiting.pop_front() else {
            return;
        };
        for prefix in [JOURNAL_PREFIX, KEPT_ROOTS_PREFIX] {
            if object.key.starts_with(prefix) {
                let first_and_last = self.metadata.entry(prefix);
                let first_and_last = first_and_last.or_insert_with(|| (object.key.clone(), String::new()));
                first_and_last.1.clone_from(&object.key);
            }
        }
        if is_lacking && !is_never_copied(&object.key) {
            lacking.push(object);
        }
    }

    fn pop_replica(&mut self) {
        let Some(object) = self.replica.waiting.pop_front() else {
            return;
        };
        if self.extras.len() < EXTRAS_MAX && object.key.contains('/') {
            self.extras.push(object.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(key: &str, size_bytes: u64) -> ListedObject {
        ListedObject {
            key: key.into(),
            size_bytes,
        }
    }

    /// In pages of so many.
    fn compared(primary: &[ListedObject], replica: &[ListedObject], page: usize) -> (Vec<String>, Vec<String>) {
        let behind = |objects: &[ListedObject], wanted: Option<After<'_>>| {
            let Some(After(after)) = wanted else {
                return Page::default();
            };
            let objects = objects
                .iter()
                .filter(|object| after.is_none_or(|after| object.key.as_str() > after));
            let objects: Vec<_> = objects.take(page).cloned().collect();
            let is_last = objects.len() < page;
            Page { objects, is_last }
        };
        let (mut compared, mut lacking) = (Compared::default(), Vec::new());
        while !compared.take(
            behind(primary, compared.of_primary()),
            behind(replica, compared.of_replica()),
            &mut lacking,
        ) {}
        let extras = compared.extras().cloned().collect();
        (lacking.into_iter().map(|object| object.key).collect(), extras)
    }

    #[test]
    fn only_what_cannot_come_any_more_is_removed() {
        let primary = [
            listed("journal/0000000000000005-aa", 1),
            listed("journal/0000000000000006-aa", 1),
            listed("keys", 1),
            listed("roots/0000000000000009", 1),
        ];
        let replica = [
            listed("conditions", 6),
            listed("journal/0000000000000004-aa", 1),
            listed("journal/0000000000000007-aa", 1),
            listed("nodes/00", 1),
            listed("objects/aa/bb", 1),
            listed("roots/0000000000000008", 1),
            listed("roots/000000000000000a", 1),
        ];
        let (lacking, extras) = compared(&primary, &replica, 3);
        let expected = [
            "journal/0000000000000005-aa",
            "journal/0000000000000006-aa",
            "keys",
            "roots/0000000000000009",
        ];
        assert_eq!(lacking, expected);
        assert_eq!(
            extras,
            ["journal/0000000000000004-aa", "nodes/00", "roots/0000000000000008"]
        );
    }

    #[test]
    fn what_is_not_named_by_its_contents_is_always_compared_by_them() {
        let both = [
            listed("conditions", 1),
            listed("keys", 1),
            listed("objects/aa/bb", 1),
            listed("root", 1),
            listed("roots/01", 1),
        ];
        assert_eq!(compared(&both, &both, 2).0, ["keys", "roots/01"]);
    }

    proptest! {
        #[test]
        fn what_is_lacking_is_the_difference_however_it_is_paged(
            primary in prop::collection::btree_map("objects/[a-d]{1,3}", 0..3_u64, 0..30),
            replica in prop::collection::btree_map("objects/[a-d]{1,3}", 0..3_u64, 0..30),
            page in 1..8_usize,
        ) {
            let list = |objects: &std::collections::BTreeMap<String, u64>| -> Vec<ListedObject> {
                objects.iter().map(|(key, size)| listed(key, *size)).collect()
            };
            let (lacking, extras) = compared(&list(&primary), &list(&replica), page);
            let expected: Vec<String> =
                primary.iter().filter(|(key, size)| replica.get(*key) != Some(size)).map(|(key, _)| key.clone()).collect();
            prop_assert_eq!(lacking, expected);
            prop_assert!(extras.is_empty());
        }
    }
}
