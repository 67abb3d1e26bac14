//! Why a store is asked. A handle on a store knows it ([`crate::Limited::with_cause`]); it goes down with the request, past
//! decorators that do not care, to the one that counts ([`crate::Counting`]).

use tombolo_base::names;

names! {
    /// Why a store is asked.
    pub enum Cause: "cause" {
        /// A client waits for data.
        Demand = "demand",
        /// A client may want data.
        Prefetch = "prefetch",
        /// Data that clients wrote goes into objects, and duplicates of it are looked for.
        Flush = "flush",
        /// Recovery points: the bucket's journal.
        Journal = "journal",
        /// The journal is folded into the bucket's metadata tree.
        Tree = "tree",
        /// The root is put, read, renewed and kept: whose the bucket is and what it holds.
        Root = "root",
        /// What is needed no more is removed.
        Removal = "removal",
        /// Starts and recoveries: whether it is the right store, and metadata that is brought here.
        Recovery = "recovery",
        /// Objects are read to see whether they are whole.
        Check = "check",
        /// Brought to a replica later, as it was away.
        Replication = "replication",
        /// Connections are kept open while hosts are at work.
        Warm = "warm",
        /// Anything else, such as another data key.
        Other = "other",
    }
}

tokio::task_local! {
    static CAUSE: Cause;
}

/// Makes a request for a cause. No decorator may hand it to another task.
pub(crate) async fn because<T>(cause: Cause, request: impl Future<Output = T>) -> T {
    CAUSE.scope(cause, request).await
}

/// As [`because`], or for the cause that the request under way has.
pub(crate) async fn with_cause<T>(cause: Option<Cause>, request: impl Future<Output = T>) -> T {
    match cause {
        Some(cause) => because(cause, request).await,
        None => request.await,
    }
}

/// That of the request under way, if a handle that knows it has made it.
pub(crate) fn present() -> Option<Cause> {
    CAUSE.try_with(|cause| *cause).ok()
}
