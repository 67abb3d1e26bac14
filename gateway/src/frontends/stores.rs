//! The gateways of one daemon, each with its store, and which of them has the volume or share of a name. A name that two have, as
//! after the recovery of an older bucket, is the earlier one's: the first store comes before the named ones, which are in the
//! order of their names. It owns no names: they are looked up where they are.

use super::fuse::Shares;
use crate::runtime::Gateway;
use std::sync::Arc;
use tombolo_core::Volume;

/// A store that serves.
pub struct OpenStore {
    /// None: the first.
    pub name: Option<String>,
    pub gateway: Arc<Gateway>,
    pub shares: Arc<Shares>,
}

/// A named store that does not serve.
#[derive(Clone, Debug)]
pub struct AbsentStore {
    pub name: String,
    pub reason: String,
    /// False: it was taken out of them, and its state directory is still there.
    pub is_in_settings: bool,
}

/// All of them, from the start to the end of the daemon.
pub struct Stores {
    /// The first store, then the named ones.
    open: Vec<OpenStore>,
    absent: Vec<AbsentStore>,
}

impl Stores {
    pub fn new(first: OpenStore, named: Vec<OpenStore>, absent: Vec<AbsentStore>) -> Self {
        let mut open = named;
        open.sort_by(|left, right| left.name.cmp(&right.name));
        open.insert(0, first);
        Self { open, absent }
    }

    pub fn open(&self) -> &[OpenStore] {
        &self.open
    }

    pub fn absent(&self) -> &[AbsentStore] {
        &self.absent
    }

    /// Why a name that is nowhere may be somewhere all the same.
    pub fn may_be_absent(&self) -> Option<String> {
        let absent = self.absent.iter().find(|store| store.is_in_settings)?;
        Some(format!(
            "no store that serves has it, and store {:?} does not serve",
            absent.name
        ))
    }

    pub fn volume(&self, name: &str) -> Option<(&OpenStore, Volume)> {
        let found = |store| Some((store, OpenStore::volume(store, name)?));
        self.open.iter().find_map(found)
    }

    pub fn share(&self, name: &str) -> Option<&OpenStore> {
        self.open.iter().find(|store| store.has_share(name))
    }

    /// Each once.
    pub fn volume_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for volume in self.open.iter().flat_map(|store| store.gateway.snapshot().volumes) {
            if !names.contains(&volume.name) {
                names.push(volume.name);
            }
        }
        names
    }
}

impl OpenStore {
    pub fn volume(&self, name: &str) -> Option<Volume> {
        self.gateway.volume_named(name)
    }

    pub fn has_share(&self, name: &str) -> bool {
        self.shares.service.share_named(name).is_some()
    }
}
