//! All stores of the daemon as the admin API sees them: which one a request is for, and what is told of all together.

use super::StoreControl;
use super::policies::PolicyChange;
use crate::admin::endpoints::{
    self, CreateShare, CreateVolume, DeleteShare, DeleteVolume, OfStore, PolicyChanges, ResizeVolume, ShareFlush,
    ShareQuota, VolumeFlush,
};
use crate::admin::model::{
    ControlError, ErrorKind, JournalStatus, NamedStoreStatus, PolicyStatus, ShareInfo, Status, VolumeInfo,
};
use crate::admin::server::Handlers;
use crate::frontends::Stores;
use crate::metrics::model::Metrics;
use crate::settings::FIRST;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What answers in the running daemon.
pub struct GatewayControl {
    stores: Arc<Stores>,
    /// Of each store that serves: the first, then the named ones in the order of their names.
    controls: RwLock<Vec<Arc<NamedControl>>>,
    /// A name is given once: held from the look into all stores until it is given.
    creating: Mutex<()>,
}

/// What answers of one store, and what that is called.
struct NamedControl {
    /// None: the first.
    name: Option<String>,
    control: StoreControl,
}

impl NamedControl {
    /// The error, as one of this store's.
    fn named(&self, error: ControlError) -> ControlError {
        match &self.name {
            Some(name) => ControlError::new(error.kind, format!("store {name}: {}", error.message)),
            None => error,
        }
    }
}

impl Deref for NamedControl {
    type Target = StoreControl;

    fn deref(&self) -> &StoreControl {
        &self.control
    }
}

impl GatewayControl {
    /// Of the first store; others are added.
    pub fn new(stores: Arc<Stores>, control: StoreControl) -> Self {
        let first = NamedControl { name: None, control };
        Self {
            stores,
            controls: RwLock::new(vec![Arc::new(first)]),
            creating: Mutex::new(()),
        }
    }

    /// A named store that serves from now on.
    pub fn add(&self, name: String, control: StoreControl) {
        let name = Some(name);
        let mut controls = self.controls.write().unwrap_or_else(PoisonError::into_inner);
        let place = controls.partition_point(|there| there.name < name);
        controls.insert(place, Arc::new(NamedControl { name, control }));
    }

    /// Which of its functions answers at which endpoint.
    pub fn handlers(self: &Arc<Self>) -> Handlers<Self> {
        Handlers::new(self.clone(), Self::metrics)
            .on(&endpoints::STATUS, |all, ()| Ok(all.status()))
            .on(&endpoints::DRAIN, Self::drain)
            .on(&endpoints::CHECKPOINT, Self::checkpoint)
            .on(&endpoints::KEYS, |all, of| {
                Ok(all.one(of.store.as_deref())?.encryption_status())
            })
            .on(&endpoints::KEY_ROTATE, |all, request| {
                all.one(request.store.as_deref())?.key_rotate(request)
            })
            .on(&endpoints::VOLUME_LIST, |all, ()| Ok(all.volumes()))
            .on(&endpoints::VOLUME_CREATE, Self::volume_create)
            .on(&endpoints::VOLUME_RESIZE, Self::volume_resize)
            .on(&endpoints::VOLUME_FLUSH, Self::volume_flush)
            .on(&endpoints::VOLUME_DELETE, Self::volume_delete)
            .on(&endpoints::SHARE_LIST, |all, ()| Ok(all.shares()))
            .on(&endpoints::SHARE_CREATE, Self::share_create)
            .on(&endpoints::SHARE_QUOTA, Self::share_quota)
            .on(&endpoints::SHARE_FLUSH, Self::share_flush)
            .on(&endpoints::SHARE_DELETE, Self::share_delete)
            .on(&endpoints::CHECK_STATUS, |all, of| {
                Ok(all.one(of.store.as_deref())?.shares.checking.status())
            })
            .on(&endpoints::CHECK_START, |all, of| {
                Ok(all.one(of.store.as_deref())?.shares.check())
            })
            .on(&endpoints::STORE_CHECK_STATUS, |all, of| {
                Ok(all.one(of.store.as_deref())?.store_check.status())
            })
            .on(&endpoints::STORE_CHECK_START, |all, request| {
                let one = all.one(request.store.as_deref())?;
                Ok(one.store_check.start(&one.gateway, request.resume))
            })
            .on(&endpoints::POLICY, |all, of| {
                Ok(all.one(of.store.as_deref())?.policy_status())
            })
            .on(&endpoints::POLICY_SET, Self::policy_set)
            .on(&endpoints::TRACE_STATUS, |all, of| {
                Ok(all.one(of.store.as_deref())?.gateway.recorder().status())
            })
            .on(&endpoints::TRACE_START, |all, request| {
                all.one(request.store.as_deref())?.trace_start(request)
            })
            .on(&endpoints::TRACE_STOP, |all, of| {
                Ok(all.one(of.store.as_deref())?.gateway.recorder().stop())
            })
    }

    fn controls(&self) -> Vec<Arc<NamedControl>> {
        self.controls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn first(&self) -> Arc<NamedControl> {
        self.controls()[0].clone()
    }

    /// The first store if none is named.
    fn one(&self, store: Option<&str>) -> Result<Arc<NamedControl>, ControlError> {
        let Some(name) = store.filter(|name| *name != FIRST) else {
            return Ok(self.first());
        };
        let controls = self.controls();
        if let Some(control) = controls.iter().find(|control| control.name.as_deref() == Some(name)) {
            return Ok(control.clone());
        }
        if let Some(absent) = self.stores.absent().iter().find(|absent| absent.name == name) {
            let message = format!("store {name:?} does not serve: {}", absent.reason);
            return Err(ControlError::new(ErrorKind::Unavailable, message));
        }
        let there = controls.iter().map(|control| control.name.as_deref().unwrap_or(FIRST));
        let message = format!(
            "there is no store {name:?}: the settings have {}; another one is a table [store.named.{name}] there, and a restart",
            there.collect::<Vec<_>>().join(", ")
        );
        Err(ControlError::new(ErrorKind::Invalid, message))
    }

    /// All of them, or the one that is named.
    fn chosen(&self, store: Option<&str>) -> Result<Vec<Arc<NamedControl>>, ControlError> {
        match store {
            None => Ok(self.controls()),
            named => self.one(named).map(|one| vec![one]),
        }
    }

    fn of_volume(&self, name: &str) -> Result<Arc<NamedControl>, ControlError> {
        let mut all = self.controls().into_iter();
        let found = all.find(|control| control.find(name).is_ok());
        found.ok_or_else(|| self.perhaps_absent(ControlError::volume_not_found(name)))
    }

    fn of_share(&self, name: &str) -> Result<Arc<NamedControl>, ControlError> {
        let mut all = self.controls().into_iter();
        let found = all.find(|control| control.shares.service.share_named(name).is_some());
        found.ok_or_else(|| self.perhaps_absent(ControlError::share_not_found(name)))
    }

    fn perhaps_absent(&self, error: ControlError) -> ControlError {
        match self.stores.may_be_absent() {
            Some(reason) => ControlError::new(error.kind, format!("{}: {reason}", error.message)),
            None => error,
        }
    }
}

impl NamedControl {
    fn told(&self, volume: VolumeInfo) -> VolumeInfo {
        VolumeInfo {
            store: self.name.clone(),
            ..volume
        }
    }

    fn share_told(&self, share: ShareInfo) -> ShareInfo {
        let identity = self.name.as_ref().map(|_| self.gateway.identity());
        ShareInfo {
            store: self.name.clone(),
            file_system: identity.map(file_system),
            ..share
        }
    }
}

/// Of what is of all stores.
impl GatewayControl {
    fn status(&self) -> Status {
        let mut status = self.first().status();
        let controls = self.controls();
        if controls.len() == 1 && self.stores.absent().is_empty() {
            return status;
        }
        (status.volumes, status.shares) = (self.volumes(), self.shares());
        status.connections = status.volumes.iter().map(|volume| volume.connections).sum();
        let open = controls.iter().filter_map(|control| {
            Some(NamedStoreStatus {
                name: control.name.clone()?,
                reason: None,
                status: Some(control.status()),
            })
        });
        status.stores = open.chain(self.absent()).collect();
        status.stores.sort_by(|left, right| left.name.cmp(&right.name));
        status
    }

    fn absent(&self) -> impl Iterator<Item = NamedStoreStatus> {
        let absent = self.stores.absent().into_iter();
        absent.map(|absent| NamedStoreStatus {
            name: absent.name,
            reason: Some(absent.reason),
            status: None,
        })
    }

    fn metrics(&self) -> Metrics {
        let controls = self.controls();
        let named = controls
            .iter()
            .filter_map(|control| Some((control.name.clone()?, control.metrics())));
        let mut metrics = Metrics {
            named: named.collect(),
            ..self.first().metrics()
        };
        metrics.status.stores = self.absent().collect();
        metrics
    }

    /// In the order of their names; one whose name an earlier store has is told with its store's, and nobody can open it.
    fn volumes(&self) -> Vec<VolumeInfo> {
        let mut names = BTreeSet::new();
        let mut volumes = Vec::new();
        for control in self.controls() {
            for volume in control.gateway.snapshot().volumes {
                let mut info = control.told(control.info(&volume));
                tell_apart(&mut info.name, info.store.as_deref(), &mut names);
                volumes.push(info);
            }
        }
        volumes.sort_by(|left, right| left.name.cmp(&right.name));
        volumes
    }

    fn shares(&self) -> Vec<ShareInfo> {
        let mut names = BTreeSet::new();
        let mut shares = Vec::new();
        for control in self.controls() {
            for share in control.share_infos() {
                let mut info = control.share_told(share);
                tell_apart(&mut info.name, info.store.as_deref(), &mut names);
                shares.push(info);
            }
        }
        shares.sort_by(|left, right| left.name.cmp(&right.name));
        shares
    }

    fn drain(&self, OfStore { store }: OfStore) -> Result<(), ControlError> {
        let all = self.chosen(store.as_deref())?;
        // One that has failed keeps no other from it.
        let drained: Vec<_> = all.iter().map(|control| control.drain()).collect();
        drained.into_iter().collect()
    }

    /// Answers of the one that is named, else of the first.
    fn checkpoint(&self, OfStore { store }: OfStore) -> Result<JournalStatus, ControlError> {
        let all = self.chosen(store.as_deref())?;
        let begun: Vec<_> = all.iter().map(|control| control.checkpoint()).collect();
        let mut begun = begun.into_iter();
        let first = begun.next().unwrap_or_else(|| self.first().checkpoint());
        begun.try_for_each(|begun| begun.map(drop))?;
        first
    }

    /// In all stores, or in none.
    fn policy_set(&self, changes: PolicyChanges) -> Result<PolicyStatus, ControlError> {
        let controls = self.controls();
        let prepared = controls.iter().map(|control| {
            let prepared = control.prepare_policies(changes.clone());
            prepared.map_err(|error| control.named(error))
        });
        let prepared: Vec<_> = prepared.collect::<Result<_, _>>()?;
        prepared.into_iter().for_each(PolicyChange::carry_out);
        Ok(self.first().policy_status())
    }
}

fn tell_apart(name: &mut String, store: Option<&str>, names: &mut BTreeSet<String>) {
    if !names.insert(name.clone()) {
        *name += &format!("@{}", store.unwrap_or(FIRST));
    }
}

/// What tells the files of a named store's shares from those of other stores', for servers that have 32 bits for it.
fn file_system(identity: u64) -> u32 {
    ((identity >> 32) as u32 ^ identity as u32).max(1)
}

/// Of the store that has the name.
impl GatewayControl {
    fn volume_create(&self, request: CreateVolume) -> Result<VolumeInfo, ControlError> {
        let control = self.one(request.store.as_deref())?;
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of_volume(&request.name).is_ok() {
            return Err(ControlError::volume_exists(&request.name));
        }
        Ok(control.told(control.volume_create(request)?))
    }

    fn volume_resize(&self, request: ResizeVolume) -> Result<VolumeInfo, ControlError> {
        let control = self.of_volume(&request.name)?;
        Ok(control.told(control.volume_resize(request)?))
    }

    fn volume_flush(&self, request: VolumeFlush) -> Result<VolumeInfo, ControlError> {
        let control = self.of_volume(&request.name)?;
        Ok(control.told(control.volume_flush(request)?))
    }

    fn volume_delete(&self, request: DeleteVolume) -> Result<(), ControlError> {
        let control = self.of_volume(&request.name)?;
        control.volume_delete(request)
    }

    fn share_create(&self, request: CreateShare) -> Result<ShareInfo, ControlError> {
        let control = self.one(request.store.as_deref())?;
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of_share(&request.name).is_ok() {
            return Err(ControlError::share_exists(&request.name));
        }
        Ok(control.share_told(control.share_create(request)?))
    }

    fn share_quota(&self, request: ShareQuota) -> Result<ShareInfo, ControlError> {
        let control = self.of_share(&request.name)?;
        Ok(control.share_told(control.share_quota(request)?))
    }

    fn share_flush(&self, request: ShareFlush) -> Result<ShareInfo, ControlError> {
        let control = self.of_share(&request.name)?;
        Ok(control.share_told(control.share_flush(request)?))
    }

    fn share_delete(&self, request: DeleteShare) -> Result<(), ControlError> {
        let control = self.of_share(&request.name)?;
        control.share_delete(request)
    }
}
