//! List prices that are shipped. They are a starting point: a contract, another region or a larger bill has others.

use crate::{Date, Prices};
use tombolo_base::names;

/// Prices that were looked up so long ago should be looked up again.
pub const AGE_DAYS_MAX: i64 = 2 * 365;

/// Prices with where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceList<'t> {
    /// The figures.
    pub prices: Prices,
    /// When they were looked up.
    pub date: Date,
    /// Where.
    pub source: &'t str,
    /// What they leave out.
    pub remark: &'t str,
}

names! {
    /// A shipped table of prices.
    pub enum Table: "price table" {
        /// Amazon S3 Standard in us-east-1, first step of each scale.
        AwsS3Standard = "aws-s3-standard",
        /// Amazon S3 Standard-Infrequent Access in us-east-1.
        AwsS3StandardIa = "aws-s3-standard-ia",
        /// Amazon S3 One Zone-Infrequent Access in us-east-1.
        AwsS3OneZoneIa = "aws-s3-one-zone-ia",
        /// Amazon S3 Glacier Instant Retrieval in us-east-1.
        AwsS3GlacierInstant = "aws-s3-glacier-instant",
        /// Amazon S3 Express One Zone in us-east-1.
        AwsS3Express = "aws-s3-express",
        /// Backblaze B2, pay as you go.
        BackblazeB2 = "backblaze-b2",
        /// Wasabi, pay as you go.
        Wasabi = "wasabi",
        /// Cloudflare R2, Standard.
        CloudflareR2 = "cloudflare-r2",
        /// A store of one's own.
        Free = "free",
    }
}

const AWS: &str = "https://aws.amazon.com/s3/pricing/, us-east-1";
/// Decimal gigabytes in a GiB.
const GB: f64 = 1.073_741_824;

const STANDARD: Prices = Prices {
    put_usd_per_1000: 0.005,
    copy_usd_per_1000: 0.005,
    list_usd_per_1000: 0.005,
    get_usd_per_1000: 0.0004,
    head_usd_per_1000: 0.0004,
    delete_usd_per_1000: 0.0,
    upload_usd_per_gib: 0.0,
    retrieval_usd_per_gib: 0.0,
    egress_usd_per_gib: 0.09,
    storage_usd_per_gib_month: 0.023,
    object_bytes_min: 0.0,
    storage_days_min: 0.0,
};

const STANDARD_IA: Prices = Prices {
    put_usd_per_1000: 0.01,
    copy_usd_per_1000: 0.01,
    get_usd_per_1000: 0.001,
    head_usd_per_1000: 0.001,
    retrieval_usd_per_gib: 0.01,
    storage_usd_per_gib_month: 0.0125,
    object_bytes_min: 131_072.0,
    storage_days_min: 30.0,
    ..STANDARD
};

const ONE_ZONE_IA: Prices = Prices {
    storage_usd_per_gib_month: 0.01,
    ..STANDARD_IA
};

const GLACIER_INSTANT: Prices = Prices {
    put_usd_per_1000: 0.02,
    copy_usd_per_1000: 0.02,
    get_usd_per_1000: 0.01,
    head_usd_per_1000: 0.01,
    retrieval_usd_per_gib: 0.03,
    storage_usd_per_gib_month: 0.004,
    storage_days_min: 90.0,
    ..STANDARD_IA
};

const EXPRESS: Prices = Prices {
    put_usd_per_1000: 0.00113,
    copy_usd_per_1000: 0.00113,
    list_usd_per_1000: 0.00113,
    get_usd_per_1000: 0.00003,
    head_usd_per_1000: 0.00003,
    upload_usd_per_gib: 0.0032,
    retrieval_usd_per_gib: 0.0006,
    storage_usd_per_gib_month: 0.11,
    ..STANDARD
};

const FREE: Prices = Prices {
    put_usd_per_1000: 0.0,
    copy_usd_per_1000: 0.0,
    list_usd_per_1000: 0.0,
    get_usd_per_1000: 0.0,
    head_usd_per_1000: 0.0,
    egress_usd_per_gib: 0.0,
    storage_usd_per_gib_month: 0.0,
    ..STANDARD
};

const B2: Prices = Prices {
    copy_usd_per_1000: 0.004,
    list_usd_per_1000: 0.004,
    get_usd_per_1000: 0.0004,
    head_usd_per_1000: 0.0004,
    egress_usd_per_gib: 0.01 * GB,
    storage_usd_per_gib_month: 0.006 * GB,
    ..FREE
};

const WASABI: Prices = Prices {
    storage_usd_per_gib_month: 7.99 / 1024.0,
    object_bytes_min: 4096.0,
    storage_days_min: 90.0,
    ..FREE
};

const R2: Prices = Prices {
    put_usd_per_1000: 0.0045,
    copy_usd_per_1000: 0.0045,
    list_usd_per_1000: 0.0045,
    get_usd_per_1000: 0.00036,
    head_usd_per_1000: 0.00036,
    storage_usd_per_gib_month: 0.015 * GB,
    ..FREE
};

impl Table {
    /// The figures alone.
    pub const fn prices(self) -> Prices {
        match self {
            Self::AwsS3Standard => STANDARD,
            Self::AwsS3StandardIa => STANDARD_IA,
            Self::AwsS3OneZoneIa => ONE_ZONE_IA,
            Self::AwsS3GlacierInstant => GLACIER_INSTANT,
            Self::AwsS3Express => EXPRESS,
            Self::BackblazeB2 => B2,
            Self::Wasabi => WASABI,
            Self::CloudflareR2 => R2,
            Self::Free => FREE,
        }
    }

    /// The figures, when and where they were looked up, and what they leave out.
    pub const fn list(self) -> PriceList<'static> {
        let (date, source, remark) = match self {
            Self::AwsS3Standard
            | Self::AwsS3StandardIa
            | Self::AwsS3OneZoneIa
            | Self::AwsS3GlacierInstant
            | Self::AwsS3Express => (
                Date::of(2025, 10, 1),
                AWS,
                "The 100 GB of egress a month that are free, and the lower prices of large amounts, are left out.",
            ),
            Self::BackblazeB2 => (
                Date::of(2025, 10, 1),
                "https://www.backblaze.com/cloud-storage/pricing and /transaction-pricing",
                "Egress up to three times of what is stored, and 2,500 requests a day, are free, which is left out.",
            ),
            Self::Wasabi => (
                Date::of(2026, 7, 1),
                "https://wasabi.com/pricing",
                "At least 1 TB is charged, and egress must stay below what is stored, which is left out.",
            ),
            Self::CloudflareR2 => (
                Date::of(2025, 10, 1),
                "https://developers.cloudflare.com/r2/pricing/",
                "The monthly 10 GB, 1 million writes and 10 million reads that are free are left out.",
            ),
            Self::Free => (
                // Never out of date.
                Date::of(9999, 12, 31),
                "a store of one's own",
                "Its disks, power and line are not free, of course.",
            ),
        };
        PriceList {
            prices: self.prices(),
            date,
            source,
            remark,
        }
    }
}
