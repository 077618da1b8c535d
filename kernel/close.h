/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Who keeps TIME_WAIT when a server closes first [FTY97]: what its client does with the segments
 * that end a connection. No map, no clock, no kernel pointer.
 *
 * swap, the paper's LAST_ACK_SWAP: the client answers the server's last ACK with a RST, and the
 * server forgets the connection. The client's kernel has forgotten it, too, so its addresses and
 * ports are kept from use by us for a while.
 *
 * hold, ours: the client's kernel sees the server's FIN when its own program closes, and not
 * before. Both ends close at once, then. The client acknowledges the server's FIN to nobody: once
 * its own is acknowledged it is in TIME_WAIT, and a RST frees the server, as in swap.
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
	CLOSE_PASS = 0,			/* as if we were not there */
	CLOSE_HOLD = 1,			/* arriving: without its FIN */
	CLOSE_GIVE_UP = 2,		/* arriving: the FIN comes again, and passes */
	CLOSE_NOTE = 3,			/* leaving: the server's last ACK will be answered */
	CLOSE_RELEASE = 4,		/* leaving: before it, the server's FIN comes in */
	CLOSE_SWAP = 5,			/* arriving: it passes, and a RST goes back */
	CLOSE_DROP = 6,			/* leaving: not at all */
	CLOSE_RESET = 7,		/* leaving: as a RST */
};

/* States of include/net/tcp_states.h. */
enum close_state {
	STATE_ESTABLISHED = 1,
	STATE_FIN_WAIT1 = 4,
	STATE_LAST_ACK = 9,
};

/* Numbers of RFC 9293 3.4 in host byte order. */
struct close_segment {
	__u32 seq;
	__u32 ack;
	__u32 payload;			/* bytes */
	__u32 flags;			/* of the TCP header, RFC 9293 3.1 */
};

/* The client's end, as its kernel has it at this moment. */
struct close_socket {
	__u32 state;
	__u32 rcv_nxt;			/* behind the last byte that came */
	__u32 copied_seq;		/* where its program reads on */
	__u32 snd_una;			/* the first byte that the server has not acknowledged */
};

enum hold_stage {
	HOLD_NONE = 0,
	HOLD_HELD = 1,			/* the server's FIN was taken off */
	HOLD_OVER = 2,			/* it was given back, or let pass */
};

/* What is kept of a connection whose FIN is held; all 0 at first. */
struct hold {
	__u32 fin;			/* sequence number of the server's FIN */
	__u32 stage;			/* enum hold_stage */
};

/* What is kept of a connection from its last FIN on; all 0 before. */
struct last_ack {
	__u32 seq;			/* of what the client would send next: behind its FIN */
	__u32 ack;			/* of what it waits for next: behind the server's FIN */
	__u32 resets;			/* sent so far */
	__u32 way;			/* enum close_way */
	__u32 acks;			/* hold: of the server's FIN, that wanted to leave before ours was acknowledged */
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

/*
 * hold: a FIN comes from the server. It is held only if there is something to read: whoever has
 * read all would wait for the end, as a pool does for a connection that is idle. What is before it
 * may not have reached the socket: segments that came together pass here together. A FIN that comes
 * again means that the client's program waits for it.
 */
static inline enum close_action on_fin_arriving(const struct close_socket *socket, const struct close_segment *segment,
						struct hold *hold)
{
	if (!is_fin(segment))
		return CLOSE_PASS;
	if (hold->stage == HOLD_HELD) {
		hold->stage = HOLD_OVER;
		return CLOSE_GIVE_UP;
	}
	if (hold->stage == HOLD_OVER || socket->state != STATE_ESTABLISHED)
		return CLOSE_PASS;
	if (!segment->payload && socket->copied_seq == segment->seq)
		return CLOSE_PASS;
	hold->fin = fin_of(segment);
	hold->stage = HOLD_HELD;
	return CLOSE_HOLD;
}

/*
 * hold: the client's own FIN leaves. The server's comes in before it if all that the server has
 * sent before that is here. It acknowledges no more than the server has: the client's kernel goes
 * on to send its data and its FIN again, if they are lost. Otherwise the server sends its FIN
 * again, as ever.
 */
static inline enum close_action on_held_fin_leaving(const struct close_socket *socket, const struct close_segment *segment,
						    struct hold *hold, struct last_ack *last)
{
	if (hold->stage != HOLD_HELD || !is_fin(segment))
		return CLOSE_PASS;
	hold->stage = HOLD_OVER;
	if (socket->state != STATE_FIN_WAIT1 || segment->payload || socket->rcv_nxt != hold->fin ||
	    segment->ack != hold->fin)
		return CLOSE_PASS;
	last->seq = segment->seq + 1;
	last->ack = hold->fin + 1;
	last->way = WAY_HOLD;
	return CLOSE_RELEASE;
}

/* swap: a FIN leaves after the server's. If it leaves again, so does what was noted. */
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
 * The server's ACK of the client's FIN. It waits for exactly `last->seq`: in TIME_WAIT (swap), or
 * in CLOSING, because nobody has acknowledged its own FIN (hold).
 */
static inline enum close_action on_ack_arriving(const struct close_segment *segment, const struct last_ack *last)
{
	if (last->resets || !is_only_ack(segment) || segment->ack != last->seq || segment->seq != last->ack)
		return CLOSE_PASS;
	return CLOSE_SWAP;
}

/*
 * hold: an ACK of the server's FIN leaves. The first is of the FIN that we let in, and would put
 * the server into TIME_WAIT. Once a RST was sent, the server asks because that was lost: another
 * one. In between the server may not have our FIN, and it shall have its ACK.
 */
static inline enum close_action on_last_ack_leaving(const struct close_segment *segment, struct last_ack *last)
{
	if (last->way != WAY_HOLD || !is_only_ack(segment) || segment->seq != last->seq || segment->ack != last->ack)
		return CLOSE_PASS;
	if (last->resets) {
		last->resets++;
		return CLOSE_RESET;
	}
	return last->acks++ ? CLOSE_PASS : CLOSE_DROP;
}

#endif
