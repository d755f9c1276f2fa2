/* TLS 1.2 (RFC 5246) by BearSSL: ECDHE with AES-GCM or ChaCha20-Poly1305 only, RSA or ECDSA keys,
 * ALPN http/1.1 (RFC 7301), session resumption by identifier, client certificates as an option.
 * Renegotiation is refused; a server name (SNI) is accepted and changes nothing.
 *
 * Files are PEM: a chain with the server's own certificate first, a key (PKCS#1, SEC1 or PKCS#8),
 * client CAs. Limits: LIMIT_TLS_*. What was read is a generation; a peer needs its generation only
 * until its handshake ends, so two are enough: tls_reload fills the one that nobody uses. The arena
 * given to tls_open holds both, and the session cache; a peer's engine and records lie where the
 * caller says.
 */
#ifndef ZIGCUDA_TLS_H
#define ZIGCUDA_TLS_H

#include "core/base/arena.h"
#include "core/base/clock.h"

struct tls;
struct tls_peer;

struct tls_config {
    const char *certificate, *key; /* paths; the strings must stay */
    const char *client_ca;         /* "": client certificates are not asked for */
};

size_t tls_bytes(void);

/* ERR_CONFIG for files that are wrong. */
MUST enum err tls_open(struct arena *a, const struct tls_config *g, const struct clock *clock,
                       struct tls **out, struct err_text *e);

/* Reads the files again for the handshakes to come; sessions begun before are not resumed. On an
 * error all stays as it was: ERR_CONFIG, or ERR_BUSY while handshakes of the generation before the
 * present one are still going on (they end within server.header_time). */
MUST enum err tls_reload(struct tls *t, struct err_text *e);

/* When the first certificate of the chain ends, in seconds since 1970. */
i64 tls_expires_s(const struct tls *t);

/* --- one peer: the caller moves the records ------------------------------------------------- */

enum tls_state { TLS_HANDSHAKE, TLS_OPEN, TLS_CLOSED, TLS_FAILED };

size_t tls_peer_bytes(void); /* aligned to 16 */
void tls_peer_begin(struct tls *t, struct tls_peer *p);
void tls_peer_end(struct tls_peer *p);

enum tls_state tls_state(struct tls_peer *p);
bool tls_resumed(const struct tls_peer *p);

/* Of one that failed: because its first bytes are those of HTTP without TLS. */
bool tls_was_http(const struct tls_peer *p);

/* Where record bytes from the peer go, and how many came; NULL: first send what waits. */
u8 *tls_room(struct tls_peer *p, size_t *n);
void tls_came(struct tls_peer *p, size_t n);

/* Record bytes for the peer, and how many of them were sent; NULL: none. */
const u8 *tls_waiting(struct tls_peer *p, size_t *n);
void tls_sent(struct tls_peer *p, size_t n);

/* Application data; how many bytes were taken. tls_flush closes the record that tls_write began. */
size_t tls_read(struct tls_peer *p, void *out, size_t n);
size_t tls_write(struct tls_peer *p, const void *in, size_t n);
void tls_flush(struct tls_peer *p);
bool tls_holds(struct tls_peer *p); /* there is data to tls_read */

/* Begins the goodbye: close_notify. */
void tls_close(struct tls_peer *p);

#endif
