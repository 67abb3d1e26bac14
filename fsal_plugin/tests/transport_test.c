/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The messages, and a session against a daemon made of threads that loses connections,
 * answers in any order, and misbehaves.  Usage: transport_test [SEED]
 *
 * The daemon's answer to a request is a function of the request, so that every answer
 * can be checked; and it remembers what it saw under each number, so that a number that
 * means two things, or a repetition without its mark, is noticed.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "session/session.h"

#define OPCODE_ECHO 1u	/* answered at once */
#define OPCODE_HOLD 2u	/* answered when the daemon is told so */
#define ROOT 1000u

static uint64_t seed;

#define CHECK(condition)                                                                                            \
	do {                                                                                                         \
		if (!(condition)) {                                                                                  \
			fprintf(stderr, "%s:%d: %s (seed %llu)\n", __FILE__, __LINE__, #condition,                     \
				(unsigned long long)seed);                                                            \
			abort();                                                                                     \
		}                                                                                                    \
	} while (0)

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void sleep_ms(long ms)
{
	const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

/* ---- messages ---- */

static void test_attach_bytes(void)
{
	static const uint8_t expected[] = {
		/* header: length, opcode, and zeroes */
		84, 0, 0, 0, 1, 0, 0x42, 0x54, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0,
		/* version, flags, incarnation, lengths, minor version, reserved, INIT flags */
		1, 0, 0, 0, 9, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 2, 0, 0, 0, 39, 0, 0, 0, 0, 0, 0, 0,
		0x7a, 0x20, 0x50, 0x30, 0, 0, 0, 0,
		/* names */
		'm', 'e', 'i', 't',
	};
	uint8_t message[TOMBOLO_WIRE_ATTACH_BYTES_MAX];
	char long_name[300];

	CHECK(tombolo_wire_encode_attach(message, 9, 0x0102030405060708, "me", "it") == sizeof(expected));
	CHECK(memcmp(message, expected, sizeof(expected)) == 0);
	memset(long_name, 'x', sizeof(long_name));
	long_name[256] = '\0';
	CHECK(tombolo_wire_encode_attach(message, 0, 0, long_name, "it") == 0);
	CHECK(tombolo_wire_encode_attach(message, 0, 0, "me", long_name) == 0);
	CHECK(tombolo_wire_encode_attach(message, 0, 0, "", "it") == 0);
	long_name[255] = '\0';
	CHECK(tombolo_wire_encode_attach(message, 0, 0, long_name, long_name) == sizeof(message));
}

static void test_replies(void)
{
	CHECK(tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .unique = 2 }, 100));
	CHECK(tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 116, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 117, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 15, .unique = 2 }, 100));
	CHECK(tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .error = -5, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 17, .error = -5, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .error = 5, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .error = INT32_MIN, .unique = 2 }, 100));
	CHECK(!tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .error = 0 }, 100));
	CHECK(tombolo_wire_reply_valid(&(struct fuse_out_header){ .len = 16, .error = 2 }, 100));
}

/* Appends one entry with its padding. */
static size_t put_entry(uint8_t *to, const char *name, uint64_t cookie)
{
	struct fuse_direntplus entry;
	size_t bytes = FUSE_NAME_OFFSET_DIRENTPLUS + strlen(name);

	memset(&entry, 0, sizeof(entry));
	entry.entry_out.nodeid = cookie * 10;
	entry.dirent.off = cookie;
	entry.dirent.ino = cookie * 10;
	entry.dirent.namelen = (uint32_t)strlen(name);
	memset(to, 0, FUSE_DIRENT_ALIGN(bytes));
	memcpy(to, &entry, FUSE_NAME_OFFSET_DIRENTPLUS);
	memcpy(to + FUSE_NAME_OFFSET_DIRENTPLUS, name, strlen(name));
	return FUSE_DIRENT_ALIGN(bytes);
}

static void test_directory(void)
{
	static const char *const names[] = { ".", "eightchr", "a file", "x" };
	uint8_t answer[4096];
	struct tombolo_wire_directory_entry entry;
	size_t bytes = 0, position = 0;
	uint64_t random = seed;

	for (unsigned int i = 0; i < 4; i++)
		bytes += put_entry(answer + bytes, names[i], i + 3);
	for (unsigned int i = 0; i < 4; i++) {
		CHECK(tombolo_wire_next_entry(answer, bytes, &position, &entry) == 1);
		CHECK(entry.cookie == i + 3 && entry.inode == (i + 3) * 10 && entry.entry.nodeid == entry.inode);
		CHECK(entry.name_bytes == strlen(names[i]) && memcmp(entry.name, names[i], entry.name_bytes) == 0);
	}
	CHECK(tombolo_wire_next_entry(answer, bytes, &position, &entry) == 0);

	/* Cut off anywhere, or with any byte changed: never beyond the end (the sanitizer sees that). */
	for (int round = 0; round < 20000; round++) {
		size_t cut = next_random(&random) % (bytes + 1);
		uint8_t *copy = malloc(cut ? cut : 1);
		int taken;

		memcpy(copy, answer, cut);
		for (uint64_t changes = next_random(&random) % 3; cut && changes > 0; changes--)
			copy[next_random(&random) % cut] = (uint8_t)next_random(&random);
		position = 0;
		while ((taken = tombolo_wire_next_entry(copy, cut, &position, &entry)) == 1) {
			CHECK(position <= cut);
			CHECK(entry.name_bytes >= 1 && entry.name_bytes <= 255);
			CHECK((const uint8_t *)entry.name + entry.name_bytes <= copy + cut);
			CHECK(!memchr(entry.name, '/', entry.name_bytes));
		}
		free(copy);
	}
}

static void test_notifications(void)
{
	struct fuse_notify_inval_inode_out inode = { .ino = 7, .off = -1 };
	struct {
		struct fuse_notify_inval_entry_out out;
		char name[4];
	} entry = { .out = { .parent = 8, .namelen = 3 }, .name = "abc" };
	struct {
		struct fuse_notify_delete_out out;
		char name[4];
	} removed = { .out = { .parent = 8, .child = 9, .namelen = 3 }, .name = "abc" };
	struct tombolo_wire_notification got;
	const uint8_t *bytes = (const uint8_t *)&inode;

	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_INVAL_INODE, bytes, sizeof(inode), &got) == 1);
	CHECK(got.kind == TOMBOLO_WIRE_INODE_CHANGED && got.inode == 7 && !got.data_changed);
	inode.off = 0;
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_INVAL_INODE, bytes, sizeof(inode), &got) == 1);
	CHECK(got.data_changed);
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_INVAL_INODE, bytes, sizeof(inode) - 1, &got) == -1);
	bytes = (const uint8_t *)&entry;
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_INVAL_ENTRY, bytes, sizeof(entry.out) + 4, &got) == 1);
	CHECK(got.kind == TOMBOLO_WIRE_ENTRY_CHANGED && got.inode == 8);
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_INVAL_ENTRY, bytes, sizeof(entry.out) + 3, &got) == -1);
	bytes = (const uint8_t *)&removed;
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_DELETE, bytes, sizeof(removed.out) + 4, &got) == 1);
	CHECK(got.kind == TOMBOLO_WIRE_ENTRY_REMOVED && got.inode == 8 && got.child == 9);
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_DELETE, bytes, 5, &got) == -1);
	CHECK(tombolo_wire_decode_notification(FUSE_NOTIFY_POLL, bytes, 8, &got) == 0);
}

/* ---- a daemon ---- */

#define SEEN_MAX (1u << 20)
#define HELD_MAX 8192u

static struct daemon {
	char path[64];
	int listener;
	pthread_t acceptor;
	pthread_t servers[4096];
	unsigned int server_count;

	pthread_mutex_t lock;
	int sockets[64];	/* -1: free */
	uint64_t boot;
	int attach_error;
	uint64_t payloads[SEEN_MAX];	/* by number / 2; 0: not seen */
	unsigned int repeated;	/* seen again */
	struct held {
		int fd;
		uint64_t unique, payload;
	} held[HELD_MAX];
	unsigned int held_count;
	unsigned int drop_one_in;	/* connections, instead of answers; 0: never */
	unsigned int misbehave;	/* answers to spoil */
	uint64_t random;
} server = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t answer_to(uint64_t payload)
{
	return payload * 0x9e3779b97f4a7c15 + 1;
}

static void send_all(int fd, const void *data, size_t bytes)
{
	if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		shutdown(fd, SHUT_RDWR);
}

static void send_answer(int fd, uint64_t unique, uint64_t payload)
{
	struct {
		struct fuse_out_header header;
		uint64_t body;
	} answer = { .header = { .len = sizeof(answer), .unique = unique }, .body = answer_to(payload) };

	send_all(fd, &answer, sizeof(answer));
}

/* A wrong answer instead of the right one: too long, for nobody, or no message at all. */
static void send_nonsense(int fd, uint64_t unique, uint64_t kind)
{
	struct {
		struct fuse_out_header header;
		uint64_t body[4];
	} answer = { .header = { .len = sizeof(answer), .unique = unique } };

	if (kind % 3 == 0)
		answer.header.unique = unique + 2 * SEEN_MAX;
	else if (kind % 3 == 1)
		answer.header.len = 3;
	else
		answer.header.error = -100000;
	send_all(fd, &answer, sizeof(answer));
}

static void note_seen(uint64_t unique, uint64_t payload)
{
	uint64_t *seen = &server.payloads[(unique & ~TOMBOLO_WIRE_RESENT) / 2 % SEEN_MAX];

	if (*seen != 0) {
		CHECK(*seen == payload);
		CHECK(unique & TOMBOLO_WIRE_RESENT);
		server.repeated++;
	}
	*seen = payload;
}

static void handle(int fd, const struct fuse_in_header *header, uint64_t payload)
{
	bool drop, spoil;
	uint64_t random;

	pthread_mutex_lock(&server.lock);
	note_seen(header->unique, payload);
	random = next_random(&server.random);
	drop = server.drop_one_in && random % server.drop_one_in == 0;
	spoil = server.misbehave > 0;
	server.misbehave -= spoil;
	if (header->opcode == OPCODE_HOLD) {
		CHECK(server.held_count < HELD_MAX);
		server.held[server.held_count++] = (struct held){ fd, header->unique, payload };
	}
	pthread_mutex_unlock(&server.lock);
	if (header->opcode == OPCODE_HOLD)
		return;
	if (drop)
		shutdown(fd, SHUT_RDWR);
	else if (spoil)
		send_nonsense(fd, header->unique, random);
	else
		send_answer(fd, header->unique, payload);
}

static bool receive_all(int fd, void *to, size_t bytes)
{
	return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void answer_attach(int fd)
{
	struct {
		struct fuse_out_header header;
		struct tombolo_wire_attached attached;
	} answer = {
		.header = { .len = sizeof(answer) },
		.attached = { .version = 1, .session = 1, .root = ROOT, .write_bytes_max = 1 << 20 },
	};
	int error;

	pthread_mutex_lock(&server.lock);
	error = server.attach_error;
	answer.attached.boot = server.boot;
	pthread_mutex_unlock(&server.lock);
	if (error) {
		answer.header.len = sizeof(answer.header);
		answer.header.error = -error;
	}
	send_all(fd, &answer, answer.header.len);
}

static void *serve(void *argument)
{
	int *slot = argument;
	int fd = *slot;
	struct fuse_in_header header;
	uint8_t body[1024];

	while (receive_all(fd, &header, sizeof(header)) && header.len <= sizeof(header) + sizeof(body) &&
	       receive_all(fd, body, header.len - sizeof(header))) {
		uint64_t payload;

		if (header.opcode == TOMBOLO_WIRE_OPCODE_ATTACH) {
			answer_attach(fd);
			continue;
		}
		CHECK(header.len == sizeof(header) + sizeof(payload));
		memcpy(&payload, body, sizeof(payload));
		handle(fd, &header, payload);
	}
	pthread_mutex_lock(&server.lock);
	*slot = -1;
	for (unsigned int i = 0; i < server.held_count; i++) {
		if (server.held[i].fd == fd)
			server.held[i].fd = -1;
	}
	close(fd);
	pthread_mutex_unlock(&server.lock);
	return NULL;
}

static void *accept_all(void *argument)
{
	int fd;

	(void)argument;
	while ((fd = accept(server.listener, NULL, NULL)) != -1) {
		unsigned int slot = 0;

		pthread_mutex_lock(&server.lock);
		while (server.sockets[slot] != -1)
			slot++;
		CHECK(slot < 64);
		server.sockets[slot] = fd;
		CHECK(server.server_count < 4096);
		CHECK(pthread_create(&server.servers[server.server_count++], NULL, serve, &server.sockets[slot]) == 0);
		pthread_mutex_unlock(&server.lock);
	}
	return NULL;
}

static void start_daemon(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	strcpy(address.sun_path, server.path);
	unlink(server.path);
	server.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(server.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(listen(server.listener, 64) == 0);
	pthread_mutex_lock(&server.lock);
	server.boot++;
	memset(server.sockets, -1, sizeof(server.sockets));
	server.held_count = 0;
	pthread_mutex_unlock(&server.lock);
	CHECK(pthread_create(&server.acceptor, NULL, accept_all, NULL) == 0);
}

static void stop_daemon(void)
{
	shutdown(server.listener, SHUT_RDWR);
	pthread_join(server.acceptor, NULL);
	close(server.listener);
	unlink(server.path);
	pthread_mutex_lock(&server.lock);
	for (unsigned int i = 0; i < 64; i++) {
		if (server.sockets[i] != -1)
			shutdown(server.sockets[i], SHUT_RDWR);
	}
	pthread_mutex_unlock(&server.lock);
	for (unsigned int i = 0; i < server.server_count; i++)
		pthread_join(server.servers[i], NULL);
	server.server_count = 0;
}

static unsigned int held_count(void)
{
	unsigned int count;

	pthread_mutex_lock(&server.lock);
	count = server.held_count;
	pthread_mutex_unlock(&server.lock);
	return count;
}

/* In an order that has nothing to do with that of the requests. */
static void answer_held(void)
{
	pthread_mutex_lock(&server.lock);
	while (server.held_count > 0) {
		unsigned int chosen = (unsigned int)(next_random(&server.random) % server.held_count);
		struct held held = server.held[chosen];

		server.held[chosen] = server.held[--server.held_count];
		if (held.fd != -1)
			send_answer(held.fd, held.unique, held.payload);
	}
	pthread_mutex_unlock(&server.lock);
}

static void set(unsigned int *field, unsigned int value)
{
	pthread_mutex_lock(&server.lock);
	*field = value;
	pthread_mutex_unlock(&server.lock);
}

/* ---- a client ---- */

static struct {
	pthread_mutex_t lock;
	unsigned int notified, resumed, rebooted;
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void on_notified(void *context, const struct tombolo_wire_notification *notification)
{
	(void)context;
	CHECK(notification->kind == TOMBOLO_WIRE_INODE_CHANGED && notification->inode == 77);
	pthread_mutex_lock(&heard.lock);
	heard.notified++;
	pthread_mutex_unlock(&heard.lock);
}

static void on_resumed(void *context, bool rebooted)
{
	(void)context;
	pthread_mutex_lock(&heard.lock);
	heard.resumed++;
	heard.rebooted += rebooted;
	pthread_mutex_unlock(&heard.lock);
}

static unsigned int heard_now(const unsigned int *field)
{
	unsigned int value;

	pthread_mutex_lock(&heard.lock);
	value = *field;
	pthread_mutex_unlock(&heard.lock);
	return value;
}

static void on_log(void *context, const char *text)
{
	(void)context;
	if (getenv("VERBOSE"))
		fprintf(stderr, "%s\n", text);
}

static const struct tombolo_fsal_session_events events = {
	.notified = on_notified, .resumed = on_resumed, .log = on_log,
};

static int open_session(struct tombolo_fsal_session **session, unsigned int connections)
{
	return tombolo_fsal_session_open(session, server.path, "share", "client", 1, connections, 1000, &events);
}

static struct tombolo_fsal_session *opened(unsigned int connections)
{
	struct tombolo_fsal_session *session = NULL;

	memset(server.payloads, 0, sizeof(server.payloads));
	CHECK(open_session(&session, connections) == 0);
	return session;
}

struct call {
	struct tombolo_fsal_request request;
	struct iovec reply;
	uint64_t payload, answer;
	int done;	/* times; atomic */
};

static void prepare(struct call *call, uint32_t opcode, uint64_t payload)
{
	memset(call, 0, sizeof(*call));
	call->payload = payload;
	call->request.header.opcode = opcode;
	call->request.header.nodeid = 1;
	tombolo_fsal_request_add(&call->request, &call->payload, sizeof(call->payload));
	call->reply = (struct iovec){ &call->answer, sizeof(call->answer) };
	call->request.reply = &call->reply;
	call->request.reply_count = 1;
}

static void check_answer(const struct call *call)
{
	CHECK(call->request.error == 0);
	CHECK(call->request.reply_bytes == sizeof(call->answer));
	CHECK(call->answer == answer_to(call->payload));
}

static int call_once(struct tombolo_fsal_session *session, uint64_t payload)
{
	struct call call;

	prepare(&call, OPCODE_ECHO, payload);
	if (tombolo_fsal_session_call(session, &call.request) == 0)
		check_answer(&call);
	return call.request.error;
}

static void on_done(struct tombolo_fsal_request *request)
{
	struct call *call = (struct call *)((char *)request - offsetof(struct call, request));

	__atomic_add_fetch(&call->done, 1, __ATOMIC_RELEASE);
}

static bool is_done(struct call *call)
{
	return __atomic_load_n(&call->done, __ATOMIC_ACQUIRE) == 1;
}

static void submit(struct tombolo_fsal_session *session, struct call *call, uint32_t opcode, uint64_t payload)
{
	prepare(call, opcode, payload);
	call->request.done = on_done;
	if (tombolo_fsal_session_call_briefly(session, &call->request, 0))
		on_done(&call->request);
}

static void wait_for(struct call *calls, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		for (int waited = 0; !is_done(&calls[i]); waited++) {
			CHECK(waited < 30000);
			sleep_ms(1);
		}
	}
}

struct caller {
	struct tombolo_fsal_session *session;
	unsigned int index, count;
};

static void *call_many(void *argument)
{
	const struct caller *caller = argument;

	for (unsigned int i = 0; i < caller->count; i++)
		CHECK(call_once(caller->session, 1 + caller->index + 64ull * i) == 0);
	return NULL;
}

static void run_callers(struct tombolo_fsal_session *session, unsigned int threads, unsigned int count)
{
	struct caller callers[64];
	pthread_t ids[64];

	for (unsigned int i = 0; i < threads; i++) {
		callers[i] = (struct caller){ session, i, count };
		CHECK(pthread_create(&ids[i], NULL, call_many, &callers[i]) == 0);
	}
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
}

/* ---- sessions ---- */

static void test_many_callers(void)
{
	struct tombolo_fsal_session *session = opened(4);

	run_callers(session, 16, 500);
	CHECK(server.repeated == 0);
	tombolo_fsal_session_close(session);
}

/* More requests than slots, all under way at once, answered in any order. */
struct brief {
	struct tombolo_fsal_session *session;
	bool stop;	/* atomic */
	unsigned int late;	/* atomic */
};

/* Calls that are soon given up, so that the lead goes back and forth. */
static void *call_briefly(void *argument)
{
	static struct call calls[4][400];
	static unsigned int next;
	struct brief *brief = argument;
	struct call *own = calls[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % 4];

	for (unsigned int i = 0; i < 400; i++) {
		prepare(&own[i], i % 2 ? OPCODE_HOLD : OPCODE_ECHO, 1000000 + i);
		own[i].request.done = on_done;
		if (tombolo_fsal_session_call_briefly(brief->session, &own[i].request, i % 3))
			on_done(&own[i].request);
		else
			__atomic_add_fetch(&brief->late, 1, __ATOMIC_RELAXED);
	}
	wait_for(own, 400);
	for (unsigned int i = 0; i < 400; i++)
		check_answer(&own[i]);
	return NULL;
}

static void *answer_sometimes(void *argument)
{
	struct brief *brief = argument;

	while (!__atomic_load_n(&brief->stop, __ATOMIC_ACQUIRE)) {
		sleep_ms(1);
		answer_held();
	}
	return NULL;
}

static void test_brief_calls(unsigned int connections)
{
	struct brief brief = { .session = opened(connections) };
	pthread_t callers[4], answerer;

	CHECK(pthread_create(&answerer, NULL, answer_sometimes, &brief) == 0);
	for (unsigned int i = 0; i < 4; i++)
		CHECK(pthread_create(&callers[i], NULL, call_briefly, &brief) == 0);
	run_callers(brief.session, 8, 2000);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(callers[i], NULL);
	__atomic_store_n(&brief.stop, true, __ATOMIC_RELEASE);
	pthread_join(answerer, NULL);
	CHECK(brief.late > 0);
	tombolo_fsal_session_close(brief.session);
}

static void test_slots(void)
{
	struct tombolo_fsal_session *session = opened(3);
	static struct call calls[TOMBOLO_WIRE_SLOTS];
	struct caller extra = { session, 5, 1 };
	pthread_t thread;

	for (unsigned int i = 0; i < TOMBOLO_WIRE_SLOTS; i++)
		submit(session, &calls[i], OPCODE_HOLD, i + 1);
	for (int waited = 0; held_count() < TOMBOLO_WIRE_SLOTS; waited++) {
		CHECK(waited < 30000);
		sleep_ms(1);
	}
	/* One more waits for a slot rather than take one that is in use. */
	CHECK(pthread_create(&thread, NULL, call_many, &extra) == 0);
	sleep_ms(50);
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
	answer_held();
	wait_for(calls, TOMBOLO_WIRE_SLOTS);
	for (unsigned int i = 0; i < TOMBOLO_WIRE_SLOTS; i++)
		check_answer(&calls[i]);
	pthread_join(thread, NULL);
	tombolo_fsal_session_close(session);
}

/* Connections break all the time; no request fails or gets a wrong answer. */
static void test_lost_connections(void)
{
	struct tombolo_fsal_session *session = opened(3);

	set(&server.drop_one_in, 200);
	run_callers(session, 8, 250);
	set(&server.drop_one_in, 0);
	CHECK(server.repeated > 0);
	tombolo_fsal_session_close(session);
}

static void test_nonsense(void)
{
	struct tombolo_fsal_session *session = opened(2);

	for (uint64_t i = 0; i < 6; i++) {
		set(&server.misbehave, 1);
		CHECK(call_once(session, 100 + i) == 0);
	}
	tombolo_fsal_session_close(session);
}

/* An answer that has no room fails that request only: asked again it would be the same. */
static void test_too_long(void)
{
	struct tombolo_fsal_session *session = opened(1);
	struct call call;

	prepare(&call, OPCODE_ECHO, 5);
	call.reply.iov_len = 4;
	CHECK(tombolo_fsal_session_call(session, &call.request) == EIO);
	CHECK(call_once(session, 6) == 0);
	tombolo_fsal_session_close(session);
}

static void test_restart(void)
{
	struct tombolo_fsal_session *session = opened(4);
	unsigned int resumed = heard_now(&heard.resumed), rebooted = heard_now(&heard.rebooted);
	uint64_t boot = tombolo_fsal_session_attached(session).boot;
	static struct call calls[200];

	for (unsigned int i = 0; i < 100; i++)
		submit(session, &calls[i], OPCODE_HOLD, i + 1);
	stop_daemon();
	for (unsigned int i = 100; i < 200; i++)
		submit(session, &calls[i], OPCODE_HOLD, i + 1);
	for (unsigned int i = 0; i < 200; i++)
		CHECK(!is_done(&calls[i]));
	start_daemon();
	for (int waited = 0; held_count() < 200; waited++) {
		CHECK(waited < 30000);
		sleep_ms(1);
	}
	answer_held();
	wait_for(calls, 200);
	for (unsigned int i = 0; i < 200; i++)
		check_answer(&calls[i]);
	CHECK(tombolo_fsal_session_attached(session).boot == boot + 1);
	CHECK(heard_now(&heard.rebooted) == rebooted + 1);
	CHECK(heard_now(&heard.resumed) > resumed);
	tombolo_fsal_session_close(session);
}

static void test_drain(void)
{
	struct tombolo_fsal_session *session = opened(2);
	static struct call calls[50];

	stop_daemon();
	for (unsigned int i = 0; i < 50; i++)
		submit(session, &calls[i], OPCODE_ECHO, i + 1);
	tombolo_fsal_session_drain(session);
	wait_for(calls, 50);
	for (unsigned int i = 0; i < 50; i++)
		CHECK(calls[i].request.error == ESHUTDOWN);
	CHECK(call_once(session, 1) == ESHUTDOWN);
	tombolo_fsal_session_close(session);
	start_daemon();

	/* While the daemon is there, draining changes nothing, wherever the other connection is on its way up. */
	for (uint64_t i = 1; i <= 300; i++) {
		session = opened(2);
		tombolo_fsal_session_drain(session);
		CHECK(call_once(session, i) == 0);
		tombolo_fsal_session_close(session);
	}
}

static void set_attach_error(int error)
{
	pthread_mutex_lock(&server.lock);
	server.attach_error = error;
	pthread_mutex_unlock(&server.lock);
}

static void test_share_gone(void)
{
	struct tombolo_fsal_session *session = opened(2);
	int error = ESTALE;

	stop_daemon();
	set_attach_error(ENOENT);
	start_daemon();
	CHECK(call_once(session, 1) == ESTALE);
	set_attach_error(0);
	for (int waited = 0; error == ESTALE && waited < 500; waited++) {
		sleep_ms(20);
		error = call_once(session, 2);
	}
	CHECK(error == 0);
	tombolo_fsal_session_close(session);
}

static void test_opening(void)
{
	struct tombolo_fsal_session *session = NULL;

	set_attach_error(ENOENT);
	CHECK(open_session(&session, 2) == ENOENT);
	set_attach_error(EBUSY);
	CHECK(open_session(&session, 2) == EBUSY);
	set_attach_error(0);
	CHECK(open_session(&session, 0) == EINVAL);
	CHECK(open_session(&session, TOMBOLO_FSAL_CONNECTIONS_MAX + 1) == EINVAL);
	stop_daemon();
	CHECK(open_session(&session, 2) == ETIMEDOUT);
	CHECK(session == NULL);
	start_daemon();
}

static void test_hearing(void)
{
	struct tombolo_fsal_session *session = opened(1);
	struct {
		struct fuse_out_header header;
		struct fuse_notify_inval_inode_out out;
	} message = {
		.header = { .len = sizeof(message), .error = FUSE_NOTIFY_INVAL_INODE },
		.out = { .ino = 77 },
	};
	unsigned int before = heard_now(&heard.notified);

	CHECK(call_once(session, 1) == 0);
	pthread_mutex_lock(&server.lock);
	for (unsigned int i = 0; i < 64; i++) {
		if (server.sockets[i] != -1)
			send_all(server.sockets[i], &message, sizeof(message));
	}
	pthread_mutex_unlock(&server.lock);
	for (int waited = 0; heard_now(&heard.notified) == before; waited++) {
		CHECK(waited < 10000);
		sleep_ms(1);
	}
	tombolo_fsal_session_close(session);
}

int main(int argc, char **argv)
{
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
	printf("seed %llu\n", (unsigned long long)seed);
	server.random = seed;
	snprintf(server.path, sizeof(server.path), "/tmp/tombolo-transport-%d.sock", getpid());

	test_attach_bytes();
	test_replies();
	test_directory();
	test_notifications();
	start_daemon();
	test_many_callers();
	test_brief_calls(2);
	test_brief_calls(4);
	test_brief_calls(1);
	test_slots();
	test_lost_connections();
	test_nonsense();
	test_too_long();
	test_restart();
	test_drain();
	test_share_gone();
	test_opening();
	test_hearing();
	stop_daemon();
	puts("ok");
	return 0;
}
