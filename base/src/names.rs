//! Enumerations of which each variant has a word: in settings, on the command line, as a label. One list says both.

use alloc::string::String;

/// A word that names nothing, and the words that would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a valid {what}; choose one of {}", known.join(" "))]
pub struct NameError {
    /// The word.
    pub word: String,
    /// What it should have named.
    pub what: &'static str,
    /// Every word that does.
    pub known: &'static [&'static str],
}

/// An enumeration that [`names!`](crate::names) has made.
pub trait Named: Copy + 'static {
    /// What one of them is called.
    const WHAT: &'static str;
    /// In the order of the variants.
    const WORDS: &'static [&'static str];

    /// The place of the variant among them.
    fn index(self) -> usize;
}

/// An enumeration with its words: its list of all variants, both ways between variant and word, and the error of a word that
/// is not among them, all from one list.
#[macro_export]
macro_rules! names {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident: $what:literal {
            $( $(#[$meaning:meta])* $variant:ident = $word:literal ),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $(
                $(#[$meaning])*
                #[doc = concat!("`", $word, "`.")]
                $variant
            ),+
        }

        impl $name {
            /// In the order of their declaration.
            pub const ALL: [Self; <Self as $crate::Named>::WORDS.len()] = [$(Self::$variant),+];

            /// The word of this variant.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $word ),+
                }
            }
        }

        impl $crate::Named for $name {
            const WHAT: &'static str = $what;
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn index(self) -> usize {
                self as usize
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::NameError;

            fn from_str(word: &str) -> Result<Self, $crate::NameError> {
                match word {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err($crate::NameError {
                        word: word.into(),
                        what: <Self as $crate::Named>::WHAT,
                        known: <Self as $crate::Named>::WORDS,
                    }),
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                out.write_str(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Named;

    names! {
        /// What hangs in a cupboard.
        enum Garment: "garment" {
            Coat = "coat",
            /// With laces.
            Shoe = "shoe",
        }
    }

    #[test]
    fn words_and_variants_are_told_apart_both_ways() {
        for (place, garment) in Garment::ALL.into_iter().enumerate() {
            assert_eq!(garment.name().parse(), Ok(garment));
            assert_eq!(
                (garment.to_string(), garment.index()),
                (Garment::WORDS[place].into(), place)
            );
        }
        let error = "hat".parse::<Garment>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"hat\" is not a valid garment; choose one of coat shoe"
        );
    }
}
