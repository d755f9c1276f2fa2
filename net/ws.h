/* WebSocket frames by RFC 6455, version 13, no extensions: a parser for what a client sends, fed
 * with pieces of any length, and the heads of our own frames. Payload is unmasked where it lies and
 * handed on in parts; text is checked as UTF-8 across fragments as it comes. The caller owns the
 * bytes and bounds the length of a message; a control frame holds at most 125 bytes.
 */
#ifndef ZIGCUDA_WS_H
#define ZIGCUDA_WS_H

#include "core/base/base.h"

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10
};

/* Close codes, RFC 6455 section 7.4.1 and its registry. */
enum {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL = 1002,
    WS_UNSUPPORTED = 1003,
    WS_NO_CODE = 1005, /* never sent: a close frame without a code */
    WS_INVALID_TEXT = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
    WS_TRY_LATER = 1013
};

enum { WS_CONTROL_MAX = 125, WS_HEAD_MAX = 10, WS_ACCEPT_BYTES = 29 };

struct ws {
    u64 left;    /* payload bytes of this frame to come */
    u8 head[14]; /* of the frame: two bytes, length, mask */
    u8 head_n;
    u8 opcode; /* of this frame */
    bool fin, in_payload;
    u8 message;  /* opcode of the message that is going on, or 0 */
    bool begun;  /* a part of that message has been handed on */
    u32 mask_at; /* place in the mask */
    u8 control_n;
    u8 tail_n; /* bytes of a character cut in two */
    char tail[4];
    u8 control[WS_CONTROL_MAX];
};

/* WS_PART: a piece of a text or binary message. WS_CONTROL: a whole close, ping or pong. Otherwise
 * a close code (1002 or 1007): the peer broke the protocol. */
enum ws_result { WS_MORE = 0, WS_PART = 1, WS_CONTROL = 2 };

struct ws_part {
    enum ws_opcode opcode; /* of the message, or of the control frame */
    bool first, last;      /* of its message */
    struct str bytes;      /* in the caller's buffer, or (control) in struct ws */
    u64 to_come;           /* bytes of this frame behind this part: a bound can act early */
};

/* Zero `w` to begin. Takes bytes from p[0..n), which it unmasks in place; *used says how many. */
int ws_next(struct ws *w, u8 *p, size_t n, size_t *used, struct ws_part *part);

/* The head of an unmasked, unfragmented frame; returns its length. */
size_t ws_head(u8 out[WS_HEAD_MAX], enum ws_opcode opcode, u64 payload_bytes);

/* What a close frame says: the code to answer with (1002, 1007 for a bad one). */
u16 ws_close_code(struct str payload);

/* Sec-WebSocket-Accept of a Sec-WebSocket-Key (RFC 6455 section 4.2.2), NUL-terminated. False: the
 * key is not 16 bytes in base64. */
bool ws_accept(struct str key, char out[WS_ACCEPT_BYTES]);

#endif
