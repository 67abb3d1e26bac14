//! One store with all that serves it: its gateway, its shares and its bill.

use super::options;
use super::{STOP_PATIENCE, ServeError};
use crate::admin::gateway::StoreControl;
use crate::bill::{self, Bill, PricesInForce};
use crate::frontends::OpenStore;
use crate::frontends::fuse::Shares;
use crate::measured::Measured;
use crate::runtime::{Gateway, OpenError, Options};
use crate::settings::{Settings, Usd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tombolo_files::FileError;
use tombolo_nbd::Server;

pub struct Served {
    /// As this gateway has them.
    pub settings: Settings,
    measured: Option<Measured>,
    pub gateway: Arc<Gateway>,
    pub shares: Arc<Shares>,
    pub bill: Arc<Bill>,
}

impl Served {
    /// `settings` of this store alone.
    pub fn open(settings: &Settings, accept_loss: bool) -> Result<Self, ServeError> {
        let prices = bill::load(&settings.prices)?;
        let replica_prices = settings.replicas.iter().map(|(name, replica)| {
            let loaded = bill::load(&replica.price_settings());
            let named = |error| ServeError::ReplicaPrices(name.clone(), error);
            Ok((name.clone(), loaded.map_err(named)?))
        });
        let replica_prices = replica_prices.collect::<Result<Vec<_>, ServeError>>()?;
        let all_prices = replica_prices.iter().map(|(_, prices)| prices.prices);
        let all_prices = std::iter::once(prices.prices).chain(all_prices);
        let known: Vec<_> = all_prices
            .zip(measured(settings)?)
            .map(|(prices, measured)| options::Known { prices, measured })
            .collect();
        let gateway = Gateway::open(Options {
            accept_loss,
            policies: settings.policies(prices.prices.units()),
            ..options::options_of_known(settings, &known)?
        })?;
        let measured = known.into_iter().next().and_then(|first| first.measured);
        let served = Self::complete(&gateway, settings, measured, prices, replica_prices);
        if served.is_err() {
            // Nobody must go on uploading for what nobody can reach.
            gateway.stop(STOP_PATIENCE);
        }
        served
    }

    fn complete(
        gateway: &Arc<Gateway>,
        settings: &Settings,
        measured: Option<Measured>,
        prices: PricesInForce,
        replica_prices: Vec<(String, PricesInForce)>,
    ) -> Result<Self, ServeError> {
        let shares = Shares::open(gateway, options::share_options(settings)).map_err(|error| match error {
            FileError::Busy(reason) if !gateway.is_metadata_complete() => OpenError::StoreNeeded(reason).into(),
            error => ServeError::Files(error),
        })?;
        let budget = settings.prices.budget_usd_per_month.map(Usd::dollars);
        let state = &settings.directories.state_directory;
        let bill = Bill::start(gateway, state, prices, replica_prices, budget).map_err(ServeError::Threads)?;
        Ok(Self {
            settings: settings.clone(),
            measured,
            gateway: gateway.clone(),
            shares,
            bill,
        })
    }

    pub fn as_open(&self, name: Option<String>) -> OpenStore {
        OpenStore {
            name,
            gateway: self.gateway.clone(),
            shares: self.shares.clone(),
        }
    }

    pub fn control(&self, server: &Arc<Mutex<Option<Server>>>) -> StoreControl {
        let (gateway, shares) = (self.gateway.clone(), self.shares.clone());
        let (bill, measured) = (self.bill.clone(), self.measured.as_ref());
        StoreControl::new(gateway, shares, server.clone(), bill, &self.settings, measured)
    }

    /// When no client is left.
    pub fn stop(&self) {
        self.gateway.stop(STOP_PATIENCE);
        self.bill.stop();
    }
}

/// Of the store, then of each replica.
fn measured(settings: &Settings) -> Result<Vec<Option<Measured>>, ServeError> {
    let load = |(section, file): (String, Option<&Path>)| {
        let measured = Measured::load(file).map_err(|error| ServeError::Measured(section.clone(), error))?;
        if let Some(Measured { file, table }) = &measured {
            let (at, store) = (&table.measured.at, &table.measured.store);
            tracing::info!(section, file = %file.display(), at, store, "begins with what was measured");
        }
        Ok(measured)
    };
    settings.latency_tables("store").map(load).collect()
}
