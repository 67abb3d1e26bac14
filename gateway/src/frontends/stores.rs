//! The gateways of one daemon, each with its store, and which of them has the volume or share of a name. A name that two have, as
//! after the recovery of an older bucket, is the earlier one's: the first store comes before the named ones, which are in the
//! order of their names. It owns no names: they are looked up where they are.

use super::fuse::Shares;
use crate::runtime::Gateway;
use std::sync::{Arc, PoisonError, RwLock};
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

/// All of them, from the start to the end of the daemon. One that does not serve may begin to.
pub struct Stores {
    /// The first store, then the named ones in the order of their names.
    open: RwLock<Vec<Arc<OpenStore>>>,
    /// In the order of their names.
    absent: RwLock<Vec<AbsentStore>>,
}

impl Stores {
    pub fn new(first: OpenStore, mut absent: Vec<AbsentStore>) -> Self {
        absent.sort_by(|left, right| left.name.cmp(&right.name));
        Self {
            open: RwLock::new(vec![Arc::new(first)]),
            absent: RwLock::new(absent),
        }
    }

    /// A named store that serves from now on.
    pub fn add(&self, store: OpenStore) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let mut absent = self.absent.write().unwrap_or_else(PoisonError::into_inner);
        absent.retain(|absent| Some(&absent.name) != store.name.as_ref());
        let place = open.partition_point(|there| there.name < store.name);
        open.insert(place, Arc::new(store));
    }

    /// Why a named store does not serve now.
    pub fn note_absent(&self, name: &str, reason: String) {
        let mut absent = self.absent.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(absent) = absent.iter_mut().find(|absent| absent.name == name) {
            absent.reason = reason;
        }
    }

    pub fn first(&self) -> Arc<OpenStore> {
        self.open()[0].clone()
    }

    fn open(&self) -> Vec<Arc<OpenStore>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn absent(&self) -> Vec<AbsentStore> {
        self.absent.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a name that is nowhere may be somewhere all the same.
    pub fn may_be_absent(&self) -> Option<String> {
        let absent = self.absent();
        let absent = absent.iter().find(|store| store.is_in_settings)?;
        Some(format!(
            "no store that serves has it, and store {:?} does not serve",
            absent.name
        ))
    }

    pub fn volume(&self, name: &str) -> Option<(Arc<OpenStore>, Volume)> {
        let found = |store: Arc<OpenStore>| {
            let volume = store.gateway.volume_named(name)?;
            Some((store, volume))
        };
        self.open().into_iter().find_map(found)
    }

    pub fn share(&self, name: &str) -> Option<Arc<OpenStore>> {
        let has_it = |store: &Arc<OpenStore>| store.shares.service.share_named(name).is_some();
        self.open().into_iter().find(has_it)
    }

    /// Each once.
    pub fn volume_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for volume in self.open().iter().flat_map(|store| store.gateway.snapshot().volumes) {
            if !names.contains(&volume.name) {
                names.push(volume.name);
            }
        }
        names
    }
}
