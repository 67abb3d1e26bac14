//! The fence: the leading 8 bytes of the first key of every `stride`-th page. It names the pages that may hold a
//! key; with a stride of one that is one page, beyond it interpolation guesses among `stride` pages.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Bytes of one post on storage and in memory.
pub(crate) const POST_BYTES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    stride: u64,
    page_count: u64,
    posts: Vec<u64>,
}

impl Fence {
    /// `posts[i]` is the prefix of the first key of page `i * stride`.
    pub fn new(stride: u64, page_count: u64, posts: Vec<u64>) -> Self {
        debug_assert_eq!(posts.len() as u64, post_count(page_count, stride));
        Self {
            stride,
            page_count,
            posts,
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.posts.capacity() * POST_BYTES) as u64
    }

    /// Pages that may hold a key with this prefix; `None` when it precedes all. Several posts may equal the prefix
    /// (never with real fingerprints, but a run must be right for any keys), hence a range even at stride one.
    pub fn search(&self, prefix: u64) -> Option<Candidates> {
        let after = self.posts.partition_point(|post| *post <= prefix);
        let before = self.posts[..after].partition_point(|post| *post < prefix);
        let last = (after as u64 * self.stride).min(self.page_count).checked_sub(1)?;
        let low = before.saturating_sub(1);
        Some(Candidates {
            pages: low as u64 * self.stride..=last,
            bounds: (self.posts[low], self.posts.get(after).copied().unwrap_or(u64::MAX)),
            likely: (before < after).then(|| (after as u64 - 1) * self.stride),
        })
    }
}

/// Where a key may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// Never empty.
    pub pages: RangeInclusive<u64>,
    /// Prefixes of the posts at both ends of `pages`.
    pub bounds: (u64, u64),
    /// The page whose post equals the key's prefix: in all likelihood the key is its first.
    pub likely: Option<u64>,
}

pub(crate) fn post_count(page_count: u64, stride: u64) -> u64 {
    page_count.div_ceil(stride)
}

/// The smallest power of two that keeps the posts of `page_count` pages within `bytes_max`; one post is always kept.
pub(crate) fn stride_for(page_count: u64, bytes_max: u64) -> u64 {
    let mut stride = 1;
    while stride < page_count && post_count(page_count, stride) * POST_BYTES as u64 > bytes_max {
        stride *= 2;
    }
    stride
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(fence: &Fence, prefix: u64) -> Option<RangeInclusive<u64>> {
        fence.search(prefix).map(|found| found.pages)
    }

    #[test]
    fn names_one_page_at_stride_one() {
        let fence = Fence::new(1, 3, vec![10, 20, 30]);
        assert_eq!(pages(&fence, 9), None);
        assert_eq!(pages(&fence, 15), Some(0..=0));
        assert_eq!(pages(&fence, 25), Some(1..=1));
        assert_eq!(pages(&fence, 99), Some(2..=2));
        // A key that shares the prefix of page 1's first key may precede it, but hardly ever does.
        let shared = Candidates {
            pages: 0..=1,
            bounds: (10, 30),
            likely: Some(1),
        };
        assert_eq!(fence.search(20), Some(shared));
        assert_eq!(Fence::new(1, 0, vec![]).search(20), None);
    }

    #[test]
    fn names_stride_pages_beyond() {
        let fence = Fence::new(2, 5, vec![10, 20, 30]);
        assert_eq!(pages(&fence, 15), Some(0..=1));
        assert_eq!(pages(&fence, 35), Some(4..=4));
        assert_eq!(fence.search(15).map(|found| found.bounds), Some((10, 20)));
        assert_eq!(fence.search(35).map(|found| found.bounds), Some((30, u64::MAX)));
    }

    #[test]
    fn stride_keeps_to_its_bytes() {
        assert_eq!(stride_for(100, 800), 1);
        assert_eq!(stride_for(100, 799), 2);
        assert_eq!(post_count(100, stride_for(100, 0)), 1);
        assert_eq!(stride_for(0, 0), 1);
    }
}
