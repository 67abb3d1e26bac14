/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The text after "-b" of tgtadm:
 *
 *   /run/tombolo/nbd.sock:NAME                        socket and export
 *   /run/tombolo/nbd.sock                             export from --bsopts export=NAME
 *   nbd+unix:///NAME?socket=/run/tombolo/nbd.sock     NBD URI
 *   nbd://127.0.0.1:10809/NAME                        NBD URI, loopback only
 *
 * NBD here is neither encrypted nor authenticated, so nothing that leaves the
 * machine is accepted.
 */

#include <string.h>

#include "tgt_plugin.h"

static bool is_loopback_authority(const char *authority)
{
	static const char *const hosts[] = { "127.0.0.1", "[::1]", "localhost" };

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		size_t length = strlen(hosts[i]);

		if (strncmp(authority, hosts[i], length) == 0 && strchr(":/", authority[length]))
			return true;
	}
	return false;
}

static int parse_uri(struct tombolo_tgt_address *address, const char *text, const char **reason)
{
	static const char unix_scheme[] = "nbd+unix://";
	static const char tcp_scheme[] = "nbd://";
	bool local = strncmp(text, unix_scheme, strlen(unix_scheme)) == 0;

	if (!local && strncmp(text, tcp_scheme, strlen(tcp_scheme)) == 0)
		local = is_loopback_authority(text + strlen(tcp_scheme));
	if (!local) {
		*reason = "the URI must be nbd+unix:// or nbd:// on 127.0.0.1, [::1] or localhost";
		return -1;
	}
	address->uri = strdup(text);
	if (!address->uri) {
		*reason = "out of memory";
		return -1;
	}
	return 0;
}

static int parse_socket(struct tombolo_tgt_address *address, const char *text, const char **reason)
{
	const char *colon = strchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : strlen(text);

	if (text[0] != '/') {
		*reason = "expected /path/of/socket:EXPORT or an NBD URI";
		return -1;
	}
	address->socket_path = strndup(text, length);
	address->export_name = strdup(colon ? colon + 1 : "");
	if (!address->socket_path || !address->export_name) {
		*reason = "out of memory";
		return -1;
	}
	return 0;
}

int tombolo_tgt_address_parse(struct tombolo_tgt_address *address, const char *text, const char **reason)
{
	int result = strstr(text, "://") ? parse_uri(address, text, reason) : parse_socket(address, text, reason);

	if (result == -1)
		tombolo_tgt_address_free(address);
	return result;
}

void tombolo_tgt_address_free(struct tombolo_tgt_address *address)
{
	free(address->uri);
	free(address->socket_path);
	free(address->export_name);
	*address = (struct tombolo_tgt_address){ NULL, NULL, NULL };
}
