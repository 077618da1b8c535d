// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Hands every frame that an interface receives to another one, as it is (XDP redirect).
 *
 * Behind a veth pair whose middle does this, the far end gets pages with frames in them, as a NIC's
 * driver does, and no socket buffer: native XDP there costs what it costs in a driver. Linux 6.18:
 * veth_xdp_xmit(), veth_xdp_rcv_one().
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Index of the interface that sends, of the namespace that receives; fixed at load. */
const volatile __u32 to;

SEC("xdp")
int relay(struct xdp_md *ctx __attribute__((unused)))
{
	return bpf_redirect(to, 0);
}

char _license[] SEC("license") = "GPL";
