//! Options of the negotiation: what a client asks, and how the server answers.

use super::{
    DecodeError, MetaContext, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, fields::Fields,
    info_type, option_code, option_reply,
};

/// What precedes the data of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// One of [`option_code`](super::option_code), or unknown.
    pub code: u32,
    /// Of the data, at most [`OPTION_BYTES_MAX`](super::OPTION_BYTES_MAX).
    pub length: usize,
}

/// # Errors
/// When the magic number is wrong, or the data would be too long.
pub fn decode_option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, DecodeError> {
    let mut fields = Fields(bytes);
    let magic = fields.u64("option magic")?;
    if magic != OPTION_MAGIC {
        return Err(DecodeError::Magic {
            what: "option",
            found: magic,
            expected: OPTION_MAGIC,
        });
    }
    let code = fields.u32("option code")?;
    let length = fields.u32("option length")? as usize;
    if length > OPTION_BYTES_MAX {
        return Err(DecodeError::TooLong {
            what: "option",
            length,
            length_max: OPTION_BYTES_MAX,
        });
    }
    Ok(OptionHeader { code, length })
}

/// An option with its data understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum OptionRequest<'a> {
    ExportName(&'a str),
    Abort,
    List,
    StartTls,
    Info { name: &'a str, items: Vec<u16> },
    Go { name: &'a str, items: Vec<u16> },
    StructuredReply,
    ListMetaContext(MetaQuery<'a>),
    SetMetaContext(MetaQuery<'a>),
    Unknown { code: u32 },
}

/// Which metadata contexts a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    /// The export's.
    pub name: &'a str,
    /// None: all there are.
    pub queries: Vec<&'a str>,
}

/// `data` is all that the header announced.
///
/// # Errors
/// When it does not have the form that `code` demands.
pub fn decode_option(code: u32, data: &[u8]) -> Result<OptionRequest<'_>, DecodeError> {
    let mut fields = Fields(data);
    let option = match code {
        option_code::EXPORT_NAME => OptionRequest::ExportName(fields.text("export name", data.len())?),
        // The protocol asks servers to take an abort whatever data comes with it.
        option_code::ABORT => return Ok(OptionRequest::Abort),
        option_code::LIST => OptionRequest::List,
        option_code::STARTTLS => OptionRequest::StartTls,
        option_code::INFO | option_code::GO => {
            let name = fields.sized_text("export name")?;
            let items = decode_items(&mut fields)?;
            match code {
                option_code::GO => OptionRequest::Go { name, items },
                _ => OptionRequest::Info { name, items },
            }
        }
        option_code::STRUCTURED_REPLY => OptionRequest::StructuredReply,
        option_code::LIST_META_CONTEXT => OptionRequest::ListMetaContext(decode_query(&mut fields)?),
        option_code::SET_META_CONTEXT => OptionRequest::SetMetaContext(decode_query(&mut fields)?),
        code => return Ok(OptionRequest::Unknown { code }),
    };
    fields.finish("option")?;
    Ok(option)
}

fn decode_items(fields: &mut Fields<'_>) -> Result<Vec<u16>, DecodeError> {
    let count = fields.u16("information item count")?;
    (0..count).map(|_| fields.u16("information item")).collect()
}

/// The count is the client's word, so nothing is reserved for it: each query takes at least four bytes of input.
fn decode_query<'a>(fields: &mut Fields<'a>) -> Result<MetaQuery<'a>, DecodeError> {
    let name = fields.sized_text("export name")?;
    let count = fields.u32("metadata query count")?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.sized_text("metadata query")?);
    }
    Ok(MetaQuery { name, queries })
}

/// Writes the replies to one option.
pub struct OptionReplies<'a> {
    /// The option that is answered.
    pub code: u32,
    /// Where the replies go.
    pub out: &'a mut Vec<u8>,
}

impl OptionReplies<'_> {
    fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&self.code.to_be_bytes());
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(&(length as u32).to_be_bytes());
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    /// It is granted; nothing follows.
    pub fn ack(&mut self) {
        self.reply(option_reply::ACK, &[]);
    }

    /// It is refused; `kind` is one of [`option_reply`](super::option_reply).
    pub fn error(&mut self, kind: u32, message: &str) {
        self.reply(kind, &[message.as_bytes()]);
    }

    /// One export of a list.
    pub fn server(&mut self, name: &str, description: &str) {
        let length = (name.len() as u32).to_be_bytes();
        self.reply(
            option_reply::SERVER,
            &[&length, name.as_bytes(), description.as_bytes()],
        );
    }

    /// Size and [`transmission_flag`](super::transmission_flag)s.
    pub fn info_export(&mut self, size_bytes: u64, flags: u16) {
        let parts = (size_bytes.to_be_bytes(), flags.to_be_bytes());
        self.reply(
            option_reply::INFO,
            &[&info_type::EXPORT.to_be_bytes(), &parts.0, &parts.1],
        );
    }

    /// A name or a description.
    pub fn info_text(&mut self, item: u16, text: &str) {
        self.reply(option_reply::INFO, &[&item.to_be_bytes(), text.as_bytes()]);
    }

    /// Lengths and offsets that the server takes.
    pub fn info_block_size(&mut self, bytes_min: u32, bytes_preferred: u32, bytes_max: u32) {
        let sizes = [bytes_min, bytes_preferred, bytes_max].map(u32::to_be_bytes);
        self.reply(
            option_reply::INFO,
            &[&info_type::BLOCK_SIZE.to_be_bytes(), sizes.as_flattened()],
        );
    }

    /// One context that was asked for.
    pub fn meta_context(&mut self, id: u32, context: MetaContext) {
        self.reply(
            option_reply::META_CONTEXT,
            &[&id.to_be_bytes(), context.name.as_bytes()],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sized(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn an_option_over_the_limit_is_refused_by_its_header() {
        let mut header = [0; OPTION_HEADER_BYTES];
        header[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        header[12..].copy_from_slice(&(OPTION_BYTES_MAX as u32 + 1).to_be_bytes());
        assert!(matches!(
            decode_option_header(&header),
            Err(DecodeError::TooLong { .. })
        ));
    }

    #[test]
    fn a_query_count_that_lies_is_truncated_not_reserved() {
        let data = [sized("disk"), u32::MAX.to_be_bytes().to_vec()].concat();
        assert!(matches!(
            decode_option(option_code::SET_META_CONTEXT, &data),
            Err(DecodeError::Truncated { .. })
        ));
    }

    #[test]
    fn names_are_checked_for_length_and_encoding() {
        assert!(matches!(
            decode_option(option_code::EXPORT_NAME, &[b'a'; 4097]),
            Err(DecodeError::TooLong { .. })
        ));
        assert!(decode_option(option_code::EXPORT_NAME, &[b'a'; 4096]).is_ok());
        assert!(matches!(
            decode_option(option_code::EXPORT_NAME, &[0xff]),
            Err(DecodeError::NotUtf8 { .. })
        ));
    }

    #[test]
    fn bytes_after_the_end_are_refused() {
        assert_eq!(
            decode_option(option_code::LIST, &[1]),
            Err(DecodeError::Trailing {
                what: "option",
                count: 1
            })
        );
    }

    proptest! {
        #[test]
        fn go_round_trip(name in "\\PC{0,40}", items: Vec<u16>) {
            let mut data = sized(&name);
            data.extend((items.len() as u16).to_be_bytes());
            items.iter().for_each(|item| data.extend(item.to_be_bytes()));
            prop_assert_eq!(
                decode_option(option_code::GO, &data),
                Ok(OptionRequest::Go { name: &name, items: items.clone() })
            );
            prop_assert_eq!(
                decode_option(option_code::INFO, &data),
                Ok(OptionRequest::Info { name: &name, items })
            );
        }

        #[test]
        fn meta_query_round_trip(name in "\\PC{0,40}", queries in prop::collection::vec("\\PC{0,20}", 0..5)) {
            let mut data = sized(&name);
            data.extend((queries.len() as u32).to_be_bytes());
            queries.iter().for_each(|query| data.extend(sized(query)));
            let expected = MetaQuery { name: &name, queries: queries.iter().map(String::as_str).collect() };
            prop_assert_eq!(
                decode_option(option_code::SET_META_CONTEXT, &data),
                Ok(OptionRequest::SetMetaContext(expected))
            );
        }

        #[test]
        fn a_cut_option_is_an_error(name in "[a-z]{1,20}", cut in any::<prop::sample::Index>()) {
            let data = [sized(&name), vec![0, 1, 0, 3]].concat();
            prop_assert!(decode_option(option_code::GO, &data[..cut.index(data.len())]).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(code in 0u32..12, data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode_option(code, &data);
        }
    }
}
