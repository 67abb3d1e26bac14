//! What a pair of policies has achieved.

/// Counters that can be summed.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $( $(#[$meaning:meta])* $counter:ident ),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "api", derive(schemars::JsonSchema, serde::Serialize, serde::Deserialize))]
        pub struct $name { $( $(#[$meaning])* pub $counter: u64 ),+ }

        impl $name {
            pub(crate) fn add(&mut self, other: &Self) {
                $( self.$counter += other.$counter; )+
            }
        }
    };
}

counters! {
    /// What one pair of policies has achieved; in blocks where nothing else is said.
    PolicyCounters {
        /// Reads whose blocks were all resident.
        reads_hit,
        /// Reads with blocks on their way, but none absent.
        reads_partial,
        /// Reads for which a fetch had to be started.
        reads_missed,
        /// Blocks that a reader found resident.
        hits,
        /// Blocks that a reader found on their way.
        partial_misses,
        /// Blocks for which a fetch had to be begun.
        complete_misses,
        /// Sent for ahead of demand.
        prefetched,
        /// Of those, read at least once, or waited for when they came.
        used,
        /// Evicted before anybody read them.
        wasted,
        /// Fetches that failed or brought something else.
        dropped,
        /// Reads of prefetched blocks while they stayed, the first included.
        accesses,
        /// Suggestions, or pieces of one, that were admitted.
        suggestions_admitted,
        /// Suggestions, or pieces of one, that were refused as not worth their price.
        suggestions_refused,
        /// Of the suggestions that were refused.
        blocks_refused,
    }
}

/// The account of one pair of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The replacement policy's name.
    pub replacement: &'static str,
    /// The prefetcher's name.
    pub prefetch: &'static str,
    /// Over all times that the two were at work together.
    pub counters: PolicyCounters,
}
