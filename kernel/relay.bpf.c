// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Redirects every frame of one interface to another one, unchanged (XDP).
 *
 * With this between two veth pairs, the far end gets frames in pages and no socket buffers. So does
 * a NIC's driver, and native XDP costs the same there. Linux 6.18: veth_xdp_xmit(),
 * veth_xdp_rcv_one().
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Index of the sending interface, in the namespace of the receiving one; fixed at load. */
const volatile __u32 to;

SEC("xdp")
int relay(struct xdp_md *ctx __attribute__((unused)))
{
	return bpf_redirect(to, 0);
}

char _license[] SEC("license") = "GPL";
