//! A cursor over a request's arguments: fixed structures, then strings that end in NUL, then perhaps bytes.

use super::malformed::Malformed;
use super::opcode::Opcode;
use super::wire::Wire;

/// As the kernel has it (NAME_MAX, PATH_MAX without its NUL, XATTR_NAME_MAX, XATTR_SIZE_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;

/// What is left of a message's arguments.
pub struct Arguments<'a> {
    /// Of the request, for errors.
    pub opcode: Opcode,
    /// What was not read yet.
    pub rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// The next structure.
    pub fn take<T: Wire>(&mut self) -> Result<T, Malformed> {
        self.bytes(T::BYTES).map(T::get)
    }

    /// The next so many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(bytes)
    }

    fn wrong_length(&self) -> Malformed {
        Malformed::Length {
            opcode: self.opcode,
            bytes: self.rest.len(),
        }
    }

    /// Up to the next NUL, which is left out.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let opcode = self.opcode;
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Malformed::Unterminated { opcode })?;
        let string = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(string)
    }

    /// A string that can name a file.
    pub fn name(&mut self) -> Result<Vec<u8>, Malformed> {
        match self.string()? {
            [] => Err(Malformed::EmptyName),
            name if name.len() > NAME_BYTES_MAX => Err(Malformed::NameTooLong { bytes: name.len() }),
            name if name.contains(&b'/') => Err(Malformed::SlashInName),
            name => Ok(name.to_vec()),
        }
    }

    /// A string that can be a link's target.
    pub fn target(&mut self) -> Result<Vec<u8>, Malformed> {
        match self.string()? {
            [] => Err(Malformed::EmptyName),
            target if target.len() > TARGET_BYTES_MAX => Err(Malformed::TargetTooLong { bytes: target.len() }),
            target => Ok(target.to_vec()),
        }
    }

    /// A string that can name an extended attribute.
    pub fn xattr_name(&mut self) -> Result<Vec<u8>, Malformed> {
        match self.string()? {
            [] => Err(Malformed::XattrNameTooLong { bytes: 0 }),
            name if name.len() > XATTR_NAME_BYTES_MAX => Err(Malformed::XattrNameTooLong { bytes: name.len() }),
            name => Ok(name.to_vec()),
        }
    }

    /// Fails unless all was read.
    pub fn finish(&self) -> Result<(), Malformed> {
        let opcode = self.opcode;
        match (self.rest.is_empty(), ends_in_string(opcode)) {
            (true, _) => Ok(()),
            (false, true) => Err(Malformed::NulInName { opcode }),
            (false, false) => Err(self.wrong_length()),
        }
    }
}

fn ends_in_string(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Lookup
            | Opcode::Symlink
            | Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Link
            | Opcode::Getxattr
            | Opcode::Removexattr
            | Opcode::Create
            | Opcode::Tmpfile
    )
}
