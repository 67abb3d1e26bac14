//! Why a message is not a request that can be carried out. Which errno answers it: [`crate::Errno`].

use super::opcode::Opcode;

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Malformed {
    #[error("opcode {number} is unknown")]
    UnknownOpcode { number: u32 },
    #[error("{opcode:?} is not served")]
    NotServed { opcode: Opcode },
    #[error("ioctls are not served")]
    NoIoctl,
    #[error("{opcode:?} does not belong here")]
    OutOfPlace { opcode: Opcode },
    #[error("{opcode:?} has {bytes} bytes of arguments, which is not the length that it must have")]
    Length { opcode: Opcode, bytes: usize },
    #[error("{opcode:?}: a string has no NUL at its end")]
    Unterminated { opcode: Opcode },
    #[error("{opcode:?}: bytes follow the NUL of the last string")]
    NulInName { opcode: Opcode },
    #[error("a name is empty")]
    EmptyName,
    #[error("a name has a slash")]
    SlashInName,
    #[error("a name has {bytes} bytes")]
    NameTooLong { bytes: usize },
    #[error("a symbolic link's target has {bytes} bytes")]
    TargetTooLong { bytes: usize },
    #[error("an attribute's name has {bytes} bytes")]
    XattrNameTooLong { bytes: usize },
    #[error("an attribute's value has {bytes} bytes")]
    XattrValueTooLong { bytes: usize },
    #[error("{opcode:?} announces {announced} and brings {found}")]
    CountMismatch {
        opcode: Opcode,
        announced: usize,
        found: usize,
    },
    #[error("the extensions take {bytes} bytes, more than there are")]
    Extension { bytes: usize },
    #[error("{what} is {value}")]
    Value { what: &'static str, value: u64 },
}
