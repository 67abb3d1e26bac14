/// What a volume's or a share's flushes wait for before they are answered: FLUSH, FUA writes, fsync, COMMIT and their like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlushMode {
    /// For the local disk: what was flushed survives a kill and a power failure.
    #[default]
    Local,
    /// For a recovery point in the bucket that covers it besides: it survives the loss of the local disk too.
    Bucket,
}
