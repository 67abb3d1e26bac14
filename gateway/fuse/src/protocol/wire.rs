//! Structures of the kernel's ABI as Rust structs: fields in the machine's byte order, one after the other.
//!
//! A structure is never cast from bytes; its fields are read and written one by one. `wire_structs!` also keeps a
//! table of the layout, which a test compares with the C header.

/// A value with a fixed place in a message.
pub trait Wire: Sized {
    /// Length.
    const BYTES: usize;

    /// `bytes` is exactly [`Wire::BYTES`] long.
    fn get(bytes: &[u8]) -> Self;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// It alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        self.put(&mut out);
        out
    }
}

macro_rules! wire_integers {
    ($($integer:ty)*) => {$(
        impl Wire for $integer {
            const BYTES: usize = size_of::<$integer>();

            fn get(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$integer>()];
                array.copy_from_slice(bytes);
                Self::from_ne_bytes(array)
            }

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}
wire_integers!(u16 u32 u64 i32 i64);

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const BYTES: usize = N * T::BYTES;

    fn get(bytes: &[u8]) -> Self {
        let mut array = [T::default(); N];
        for (element, bytes) in array.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
            *element = T::get(bytes);
        }
        array
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|element| element.put(out));
    }
}

/// Where C has a structure's fields.
#[derive(Clone, Debug)]
pub struct Layout {
    /// As in <linux/fuse.h>.
    pub c_name: &'static str,
    /// The protocol's minor version that has it in this form.
    pub since_minor: u32,
    /// Length.
    pub bytes: usize,
    /// In their order.
    pub fields: Vec<FieldLayout>,
}

/// One field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// As in <linux/fuse.h>.
    pub name: &'static str,
    /// From the structure's first byte.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

impl Layout {
    /// Of fields that follow each other without gaps.
    pub(crate) fn new(c_name: &'static str, since_minor: u32, fields: &[(&'static str, usize)]) -> Self {
        let mut offset = 0;
        let place = |(name, bytes): &(&'static str, usize)| {
            let field = FieldLayout {
                name: name.trim_start_matches("r#"),
                offset,
                bytes: *bytes,
            };
            offset += bytes;
            field
        };
        Self {
            c_name,
            since_minor,
            fields: fields.iter().map(place).collect(),
            bytes: offset,
        }
    }
}

/// Declares structures, and `layouts()` of all of them. `r#type` is written `type` in C.
macro_rules! wire_structs {
    ($(
        $(#[$attribute:meta])*
        $name:ident = $c_name:literal since $minor:literal { $($field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[$attribute])*
            #[doc = concat!("`", $c_name, "`.")]
            #[allow(missing_docs, reason = "the fields are those of the structure in C")]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name { $(pub $field: $type,)* }

            impl Wire for $name {
                const BYTES: usize = 0 $(+ <$type as Wire>::BYTES)*;

                fn get(bytes: &[u8]) -> Self {
                    let mut rest = bytes;
                    $(
                        let (field, after) = rest.split_at(<$type as Wire>::BYTES);
                        let $field = <$type as Wire>::get(field);
                        rest = after;
                    )*
                    debug_assert!(rest.is_empty());
                    Self { $($field,)* }
                }

                fn put(&self, out: &mut Vec<u8>) {
                    $(self.$field.put(out);)*
                }
            }
        )*

        /// Every structure of this module, as this crate has it.
        pub fn layouts() -> Vec<$crate::protocol::wire::Layout> {
            vec![$(
                $crate::protocol::wire::Layout::new(
                    $c_name,
                    $minor,
                    &[$((stringify!($field), <$type as Wire>::BYTES),)*],
                ),
            )*]
        }
    };
}
pub(crate) use wire_structs;
