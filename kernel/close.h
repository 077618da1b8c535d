/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Decisions that move TIME_WAIT from a server that closes first to its client [FTY97]. The client's
 * host takes them for the segments that end a connection. No map, no clock, no kernel pointer.
 *
 * swap is the paper's LAST_ACK_SWAP. The client answers the server's last ACK with a RST, and the
 * server forgets the connection. The client's kernel has forgotten it too, so our programs keep its
 * addresses and ports from use for a while.
 *
 * hold is ours. The client's kernel sees the server's FIN only when the client's program closes: to
 * it both ends close at once. Our programs drop the client's ACK of that FIN. The server's ACK puts
 * the client into TIME_WAIT, and a RST frees the server, as in swap.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_CLOSE_H
#define TIDEGATE_CLOSE_H

enum close_way {
	WAY_SWAP = 1,
	WAY_HOLD = 2,
};

enum close_action {
	CLOSE_PASS = 0,			/* both ways: the segment goes on unchanged */
	CLOSE_HOLD = 1,			/* arriving: the segment goes on without its FIN */
	CLOSE_GIVE_UP = 2,		/* arriving: the server repeats its FIN, which goes on */
	CLOSE_NOTE = 3,			/* leaving: a RST will answer the server's last ACK */
	CLOSE_RELEASE = 4,		/* leaving: the held FIN enters before the segment leaves */
	CLOSE_ANSWER = 5,		/* arriving: the ACK goes on, and a RST goes back */
	CLOSE_DROP = 6,			/* leaving: the ACK does not leave */
	CLOSE_RESET = 7,		/* leaving: the ACK leaves as a RST */
};

/* States of include/net/tcp_states.h. */
enum close_state {
	STATE_ESTABLISHED = 1,
	STATE_FIN_WAIT1 = 4,
	STATE_LAST_ACK = 9,
};

/* Sequence numbers (RFC 9293 3.4) are in host byte order. */
struct close_segment {
	__u32 seq;
	__u32 ack;
	__u32 payload;			/* bytes */
	__u32 flags;			/* of the TCP header, RFC 9293 3.1 */
};

/* The client's socket at this moment. */
struct close_socket {
	__u32 state;
	__u32 rcv_nxt;			/* next sequence number that its kernel expects */
	__u32 copied_seq;		/* next byte that its program will read */
};

enum hold_stage {
	HOLD_NONE = 0,
	HOLD_HELD = 1,			/* the client's kernel has not seen the server's FIN */
	HOLD_OVER = 2,			/* our programs hold no FIN of this connection any more */
	HOLD_LATE = 3,			/* the client has closed: the server or the agent brings the FIN */
};

/* State of a connection under hold; all zero at first. */
struct hold {
	__u32 fin;			/* sequence number of the server's FIN */
	__u32 stage;			/* enum hold_stage */
};

/* State of a connection once the client's FIN has left; all zero before. */
struct last_ack {
	__u32 seq;			/* the client's next sequence number, after its FIN */
	__u32 ack;			/* the server's next sequence number, after its FIN */
	__u32 resets;			/* RSTs sent so far; a dry run counts them as well */
	__u32 way;			/* enum close_way */
	__u32 acks;			/* hold: ACKs of the server's FIN before the first RST */
	__u32 reserved;
};

enum {
	CLOSE_FIN = 0x01,
	CLOSE_SYN = 0x02,
	CLOSE_RST = 0x04,
	CLOSE_ACK = 0x10,
};

static inline bool is_only_ack(const struct close_segment *segment)
{
	return !segment->payload && (segment->flags & (CLOSE_FIN | CLOSE_SYN | CLOSE_RST | CLOSE_ACK)) == CLOSE_ACK;
}

static inline bool is_fin(const struct close_segment *segment)
{
	return (segment->flags & (CLOSE_FIN | CLOSE_SYN | CLOSE_RST)) == CLOSE_FIN;
}

/* Sequence number of a segment's FIN. */
static inline __u32 fin_of(const struct close_segment *segment)
{
	return segment->seq + segment->payload;
}

/* hold: a segment arrives, perhaps with the server's FIN. */
static inline enum close_action on_fin_arriving(const struct close_socket *socket, const struct close_segment *segment,
						struct hold *hold)
{
	if (!is_fin(segment))
		return CLOSE_PASS;
	/* The server repeats its FIN: the client has not closed, and may be waiting for it. */
	if (hold->stage == HOLD_HELD) {
		hold->stage = HOLD_OVER;
		return CLOSE_GIVE_UP;
	}
	if (hold->stage == HOLD_LATE)
		hold->stage = HOLD_OVER;
	if (hold->stage == HOLD_OVER || socket->state != STATE_ESTABLISHED)
		return CLOSE_PASS;
	/*
	 * The program has read all. A pool must learn at once that its idle connection has ended.
	 * `rcv_nxt` would mislead: the socket may not have taken data of the same burst yet.
	 */
	if (!segment->payload && socket->copied_seq == segment->seq)
		return CLOSE_PASS;
	hold->fin = fin_of(segment);
	hold->stage = HOLD_HELD;
	return CLOSE_HOLD;
}

/*
 * hold: the client's FIN leaves. The held FIN enters first if the client has acknowledged all data
 * before it, and sends none with its own. Otherwise the server repeats its FIN, as without us.
 */
static inline enum close_action on_held_fin_leaving(const struct close_socket *socket, const struct close_segment *segment,
						    struct hold *hold, struct last_ack *last)
{
	if (hold->stage != HOLD_HELD || !is_fin(segment))
		return CLOSE_PASS;
	hold->stage = HOLD_LATE;
	if (socket->state != STATE_FIN_WAIT1 || segment->payload || socket->rcv_nxt != hold->fin ||
	    segment->ack != hold->fin)
		return CLOSE_PASS;
	hold->stage = HOLD_OVER;
	last->seq = segment->seq + 1;
	last->ack = hold->fin + 1;
	last->way = WAY_HOLD;
	return CLOSE_RELEASE;
}

/* swap: the client's FIN leaves after the server's. A repeated FIN notes the same numbers. */
static inline enum close_action on_last_fin_leaving(const struct close_socket *socket, const struct close_segment *segment,
						    struct last_ack *last)
{
	if (socket->state != STATE_LAST_ACK || !is_fin(segment) || segment->ack != socket->rcv_nxt)
		return CLOSE_PASS;
	last->seq = fin_of(segment) + 1;
	last->ack = segment->ack;
	last->way = WAY_SWAP;
	return CLOSE_NOTE;
}

/*
 * The server acknowledges the client's FIN. It is in TIME_WAIT (swap), or in CLOSING because nobody
 * has acknowledged its own FIN (hold). Both states take a RST at exactly `last->seq`.
 */
static inline enum close_action on_ack_arriving(const struct close_segment *segment, const struct last_ack *last)
{
	if (last->resets || !is_only_ack(segment) || segment->ack != last->seq || segment->seq != last->ack)
		return CLOSE_PASS;
	return CLOSE_ANSWER;
}

/* hold: the client's ACK of the server's FIN leaves. */
static inline enum close_action on_last_ack_leaving(const struct close_segment *segment, struct last_ack *last)
{
	if (last->way != WAY_HOLD || !is_only_ack(segment) || segment->seq != last->seq || segment->ack != last->ack)
		return CLOSE_PASS;
	/* The server repeats its FIN, because the RST was lost. */
	if (last->resets) {
		last->resets++;
		return CLOSE_RESET;
	}
	/* The first ACK would put the server into TIME_WAIT. Later, our FIN may have been lost. */
	return last->acks++ ? CLOSE_PASS : CLOSE_DROP;
}

#endif
