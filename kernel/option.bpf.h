/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The socket options by which a program tells Tidegate something: setsockopt(fd, SOL_TIDEGATE,
 * NAME, ...). The hook sees every option of every socket of the host. An option with another name
 * goes on to the kernel, or to another program of Tidegate.
 */
#ifndef TIDEGATE_OPTION_BPF_H
#define TIDEGATE_OPTION_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "headers.h"

/*
 * The same numbers stand in examples/ and docs/sockopt.md. The kernel's own levels are below 300
 * (include/linux/socket.h).
 */
enum {
	SOL_TIDEGATE = 0x7467,		/* "tg" */
	TIDEGATE_RST_FIN = 1,		/* int, enum on_fin: sockopt.bpf.h */
	TIDEGATE_BYTES_TO_COME = 2,	/* __u64: left.bpf.h */
	TIDEGATE_CLOSE = 3,		/* int, 0 or 1: close.bpf.c */
	SOCK_STREAM = 1,		/* include/linux/net.h */
	MAX_OPTION_BYTES = 4096,	/* a program sees no more of an option, include/linux/bpf-cgroup.h */
};

static __always_inline int refuse_option(int error)
{
	bpf_set_retval(-error);
	return 0;
}

/*
 * True for the option `name` of a TCP socket in the network namespace with this cookie
 * (SO_NETNS_COOKIE).
 */
static __always_inline bool is_option(struct bpf_sockopt *option, int name, __u64 cookie)
{
	return option->level == SOL_TIDEGATE && option->optname == name && option->sk &&
	       option->sk->type == SOCK_STREAM && option->sk->protocol == PROTOCOL_TCP &&
	       bpf_get_netns_cookie(option) == cookie;
}

/*
 * Leaves an option to the kernel as it came. For an option of more than a page, optlen 0 tells the
 * kernel that nothing was changed. Otherwise the kernel refuses it.
 */
static __always_inline int leave_option(struct bpf_sockopt *option)
{
	if (option->optlen > MAX_OPTION_BYTES)
		option->optlen = 0;
	return 1;
}

#endif
