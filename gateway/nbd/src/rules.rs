//! The rules of the transmission phase: which requests are handed on, and which error refuses the others. No I/O.
//!
//! Order of the checks: command, flags, permission, size of the payload, range. So a client that asks for something
//! senseless on a read-only export learns that first.

use crate::NbdError;
use crate::protocol::{RequestHeader, command, command_flag, reply::ContextSet};

/// What a connection has agreed on, as far as requests are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Of the export.
    pub size_bytes: u64,
    /// Whatever changes data is refused.
    pub read_only: bool,
    /// The client has agreed to structured replies, and may ask for `DF`.
    pub structured: bool,
    /// What block status answers.
    pub contexts: ContextSet,
    /// The longest read or write that is taken.
    pub payload_bytes_max: u32,
}

/// A request that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// It lies within the export.
    Read,
    /// It lies within the export.
    Write {
        /// Stable before it is answered.
        fua: bool,
    },
    /// No range.
    Flush,
    /// It lies within the export.
    Trim {
        /// Stable before it is answered.
        fua: bool,
    },
    /// It lies within the export.
    WriteZeroes {
        /// Stable before it is answered.
        fua: bool,
        /// The range stays allocated.
        no_hole: bool,
    },
    /// It lies within the export.
    BlockStatus {
        /// The first extent suffices.
        request_one: bool,
    },
    /// No answer.
    Disconnect,
    /// Success without any effect: a range of no bytes.
    Nothing,
}

/// What a request that breaks a rule is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number.
    pub error: NbdError,
    /// For people.
    pub message: &'static str,
}

const fn refuse<T>(error: NbdError, message: &'static str) -> Result<T, Refusal> {
    Err(Refusal { error, message })
}

impl Rules {
    /// # Errors
    /// With what the request is to be refused.
    pub fn check(&self, header: &RequestHeader) -> Result<Command, Refusal> {
        let command = self.command(header)?;
        if command == Command::Disconnect {
            return Ok(command);
        }
        if self.read_only && changes_data(command) {
            return refuse(NbdError::Perm, "the export is read-only");
        }
        if matches!(command, Command::Read | Command::Write { .. }) && header.length > self.payload_bytes_max {
            return refuse(
                self.too_large(header),
                "the request is longer than the maximum block size",
            );
        }
        self.check_range(header, command)
    }

    fn command(&self, header: &RequestHeader) -> Result<Command, Refusal> {
        let flag = |bit: u16| header.flags & bit != 0;
        let fua = flag(command_flag::FUA);
        let (command, flags_allowed) = match header.command {
            command::READ if self.structured => (Command::Read, command_flag::DF),
            command::READ => (Command::Read, 0),
            command::WRITE => (Command::Write { fua }, 0),
            command::DISCONNECT => return Ok(Command::Disconnect),
            command::FLUSH => (Command::Flush, 0),
            command::TRIM => (Command::Trim { fua }, 0),
            command::WRITE_ZEROES => {
                let no_hole = flag(command_flag::NO_HOLE);
                (Command::WriteZeroes { fua, no_hole }, command_flag::NO_HOLE)
            }
            command::BLOCK_STATUS if !self.contexts.any() => {
                return refuse(
                    NbdError::Invalid,
                    "block status needs a metadata context, and none was negotiated",
                );
            }
            command::BLOCK_STATUS => {
                let request_one = flag(command_flag::REQUEST_ONE);
                (Command::BlockStatus { request_one }, command_flag::REQUEST_ONE)
            }
            _ => return refuse(NbdError::Invalid, "unknown command"),
        };
        // FUA is valid on every command, even where it means nothing.
        if header.flags & !(flags_allowed | command_flag::FUA) != 0 {
            return refuse(NbdError::Invalid, "a flag does not belong to this command");
        }
        Ok(command)
    }

    /// A read with DF may be told that it is too large to be sent in one piece; all else is just invalid.
    fn too_large(&self, header: &RequestHeader) -> NbdError {
        if header.command == command::READ && header.flags & command_flag::DF != 0 {
            NbdError::Overflow
        } else {
            NbdError::Invalid
        }
    }

    fn check_range(&self, header: &RequestHeader, command: Command) -> Result<Command, Refusal> {
        if command == Command::Flush {
            return match (header.offset, header.length) {
                (0, 0) => Ok(command),
                _ => refuse(NbdError::Invalid, "a flush has neither offset nor length"),
            };
        }
        let end = header.offset.checked_add(u64::from(header.length));
        if end.is_none_or(|end| end > self.size_bytes) {
            let error = match command {
                Command::Write { .. } | Command::WriteZeroes { .. } => NbdError::NoSpace,
                Command::Read
                | Command::Trim { .. }
                | Command::BlockStatus { .. }
                | Command::Flush
                | Command::Disconnect
                | Command::Nothing => NbdError::Invalid,
            };
            return refuse(error, "the range reaches beyond the end of the export");
        }
        match (header.length, command) {
            (0, Command::BlockStatus { .. }) => refuse(NbdError::Invalid, "a block status needs a length"),
            (0, _) => Ok(Command::Nothing),
            _ => Ok(command),
        }
    }
}

fn changes_data(command: Command) -> bool {
    match command {
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. } => true,
        Command::Read | Command::Flush | Command::BlockStatus { .. } | Command::Disconnect | Command::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules {
        size_bytes: 1 << 20,
        read_only: false,
        structured: true,
        contexts: ContextSet {
            allocation: true,
            resize: false,
        },
        payload_bytes_max: 1 << 16,
    };

    fn header(command: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
        RequestHeader {
            flags,
            command,
            cookie: 0,
            offset,
            length,
        }
    }

    fn error(rules: Rules, command: u16, flags: u16, offset: u64, length: u32) -> Option<NbdError> {
        rules
            .check(&header(command, flags, offset, length))
            .err()
            .map(|refusal| refusal.error)
    }

    #[test]
    fn beyond_the_end_is_invalid_for_reading_and_no_space_for_writing() {
        let end = RULES.size_bytes;
        for (command, expected) in [
            (command::READ, NbdError::Invalid),
            (command::TRIM, NbdError::Invalid),
            (command::BLOCK_STATUS, NbdError::Invalid),
            (command::WRITE, NbdError::NoSpace),
            (command::WRITE_ZEROES, NbdError::NoSpace),
        ] {
            assert_eq!(
                error(RULES, command, 0, end - 1, 2),
                Some(expected),
                "command {command}"
            );
            assert_eq!(
                error(RULES, command, 0, u64::MAX, 2),
                Some(expected),
                "command {command}"
            );
            assert_eq!(error(RULES, command, 0, end - 1, 1), None, "command {command}");
        }
    }

    #[test]
    fn flags_belong_to_their_commands() {
        let allowed = [
            (command::READ, command_flag::DF),
            (command::WRITE, 0),
            (command::FLUSH, 0),
            (command::TRIM, 0),
            (command::WRITE_ZEROES, command_flag::NO_HOLE),
            (command::BLOCK_STATUS, command_flag::REQUEST_ONE),
        ];
        for (command, own) in allowed {
            let length = if command == command::FLUSH { 0 } else { 512 };
            for bit in 0..16 {
                let flag = 1 << bit;
                let expected = (flag & (own | command_flag::FUA) == 0).then_some(NbdError::Invalid);
                assert_eq!(
                    error(RULES, command, flag, 0, length),
                    expected,
                    "command {command}, flag {flag:#x}"
                );
            }
        }
        let simple = Rules {
            structured: false,
            ..RULES
        };
        assert_eq!(
            error(simple, command::READ, command_flag::DF, 0, 1),
            Some(NbdError::Invalid)
        );
    }

    #[test]
    fn a_read_only_export_refuses_changes_and_nothing_else() {
        let rules = Rules {
            read_only: true,
            ..RULES
        };
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(error(rules, command, 0, 0, 512), Some(NbdError::Perm));
        }
        for command in [command::READ, command::BLOCK_STATUS] {
            assert_eq!(error(rules, command, 0, 0, 512), None);
        }
        assert_eq!(error(rules, command::FLUSH, 0, 0, 0), None);
    }

    #[test]
    fn a_payload_over_the_maximum_is_invalid_or_overflow_with_df() {
        let length = RULES.payload_bytes_max + 1;
        assert_eq!(error(RULES, command::WRITE, 0, 0, length), Some(NbdError::Invalid));
        assert_eq!(error(RULES, command::READ, 0, 0, length), Some(NbdError::Invalid));
        assert_eq!(
            error(RULES, command::READ, command_flag::DF, 0, length),
            Some(NbdError::Overflow)
        );
        assert_eq!(error(RULES, command::WRITE_ZEROES, 0, 0, length), None);
    }

    proptest! {
        /// Whatever passes is within the export and has a length.
        #[test]
        fn what_passes_lies_within_the_export(command in 0u16..9, flags in 0u16..16, offset: u64, length: u32, near: bool) {
            let offset = if near { offset % (2 * RULES.size_bytes) } else { offset };
            let length = if near { length % (1 << 17) } else { length };
            match RULES.check(&header(command, flags, offset, length)) {
                Ok(Command::Flush | Command::Disconnect) | Err(_) => {}
                Ok(Command::Nothing) => prop_assert!(length == 0 && offset <= RULES.size_bytes),
                Ok(_) => {
                    prop_assert!(length > 0);
                    prop_assert!(u128::from(offset) + u128::from(length) <= u128::from(RULES.size_bytes));
                }
            }
        }
    }
}
