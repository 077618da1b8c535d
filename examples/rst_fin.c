// SPDX-License-Identifier: Apache-2.0
/*
 * A server that asks for rst-fin: connections whose client has gone are destroyed at once, instead
 * of being served to nobody.
 *
 *   cc -o rst_fin examples/rst_fin.c printf 'sockopt = true\n[[listener]]\nlisten =
 *   "0.0.0.0:8080"\npolicy = "default"\n' >guard.toml sudo tidegate guard --config guard.toml &
 *   ./rst_fin 8080
 *
 * The guard comes first, so by a file: --listen wants a listener that is there. The option is on
 * the listener, and its connections inherit it. Where no guard allows it, setsockopt() fails with
 * ENOPROTOOPT, and all is as ever. Ask for it only if your clients never half-close. See
 * docs/sockopt.md.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	SOL_TIDEGATE = 0x7467,
	TIDEGATE_RST_FIN = 1,		/* 0: keep, 1: reset if nothing is under way, 2: reset always */
};

static void ask_for_rst_fin(int listener)
{
	int value = 1;

	if (setsockopt(listener, SOL_TIDEGATE, TIDEGATE_RST_FIN, &value, sizeof(value)))
		perror("rst-fin is not to be had");
	else
		puts("rst-fin is granted");
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

int main(int argc, char **argv)
{
	int port = argc > 1 ? atoi(argv[1]) : 8080;
	int listener = listen_at(port);

	setvbuf(stdout, NULL, _IOLBF, 0);
	ask_for_rst_fin(listener);
	for (;;) {
		int client = accept(listener, NULL, NULL);
		char buffer[512];
		ssize_t got;

		if (client < 0)
			continue;
		while ((got = read(client, buffer, sizeof(buffer))) > 0)
			if (write(client, buffer, got) != got)
				break;
		puts(got < 0 ? "the client's FIN has reset the connection" : "the client has closed its half");
		close(client);
	}
}
