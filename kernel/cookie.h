/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The guard's SYN cookies. A cookie is a SYN/ACK's initial sequence number. It says what the SYN
 * offered, and proves that this host sent it. All is a pure function of a key, the flow and the
 * time. The BPF programs include this file, and crates/kernel compiles it for the host.
 *
 * The kernel's cookies (net/ipv4/syncookies.c) need the client's timestamps for window scale and
 * SACK. These do not. That costs proof: a guess is right once in 2^24 instead of once in 2^29.
 *
 * The includer provides __u8 to __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h>
 * on the host.
 */
#ifndef TIDEGATE_COOKIE_H
#define TIDEGATE_COOKIE_H

enum {
	COOKIE_PERIOD_SHIFT = 36,	/* a period is 2^36 ns, 69 s; a cookie is valid in its own and the next */
	COOKIE_PERIODS = 2,
	COOKIE_KEYS = 2,		/* one for the cookies of now, one that the agent may replace */
	COOKIE_KEY_SHIFT = 6,		/* a key serves 2^6 periods in a row, 73 minutes */
	COOKIE_NO_WSCALE = 15,		/* none; the largest shift is 14, RFC 7323 2.3 */
	COOKIE_PROOF_BITS = 24,
	COOKIE_PROOF_MASK = (1 << COOKIE_PROOF_BITS) - 1,
	COOKIE_DOMAIN_PAD = 1,
	COOKIE_DOMAIN_PROOF = 2,
	COOKIE_MESSAGE_BYTES = 47,
	COOKIE_PLACES = 1 << 14,	/* entries for the times of cookies, see cookie_place() */
};

/* Secret and random. */
struct cookie_key {
	__u64 word[2];
};

/* The keys by turn: each serves every second run of 2^COOKIE_KEY_SHIFT periods. */
struct cookie_keys {
	struct cookie_key key[COOKIE_KEYS];
};

/* A handshake: addresses and ports in wire order, the SYN's sequence number in host order. */
struct cookie_flow {
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	__u32 client_isn;
};

/* Options of the SYN, as far as a cookie can hold them. */
struct cookie_options {
	__u8 mss_index;			/* see cookie_mss(), 0 to 3 */
	__u8 wscale;			/* the client's shift, 0 to 14, or COOKIE_NO_WSCALE */
	__u8 has_sack;
};

struct siphash {
	__u64 v0, v1, v2, v3;
};

static inline __u64 rotate_left(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static inline void siphash_round(struct siphash *state)
{
	state->v0 += state->v1;
	state->v1 = rotate_left(state->v1, 13) ^ state->v0;
	state->v0 = rotate_left(state->v0, 32);
	state->v2 += state->v3;
	state->v3 = rotate_left(state->v3, 16) ^ state->v2;
	state->v0 += state->v3;
	state->v3 = rotate_left(state->v3, 21) ^ state->v0;
	state->v2 += state->v1;
	state->v1 = rotate_left(state->v1, 17) ^ state->v2;
	state->v2 = rotate_left(state->v2, 32);
}

static inline void siphash_add(struct siphash *state, __u64 word)
{
	state->v3 ^= word;
	siphash_round(state);
	siphash_round(state);
	state->v0 ^= word;
}

static inline __u64 siphash_end(const struct siphash *before, __u64 last)
{
	struct siphash state = *before;

	siphash_add(&state, last);
	state.v2 ^= 0xff;
	siphash_round(&state);
	siphash_round(&state);
	siphash_round(&state);
	siphash_round(&state);
	return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

/* SipHash-2-4 (Aumasson and Bernstein 2012). */
static inline void siphash_begin(struct siphash *state, __u64 key0, __u64 key1)
{
	state->v0 = key0 ^ 0x736f6d6570736575ull;
	state->v1 = key1 ^ 0x646f72616e646f6dull;
	state->v2 = key0 ^ 0x6c7967656e657261ull;
	state->v3 = key1 ^ 0x7465646279746573ull;
}

/* The first 40 of 47 bytes. */
static inline void hash_cookie_flow(const struct cookie_key *key, const struct cookie_flow *flow, struct siphash *state)
{
	siphash_begin(state, key->word[0], key->word[1]);
	siphash_add(state, (__u64)flow->source[1] << 32 | flow->source[0]);
	siphash_add(state, (__u64)flow->source[3] << 32 | flow->source[2]);
	siphash_add(state, (__u64)flow->destination[1] << 32 | flow->destination[0]);
	siphash_add(state, (__u64)flow->destination[3] << 32 | flow->destination[2]);
	siphash_add(state, (__u64)flow->client_isn << 32 | (__u32)flow->destination_port << 16 | flow->source_port);
}

/* The last seven bytes: the options (8 bits), the period (32), the purpose of the hash (16). */
static inline __u64 end_cookie_hash(const struct siphash *state, __u8 said, __u32 period, __u64 domain)
{
	return siphash_end(state, (__u64)COOKIE_MESSAGE_BYTES << 56 | domain << 40 | (__u64)period << 8 | said);
}

/* The index of the key for cookies of this period. */
static inline __u32 cookie_key_index(__u32 period)
{
	return period >> COOKIE_KEY_SHIFT & (COOKIE_KEYS - 1);
}

/*
 *  31       30     29      26 25     24 23           0
 * +--------+------+----------+---------+--------------+
 * | period | SACK |  wscale  |   MSS   |    proof     |
 * |  & 1   |      |          |  index  |              |
 * +--------+------+----------+---------+--------------+
 *
 * A hash of the flow hides the upper eight bits: the number must not be predictable (RFC 6528).
 */
static inline __u32 make_cookie(const struct cookie_keys *keys, const struct cookie_flow *flow,
				const struct cookie_options *options, __u32 period)
{
	const struct cookie_key *key = &keys->key[cookie_key_index(period)];
	__u8 said = (period & 1) << 7 | (options->has_sack & 1) << 6 | (options->wscale & 15) << 2 | (options->mss_index & 3);
	struct siphash state;
	__u32 proof;
	__u8 pad;

	hash_cookie_flow(key, flow, &state);
	pad = end_cookie_hash(&state, 0, 0, COOKIE_DOMAIN_PAD);
	proof = end_cookie_hash(&state, said, period, COOKIE_DOMAIN_PROOF) & COOKIE_PROOF_MASK;
	return (__u32)(said ^ pad) << COOKIE_PROOF_BITS | proof;
}

/* The upper byte of a cookie of one of the two periods that was made with this key, or -1. */
static inline int try_key(const struct cookie_keys *keys, __u32 index, const struct cookie_flow *flow, __u32 cookie, __u32 period)
{
	struct siphash state;
	__u32 then;
	__u8 said;

	hash_cookie_flow(&keys->key[index & (COOKIE_KEYS - 1)], flow, &state);
	said = cookie >> COOKIE_PROOF_BITS ^ end_cookie_hash(&state, 0, 0, COOKIE_DOMAIN_PAD);
	then = (period & 1) == said >> 7 ? period : period - 1;
	if (cookie_key_index(then) != index ||
	    (end_cookie_hash(&state, said, then, COOKIE_DOMAIN_PROOF) & COOKIE_PROOF_MASK) != (cookie & COOKIE_PROOF_MASK))
		return -1;
	return said;
}

/*
 * True when this host sent the cookie in this period or the one before. Then `options` is what the
 * SYN offered. In one period of 64 there are two keys to try.
 */
static inline bool open_cookie(const struct cookie_keys *keys, const struct cookie_flow *flow, __u32 cookie, __u32 period,
			      struct cookie_options *options)
{
	__u32 now = cookie_key_index(period), before = cookie_key_index(period - 1);
	int said = try_key(keys, now, flow, cookie, period);

	if (said < 0 && now != before)
		said = try_key(keys, before, flow, cookie, period);
	if (said < 0)
		return 0;
	options->has_sack = said >> 6 & 1;
	options->wscale = said >> 2 & 15;
	options->mss_index = said & 3;
	return 1;
}

/*
 * The entry for a cookie's time, because the cookie has no bit for it. Its last bits choose the
 * entry. They are not predictable.
 *
 * The last cookie of an entry keeps it, so a flood takes no more memory. Then some round trips are
 * unknown: four in ten, when half as many are in flight as there are entries. Far clients lose
 * theirs more often. So the rest errs to the short side. A repeated SYN also errs so: its cookie is
 * the same.
 */
static inline __u32 cookie_place(__u32 cookie)
{
	return cookie & (COOKIE_PLACES - 1);
}

/* The contents of an entry: the cookie, and the time in us. */
static inline __u64 stamp_cookie(__u32 cookie, __u64 now_ns)
{
	return (__u64)cookie << 32 | (__u32)(now_ns / 1000);
}

/* Age of a cookie in us, at least 1; 0 if its entry has another cookie. */
static inline __u32 cookie_age_us(__u64 stamp, __u32 cookie, __u64 now_ns)
{
	__u32 age = (__u32)(now_ns / 1000) - (__u32)stamp;

	if (!stamp || stamp >> 32 != cookie)
		return 0;
	return age ? age : 1;
}

/*
 * MSS of an index, in bytes. A client that offers less than the first gets the first, as with the
 * kernel's cookies.
 */
static inline __u16 cookie_mss(__u8 index, bool is_ipv6)
{
	switch (index & 3) {
	case 0:
		return is_ipv6 ? 1220 : 536;	/* the smallest packet that every host takes */
	case 1:
		return 1300;			/* through tunnels */
	case 2:
		return is_ipv6 ? 1420 : 1440;	/* through PPPoE, GRE and the like */
	default:
		return is_ipv6 ? 1440 : 1460;	/* an Ethernet packet */
	}
}

/* The index of the largest MSS that does not exceed the client's. */
static inline __u8 cookie_mss_index(__u16 mss, bool is_ipv6)
{
	__u8 index = 3;

	while (index > 0 && cookie_mss(index, is_ipv6) > mss)
		index--;
	return index;
}

#endif
