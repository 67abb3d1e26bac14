//! System calls: mount(2), umount2(2), and what `/dev/fuse` has besides reading and writing.

use super::MountOptions;
use super::init::InitError;
use crate::protocol::flags::DEVICE_IOCTL_CLONE;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICE_PATH: &str = "/dev/fuse";

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what happened")]
pub enum MountError {
    #[error("{DEVICE_PATH} (is the fuse module loaded?)")]
    Device(#[source] io::Error),
    #[error("{0} cannot be mounted on")]
    Directory(PathBuf, #[source] io::Error),
    #[error("{0:?} has a NUL or a comma, which a mount option cannot carry")]
    Option(String),
    #[error("mount on {0}")]
    Mount(PathBuf, #[source] io::Error),
    #[error("unmount {0}")]
    Unmount(PathBuf, #[source] io::Error),
    #[error("the kernel's first request")]
    Init(#[source] InitError),
}

pub fn open_device() -> Result<File, MountError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_CLOEXEC);
    options.open(DEVICE_PATH).map_err(MountError::Device)
}

pub fn mount_fuse(device: &File, options: &MountOptions) -> Result<(), MountError> {
    let directory = &options.directory;
    let metadata = fs::metadata(directory).map_err(|error| MountError::Directory(directory.clone(), error))?;
    if !metadata.is_dir() {
        let error = io::Error::from_raw_os_error(libc::ENOTDIR);
        return Err(MountError::Directory(directory.clone(), error));
    }
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read={}",
        device.as_raw_fd(),
        options.data_bytes_max
    );
    let source = c_string(options.source.as_bytes())?;
    let target = c_string(directory.as_os_str().as_bytes())?;
    let kind = c_string(format!("fuse.{}", options.subtype).as_bytes())?;
    let data = c_string(data.as_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | if options.read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: four NUL-terminated strings that outlive the call.
    let outcome = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(MountError::Mount(directory.clone(), io::Error::last_os_error())),
    }
}

pub fn unmount(directory: &Path, flags: libc::c_int) -> Result<(), MountError> {
    let target = c_string(directory.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated string that outlives the call.
    match unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(MountError::Unmount(directory.to_path_buf(), io::Error::last_os_error())),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, MountError> {
    CString::new(bytes).map_err(|_| MountError::Option(String::from_utf8_lossy(bytes).into_owned()))
}

/// A new descriptor of the same connection, with a list of its own of requests that await their reply.
pub fn clone_device(device: &File) -> io::Result<File> {
    let clone = OpenOptions::new().read(true).write(true).open(DEVICE_PATH)?;
    let source = device.as_raw_fd() as u32;
    // SAFETY: the kernel reads one `u32`, which lives through the call.
    match unsafe { libc::ioctl(clone.as_raw_fd(), DEVICE_IOCTL_CLONE as _, &raw const source) } {
        0 => Ok(clone),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel has no more requests for this connection, and never will.
pub fn is_disconnected(device: &File) -> io::Result<bool> {
    let mut polled = [libc::pollfd {
        fd: device.as_raw_fd(),
        events: 0,
        revents: 0,
    }];
    // SAFETY: `polled` is an array of one valid entry.
    match unsafe { libc::poll(polled.as_mut_ptr(), 1, 0) } {
        0.. => Ok(polled[0].revents & libc::POLLERR != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Something is mounted on exactly this directory. The list of mounts tells: to look at the directory itself would be to
/// wait for a server that may be away.
pub fn is_mounted(directory: &Path) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let wanted = parent.canonicalize()?.join(name);
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(mounts
        .split(|byte| *byte == b'\n')
        .any(|line| mount_point(line) == Some(wanted.as_os_str().as_bytes().to_vec())))
}

/// The fifth field of a line, with its blanks and backslashes as three octal digits each.
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    let mut field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut point = Vec::with_capacity(field.len());
    while let Some((byte, rest)) = field.split_first() {
        let escaped = rest.first_chunk::<3>().filter(|_| *byte == b'\\');
        let digits = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(decoded) => {
                point.push(decoded);
                field = &rest[3..];
            }
            None => {
                point.push(*byte);
                field = rest;
            }
        }
    }
    Some(point)
}

/// Waits for `delay`, or less when `stop` comes first.
pub fn is_readable_within(stop: &impl AsRawFd, delay: Duration) -> io::Result<bool> {
    let mut polled = [libc::pollfd {
        fd: stop.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    // SAFETY: `polled` is an array of one valid entry.
    match unsafe { libc::poll(polled.as_mut_ptr(), 1, delay.as_millis() as libc::c_int) } {
        0.. => Ok(polled[0].revents != 0),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_from_the_list() {
        let line = b"61 25 0:45 / /mnt/a\\040b\\134c rw,nosuid shared:3 - fuse.x y rw";
        assert_eq!(mount_point(line), Some(b"/mnt/a b\\c".to_vec()));
        assert_eq!(mount_point(b"1 2 3"), None);
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(Path::new("/proc/self")).unwrap());
        assert!(is_mounted(Path::new("/")).is_err());
    }
}
