//! Stores in memory that go away, fail, hang and are slow, below a [`Replicated`]; time is the test's.

mod world;

use super::*;
use world::{Bucket, Gateway, World, root_object};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn what_is_put_is_in_both_and_the_root_follows_at_once() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put("keys", "k").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    assert_eq!(world.replica.keys(), ["keys", "objects/a", "root"]);
    assert_eq!(world.replica.get("root"), world.primary.get("root"));
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
}

#[tokio::test(start_paused = true)]
async fn what_it_lacks_is_remembered_over_a_restart_and_comes_before_the_root() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    let root = world.replica.get("root");
    world.replica.set_away(true);
    gateway.put("objects/b", "two").await.unwrap();
    gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
    // The replica's root needs what the primary's does not.
    gateway.delete("objects/a").await.unwrap();
    gateway.put_root(&["objects/b"]).await.unwrap();
    let status = &gateway.status()[0];
    assert_eq!(
        (status.state, status.behind.objects, status.behind.bytes),
        (ReplicaState::Away, 1, 3)
    );
    drop(gateway);

    let gateway = world.open();
    let behind = gateway.status()[0].behind;
    assert_eq!((behind.objects, behind.removals, behind.is_incomplete), (1, 1, false));
    world.replica.set_away(false);
    tokio::time::sleep(MINUTE).await;
    // No root of this life has come yet, so the replica is whole as of the one that it has.
    assert_eq!(world.replica.get("root"), root);
    assert_eq!(world.replica.keys(), ["objects/a", "objects/b", "root"]);
    gateway.put_root(&["objects/b"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.replica.keys(), ["objects/b", "root"]);
    assert_eq!(world.replica.get("root"), world.primary.get("root"));
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_new_gets_everything() {
    let world = World::new();
    for (key, text) in [
        ("objects/a", "one"),
        ("nodes/n", "two"),
        ("keys", "k"),
        ("conditions", "first\n"),
    ] {
        world.primary.set(key, text);
    }
    let gateway = world.open();
    gateway.put_root(&["objects/a", "nodes/n"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.replica.keys(), ["keys", "nodes/n", "objects/a", "root"]);
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_note_is_found_by_a_comparison() {
    let world = World::new().with_entries_max(3);
    let gateway = world.open();
    gateway.put_root(&[]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    world.replica.set("nodes/old", "x");
    world.replica.set_away(true);
    let keys: Vec<String> = (0..10).map(|number| format!("objects/{number}")).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    for key in &names {
        gateway.put(key, key).await.unwrap();
    }
    gateway.put_root(&names).await.unwrap();
    assert!(gateway.status()[0].behind.is_incomplete);
    world.replica.set_away(false);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(world.replica.keys(), world.primary.keys());
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_hangs_holds_a_put_up_once() {
    let world = World::new();
    let gateway = world.open();
    gateway.put_root(&[]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    world.replica.set_hanging(true);
    let begun = RealInstant::now();
    let (one, two) = tokio::join!(gateway.put("objects/a", "one"), gateway.put("objects/b", "two"));
    one.and(two).unwrap();
    assert_eq!(begun.elapsed().as_secs(), world::AWAY_AFTER.as_secs());
    let begun = RealInstant::now();
    gateway.put("objects/c", "three").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(gateway.status()[0].behind.objects, 3);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_slow_is_waited_for_and_not_away() {
    let world = World::new().with_puts_max(1);
    let gateway = world.open_compared().await;
    gateway.put_root(&[]).await.unwrap();
    world.replica.set_latency(world::AWAY_AFTER / 2);
    let begun = RealInstant::now();
    let keys: Vec<String> = (0..8).map(|number| format!("objects/{number}")).collect();
    for put in join_all(keys.iter().map(|key| gateway.put(key, key))).await {
        put.unwrap();
    }
    assert_eq!(begun.elapsed(), world::AWAY_AFTER * 4);
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
}

/// Each object is sent once more than it was in vain, and what is put meanwhile waits for nothing.
#[tokio::test(start_paused = true)]
async fn what_is_put_at_once_arrives_over_a_thin_link() {
    const OBJECT_BYTES: u64 = 4 << 20;
    for bytes_per_s in [8 << 20, 512 << 10, 125_000] {
        let world = World::new();
        let gateway = world.open_compared().await;
        gateway.put_root(&[]).await.unwrap();
        world.replica.set_rate(bytes_per_s);
        let object = Bytes::from(vec![7; OBJECT_BYTES as usize]);
        let put = |key: String| {
            let (store, object) = (gateway.store.clone(), object.clone());
            async move { store.put(&key, object, PutMode::Overwrite).await.unwrap() }
        };
        let (begun, gets) = (RealInstant::now(), world.primary.gets());
        join_all((0..12).map(|number| put(format!("objects/{number}")))).await;
        assert!(begun.elapsed() <= world::AWAY_AFTER, "{:?}", begun.elapsed());
        tokio::time::sleep(world::AWAY_AFTER).await;
        let later = RealInstant::now();
        put("objects/later".into()).await;
        let is_thin = bytes_per_s < OBJECT_BYTES;
        assert!(
            !is_thin || later.elapsed() < Duration::from_secs(1),
            "{:?}",
            later.elapsed()
        );
        gateway.put_root(&["objects/0", "objects/later"]).await.unwrap();
        let needed = Duration::from_secs(13 * OBJECT_BYTES / bytes_per_s);
        tokio::time::sleep((needed * 5 / 4).saturating_sub(begun.elapsed()) + world::AWAY_AFTER).await;
        let status = &gateway.status()[0];
        assert_eq!(status.state, ReplicaState::Even, "{bytes_per_s}: {status:?}");
        let gets = world.primary.gets() - gets;
        assert!(gets <= 16, "{bytes_per_s}: {gets} reads of the primary");
        // It is waited for again.
        put("objects/last".into()).await;
        assert_eq!(
            world.replica.get("objects/last").is_some(),
            bytes_per_s > 500_000,
            "{bytes_per_s}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_gone_for_ever_hinders_nobody() {
    let world = World::new();
    world.replica.set_away(true);
    let gateway = world.open();
    for number in 0..50 {
        gateway.put(&format!("objects/{number}"), "x").await.unwrap();
        gateway.put_root(&[]).await.unwrap();
        assert_eq!(gateway.get(&format!("objects/{number}")).await.unwrap(), "x");
    }
    assert_eq!(gateway.status()[0].state, ReplicaState::Away);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_confirmed_without_the_primary_and_all_is_read_without_it() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    world.primary.set_away(true);
    assert!(gateway.put("objects/b", "two").await.unwrap_err().kind().is_retryable());
    assert!(gateway.put_root(&["objects/a"]).await.is_err());
    assert_eq!(gateway.get("objects/a").await.unwrap(), "one");
    // Whose the bucket is only the primary says.
    assert!(gateway.store.get("root", None).await.is_err());
    world.primary.set_away(false);
    assert_eq!(gateway.get("objects/a").await.unwrap(), "one");
    // The replica stayed as of the primary's root.
    assert_eq!(world.replica.get("root"), world.primary.get("root"));
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_hangs_is_soon_not_waited_for() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    world.primary.set_hanging(true);
    let mut waited = Vec::new();
    for _ in 0..5 {
        let begun = RealInstant::now();
        assert_eq!(gateway.get("objects/a").await.unwrap(), "one");
        waited.push(begun.elapsed().as_millis());
    }
    assert!(waited[0] <= 2_000 && waited[1] <= 2_000, "{waited:?}");
    assert!(waited[2..].iter().all(|waited| *waited == 0), "{waited:?}");
    assert!(gateway.store.read_counts().failed_over[0] >= 2);
}

#[tokio::test(start_paused = true)]
async fn absent_is_only_what_no_store_can_have() {
    let world = World::new();
    let gateway = world.open();
    gateway.put_root(&[]).await.unwrap();
    assert_eq!(gateway.get("objects/a").await.unwrap_err().kind(), ErrorKind::NotFound);
    world.replica.set_away(true);
    assert!(gateway.get("objects/a").await.unwrap_err().kind().is_retryable());
}

#[tokio::test(start_paused = true)]
async fn what_one_store_has_lost_it_gets_again() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put("objects/b", "two").await.unwrap();
    gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    world.primary.remove("objects/a");
    assert_eq!(gateway.get("objects/a").await.unwrap(), "one");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.primary.get("objects/a").unwrap(), "one");
    assert_eq!(gateway.store.read_counts().healed, 1);

    // The replica is the cheaper one here.
    let world = World::new().with_prices(5, 0);
    let gateway = world.open();
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    world.replica.set_quietly("objects/a", None);
    assert_eq!(gateway.get("objects/a").await.unwrap(), "one");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.replica.get("objects/a").unwrap(), "one");
    assert_eq!(gateway.store.read_counts().failed_over, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_altered_copy_is_replaced_by_a_good_one() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    world.replica.set_quietly("objects/a", Some("onf"));
    let copies = gateway.store.copies("objects/a", Cause::Check).await;
    let copies: Vec<_> = copies.into_iter().map(Result::unwrap).collect();
    assert_eq!(copies, ["one", "onf"]);
    gateway
        .store
        .heal(1, "objects/a", copies[0].clone(), Cause::Check)
        .await
        .unwrap();
    assert_eq!(world.replica.get("objects/a").unwrap(), "one");
    assert_eq!(gateway.status()[0].healed, 1);
}

#[tokio::test(start_paused = true)]
async fn the_cheaper_store_is_read_although_it_is_slow_unless_waiting_is_worth_more() {
    for (second, expected) in [(0, [0, 20]), (1_000_000, [19, 1])] {
        let world = World::new().with_prices(100, 0).with_second(second);
        let gateway = world.open_compared().await;
        gateway.put("objects/a", "one").await.unwrap();
        gateway.put_root(&["objects/a"]).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        world.replica.set_latency(Duration::from_millis(200));
        for _ in 0..20 {
            gateway.get("objects/a").await.unwrap();
        }
        assert_eq!(gateway.store.read_counts().answered, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn altered_metadata_of_a_replica_is_found_and_mended_by_the_primary_s() {
    let world = World::new();
    let gateway = world.open_compared().await;
    for key in ["nodes/a", "nodes/b", "nodes/c"] {
        gateway.put(key, key).await.unwrap();
    }
    // The bucket verifies what its root names with each change, and it is to be damaged here.
    gateway.put_root(&["nodes/c"]).await.unwrap();
    world.replica.set_quietly("nodes/a", Some("nodes/x"));
    world.replica.set_quietly("nodes/b", None);
    for (is_mended, found) in [
        (false, [ComparedMetadata::Altered, ComparedMetadata::Missing]),
        (true, [ComparedMetadata::Altered, ComparedMetadata::Missing]),
        (true, [ComparedMetadata::Same; 2]),
    ] {
        for (key, found) in ["nodes/a", "nodes/b"].into_iter().zip(found) {
            let compared = gateway.store.compare_metadata(key, is_mended, Cause::Check).await;
            assert_eq!(compared.unwrap(), [Some(found)], "{key}");
        }
    }
    assert_eq!(world.replica.keys(), world.primary.keys());
    world.replica.set_away(true);
    let compared = gateway.store.compare_metadata("nodes/c", true, Cause::Check).await;
    assert_eq!(compared.unwrap(), [Some(ComparedMetadata::Unknown)]);
}

#[tokio::test(start_paused = true)]
async fn metadata_is_read_in_the_primary_as_long_as_it_is_there() {
    let world = World::new().with_prices(100, 0);
    let gateway = world.open_compared().await;
    gateway.put("nodes/a", "one").await.unwrap();
    gateway.put_root(&["nodes/a"]).await.unwrap();
    world.replica.set_quietly("nodes/a", Some("onf"));
    assert_eq!(gateway.get("nodes/a").await.unwrap(), "one");
    world.replica.set_quietly("nodes/a", Some("one"));
    world.primary.set_away(true);
    assert_eq!(gateway.get("nodes/a").await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_somebody_else_has_taken_over_is_left_alone() {
    let world = World::new();
    let gateway = world.open();
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    let other = root_object(999, &[]);
    world.replica.set_bytes("root", other.clone());
    for restart in [false, true] {
        let gateway = if restart { world.open() } else { gateway.clone() };
        gateway.put("objects/b", "two").await.unwrap();
        gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
        gateway.delete("objects/a").await.unwrap();
        tokio::time::sleep(5 * MINUTE).await;
        gateway.put("objects/c", "three").await.unwrap();
        gateway.put_root(&["objects/b"]).await.unwrap();
        assert_eq!(world.replica.get("root"), Some(other.clone()));
        assert!(!world.replica.keys().contains(&"objects/c".to_owned()));
        assert!(world.replica.keys().contains(&"objects/a".to_owned()));
        let status = &gateway.status()[0];
        assert_eq!(status.state, ReplicaState::Foreign);
        assert!(status.reason.as_ref().unwrap().contains("accept_root = "), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_root_that_is_accepted_by_name_is_replaced_and_no_other() {
    let world = World::new();
    world.primary.set("objects/a", "one");
    world.replica.set_bytes("root", root_object(999, &[]));
    let reason = {
        let gateway = world.open();
        tokio::time::sleep(MINUTE).await;
        gateway.put_root(&["objects/a"]).await.unwrap();
        gateway.status()[0].reason.clone().unwrap()
    };
    let digits = reason.split('"').nth(1).unwrap().to_owned();
    let world = world.with_accepted_root(AcceptedRoot::Salt(digits));
    let gateway = world.open();
    gateway.put_root(&["objects/a"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.replica.keys(), ["objects/a", "root"]);
    assert_eq!(world.replica.get("root"), world.primary.get("root"));
    world.replica.set_bytes("root", root_object(1000, &[]));
    gateway.put_root(&["objects/a"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(gateway.status()[0].state, ReplicaState::Foreign);
}

/// What was put before that was noticed went elsewhere, also if nobody lives to notice it.
#[tokio::test(start_paused = true)]
async fn what_was_put_into_another_place_is_brought_when_the_replica_is_back() {
    for (is_noticed, is_restarted) in [(true, false), (true, true), (false, true)] {
        let world = World::new();
        let gateway = world.open_compared().await;
        gateway.put("objects/a", "one").await.unwrap();
        gateway.put_root(&["objects/a"]).await.unwrap();
        world.replica.set_aside();
        gateway.put("objects/b", "two").await.unwrap();
        assert_eq!(world.replica.keys(), ["objects/b"]);
        if is_noticed {
            gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
            tokio::time::sleep(MINUTE).await;
            assert_eq!(gateway.status()[0].state, ReplicaState::Foreign);
        }
        let living = (!is_restarted).then_some(gateway);
        world.replica.put_back();
        let gateway = living.unwrap_or_else(|| world.open());
        tokio::time::sleep(MINUTE).await;
        gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
        assert_eq!(world.replica.keys(), ["objects/a", "objects/b", "root"]);
        let status = &gateway.status()[0];
        assert_eq!(
            status.state,
            ReplicaState::Even,
            "{is_noticed} {is_restarted}: {status:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_back_is_seen_while_roots_are_put() {
    let world = World::new();
    let gateway = world.open_compared().await;
    gateway.put_root(&[]).await.unwrap();
    world.replica.set_aside();
    gateway.put("objects/a", "one").await.unwrap();
    gateway.put_root(&["objects/a"]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    gateway.put("objects/b", "two").await.unwrap();
    assert_eq!(gateway.status()[0].behind.objects, 1);
    world.replica.put_back();
    for _ in 0..9 {
        gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
        tokio::time::sleep(MINUTE / 6).await;
    }
    assert_eq!(gateway.status()[0].state, ReplicaState::Even);
    assert_eq!(world.replica.keys(), ["objects/a", "objects/b", "root"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_compares_only_if_something_was_put_after_the_last_root() {
    for (is_covered, key) in [(true, "objects/a"), (false, "objects/b")] {
        let world = World::new();
        let gateway = world.open_compared().await;
        gateway.put("objects/a", "one").await.unwrap();
        gateway.put_root(&["objects/a"]).await.unwrap();
        if !is_covered {
            gateway.put(key, "two").await.unwrap();
        }
        drop(gateway);
        // A comparison brings it; nothing else looks at it.
        world.replica.set_quietly(key, None);
        let _gateway = world.open_compared().await;
        assert_eq!(world.replica.get(key).is_some(), !is_covered);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_in_its_place_is_not_filled_unasked() {
    let world = World::new();
    {
        let gateway = world.open();
        gateway.put("objects/a", "one").await.unwrap();
        gateway.put_root(&["objects/a"]).await.unwrap();
        tokio::time::sleep(MINUTE).await;
    }
    world.replica.empty();
    {
        let gateway = world.open();
        gateway.put("objects/b", "two").await.unwrap();
        gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        assert_eq!(world.replica.keys(), [""; 0]);
        assert_eq!(gateway.status()[0].state, ReplicaState::Foreign);
    }
    let world = world.with_accepted_root(AcceptedRoot::Absent);
    let gateway = world.open();
    gateway.put_root(&["objects/a", "objects/b"]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.replica.keys(), ["objects/a", "objects/b", "root"]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_changed_are_brought_before_the_root_that_needs_them() {
    let world = World::new();
    let gateway = world.open();
    gateway.put("keys", "old").await.unwrap();
    gateway.put_root(&[]).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    drop(gateway);
    // A start puts them past all this.
    world.primary.set("keys", "new");
    let gateway = world.open();
    gateway.put_root(&[]).await.unwrap();
    assert_eq!(world.replica.get("keys").unwrap(), "new");
}

#[test]
fn nothing_is_reported_absent_while_a_store_may_have_it() {
    let absent = || StoreError::NotFound {
        store: "s".into(),
        key: "k".into(),
    };
    let away = || StoreError::Unreachable {
        store: "s".into(),
        detail: "d".into(),
    };
    assert_eq!(worst(vec![(0, absent()), (1, absent())]), absent());
    assert_eq!(worst(vec![(0, absent()), (1, away())]), away());
    assert_eq!(worst(vec![(1, away()), (0, absent())]), away());
}

/// Whatever happens, each bucket is whole at every moment (the buckets look at themselves with each change), and at the end all
/// are equal.
#[test]
fn every_bucket_is_whole_at_every_moment() {
    let seeds = std::env::var("TOMBOLO_REPLICATION_SEEDS").map_or(60, |text| text.parse().unwrap());
    for seed in 0..seeds {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(world::random_life(seed));
    }
}

/// The check in the test above finds a root that comes too early.
#[test]
#[should_panic(expected = "is named by the root and is not there")]
fn a_bucket_notices_a_root_that_came_too_early() {
    let bucket = Bucket::new("canary", true);
    bucket.set_bytes("root", root_object(1, &["objects/a"]));
}

fn assert_send<T: Send + Sync>() {}

#[test]
fn a_gateway_can_share_it() {
    assert_send::<Replicated>();
    let _: fn(&World) -> Gateway = World::open;
}
