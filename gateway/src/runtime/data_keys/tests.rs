use super::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use tombolo_cloud_driver::MemoryStore;
use tombolo_cloud_driver::keys::master_key_text;

/// A machine with a state directory, and the store that it is pointed at.
struct Machine {
    state: TempDir,
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    options: EncryptionOptions,
    answers: bool,
    accept_foreign: bool,
}

impl Machine {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let options = EncryptionOptions {
            is_on: true,
            master_key: MasterKeySource::OwnFile(state.path().join("master.key")),
            kms: KmsSettings::default(),
        };
        Self {
            state,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            store: Arc::new(MemoryStore::new()),
            options,
            answers: true,
            accept_foreign: false,
        }
    }

    fn at_start(&self) -> AtStart<'_> {
        AtStart {
            runtime: &self.runtime,
            store: &self.store,
            answers: self.answers,
            accept_foreign: self.accept_foreign,
        }
    }

    fn first_start(&self) -> Result<DataKeys> {
        DataKeys::first(self.state.path(), &self.options, &self.at_start())
    }

    fn start(&self, used: &[KeyId]) -> Result<DataKeys> {
        let used = used.iter().copied().collect();
        DataKeys::open(self.state.path(), &self.options, &self.at_start(), &used)
    }

    fn restart(&self) -> DataKeys {
        self.start(&[]).unwrap()
    }

    fn refusal(&self) -> String {
        self.start(&[]).err().unwrap().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) {
        let put = self.store.put(name, bytes.into(), PutMode::Overwrite);
        self.runtime.block_on(put).unwrap();
    }

    fn stored(&self) -> Vec<u8> {
        self.runtime.block_on(self.store.get(KEYS_NAME, None)).unwrap().to_vec()
    }

    fn master_key_file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, master_key_text(&SecretKey::generate().unwrap())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

fn ids(keys: &DataKeys) -> Vec<KeyId> {
    keys.info().data_keys.iter().map(|key| key.id).collect()
}

#[test]
fn a_first_start_makes_keys_and_later_ones_find_them() {
    let machine = Machine::new();
    let made = machine.first_start().unwrap();
    let mode = fs::metadata(machine.path("master.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(machine.stored(), fs::read(machine.path(KEYS_NAME)).unwrap());
    assert_eq!(made.ring().current().unwrap().id(), ids(&made)[0]);
    assert_eq!(machine.restart().info(), made.info());
}

#[test]
fn an_interrupted_first_start_goes_on_with_what_it_made() {
    let machine = Machine::new();
    let made = machine.first_start().unwrap();
    // Before the file had its name, and before that.
    fs::rename(machine.path(KEYS_NAME), machine.path("keys.new")).unwrap();
    assert_eq!(machine.first_start().unwrap().info(), made.info());
    fs::rename(machine.path(KEYS_NAME), machine.path("keys.new")).unwrap();
    machine.runtime.block_on(machine.store.delete(KEYS_NAME)).unwrap();
    assert_eq!(machine.first_start().unwrap().info(), made.info());
}

#[test]
fn a_store_with_data_is_not_begun_anew() {
    let mut machine = Machine::new();
    machine.put("objects/ab/cd", vec![1]);
    for is_on in [true, false] {
        machine.options.is_on = is_on;
        let error = machine.first_start().err().unwrap();
        assert!(matches!(error, DataKeysError::Occupied { .. }), "{error}");
        assert!(!machine.path("master.key").exists());
    }
    machine.accept_foreign = true;
    assert!(machine.first_start().is_ok());
}

#[test]
fn a_first_start_needs_the_store_and_later_ones_do_not() {
    let mut machine = Machine::new();
    let away = Machine::new();
    let refusing = tombolo_cloud_driver::DirStore::open(&away.path("store")).unwrap();
    fs::remove_dir_all(away.path("store")).unwrap();
    let store = std::mem::replace(&mut machine.store, Arc::new(refusing));
    machine.answers = false;
    let error = machine.first_start().err().unwrap();
    assert!(error.to_string().contains("needed to begin with encryption"), "{error}");
    assert!(!machine.path(KEYS_NAME).exists());
    machine.store = store;
    let made = machine.first_start().unwrap();
    assert_eq!(machine.restart().info(), made.info());
}

#[test]
fn a_missing_master_key_is_asked_for_and_no_other_is_made() {
    let machine = Machine::new();
    let needed = machine.first_start().unwrap().info().master_key.unwrap().to_string();
    fs::remove_file(machine.path("master.key")).unwrap();
    for _ in 0..2 {
        let refusal = machine.refusal();
        assert!(refusal.contains("is missing") && refusal.contains(&needed), "{refusal}");
        assert!(!machine.path("master.key").exists());
        // Nor when the state directory has lost its copy too.
        let _ = fs::remove_file(machine.path(KEYS_NAME));
    }
}

#[test]
fn a_wrong_master_key_is_named_beside_the_right_one() {
    let mut machine = Machine::new();
    let needed = machine.first_start().unwrap().info().master_key.unwrap().to_string();
    machine.options.master_key = MasterKeySource::File(machine.master_key_file("other"));
    let refusal = machine.refusal();
    assert!(
        refusal.contains(&needed) && refusal.contains("master_key_file"),
        "{refusal}"
    );
    assert_eq!(machine.stored(), fs::read(machine.path(KEYS_NAME)).unwrap());
}

#[test]
fn a_master_key_that_others_can_read_is_refused() {
    let machine = Machine::new();
    machine.first_start().unwrap();
    fs::set_permissions(machine.path("master.key"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(machine.refusal().contains("can be read by others (mode 640)"));
}

#[test]
fn what_is_no_master_key_is_not_repeated() {
    let machine = Machine::new();
    machine.first_start().unwrap();
    fs::write(machine.path("master.key"), "a secret with a typing error").unwrap();
    let refusal = machine.refusal();
    assert!(
        refusal.contains("64 hexadecimal digits") && !refusal.contains("typing"),
        "{refusal}"
    );
}

#[test]
fn a_program_or_a_variable_can_give_the_master_key() {
    let mut machine = Machine::new();
    let file = machine.master_key_file("kept").display().to_string();
    let words = |line: &str| MasterKeySource::Command(line.split(' ').map(str::to_owned).collect());
    machine.options.master_key = words(&format!("cat {file}"));
    let made = machine.first_start().unwrap();
    assert_eq!(machine.restart().info(), made.info());
    machine.options.master_key = words("cat /nonexistent/key");
    assert!(
        machine.refusal().contains("failed: exit status: 1"),
        "{}",
        machine.refusal()
    );
    machine.options.master_key = words("/nonexistent/program");
    assert!(machine.refusal().contains("cannot be run"), "{}", machine.refusal());
    machine.options.master_key = MasterKeySource::Environment("TOMBOLO_NO_SUCH_VARIABLE".into());
    assert!(machine.refusal().contains("TOMBOLO_NO_SUCH_VARIABLE is not set"));
}

#[test]
fn another_data_key_encrypts_and_the_ones_before_still_read() {
    let machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let first = ids(&keys)[0];
    keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    assert_eq!(ids(&keys).len(), 2);
    for keys in [keys, machine.restart()] {
        let ring = keys.ring();
        assert_ne!(ring.current().unwrap().id(), first);
        assert!(ring.get(first).is_some());
    }
}

#[test]
fn a_rotation_that_was_cut_short_is_finished_by_the_next_start() {
    let machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let before = fs::read(machine.path(KEYS_NAME)).unwrap();
    keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    fs::write(machine.path(KEYS_NAME), before).unwrap();
    assert_eq!(machine.restart().info(), keys.info());
    assert_eq!(machine.stored(), fs::read(machine.path(KEYS_NAME)).unwrap());
}

#[test]
fn another_master_key_opens_alone() {
    let mut machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let (before, new) = (keys.info(), machine.master_key_file("new"));
    keys.rotate(&machine.runtime, &machine.store, NewKey::MasterFile(&new))
        .unwrap();
    assert_eq!(keys.info().data_keys, before.data_keys);
    assert!(machine.refusal().contains(&before.master_key.unwrap().to_string()));
    machine.options.master_key = MasterKeySource::File(new);
    assert_eq!(machine.restart().info(), keys.info());
}

#[test]
fn a_copy_that_is_lost_or_damaged_is_made_from_the_other() {
    let machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let whole = machine.stored();
    machine.runtime.block_on(machine.store.delete(KEYS_NAME)).unwrap();
    assert_eq!(machine.restart().info(), keys.info());
    assert_eq!(machine.stored(), whole);
    for damaged in [&whole[..whole.len() - 1], b"", &[0; 100]] {
        fs::write(machine.path(KEYS_NAME), damaged).unwrap();
        assert_eq!(machine.restart().info(), keys.info());
        assert_eq!(fs::read(machine.path(KEYS_NAME)).unwrap(), whole);
    }
}

#[test]
fn older_keys_do_not_come_back_through_the_store() {
    let machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let older = machine.stored();
    keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    let newer = machine.stored();
    machine.put(KEYS_NAME, older);
    assert_eq!(machine.restart().info(), keys.info());
    assert_eq!(machine.stored(), newer);
}

#[test]
fn the_keys_of_another_store_are_not_taken() {
    let mut machine = Machine::new();
    let other = Machine::new();
    machine.first_start().unwrap();
    fs::copy(machine.path("master.key"), other.path("master.key")).unwrap();
    other.first_start().unwrap();
    machine.store = other.store.clone();
    let refusal = machine.refusal();
    assert!(refusal.contains("two different stores"), "{refusal}");
}

#[test]
fn keys_of_another_gateway_are_not_overwritten() {
    let (machine, other) = (Machine::new(), Machine::new());
    let keys = machine.first_start().unwrap();
    other.first_start().unwrap();
    machine.put(KEYS_NAME, other.stored());
    for change in [None, Some(machine.master_key_file("new"))] {
        let changed = match &change {
            None => keys.rotate(&machine.runtime, &machine.store, NewKey::Data),
            Some(file) => keys.rotate(&machine.runtime, &machine.store, NewKey::MasterFile(file)),
        };
        let error = changed.unwrap_err();
        assert!(matches!(error, DataKeysError::ChangedMeanwhile), "{error}");
        assert_eq!(machine.stored(), other.stored());
    }
}

/// A store that carries a change out and loses its answer.
fn after_a_lost_answer(machine: &Machine, change: impl FnOnce(&DataKeys) -> Result<()>) -> DataKeys {
    let (keys, beside) = (machine.restart(), machine.restart());
    let local = fs::read(machine.path(KEYS_NAME)).unwrap();
    change(&beside).unwrap();
    fs::write(machine.path(KEYS_NAME), local).unwrap();
    keys
}

#[test]
fn a_rotation_whose_answer_was_lost_is_taken_up_when_it_is_repeated() {
    let mut machine = Machine::new();
    machine.first_start().unwrap();
    let keys = after_a_lost_answer(&machine, |keys| {
        keys.rotate(&machine.runtime, &machine.store, NewKey::Data)
    });
    keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    assert_eq!((ids(&keys).len(), machine.restart().info()), (3, keys.info()));
    let new = machine.master_key_file("new");
    let rotate = |keys: &DataKeys| keys.rotate(&machine.runtime, &machine.store, NewKey::MasterFile(&new));
    let keys = after_a_lost_answer(&machine, rotate);
    rotate(&keys).unwrap();
    machine.options.master_key = MasterKeySource::File(new);
    assert_eq!((ids(&keys).len(), machine.restart().info()), (3, keys.info()));
}

#[test]
fn keys_that_objects_need_are_not_replaced_by_new_ones() {
    let mut machine = Machine::new();
    let needed = ids(&machine.first_start().unwrap());
    fs::remove_file(machine.path(KEYS_NAME)).unwrap();
    machine.runtime.block_on(machine.store.delete(KEYS_NAME)).unwrap();
    for is_on in [true, false] {
        machine.options.is_on = is_on;
        for _ in 0..2 {
            let error = machine.start(&needed).err().unwrap().to_string();
            assert!(
                error.contains(&needed[0].to_string()) && error.contains("accept_foreign"),
                "{error}"
            );
            assert!(!machine.path(KEYS_NAME).exists());
        }
    }
    machine.accept_foreign = true;
    assert!(machine.start(&needed).is_ok());
}

#[test]
fn older_keys_in_both_places_are_noticed_when_objects_need_a_newer_one() {
    let machine = Machine::new();
    let keys = machine.first_start().unwrap();
    let older = machine.stored();
    keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    machine.put(KEYS_NAME, older.clone());
    fs::write(machine.path(KEYS_NAME), older).unwrap();
    let error = machine.start(&ids(&keys)).err().unwrap();
    assert!(
        matches!(error, DataKeysError::KeyLost { key, .. } if key == ids(&keys)[1]),
        "{error}"
    );
}

#[test]
fn keys_that_went_two_ways_are_told_from_those_of_two_stores() {
    let machine = Machine::new();
    machine.first_start().unwrap();
    let one_way = after_a_lost_answer(&machine, |keys| {
        keys.rotate(&machine.runtime, &machine.store, NewKey::Data)
    });
    let before = fs::read(machine.path(KEYS_NAME)).unwrap();
    let stored = machine.stored();
    machine.put(KEYS_NAME, before);
    one_way.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap();
    machine.put(KEYS_NAME, stored);
    assert!(
        machine.refusal().contains("each a data key that the other lacks"),
        "{}",
        machine.refusal()
    );
}

#[test]
fn of_two_first_starts_with_one_master_key_one_is_refused() {
    let (machine, mut other) = (Machine::new(), Machine::new());
    machine.first_start().unwrap();
    fs::copy(machine.path("master.key"), other.path("master.key")).unwrap();
    other.store = machine.store.clone();
    for is_on in [true, false] {
        other.options.is_on = is_on;
        let error = other.first_start().err().unwrap();
        assert!(matches!(error, DataKeysError::Occupied { .. }), "{error}");
    }
}

#[test]
fn damage_in_the_store_is_told_with_the_way_to_mend_it() {
    let machine = Machine::new();
    machine.first_start().unwrap();
    let whole = machine.stored();
    for damaged in [&whole[..whole.len() - 1], b"", &[0; 100]] {
        machine.put(KEYS_NAME, damaged.to_vec());
        assert!(machine.refusal().contains("remove the object"), "{}", machine.refusal());
    }
    machine.put(KEYS_NAME, vec![0; 64 << 20]);
    assert!(machine.refusal().contains("remove the object"));
    machine.runtime.block_on(machine.store.delete(KEYS_NAME)).unwrap();
    machine.restart();
    assert_eq!(machine.stored(), whole);
}

#[test]
fn a_file_that_was_named_is_never_made() {
    let mut machine = Machine::new();
    let named = machine.path("named.key");
    machine.options.master_key = MasterKeySource::File(named.clone());
    let error = machine.first_start().err().unwrap().to_string();
    assert!(error.contains("named.key does not exist") && !named.exists(), "{error}");
    symlink(machine.path("nowhere"), &named).unwrap();
    let error = machine.first_start().err().unwrap().to_string();
    assert!(error.contains("named.key does not exist"), "{error}");
    fs::remove_file(&named).unwrap();
    fs::create_dir(&named).unwrap();
    let error = machine.first_start().err().unwrap().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_program_that_writes_without_end_is_ended() {
    let mut machine = Machine::new();
    machine.options.master_key = MasterKeySource::Command(vec!["yes".into()]);
    let error = machine.first_start().err().unwrap().to_string();
    assert!(error.contains("writes more than a key"), "{error}");
    let leaks = ["sh", "-c", "echo secret >&2; exit 3"].map(str::to_owned);
    machine.options.master_key = MasterKeySource::Command(leaks.to_vec());
    let error = machine.first_start().err().unwrap().to_string();
    assert!(
        error.contains("failed: exit status: 3") && !error.contains("secret\n"),
        "{error}"
    );
}

#[test]
fn without_encryption_earlier_objects_can_still_be_read() {
    let mut machine = Machine::new();
    let first = ids(&machine.first_start().unwrap())[0];
    machine.options.is_on = false;
    let keys = machine.restart();
    assert!(keys.ring().current().is_none());
    assert!(keys.ring().get(first).is_some());
    let error = keys.rotate(&machine.runtime, &machine.store, NewKey::Data).unwrap_err();
    assert!(matches!(error, DataKeysError::Off), "{error}");
    machine.options.is_on = true;
    assert_eq!(ids(&machine.restart()), [first]);
}

#[test]
fn a_store_in_clear_gets_keys_when_encryption_is_turned_on() {
    let mut machine = Machine::new();
    machine.options.is_on = false;
    assert_eq!(machine.first_start().unwrap().info(), EncryptionInfo::default());
    assert!(!machine.path("master.key").exists());
    machine.put("objects/ab/cd", vec![1]);
    machine.options.is_on = true;
    assert_eq!(ids(&machine.restart()).len(), 1);
}
