//! What a store charges for.

use alloc::vec::Vec;

/// The largest price, and the largest of the other figures. Beyond any charge, and small enough for every sum.
pub const PRICE_MAX: f64 = 1e9;

/// What is wrong with one field of some prices.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum PriceFault {
    #[error("`{field}` is missing; what is free has to be said to be: `{field} = 0`")]
    Missing { field: &'static str },
    #[error("there is no price `{field}`; known are {}", .known.join(", "))]
    Unknown {
        field: alloc::string::String,
        known: &'static [&'static str],
    },
    #[error("`{field}` is {found}, which is no number")]
    NotANumber { field: &'static str, found: f64 },
    #[error("`{field}` is {found}, and nothing costs less than nothing")]
    Negative { field: &'static str, found: f64 },
    #[error("`{field}` is {found}, more than {PRICE_MAX}")]
    TooLarge { field: &'static str, found: f64 },
}

macro_rules! prices {
    ($( $(#[doc = $meaning:literal])+ $field:ident, )+) => {
        /// What a store charges, in US dollars. Every field has to be given: what is free is zero.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
        pub struct Prices { $( $(#[doc = $meaning])+ pub $field: f64, )+ }

        impl Prices {
            /// The names of all fields, in the order of a price file.
            pub const FIELDS: &[&str] = &[$( stringify!($field) ),+];

            /// What each field says of itself, in the order of [`Self::FIELDS`].
            pub const MEANINGS: &[&str] = &[$( concat!($($meaning),+) ),+];

            /// All fields, in the order of [`Self::FIELDS`].
            pub fn fields(&self) -> Vec<(&'static str, f64)> {
                alloc::vec![$( (stringify!($field), self.$field) ),+]
            }

            fn field_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $( stringify!($field) => Some(&mut self.$field), )+
                    _ => None,
                }
            }
        }
    };
}

prices! {
    /// A thousand PUTs.
    put_usd_per_1000,
    /// A thousand copies within the store. The gateway makes none.
    copy_usd_per_1000,
    /// A thousand LISTs.
    list_usd_per_1000,
    /// A thousand GETs.
    get_usd_per_1000,
    /// A thousand HEADs.
    head_usd_per_1000,
    /// A thousand DELETEs.
    delete_usd_per_1000,
    /// A GiB that is sent to the store.
    upload_usd_per_gib,
    /// A GiB that is read in the store, wherever it goes.
    retrieval_usd_per_gib,
    /// A GiB that leaves the cloud.
    egress_usd_per_gib,
    /// A GiB that lies in the store for a month.
    storage_usd_per_gib_month,
    /// A smaller object is charged as one of so many bytes.
    object_bytes_min,
    /// An object that is removed or overwritten earlier is charged for so many days.
    storage_days_min,
}

/// Prices as policies weigh them, in integers: 1e-11 dollars, so that a GET of 0.4 microdollars is 40,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitPrices {
    /// Of one GET.
    pub get_request: u64,
    /// Of 4 KiB that are read in the store and leave the cloud.
    pub egress_per_block: u64,
}

/// Of [`UnitPrices`].
pub const UNITS_PER_DOLLAR: f64 = 1e11;
const BLOCKS_PER_GIB: f64 = 262_144.0;

impl Prices {
    /// From names and figures; every fault at once.
    pub fn from_fields<'n>(given: impl IntoIterator<Item = (&'n str, f64)>) -> Result<Self, Vec<PriceFault>> {
        let mut prices = Self::default();
        let mut faults = Vec::new();
        let mut named = Vec::new();
        for (name, figure) in given {
            match prices.field_mut(name) {
                Some(field) => {
                    *field = figure;
                    named.push(name);
                }
                None => faults.push(PriceFault::Unknown {
                    field: name.into(),
                    known: Self::FIELDS,
                }),
            }
        }
        let missing = Self::FIELDS.iter().filter(|field| !named.contains(field));
        faults.extend(missing.map(|field| PriceFault::Missing { field }));
        faults.extend(prices.faults());
        if faults.is_empty() { Ok(prices) } else { Err(faults) }
    }

    /// What cannot be charged.
    pub fn faults(&self) -> Vec<PriceFault> {
        let fault = |(field, found): (&'static str, f64)| match found {
            _ if found.is_nan() => Some(PriceFault::NotANumber { field, found }),
            _ if found < 0.0 => Some(PriceFault::Negative { field, found }),
            _ if found > PRICE_MAX => Some(PriceFault::TooLarge { field, found }),
            _ => None,
        };
        self.fields().into_iter().filter_map(fault).collect()
    }

    /// What a read costs, for policies. No sum of prices within bounds overflows.
    pub const fn units(&self) -> UnitPrices {
        let per_gib = self.egress_usd_per_gib + self.retrieval_usd_per_gib;
        UnitPrices {
            // Casts saturate, and turn what is no number into nothing.
            get_request: (self.get_usd_per_1000 * UNITS_PER_DOLLAR / 1e3 + 0.5) as u64,
            egress_per_block: (per_gib * UNITS_PER_DOLLAR / BLOCKS_PER_GIB + 0.5) as u64,
        }
    }
}
