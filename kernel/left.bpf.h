/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the bytes that a response has left, for a segment with a socket of this host. Sizes come
 * from the socket option, sendfile(2), Content-Length or the send buffer. It decides no order.
 *
 * The includer provides bands.h and `struct flow`, its state of a connection, with a `struct
 * response` in it.
 */
#ifndef TIDEGATE_LEFT_BPF_H
#define TIDEGATE_LEFT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "http.h"
#include "option.bpf.h"
#include "segment.bpf.h"

enum {
	SEGMENT_OVERHEAD = 1280,	/* bytes that the kernel charges a socket per segment, beside data; about */
	SOCK_NOSPACE = 2,		/* include/linux/net.h: a bit of socket->flags */
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
	HEADER_STEP = 8,		/* bytes of a header for each call; a call for each byte takes twice as long */
};

/* ---- Fixed at load. ---- */

const volatile __u32 sources = (1u << SIZE_SOURCES) - 1; /* allowed sources, bits of enum size_source */
const volatile __u64 netns_cookie = 0;		/* of the interface's namespace; the option's hook sees all */

/* ---- What is kept. ---- */

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* A call of sendfile(2). The key is the address of its socket. */
struct sendfile_call {
	__u64 bytes;
	__u32 write_seq;			/* of the socket when it was called */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct sendfile_call);
} sendfile_calls SEC(".maps");

struct header_scratch {
	struct http_header header;
	__u8 bytes[HTTP_HEADER_BYTES + HEADER_STEP];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct header_scratch);
} header_scratches SEC(".maps");

/* ---- A segment. ---- */

/* Fields of a segment's headers. */
struct headers {
	__u32 seq;
	__u32 payload_offset;			/* bytes from the start of the frame */
	__u32 payload_length;
	__u32 flags;
};

/* False for rare frames: with IP options, extension headers, or VLAN tags inside. */
static __always_inline bool read_headers(struct __sk_buff *skb, struct headers *headers)
{
	struct frame frame = {
		.data = (void *)(long)skb->data,
		.data_end = (void *)(long)skb->data_end,
		.length = skb->len,
	};
	const struct tcp_header *tcp = find_plain_tcp(&frame);

	if (!tcp)
		return false;
	headers->seq = bpf_ntohl(tcp->seq);
	headers->payload_offset = (void *)tcp - frame.data + (tcp->offset >> 4) * 4;
	/* The kernel adds no padding; a driver would do it later. */
	headers->payload_length = frame.length - headers->payload_offset;
	headers->flags = tcp->flags;
	return true;
}

static __always_inline void read_outgoing(struct tcp_sock *tcp, const struct headers *headers, struct outgoing *outgoing)
{
	struct sock *sk = &tcp->inet_conn.icsk_inet.sk;
	struct socket *socket = sk->sk_socket;

	outgoing->seq = headers->seq;
	outgoing->end = headers->seq + headers->payload_length;
	outgoing->rcv_nxt = tcp->rcv_nxt;
	outgoing->write_seq = tcp->write_seq;
	outgoing->is_blocked = socket && socket->flags >> SOCK_NOSPACE & 1;
	/*
	 * The kernel charges a socket one byte for itself, and each segment with its data and its
	 * overhead. More than that means that another segment waits.
	 */
	outgoing->has_waiting = sk->sk_wmem_alloc.refs.counter >
				(__s32)(headers->payload_length + 2 * SEGMENT_OVERHEAD);
}

/* ---- How many bytes are left. ---- */

static __always_inline bool may_use(enum size_source source)
{
	return sources & (1u << source);
}

static long read_header_bytes(__u32 step, struct header_scratch **scratch)
{
	struct header_scratch *header = *scratch;
	__u32 n, offset;

	for (n = 0; n < HEADER_STEP; n++) {
		offset = (step * HEADER_STEP + n) & (HTTP_HEADER_BYTES - 1);
		if (http_read(&header->header, header->bytes[offset], offset))
			return 1;
	}
	return 0;
}

static __noinline int tell_length(struct __sk_buff *skb, struct flow *flow, __u32 offset, __u32 payload_length)
{
	__u32 only = 0, length = payload_length;
	struct header_scratch *scratch = bpf_map_lookup_elem(&header_scratches, &only);
	__u64 bytes;

	if (!scratch || !flow || length < HTTP_STATUS_BYTES)
		return 0;
	if (bpf_skb_load_bytes(skb, offset, scratch->bytes, HTTP_STATUS_BYTES) || !http_has_length(scratch->bytes))
		return 0;
	if (length > HTTP_HEADER_BYTES)
		length = HTTP_HEADER_BYTES;
	/* Linux 6.1 forgets the bound of a length on the stack, so this repeats it. */
	length = ((length - 1) & (HTTP_HEADER_BYTES - 1)) + 1;
	if (bpf_skb_load_bytes(skb, offset, scratch->bytes, length))
		return 0;
	/* The last step reads behind the header. These zeros are no part of one. */
	__builtin_memset(scratch->bytes + length, 0, HEADER_STEP);
	__builtin_memset(&scratch->header, 0, sizeof(scratch->header));
	bpf_loop((length + HEADER_STEP - 1) / HEADER_STEP, read_header_bytes, &scratch, 0);
	bytes = http_response_bytes(&scratch->header, length);
	if (bytes)
		tell_size(&flow->response, SOURCE_LENGTH, flow->response.sent, bytes);
	return 0;
}

/*
 * Uses the last sendfile(2) of the socket, if it still has unsent bytes. A call of an earlier
 * response has none.
 */
static __always_inline void tell_sendfile(struct flow *flow, __u64 socket, const struct outgoing *outgoing)
{
	struct sendfile_call *call = bpf_map_lookup_elem(&sendfile_calls, &socket);
	__u32 seq = outgoing->seq, ahead;

	if (!call)
		return;
	ahead = call->write_seq - seq;
	/* The call is of an earlier socket at this address. */
	if (comes_before(outgoing->write_seq, call->write_seq)) {
		bpf_map_delete_elem(&sendfile_calls, &socket);
		return;
	}
	if (!comes_before(call->write_seq, seq))
		tell_size(&flow->response, SOURCE_SENDFILE, seq, call->bytes + ahead);
	else if (-ahead < call->bytes)
		tell_size(&flow->response, SOURCE_SENDFILE, seq, call->bytes - -ahead);
}

/*
 * Bytes left, this segment's among them, by the best source there is. The caller has begun the
 * response.
 */
static __always_inline __u64 learn_left(struct __sk_buff *skb, struct flow *flow, struct tcp_sock *tcp,
					const struct headers *headers, const struct outgoing *outgoing)
{
	struct response *response = &flow->response;

	if (may_use(SOURCE_SENDFILE) && !response->told)
		tell_sendfile(flow, (__u64)tcp, outgoing);
	if (may_use(SOURCE_LENGTH) && may_begin_header(response, outgoing))
		tell_length(skb, flow, headers->payload_offset, headers->payload_length);
	return bytes_left(response, outgoing, may_use(SOURCE_BUFFERED));
}

/* ---- Sources that know a size ahead. ---- */

/*
 * Notes sendfile(2) and splice(2) into a socket. The socket is part of a struct socket_alloc, as in
 * sock_from_file() of net/socket.c.
 */
SEC("fentry/do_splice_direct")
int note_sendfile(__u64 *ctx)			/* in, position, out, position, bytes, flags */
{
	struct file *out = (void *)ctx[2];
	struct sendfile_call call = { .bytes = ctx[4] };
	struct socket *socket;
	struct tcp_sock *tcp;
	__u64 key;

	if ((BPF_CORE_READ(out, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(out, private_data);
	tcp = (struct tcp_sock *)BPF_CORE_READ(socket, sk);
	if (!tcp || BPF_CORE_READ(tcp, inet_conn.icsk_inet.sk.sk_protocol) != PROTOCOL_TCP)
		return 0;
	key = (__u64)tcp;
	call.write_seq = BPF_CORE_READ(tcp, write_seq);
	bpf_map_update_elem(&sendfile_calls, &key, &call, 0);
	return 0;
}

/*
 * A pointer that passes through a map becomes a number. This hook may read a socket only by
 * bpf_probe_read_kernel(). The verifier allows no offset on its pointer.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} addresses SEC(".maps");

static __always_inline bool read_write_seq(struct bpf_sock *sk, __u32 *write_seq)
{
	__u32 only = 0;
	volatile __u64 *address = bpf_map_lookup_elem(&addresses, &only);

	if (!address)
		return false;
	*address = (__u64)sk;
	return !bpf_core_read(write_seq, sizeof(*write_seq), &((struct tcp_sock *)*address)->write_seq);
}

/*
 * The option TIDEGATE_BYTES_TO_COME, a __u64: the bytes that the program will write from here on.
 */
SEC("cgroup/setsockopt")
int set_bytes(struct bpf_sockopt *option)
{
	__u64 *bytes = option->optval;
	struct flow *flow;
	__u32 write_seq;

	if (!is_option(option, TIDEGATE_BYTES_TO_COME, netns_cookie))
		return leave_option(option);
	/*
	 * The buffer may be longer than the program's value. An optlen of -1 means that the uplink
	 * of another interface has read it.
	 */
	if ((option->optlen != -1 && option->optlen < (__s32)sizeof(*bytes)) || (void *)(bytes + 1) > option->optval_end)
		return refuse_option(EINVAL);
	flow = bpf_sk_storage_get(&flows, option->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return refuse_option(ENOMEM);
	if (may_use(SOURCE_TOLD) && read_write_seq(option->sk, &write_seq))
		tell_size(&flow->response, SOURCE_TOLD, write_seq, *bytes);
	option->optlen = -1; /* hides the option from the kernel */
	return 1;
}

#endif
