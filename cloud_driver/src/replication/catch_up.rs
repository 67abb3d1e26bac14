//! Brings a replica what it lacks, in the background: objects, then the journal, then the root, and only then what is to be
//! removed. So the replica is a whole bucket at every moment, as of its root.

use super::backlog::{Record, Task};
use super::backlog_file::Durability;
use super::comparison::{Compared, list};
use super::replica::Replica;
use super::{InFlight, unix_s};
use crate::metadata_object::JOURNAL_PREFIX;
use crate::store::{ListedObject, ObjectStore, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is removed at once.
const REMOVALS: usize = 100;
/// Between two looks when nothing is known to be done. A replica that is another's is looked at so often too.
const IDLE: Duration = Duration::from_secs(30);
/// After something failed that does not make the replica count as away, such as a read of the primary.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What one round has come to.
enum Round {
    /// There may be more to do at once.
    More,
    Idle,
    Failed,
}

/// Until it is dropped.
pub async fn run(replica: Arc<Replica>, primary: Arc<dyn ObjectStore>, in_flight: Arc<InFlight>) {
    let mut looked = Instant::now();
    loop {
        // Roots wake it more often than it is looked at.
        if !replica.is_foreign() {
            looked = Instant::now();
        } else if looked.elapsed() >= IDLE {
            replica.probe().await;
            looked = Instant::now();
        }
        let pause = match replica.until_probe() {
            Some(until) if !until.is_zero() => until,
            Some(_) => {
                replica.probe().await;
                continue;
            }
            None => match round(&replica, &primary, &in_flight).await {
                Round::More => continue,
                Round::Failed => AFTER_FAILURE,
                Round::Idle => IDLE,
            },
        };
        // Whether it was woken or not, it looks what there is to do.
        let _ = tokio::time::timeout(pause, replica.wake.notified()).await;
    }
}

async fn round(replica: &Replica, primary: &Arc<dyn ObjectStore>, in_flight: &InFlight) -> Round {
    match step(replica, primary, in_flight).await {
        Ok(true) => Round::More,
        Ok(false) => Round::Idle,
        Err(error) => {
            tracing::debug!(replica = replica.name, %error, "a replica could not be brought what it lacks; it is tried again");
            Round::Failed
        }
    }
}

/// Whether there may be more to do.
async fn step(replica: &Replica, primary: &Arc<dyn ObjectStore>, in_flight: &InFlight) -> Result<bool> {
    if !replica.recognise().await {
        return Ok(false);
    }
    let is_to_compare = replica.backlog.backlog().is_to_compare();
    if is_to_compare {
        compare(replica, primary).await?;
        return Ok(true);
    }
    let lacking = replica.backlog.backlog().first(Task::Bring, replica.load.copies());
    if !lacking.is_empty() {
        bring(replica, primary, lacking.iter().map(|key| &**key)).await?;
        return Ok(true);
    }
    replica.load.on_caught_up();
    if replica.can_move_root() {
        replica.move_root(&**primary).await?;
        return Ok(true);
    }
    if !replica.is_even() {
        return Ok(false);
    }
    let needless = replica.backlog.backlog().first(Task::Remove, REMOVALS);
    let mut has_removed = false;
    for key in needless {
        // Of an object that is being put now it is not known yet whether the primary has it.
        if replica.is_even() && !in_flight.has(&key) {
            replica.remove(&**primary, &key).await?;
            has_removed = true;
        }
    }
    Ok(has_removed)
}

/// Some at the same time; what belongs to the journal after all others.
async fn bring<'k>(
    replica: &Replica,
    primary: &Arc<dyn ObjectStore>,
    keys: impl Iterator<Item = &'k str>,
) -> Result<()> {
    let (journal, others): (Vec<&str>, Vec<&str>) = keys.partition(|key| key.starts_with(JOURNAL_PREFIX));
    for keys in [others, journal] {
        if !keys.is_empty() {
            replica.bring_together(&**primary, &keys).await?;
        }
    }
    Ok(())
}

/// Both listings side by side. What the replica lacks, or has in another size, is brought at once; what only it has is noted.
async fn compare(replica: &Replica, primary: &Arc<dyn ObjectStore>) -> Result<()> {
    let generation = replica.backlog.backlog().generation();
    tracing::info!(
        replica = replica.name,
        "what a replica lacks is not known; the listings are compared"
    );
    let mut compared = Compared::default();
    let mut lacking: Vec<ListedObject> = Vec::new();
    loop {
        let (of_primary, of_replica) = tokio::join!(
            list(&**primary, compared.of_primary()),
            replica.ask(crate::Operation::List, "", list(&*replica.store, compared.of_replica())),
        );
        let is_done = compared.take(of_primary?, of_replica?, &mut lacking);
        while !lacking.is_empty() {
            let some: Vec<_> = lacking.drain(..lacking.len().min(replica.load.copies())).collect();
            bring(replica, primary, some.iter().map(|object| &*object.key)).await?;
        }
        if is_done {
            break;
        }
    }
    let removal = |key: &String| Record::Remove {
        key: key.clone(),
        time_s: unix_s(),
    };
    // What does not fit is found by the next comparison, if there is one.
    let room = replica.backlog.room();
    let removals: Vec<Record> = compared.extras().take(room).map(removal).collect();
    if replica.backlog.backlog().generation() == generation {
        let records = removals.into_iter().chain([Record::Compared]).collect();
        replica.note(records, Durability::Now).await?;
        tracing::info!(
            replica = replica.name,
            "a replica has been compared and has all that it lacked"
        );
    }
    Ok(())
}
