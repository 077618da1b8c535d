/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Options by which a program says something about its sockets: setsockopt(fd, SOL_TIDEGATE, NAME,
 * ...). The hook sees every option of every socket of the host. What is not for its program goes on
 * to the kernel, or to another program of ours.
 */
#ifndef TIDEGATE_OPTION_BPF_H
#define TIDEGATE_OPTION_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "headers.h"

/*
 * Also in examples/ and docs/sockopt.md. The kernel's own levels are below 300
 * (include/linux/socket.h).
 */
enum {
	SOL_TIDEGATE = 0x7467,		/* "tg" */
	TIDEGATE_RST_FIN = 1,		/* int, enum on_fin: sockopt.bpf.h */
	TIDEGATE_BYTES_TO_COME = 2,	/* __u64: left.bpf.h */
	TIDEGATE_CLOSE = 3,		/* int, 0 or 1: close.bpf.c */
	MAX_OPTION_BYTES = 4096,	/* of which a program sees no more, include/linux/bpf-cgroup.h */
};

static __always_inline int refuse_option(int error)
{
	bpf_set_retval(-error);
	return 0;
}

/*
 * Whether this is the option with that name, of a TCP socket in the network namespace with that
 * cookie (SO_NETNS_COOKIE).
 */
static __always_inline bool is_option(struct bpf_sockopt *option, int name, __u64 cookie)
{
	return option->level == SOL_TIDEGATE && option->optname == name && option->sk &&
	       option->sk->protocol == PROTOCOL_TCP && bpf_get_netns_cookie(option) == cookie;
}

/*
 * Leaves an option to the kernel as it came. One of more than a page it would refuse, unless told
 * that nothing was changed.
 */
static __always_inline int leave_option(struct bpf_sockopt *option)
{
	if (option->optlen > MAX_OPTION_BYTES)
		option->optlen = 0;
	return 1;
}

#endif
