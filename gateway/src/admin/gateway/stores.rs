//! All stores of the daemon as the admin API sees them: which one a request is for, and what is told of all together.

use super::StoreControl;
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
use std::sync::{Arc, Mutex, PoisonError};

/// What answers in the running daemon.
pub struct GatewayControl {
    stores: Arc<Stores>,
    /// Of each store that is open, in the same order.
    controls: Vec<StoreControl>,
    /// A name is given once: held from the look into all stores until it is given.
    creating: Mutex<()>,
}

impl GatewayControl {
    /// `controls` of the stores that are open, in their order.
    pub fn new(stores: Arc<Stores>, controls: Vec<StoreControl>) -> Self {
        Self {
            stores,
            controls,
            creating: Mutex::new(()),
        }
    }

    /// Which of its functions answers at which endpoint.
    pub fn handlers(self) -> Handlers<Self> {
        Handlers::new(Arc::new(self), Self::metrics)
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

    fn named(&self) -> impl Iterator<Item = (&str, &StoreControl)> {
        let open = self.stores.open().iter().zip(&self.controls);
        open.filter_map(|(store, control)| Some((store.name.as_deref()?, control)))
    }

    /// The first store if none is named.
    fn one(&self, store: Option<&str>) -> Result<&StoreControl, ControlError> {
        let name = match store {
            None | Some(FIRST) => return Ok(&self.controls[0]),
            Some(name) => name,
        };
        if let Some((_, control)) = self.named().find(|(open, _)| *open == name) {
            return Ok(control);
        }
        if let Some(absent) = self.stores.absent().iter().find(|absent| absent.name == name) {
            let message = format!("store {name:?} does not serve: {}", absent.reason);
            return Err(ControlError::new(ErrorKind::Unavailable, message));
        }
        let there: Vec<&str> = std::iter::once(FIRST)
            .chain(self.named().map(|(name, _)| name))
            .collect();
        let message = format!(
            "there is no store {name:?}: the settings have {}; another one is a table [store.named.{name}] there, and a restart",
            there.join(", ")
        );
        Err(ControlError::new(ErrorKind::Invalid, message))
    }

    /// All of them, or the one that is named.
    fn chosen(&self, store: Option<&str>) -> Result<Vec<&StoreControl>, ControlError> {
        match store {
            None => Ok(self.controls.iter().collect()),
            named => self.one(named).map(|one| vec![one]),
        }
    }

    fn of_volume(&self, name: &str) -> Result<(usize, &StoreControl), ControlError> {
        let mut all = self.controls.iter().enumerate();
        let found = all.find(|(_, control)| control.find(name).is_ok());
        found.ok_or_else(|| self.perhaps_absent(ControlError::volume_not_found(name)))
    }

    fn of_share(&self, name: &str) -> Result<(usize, &StoreControl), ControlError> {
        let mut all = self.controls.iter().enumerate();
        let found = all.find(|(_, control)| control.shares.service.share_named(name).is_some());
        found.ok_or_else(|| self.perhaps_absent(ControlError::share_not_found(name)))
    }

    fn perhaps_absent(&self, error: ControlError) -> ControlError {
        match self.stores.may_be_absent() {
            Some(reason) => ControlError::new(error.kind, format!("{}: {reason}", error.message)),
            None => error,
        }
    }

    fn store_name(&self, place: usize) -> Option<String> {
        self.stores.open().get(place)?.name.clone()
    }

    fn of_store(&self, place: usize, volume: VolumeInfo) -> VolumeInfo {
        VolumeInfo {
            store: self.store_name(place),
            ..volume
        }
    }

    fn share_of_store(&self, place: usize, share: ShareInfo) -> ShareInfo {
        let store = self.store_name(place);
        ShareInfo {
            file_system: store
                .as_ref()
                .map(|_| file_system(self.controls[place].gateway.identity())),
            store,
            ..share
        }
    }

    fn place_of(&self, store: Option<&str>) -> Result<usize, ControlError> {
        let one = self.one(store)?;
        let place = self.controls.iter().position(|control| std::ptr::eq(control, one));
        Ok(place.unwrap_or_default())
    }
}

/// Of what is of all stores.
impl GatewayControl {
    fn status(&self) -> Status {
        let mut status = self.controls[0].status();
        let absent = self.stores.absent();
        if self.controls.len() == 1 && absent.is_empty() {
            return status;
        }
        (status.volumes, status.shares) = (self.volumes(), self.shares());
        status.connections = status.volumes.iter().map(|volume| volume.connections).sum();
        let open = self.named().map(|(name, control)| NamedStoreStatus {
            name: name.into(),
            reason: None,
            status: Some(control.status()),
        });
        status.stores = open.chain(self.absent()).collect();
        status.stores.sort_by(|left, right| left.name.cmp(&right.name));
        status
    }

    fn absent(&self) -> impl Iterator<Item = NamedStoreStatus> {
        let absent = self.stores.absent().iter();
        absent.map(|absent| NamedStoreStatus {
            name: absent.name.clone(),
            reason: Some(absent.reason.clone()),
            status: None,
        })
    }

    fn metrics(&self) -> Metrics {
        let named = self.named().map(|(name, control)| (name.to_owned(), control.metrics()));
        let mut metrics = Metrics {
            named: named.collect(),
            ..self.controls[0].metrics()
        };
        metrics.status.stores = self.absent().collect();
        metrics
    }

    /// In the order of their names; one whose name an earlier store has is told with its store's, and nobody can open it.
    fn volumes(&self) -> Vec<VolumeInfo> {
        let mut names = BTreeSet::new();
        let mut volumes = Vec::new();
        for (place, control) in self.controls.iter().enumerate() {
            for volume in control.gateway.snapshot().volumes {
                let mut info = self.of_store(place, control.info(&volume));
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
        for (place, control) in self.controls.iter().enumerate() {
            for share in control.share_infos() {
                let mut info = self.share_of_store(place, share);
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
        let drained: Vec<_> = all.into_iter().map(StoreControl::drain).collect();
        drained.into_iter().collect()
    }

    /// Answers of the one that is named, else of the first.
    fn checkpoint(&self, OfStore { store }: OfStore) -> Result<JournalStatus, ControlError> {
        let all = self.chosen(store.as_deref())?;
        let mut begun = all
            .into_iter()
            .map(StoreControl::checkpoint)
            .collect::<Vec<_>>()
            .into_iter();
        let first = begun.next().unwrap_or_else(|| self.controls[0].checkpoint());
        begun.try_for_each(|begun| begun.map(drop))?;
        first
    }

    /// In all stores, or in none: what one refuses each would, but for what depends on its cache.
    fn policy_set(&self, changes: PolicyChanges) -> Result<PolicyStatus, ControlError> {
        let mut set = self.controls.iter().map(|control| control.policy_set(changes.clone()));
        let first = set.next().unwrap_or_else(|| Ok(PolicyStatus::default()))?;
        set.try_for_each(|set| set.map(drop))?;
        Ok(first)
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
        let place = self.place_of(request.store.as_deref())?;
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of_volume(&request.name).is_ok() {
            return Err(ControlError::volume_exists(&request.name));
        }
        let made = self.controls[place].volume_create(request)?;
        Ok(self.of_store(place, made))
    }

    fn volume_resize(&self, request: ResizeVolume) -> Result<VolumeInfo, ControlError> {
        let (place, control) = self.of_volume(&request.name)?;
        Ok(self.of_store(place, control.volume_resize(request)?))
    }

    fn volume_flush(&self, request: VolumeFlush) -> Result<VolumeInfo, ControlError> {
        let (place, control) = self.of_volume(&request.name)?;
        Ok(self.of_store(place, control.volume_flush(request)?))
    }

    fn volume_delete(&self, request: DeleteVolume) -> Result<(), ControlError> {
        let (_, control) = self.of_volume(&request.name)?;
        control.volume_delete(request)
    }

    fn share_create(&self, request: CreateShare) -> Result<ShareInfo, ControlError> {
        let place = self.place_of(request.store.as_deref())?;
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of_share(&request.name).is_ok() {
            return Err(ControlError::share_exists(&request.name));
        }
        let made = self.controls[place].share_create(request)?;
        Ok(self.share_of_store(place, made))
    }

    fn share_quota(&self, request: ShareQuota) -> Result<ShareInfo, ControlError> {
        let (place, control) = self.of_share(&request.name)?;
        Ok(self.share_of_store(place, control.share_quota(request)?))
    }

    fn share_flush(&self, request: ShareFlush) -> Result<ShareInfo, ControlError> {
        let (place, control) = self.of_share(&request.name)?;
        Ok(self.share_of_store(place, control.share_flush(request)?))
    }

    fn share_delete(&self, request: DeleteShare) -> Result<(), ControlError> {
        let (_, control) = self.of_share(&request.name)?;
        control.share_delete(request)
    }
}
