//! A gateway made of a list: enough for the admin API and the command line, which must not know the difference.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tombolo::admin::endpoints::{
    self, CreateShare, CreateVolume, DeleteShare, DeleteVolume, OfStore, PolicyChanges, ResizeVolume, RotateKey,
    ShareFlush, ShareQuota, StartTrace, VolumeFlush,
};
use tombolo::admin::model::{
    CheckState, CheckStatus, ControlError, DataKeyStatus, DedupStatus, EncryptionStatus, ErrorKind, JournalStatus,
    PolicyStatus, RecoveryPointStatus, ShareInfo, Status, StoreCheckStatus, StoreState, StoreStatus, TraceState,
    TraceStatus, UploadStatus, VolumeInfo,
};
use tombolo::admin::server::{Handlers, RECEIVE_TIMEOUT, Server};
use tombolo::metrics::model::Metrics;

pub const MIB: u64 = 1 << 20;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

#[derive(Default)]
pub struct FakeState {
    pub volumes: BTreeMap<String, VolumeInfo>,
    pub shares: BTreeMap<String, ShareInfo>,
    /// What a check comes to when it has looked at all inodes, one more at each look.
    pub check: CheckStatus,
    pub state_directory: String,
    pub dirty_bytes: u64,
    /// What each look takes.
    pub status_delay: Duration,
    /// Taken off the dirty bytes at each look, once a drain was asked for.
    pub clean_bytes_per_look: u64,
    pub drains: u64,
    /// What a checkpoint would take in; nothing is left by one.
    pub journal: JournalStatus,
    pub store_error: Option<String>,
    pub replacement: String,
    pub trace: TraceStatus,
    /// What every change is refused with.
    pub refusal: Option<ControlError>,
    pub encryption: EncryptionStatus,
    pub store_check: StoreCheckStatus,
}

#[derive(Default)]
pub struct Fake(pub Mutex<FakeState>);

impl Fake {
    fn change(&self) -> Result<std::sync::MutexGuard<'_, FakeState>, ControlError> {
        let state = self.0.lock().unwrap();
        state.refusal.clone().map_or(Ok(state), Err)
    }
}

impl Fake {
    pub fn handlers(self: &Arc<Self>) -> Handlers<Self> {
        Handlers::new(self.clone(), Self::metrics)
            .on(&endpoints::STATUS, |fake, ()| Ok(fake.status()))
            .on(&endpoints::DRAIN, Self::drain)
            .on(&endpoints::CHECKPOINT, Self::checkpoint)
            .on(&endpoints::KEYS, |fake, _| {
                Ok(fake.0.lock().unwrap().encryption.clone())
            })
            .on(&endpoints::KEY_ROTATE, Self::key_rotate)
            .on(&endpoints::VOLUME_LIST, |fake, ()| Ok(fake.status().volumes))
            .on(&endpoints::VOLUME_CREATE, Self::volume_create)
            .on(&endpoints::VOLUME_RESIZE, Self::volume_resize)
            .on(&endpoints::VOLUME_FLUSH, Self::volume_flush)
            .on(&endpoints::VOLUME_DELETE, Self::volume_delete)
            .on(&endpoints::SHARE_LIST, |fake, ()| Ok(fake.status().shares))
            .on(&endpoints::SHARE_CREATE, Self::share_create)
            .on(&endpoints::SHARE_QUOTA, Self::share_quota)
            .on(&endpoints::SHARE_FLUSH, Self::share_flush)
            .on(&endpoints::SHARE_DELETE, Self::share_delete)
            .on(&endpoints::CHECK_STATUS, |fake, _| Ok(fake.check_status()))
            .on(&endpoints::CHECK_START, Self::check_start)
            .on(&endpoints::STORE_CHECK_STATUS, |fake, _| {
                Ok(fake.0.lock().unwrap().store_check.clone())
            })
            .on(&endpoints::STORE_CHECK_START, |fake, request| {
                let mut state = fake.0.lock().unwrap();
                state.store_check.resumed = request.resume;
                Ok(state.store_check.clone())
            })
            .on(&endpoints::POLICY, |fake, _| Ok(fake.policy()))
            .on(&endpoints::POLICY_SET, Self::policy_set)
            .on(&endpoints::TRACE_STATUS, |fake, _| {
                Ok(fake.0.lock().unwrap().trace.clone())
            })
            .on(&endpoints::TRACE_START, Self::trace_start)
            .on(&endpoints::TRACE_STOP, |fake, _| Ok(fake.trace_stop()))
    }

    fn status(&self) -> Status {
        let mut state = self.0.lock().unwrap();
        std::thread::sleep(state.status_delay);
        if state.drains > 0 {
            state.dirty_bytes = state.dirty_bytes.saturating_sub(state.clean_bytes_per_look);
        }
        // What is dirty and neither uploaded nor refused was written since.
        let is_moving = state.clean_bytes_per_look > 0 || state.store_error.is_some();
        Status {
            version: "0.0.0-fake".into(),
            uptime_s: STARTED.elapsed().as_secs_f64(),
            state_directory: state.state_directory.clone(),
            dirty_bytes: state.dirty_bytes,
            dirty_bytes_max: 1 << 30,
            oldest_dirty_age_s: if state.dirty_bytes > 0 { 3.5 } else { 0.0 },
            recovery_point: RecoveryPointStatus {
                age_s: if state.dirty_bytes > 0 { 3.5 } else { 0.0 },
                time_s: Some(1_000),
                ..Default::default()
            },
            dedup: DedupStatus::new(0, 3, 1),
            upload: UploadStatus {
                clean_bytes_per_s: MIB as f64,
                draining: state.drains > 0 && state.dirty_bytes > 0 && is_moving,
                drain_eta_s: UploadStatus::eta_s(state.dirty_bytes, MIB as f64),
                ..UploadStatus::default()
            },
            store: StoreStatus {
                url: "s3://bucket".into(),
                state: if state.store_error.is_some() {
                    StoreState::Unreachable
                } else {
                    StoreState::Ok
                },
                last_error: state.store_error.clone(),
                ..StoreStatus::default()
            },
            volumes: state.volumes.values().cloned().collect(),
            shares: state.shares.values().cloned().collect(),
            ..Status::default()
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            status: self.status(),
            ..Metrics::default()
        }
    }

    fn volume_create(&self, request: CreateVolume) -> Result<VolumeInfo, ControlError> {
        let CreateVolume {
            name,
            size_bytes,
            flush,
            store,
        } = request;
        let mut state = self.change()?;
        if state.volumes.contains_key(&name) {
            return Err(ControlError::volume_exists(&name));
        }
        let volume = VolumeInfo {
            name: name.clone(),
            size_bytes,
            flush,
            connections: 0,
            store,
        };
        state.volumes.insert(name, volume.clone());
        Ok(volume)
    }

    fn volume_resize(&self, request: ResizeVolume) -> Result<VolumeInfo, ControlError> {
        let ResizeVolume {
            name,
            size_bytes,
            allow_shrink,
        } = request;
        let mut state = self.change()?;
        let volume = state
            .volumes
            .get_mut(&name)
            .ok_or_else(|| ControlError::volume_not_found(&name))?;
        if size_bytes < volume.size_bytes && !allow_shrink {
            return Err(ControlError::volume_would_shrink(&name, volume.size_bytes, size_bytes));
        }
        volume.size_bytes = size_bytes;
        Ok(volume.clone())
    }

    fn volume_flush(&self, VolumeFlush { name, flush }: VolumeFlush) -> Result<VolumeInfo, ControlError> {
        let mut state = self.change()?;
        let volume = state.volumes.get_mut(&name);
        let volume = volume.ok_or_else(|| ControlError::volume_not_found(&name))?;
        volume.flush = flush;
        Ok(volume.clone())
    }

    fn volume_delete(&self, DeleteVolume { name }: DeleteVolume) -> Result<(), ControlError> {
        let mut state = self.change()?;
        let volume = state
            .volumes
            .get(&name)
            .ok_or_else(|| ControlError::volume_not_found(&name))?;
        if volume.connections > 0 {
            return Err(ControlError::volume_in_use(&name, volume.connections));
        }
        state.volumes.remove(&name);
        Ok(())
    }

    fn drain(&self, _: OfStore) -> Result<(), ControlError> {
        self.change()?.drains += 1;
        Ok(())
    }

    fn key_rotate(&self, request: RotateKey) -> Result<EncryptionStatus, ControlError> {
        let mut state = self.change()?;
        let encryption = &mut state.encryption;
        match (request.master_key_file, request.master_key_kms) {
            (Some(_), _) => encryption.master_key = Some("00000000000000ff".into()),
            (None, Some(key)) => encryption.wrapped_by = Some(key),
            (None, None) => encryption.data_keys.push(DataKeyStatus {
                id: format!("{:016x}", encryption.data_keys.len() + 1),
                made_s: 1_800_000_000,
            }),
        }
        Ok(encryption.clone())
    }

    fn checkpoint(&self, _: OfStore) -> Result<JournalStatus, ControlError> {
        let mut state = self.change()?;
        Ok(std::mem::take(&mut state.journal))
    }

    fn trace_start(&self, StartTrace { path, bytes_max, .. }: StartTrace) -> Result<TraceStatus, ControlError> {
        let mut state = self.change()?;
        state.trace = TraceStatus {
            state: TraceState::Recording,
            path: Some(path.display().to_string()),
            bytes_max,
            ..TraceStatus::default()
        };
        Ok(state.trace.clone())
    }

    fn trace_stop(&self) -> TraceStatus {
        let mut state = self.0.lock().unwrap();
        state.trace.state = TraceState::Finished;
        state.trace.clone()
    }

    fn policy(&self) -> PolicyStatus {
        PolicyStatus {
            replacement: self.0.lock().unwrap().replacement.clone(),
            ..PolicyStatus::default()
        }
    }

    fn policy_set(&self, PolicyChanges(changes): PolicyChanges) -> Result<PolicyStatus, ControlError> {
        let word = changes.get("replacement").and_then(toml::Value::as_str);
        let word = word.ok_or_else(|| ControlError::new(ErrorKind::Invalid, "there is no such key"))?;
        word.clone_into(&mut self.change()?.replacement);
        Ok(self.policy())
    }

    fn share_create(&self, request: CreateShare) -> Result<ShareInfo, ControlError> {
        let CreateShare {
            name,
            quota_bytes,
            flush,
            store,
        } = request;
        let mut state = self.change()?;
        if state.shares.contains_key(&name) {
            return Err(ControlError::share_exists(&name));
        }
        let share = ShareInfo {
            name: name.clone(),
            id: state.shares.len() as u32 + 1,
            quota_bytes,
            flush,
            inodes: 1,
            store,
            ..ShareInfo::default()
        };
        state.shares.insert(name, share.clone());
        Ok(share)
    }

    fn share_quota(&self, ShareQuota { name, quota_bytes }: ShareQuota) -> Result<ShareInfo, ControlError> {
        let mut state = self.change()?;
        let share = state
            .shares
            .get_mut(&name)
            .ok_or_else(|| ControlError::share_not_found(&name))?;
        share.quota_bytes = quota_bytes;
        Ok(share.clone())
    }

    fn share_flush(&self, ShareFlush { name, flush }: ShareFlush) -> Result<ShareInfo, ControlError> {
        let mut state = self.change()?;
        let share = state.shares.get_mut(&name);
        let share = share.ok_or_else(|| ControlError::share_not_found(&name))?;
        share.flush = flush;
        Ok(share.clone())
    }

    fn share_delete(&self, DeleteShare { name, force }: DeleteShare) -> Result<(), ControlError> {
        let mut state = self.change()?;
        let share = state
            .shares
            .get(&name)
            .ok_or_else(|| ControlError::share_not_found(&name))?;
        if !share.sessions.is_empty() && !force {
            return Err(ControlError::share_in_use(&name, share.sessions.len() as u64));
        }
        state.shares.remove(&name);
        Ok(())
    }

    fn check_start(&self, _: OfStore) -> Result<CheckStatus, ControlError> {
        let mut state = self.change()?;
        state.check.run += 1;
        state.check.inodes_checked = 0;
        Ok(unfinished(&state.check))
    }

    fn check_status(&self) -> CheckStatus {
        let mut state = self.0.lock().unwrap();
        if state.check.inodes_checked == state.check.inodes {
            return state.check.clone();
        }
        state.check.inodes_checked += 1;
        unfinished(&state.check)
    }
}

/// As it stands before the last look.
fn unfinished(check: &CheckStatus) -> CheckStatus {
    CheckStatus {
        state: CheckState::Running,
        findings_count: 0,
        findings: Vec::new(),
        error: None,
        ..check.clone()
    }
}

/// A served fake in a directory of its own.
pub struct Gateway {
    pub directory: TempDir,
    pub fake: Arc<Fake>,
    server: Option<Server>,
}

impl Gateway {
    pub fn start() -> Self {
        Self::with_receive_timeout(RECEIVE_TIMEOUT)
    }

    pub fn with_receive_timeout(receive_timeout: Duration) -> Self {
        let directory = TempDir::new().unwrap();
        let fake = Arc::new(Fake::default());
        let state_directory = directory.path().join("state");
        std::fs::create_dir(&state_directory).unwrap();
        fake.0.lock().unwrap().state_directory = state_directory.to_str().unwrap().into();
        let address = "127.0.0.1:0".parse().unwrap();
        let socket = directory.path().join("run/admin.sock");
        let server = Server::start(&socket, Some(address), &fake.handlers(), receive_timeout).unwrap();
        Self {
            directory,
            fake,
            server: Some(server),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("run/admin.sock")
    }

    pub fn metrics_address(&self) -> std::net::SocketAddr {
        self.server.as_ref().and_then(Server::metrics_address).unwrap()
    }

    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }

    pub fn refuse(&self, kind: ErrorKind, message: &str) {
        self.fake.0.lock().unwrap().refusal = Some(ControlError::new(kind, message));
    }

    /// Status code and body of one raw request on the socket.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        exchange(UnixStream::connect(self.socket()).unwrap(), method, path, body)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command
            .env_remove("TOMBOLO_SOCKET")
            .arg("--socket")
            .arg(self.socket())
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// Runs the command line and expects an exit code.
    pub fn cli(&self, words: &[&str], code: i32) -> Said {
        said(self.command(words), code)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

pub struct Said {
    pub out: String,
    pub err: String,
}

pub fn said(mut command: Command, code: i32) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = Said {
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    };
    assert_eq!(status.code(), Some(code), "{command:?}\n{}{}", said.out, said.err);
    said
}

pub fn exchange(mut stream: impl Read + Write, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}
