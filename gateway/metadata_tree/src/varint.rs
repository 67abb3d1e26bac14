//! Numbers of variable length: seven bits a byte, the lowest first, in as few bytes as they need.

use tombolo_base::{DecodeError, Reader, Writer};

pub fn put(out: &mut Writer, mut number: u64) {
    while number >= 0x80 {
        out.u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.u8(number as u8);
}

/// Refuses what [`put`] would not have written: more than 64 bits, or zeroes at the end.
pub fn get(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, DecodeError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8(what)?;
        let bits = u64::from(byte & 0x7f);
        let is_too_long = (shift == 63 && bits > 1) || (shift > 0 && byte == 0);
        if is_too_long {
            return Err(DecodeError::Invalid {
                what,
                value: byte.into(),
            });
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(DecodeError::Invalid { what, value: number })
}

/// As [`get`], and refuses what has more than 32 bits.
pub fn get_u32(reader: &mut Reader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let value = get(reader, what)?;
    u32::try_from(value).map_err(|_| DecodeError::Invalid { what, value })
}

/// Writes a number as the difference to another, wrapping, in zigzag order: 0, -1, 1, -2, …
pub fn put_difference(out: &mut Writer, before: u64, number: u64) {
    let difference = number.wrapping_sub(before) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

pub fn get_difference(reader: &mut Reader<'_>, what: &'static str, before: u64) -> Result<u64, DecodeError> {
    let code = get(reader, what)?;
    Ok(before.wrapping_add((code >> 1) ^ (code & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_one_form_only() {
        for bytes in [
            &[0x80, 0][..],
            &[0xff, 0x80, 0],
            &[0xff; 9],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff; 11],
        ] {
            assert!(get(&mut Reader::new(bytes), "number").is_err(), "{bytes:02x?}");
        }
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(get(&mut Reader::new(&largest), "number"), Ok(u64::MAX));
        assert!(get_u32(&mut Reader::new(&largest), "number").is_err());
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>(), shift in 0u32..64, before in any::<u64>()) {
            let number = number >> shift;
            let mut out = Writer::default();
            put(&mut out, number);
            put_difference(&mut out, before, number);
            let mut reader = Reader::new(&out.0);
            prop_assert_eq!(get(&mut reader, "number"), Ok(number));
            prop_assert_eq!(get_difference(&mut reader, "number", before), Ok(number));
            prop_assert_eq!(reader.remaining(), 0);
        }
    }
}
