//! What was used of a store.

/// Requests that are charged for, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// PUTs.
    pub puts: u64,
    /// LISTs.
    pub lists: u64,
    /// GETs.
    pub gets: u64,
    /// HEADs.
    pub heads: u64,
    /// DELETEs.
    pub deletes: u64,
    /// Sent by PUTs that succeeded.
    pub bytes_up: u64,
    /// Received by GETs that succeeded.
    pub bytes_down: u64,
}

impl Usage {
    fn zip(self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            puts: with(self.puts, other.puts),
            lists: with(self.lists, other.lists),
            gets: with(self.gets, other.gets),
            heads: with(self.heads, other.heads),
            deletes: with(self.deletes, other.deletes),
            bytes_up: with(self.bytes_up, other.bytes_up),
            bytes_down: with(self.bytes_down, other.bytes_down),
        }
    }

    /// Both together; at most what a counter can hold.
    pub fn plus(self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// What came since `earlier`.
    pub fn since(self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        let all = [self.puts, self.lists, self.gets, self.heads, self.deletes];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// What lies in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// Of all objects.
    pub bytes: u64,
    /// How many there are.
    pub objects: u64,
}
