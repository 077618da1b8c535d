/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The socket option by which a server asks for rst-fin itself, as [Shu05] 4.2.1 wished. The call is
 * setsockopt(fd, SOL_TIDEGATE, TIDEGATE_RST_FIN, &value, sizeof(int)). It holds for one connection,
 * or for a listener and its accepted connections. It overrides the listener's policy.
 */
#ifndef TIDEGATE_SOCKOPT_BPF_H
#define TIDEGATE_SOCKOPT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "verdict.h"
#include "option.bpf.h"

/* Cookie of the guard's network namespace (SO_NETNS_COOKIE). The hook sees the whole host. */
const volatile __u64 guarded_netns_cookie = 0;

/* The answers of servers that have asked, enum on_fin. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} asked SEC(".maps");

/* True once a server has asked. Before, the FIN stage need not look. */
__u32 is_any_asked = 0;

static __always_inline int write_option(struct bpf_sockopt *option)
{
	__u32 *value = option->optval, *stored;

	if (option->optlen < (__s32)sizeof(*value) || (void *)(value + 1) > option->optval_end || *value > FIN_RESET)
		return refuse_option(EINVAL);
	stored = bpf_sk_storage_get(&asked, option->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!stored)
		return refuse_option(ENOMEM);
	*stored = *value;
	is_any_asked = true;
	option->optlen = -1; /* hides the option from the kernel */
	return 1;
}

/* The kernel has refused the option already, because it does not know the level. */
static __always_inline int read_option_value(struct bpf_sockopt *option)
{
	__u32 *value = option->optval, *stored;

	if ((void *)(value + 1) > option->optval_end)
		return 1;
	stored = bpf_sk_storage_get(&asked, option->sk, 0, 0);
	*value = stored ? *stored : FIN_KEEP;
	option->optlen = sizeof(*value);
	bpf_set_retval(0);
	return 1;
}

#endif
