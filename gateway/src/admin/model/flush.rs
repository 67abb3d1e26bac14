use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What FLUSH, FUA writes, fsync, COMMIT and their like wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum FlushMode {
    /// The local disk: what was flushed survives a power failure.
    #[default]
    Local,
    /// The store besides: what was flushed survives the loss of the local disk. Each wait costs two puts and their time.
    Bucket,
}

impl FlushMode {
    /// As in the JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Bucket => "bucket",
        }
    }

    /// What is said of a volume or share in brackets, beside its size; nothing of what is usual.
    pub const fn remark(self) -> &'static str {
        match self {
            Self::Local => "",
            Self::Bucket => ", flushed to the store",
        }
    }
}

impl From<FlushMode> for tombolo_base::FlushMode {
    fn from(mode: FlushMode) -> Self {
        match mode {
            FlushMode::Local => Self::Local,
            FlushMode::Bucket => Self::Bucket,
        }
    }
}

impl From<tombolo_base::FlushMode> for FlushMode {
    fn from(mode: tombolo_base::FlushMode) -> Self {
        match mode {
            tombolo_base::FlushMode::Local => Self::Local,
            tombolo_base::FlushMode::Bucket => Self::Bucket,
        }
    }
}
