// SPDX-License-Identifier: Apache-2.0
/*
 * A server that says how long each response is, so that the uplink sends the shortest first. A
 * client sends a number in a line, and gets so many bytes.
 *
 *   cc -o bytes_to_come examples/bytes_to_come.c
 *   sudo tidegate uplink eth0 --rate 10mbit &
 *   ./bytes_to_come 8080
 *
 * Without tidegate uplink or qdisc srpt, setsockopt() fails with ENOPROTOOPT, and all is as ever.
 * See docs/sockopt.md.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	SOL_TIDEGATE = 0x7467,
	TIDEGATE_BYTES_TO_COME = 2,
};

static void say_bytes_to_come(int client, uint64_t bytes)
{
	if (setsockopt(client, SOL_TIDEGATE, TIDEGATE_BYTES_TO_COME, &bytes, sizeof(bytes)))
		perror("nobody hears how many bytes will come");
	else
		printf("%llu bytes will come\n", (unsigned long long)bytes);
}

static int listen_at(int port)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any };
	int listener = socket(AF_INET6, SOCK_STREAM, 0), on = 1;

	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 128)) {
		perror("listen");
		exit(1);
	}
	return listener;
}

static void serve(int client)
{
	static char block[16384];
	char line[32] = "";
	uint64_t bytes;
	ssize_t got = read(client, line, sizeof(line) - 1), written;

	if (got <= 0)
		return;
	bytes = strtoull(line, NULL, 10);
	say_bytes_to_come(client, bytes);
	for (; bytes; bytes -= written) {
		written = write(client, block, bytes < sizeof(block) ? bytes : sizeof(block));
		if (written <= 0)
			return;
	}
}

int main(int argc, char **argv)
{
	int listener = listen_at(argc > 1 ? atoi(argv[1]) : 8080);

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int client = accept(listener, NULL, NULL);

		if (client < 0)
			continue;
		serve(client);
		close(client);
	}
}
