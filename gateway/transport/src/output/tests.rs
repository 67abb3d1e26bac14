use super::*;
use crate::budget::Budget;
use crate::in_flight::{Admission, Limits};
use std::ops::Deref;

/// As a client sees it: a number, and as many bytes of it as are wanted.
struct Letter {
    head: [u8; 8],
    body: Vec<u8>,
}

impl Letter {
    fn new(number: u32, body_bytes: usize) -> Self {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&number.to_ne_bytes());
        head[4..].copy_from_slice(&(body_bytes as u32).to_ne_bytes());
        let body = vec![number as u8; body_bytes];
        Self { head, body }
    }
}

impl Message for Letter {
    fn head(&self) -> &[u8] {
        &self.head
    }

    fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Takes as many bytes as the test gives it room for.
#[derive(Default)]
struct Client {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    room_bytes: usize,
    taken: Vec<u8>,
    is_closed: bool,
    /// Sending must not wait longer.
    is_overdue: bool,
    /// Names of the threads that waited.
    waited: Vec<String>,
    sends: usize,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let state = self.lock();
        drop(self.changed.wait_while(state, |state| !condition(state)).unwrap());
    }

    /// The numbers of the letters that came.
    fn numbers(&self) -> Vec<u32> {
        let state = self.lock();
        let mut rest = &state.taken[..];
        let mut numbers = Vec::new();
        while !rest.is_empty() {
            let field = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
            let (number, body_bytes) = (field(0), field(4) as usize);
            assert!(rest[8..8 + body_bytes].iter().all(|byte| *byte == number as u8));
            numbers.push(number);
            rest = &rest[8 + body_bytes..];
        }
        numbers
    }
}

impl Sink for Client {
    fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        let mut state = self.lock();
        state.sends += 1;
        if state.room_bytes == 0 && wait {
            let name = thread::current().name().unwrap_or_default().to_owned();
            state.waited.push(name);
            self.changed.notify_all();
            let is_stuck = |state: &mut State| state.room_bytes == 0 && !state.is_closed && !state.is_overdue;
            state = self.changed.wait_while(state, is_stuck).unwrap();
        }
        if state.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.room_bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room_bytes = state.room_bytes;
        let bytes = slices.iter().flat_map(|slice| slice.deref().iter().copied());
        let before = state.taken.len();
        state.taken.extend(bytes.take(room_bytes));
        let sent = state.taken.len() - before;
        state.room_bytes -= sent;
        self.changed.notify_all();
        Ok(sent)
    }

    fn close(&self) {
        self.set(|state| state.is_closed = true);
    }
}

const MUCH: usize = 1 << 30;
const LIMITS: Limits = Limits {
    requests_max: 100_000,
    bytes_max: 1 << 30,
    lock_waiters_max: 0,
};

struct Stage {
    client: Arc<Client>,
    budget: Arc<Budget>,
    output: Arc<Output<Letter, Client>>,
}

impl Stage {
    fn new(room_bytes: usize, reader: WhenFull) -> Self {
        let client = Arc::new(Client::default());
        client.set(|state| state.room_bytes = room_bytes);
        let budget = Budget::new(1 << 30);
        let in_flight = Arc::new(InFlight::new(LIMITS, Arc::clone(&budget)));
        Self {
            output: Output::new("test", Arc::clone(&client), in_flight, reader),
            client,
            budget,
        }
    }

    /// Asked, and answered with one letter.
    fn reply(&self, number: u32, body_bytes: usize) {
        let held = Held::bytes(body_bytes);
        assert_eq!(self.output.in_flight().admit(held, || ()), Admission::Admitted);
        self.output.reply(Letter::new(number, body_bytes), held);
    }

    /// Everything is answered and nothing is held.
    fn assert_at_rest(&self) {
        self.output.in_flight().wait_until_gone();
        assert_eq!(self.budget.held_bytes(), 0);
    }
}

#[test]
fn the_reading_thread_gathers_and_others_write_at_once() {
    let stage = Stage::new(MUCH, WhenFull::HandOver);
    stage.output.start_gathering();
    (0..3).for_each(|number| stage.reply(number, 10));
    assert_eq!(stage.client.lock().sends, 0);
    stage.output.flush();
    assert_eq!((stage.client.numbers(), stage.client.lock().sends), (vec![0, 1, 2], 1));
    thread::scope(|scope| {
        scope.spawn(|| stage.reply(3, 10)).join().unwrap();
    });
    assert_eq!(stage.client.lock().sends, 2);
    // As many as are sent at once.
    (0..GATHERED_MESSAGES_MAX as u32).for_each(|number| stage.reply(4 + number, 10));
    assert_eq!(stage.client.lock().sends, 3);
    stage.reply(100, GATHERED_BYTES_MAX);
    assert_eq!(stage.client.lock().sends, 4);
    stage.reply(101, 10);
    stage.output.stop_gathering();
    stage.reply(102, 10);
    assert_eq!(stage.client.lock().sends, 6);
    assert_eq!(stage.client.numbers()[68..], [100, 101, 102]);
    stage.assert_at_rest();
}

#[test]
fn what_a_full_socket_does_not_take_is_left_to_the_writer_thread() {
    let stage = Stage::new(13, WhenFull::HandOver);
    stage.output.start_gathering();
    (0..3).for_each(|number| stage.reply(number, 10));
    // None of these would return, were it made to wait.
    stage.output.flush();
    thread::scope(|scope| {
        scope.spawn(|| (3..6).for_each(|number| stage.reply(number, 10)));
    });
    stage.client.wait_until(|state| !state.waited.is_empty());
    stage.client.set(|state| state.room_bytes = MUCH);
    stage.assert_at_rest();
    assert_eq!(stage.client.numbers(), [0, 1, 2, 3, 4, 5]);
    assert!(stage.client.lock().waited.iter().all(|name| name == "test-writer"));
    stage.output.close();
    stage.output.join_writer();
}

#[test]
fn a_reading_thread_that_may_wait_does_so_itself() {
    let stage = Stage::new(13, WhenFull::Wait);
    thread::scope(|scope| {
        let reading = || {
            stage.output.start_gathering();
            (0..3).for_each(|number| stage.reply(number, 10));
            stage.output.flush();
        };
        thread::Builder::new()
            .name("reader".into())
            .spawn_scoped(scope, reading)
            .unwrap();
        stage.client.wait_until(|state| !state.waited.is_empty());
        // Sent by who is about it already.
        stage.reply(3, 10);
        stage.client.set(|state| state.room_bytes = MUCH);
    });
    stage.assert_at_rest();
    assert_eq!(stage.client.numbers(), [0, 1, 2, 3]);
    assert_eq!(stage.client.lock().waited, ["reader"]);
    assert!(stage.output.lock().writer.is_none());
}

#[test]
fn threads_that_answer_at_once_do_not_mix_their_messages() {
    let stage = Stage::new(MUCH, WhenFull::HandOver);
    let (threads, each) = (4, 500);
    thread::scope(|scope| {
        for thread in 0..threads {
            let stage = &stage;
            scope.spawn(move || (0..each).for_each(|index| stage.reply(thread * each + index, index as usize)));
        }
    });
    stage.assert_at_rest();
    let mut numbers = stage.client.numbers();
    for thread in 0..threads {
        let own = numbers.iter().filter(|number| **number / each == thread);
        assert!(own.is_sorted(), "replies of one thread come in order");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..threads * each).collect::<Vec<_>>());
}

#[test]
fn a_client_that_takes_nothing_for_too_long_loses_what_it_holds() {
    for reader in [WhenFull::Wait, WhenFull::HandOver] {
        let stage = Stage::new(13, reader);
        stage.client.set(|state| state.is_overdue = true);
        stage.output.start_gathering();
        (0..3).for_each(|number| stage.reply(number, 1 << 16));
        stage.output.flush();
        stage.assert_at_rest();
        stage.client.wait_until(|state| state.is_closed);
        stage.output.close();
        stage.output.join_writer();
        // What is answered now leads nowhere.
        let held = Held::bytes(1);
        assert_eq!(stage.output.in_flight().admit(held, || ()), Admission::Ended);
    }
}

#[test]
fn answers_after_the_connection_was_closed_are_dropped() {
    let stage = Stage::new(MUCH, WhenFull::HandOver);
    let held = Held::bytes(1 << 20);
    assert_eq!(stage.output.in_flight().admit(held, || ()), Admission::Admitted);
    stage.output.close();
    stage.output.reply(Letter::new(1, 1 << 20), held);
    stage.assert_at_rest();
    assert_eq!(stage.client.lock().sends, 0);
}

#[test]
fn a_connection_that_is_to_end_does_so_with_its_last_answer() {
    let stage = Stage::new(MUCH, WhenFull::HandOver);
    let held = Held::bytes(10);
    let admit = || stage.output.in_flight().admit(held, || ());
    assert_eq!([admit(), admit()], [Admission::Admitted; 2]);
    stage.output.close_when_idle();
    assert_eq!(admit(), Admission::Ended);
    stage.output.reply(Letter::new(1, 10), held);
    assert!(!stage.client.lock().is_closed);
    stage.output.reply(Letter::new(2, 10), held);
    assert!(stage.client.lock().is_closed);
    assert_eq!(stage.client.numbers(), [1, 2]);
    let idle = Stage::new(MUCH, WhenFull::HandOver);
    idle.output.close_when_idle();
    assert!(idle.client.lock().is_closed);
}

#[test]
fn messages_that_nobody_asked_for_have_a_limit() {
    let stage = Stage::new(4, WhenFull::HandOver);
    let notify = |number| stage.output.notify(Letter::new(number, 0), 3);
    assert_eq!([0, 1, 2, 3].map(notify), [true, true, true, false]);
    stage.client.wait_until(|state| !state.waited.is_empty());
    stage.client.set(|state| state.room_bytes = MUCH);
    stage.client.wait_until(|state| state.taken.len() == 3 * 8);
    while stage.output.lock().unasked > 0 {
        thread::yield_now();
    }
    assert!(notify(4));
    stage.output.close();
    stage.output.join_writer();
    assert!((5..10).all(notify), "to a closed connection there is no limit");
    assert_eq!(stage.client.numbers(), [0, 1, 2, 4]);
}

/// The second time that it is full, it closes the connection first, and the writer thread is gone.
struct ClosedMeanwhile {
    output: Mutex<Option<Arc<Output<Letter, Self>>>>,
    refused: Mutex<usize>,
}

impl Sink for ClosedMeanwhile {
    fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        if wait {
            return Ok(slices.iter().map(|slice| slice.len()).sum());
        }
        let mut refused = self.refused.lock().unwrap();
        *refused += 1;
        if *refused == 2 {
            let output = self.output.lock().unwrap().take().unwrap();
            output.close();
            output.join_writer();
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn close(&self) {}
}

#[test]
fn what_finds_the_connection_closed_when_it_is_handed_over_is_given_back() {
    let sink = Arc::new(ClosedMeanwhile {
        output: Mutex::default(),
        refused: Mutex::new(0),
    });
    let budget = Budget::new(1 << 30);
    let in_flight = Arc::new(InFlight::new(LIMITS, Arc::clone(&budget)));
    let output = Output::new("test", Arc::clone(&sink), Arc::clone(&in_flight), WhenFull::HandOver);
    *sink.output.lock().unwrap() = Some(Arc::clone(&output));
    let held = Held::bytes(1 << 20);
    for number in 0..2 {
        assert_eq!(in_flight.admit(held, || ()), Admission::Admitted);
        output.reply(Letter::new(number, 1 << 20), held);
        while number == 0 && output.lock().writing {
            thread::yield_now();
        }
    }
    assert!(output.lock().handover.is_none() && !output.lock().writing);
    assert_eq!((budget.held_bytes(), in_flight.end()), (0, true));
}
