#include "net/tls.h"

#include "config/limits.h"
#include "core/base/file.h"
#include "core/base/log.h"

#include <bearssl.h>
#include <sys/random.h>

/* What was read from the files at one time. */
struct generation {
    struct arena store; /* certificates, names and keys in DER */
    u32 users;          /* peers in their handshakes */
    br_x509_certificate chain[LIMIT_TLS_CHAIN];
    br_x509_trust_anchor anchors[LIMIT_TLS_ANCHORS];
    u32 n_chain, n_anchors;
    br_skey_decoder_context key;
    i64 expires_s;
};

/* Remembers that a session was found, beside BearSSL's own cache. */
struct sessions {
    const br_ssl_session_cache_class *vtable;
    br_ssl_session_cache_lru lru;
    const struct generation *present; /* sessions of no other are kept */
};

struct tls {
    struct tls_config g;
    struct clock clock;
    struct generation generations[2];
    u32 present; /* the one that new peers get */
    struct sessions sessions;
    u8 text[LIMIT_TLS_FILE_BYTES + 64]; /* of the file being read */
    u8 session_store[LIMIT_TLS_SESSIONS * 100];
};

struct tls_peer {
    br_ssl_server_context server;
    br_x509_minimal_context verifier;
    struct generation *generation; /* NULL once its handshake is over */
    bool opened, resumed;
    u8 in[BR_SSL_BUFSIZE_INPUT], out[BR_SSL_BUFSIZE_OUTPUT];
};

/* --- session cache --------------------------------------------------------------------------- */

static struct sessions *sessions_of(const br_ssl_session_cache_class **ctx)
{
    return (struct sessions *)(void *)ctx;
}

static void session_save(const br_ssl_session_cache_class **ctx, br_ssl_server_context *server,
                         const br_ssl_session_parameters *session)
{
    struct sessions *s = sessions_of(ctx);
    if (((struct tls_peer *)(void *)server)->generation == s->present)
        s->lru.vtable->save(&s->lru.vtable, server, session);
}

static int session_load(const br_ssl_session_cache_class **ctx, br_ssl_server_context *server,
                        br_ssl_session_parameters *session)
{
    struct sessions *s = sessions_of(ctx);
    int found = s->lru.vtable->load(&s->lru.vtable, server, session);
    ((struct tls_peer *)(void *)server)->resumed = found;
    return found;
}

static const br_ssl_session_cache_class sessions_class = {sizeof(struct sessions), session_save,
                                                          session_load};

static void sessions_forget(struct tls *t)
{
    br_ssl_session_cache_lru_init(&t->sessions.lru, t->session_store, sizeof t->session_store);
    t->sessions.vtable = &sessions_class;
    t->sessions.present = &t->generations[t->present];
}

/* --- PEM ------------------------------------------------------------------------------------- */

struct pem {
    br_pem_decoder_context decoder;
    struct str text;
    u8 *der; /* of the object being read */
    size_t n, cap;
};

static void pem_bytes(void *arg, const void *p, size_t n)
{
    struct pem *m = arg;
    if (n <= m->cap - MIN(m->n, m->cap))
        memcpy(m->der + m->n, p, n);
    m->n += n; /* more than cap: it did not fit */
}

static void pem_begin(struct pem *m, struct str text, struct arena *store)
{
    *m = (struct pem){.text = text};
    br_pem_decoder_init(&m->decoder);
    m->der = store->base + store->used_bytes;
    m->cap = store->cap_bytes - store->used_bytes;
}

/* The next object's name, or NULL at the end. Its bytes lie at m->der until the next call. */
static const char *pem_next(struct pem *m)
{
    while (m->text.n) {
        size_t k = br_pem_decoder_push(&m->decoder, m->text.p, m->text.n);
        m->text.p += k;
        m->text.n -= k;
        switch (br_pem_decoder_event(&m->decoder)) {
        case BR_PEM_BEGIN_OBJ:
            m->n = 0;
            br_pem_decoder_setdest(&m->decoder, pem_bytes, m);
            break;
        case BR_PEM_END_OBJ:
            return m->n <= m->cap ? br_pem_decoder_name(&m->decoder) : "TOO LONG";
        case BR_PEM_ERROR:
            return "BROKEN PEM";
        default:
            break;
        }
    }
    return NULL;
}

/* BearSSL takes no CR at the end of a "-----BEGIN ...-----". */
static size_t without_cr(char *p, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (p[i] != '\r' || i + 1 == n || p[i + 1] != '\n')
            p[kept++] = p[i];
    memset(p + kept, 0, n - kept); /* of a key, too */
    return kept;
}

/* The text of a file in t->text, its lines ended by LF, the last one, too. */
static enum err read_text(struct tls *t, const char *option, const char *path, struct str *text,
                          struct err_text *e)
{
    memset(t->text, 0, sizeof t->text);
    struct arena a = arena_over("TLS files", t->text, sizeof t->text);
    if (file_read(&a, path, LIMIT_TLS_FILE_BYTES, ERR_CONFIG, text, e) != ERR_OK)
        return err_of(e, option);
    ((char *)text->p)[text->n++] = '\n'; /* where file_read put a NUL */
    text->n = without_cr((char *)text->p, text->n);
    return ERR_OK;
}

/* --- certificates ---------------------------------------------------------------------------- */

/* One DER element: its tag and content; *rest is what stands behind it. */
static bool der_next(struct str *rest, u8 *tag, struct str *content)
{
    const u8 *p = (const u8 *)rest->p;
    size_t head = 2, n;
    if (rest->n < 2)
        return false;
    *tag = p[0];
    n = p[1];
    if (n >= 0x80) {
        u32 bytes = n & 0x7f;
        if (bytes == 0 || bytes > 3 || rest->n < 2 + bytes)
            return false;
        n = 0;
        for (u32 i = 0; i < bytes; i++)
            n = n << 8 | p[2 + i];
        head += bytes;
    }
    if (n > rest->n - head)
        return false;
    *content = (struct str){rest->p + head, n};
    *rest = (struct str){rest->p + head + n, rest->n - head - n};
    return true;
}

/* UTCTime and GeneralizedTime (RFC 5280 section 4.1.2.5) in seconds since 1970. */
static bool der_time(u8 tag, struct str s, i64 *out)
{
    u32 v[7], year_digits = tag == 0x18 ? 2 : 1, n = year_digits + 5;
    if ((tag != 0x17 && tag != 0x18) || s.n != 2 * n + 1 || s.p[2 * n] != 'Z')
        return false;
    for (u32 i = 0; i < n; i++) {
        u32 a = (u32)(s.p[2 * i] - '0'), b = (u32)(s.p[2 * i + 1] - '0');
        if (a > 9 || b > 9)
            return false;
        v[i] = a * 10 + b;
    }
    const u32 *d = v + year_digits; /* month, day, hour, minute, second */
    i64 year = tag == 0x18 ? v[0] * 100 + v[1] : v[0] + (v[0] < 50 ? 2000 : 1900);
    if (d[0] < 1 || d[0] > 12 || d[1] < 1 || d[1] > 31 || d[2] > 23 || d[3] > 59 || d[4] > 60)
        return false;
    i64 y = year - (d[0] <= 2), era = y / 400; /* as http_date, the other way round */
    i64 yoe = y - era * 400, doy = (153 * (d[0] + (d[0] > 2 ? -3 : 9)) + 2) / 5 + d[1] - 1;
    i64 days = era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
    *out = days * 86400 + d[2] * 3600 + d[3] * 60 + d[4];
    return true;
}

/* The end of a certificate's validity: Certificate.tbsCertificate.validity.notAfter. */
static bool cert_expires(struct str der, i64 *out)
{
    struct str cert, tbs, field, rest;
    u8 tag;
    if (!der_next(&der, &tag, &cert) || tag != 0x30 || !der_next(&cert, &tag, &tbs) || tag != 0x30)
        return false;
    rest = tbs;
    if (!der_next(&rest, &tag, &field))
        return false;
    if (tag == 0xa0 && !der_next(&rest, &tag, &field)) /* version, then serial number */
        return false;
    for (u32 i = 0; i < 3; i++) /* signature algorithm, issuer, validity */
        if (!der_next(&rest, &tag, &field))
            return false;
    struct str before, after;
    return der_next(&field, &tag, &before) && der_next(&field, &tag, &after) &&
           der_time(tag, after, out);
}

static bool is_certificate(const char *name)
{
    return strcmp(name, "CERTIFICATE") == 0 || strcmp(name, "X509 CERTIFICATE") == 0;
}

static enum err read_chain(struct tls *t, struct generation *n, struct err_text *e)
{
    struct pem m;
    struct str text;
    TRY(read_text(t, "tls.certificate", t->g.certificate, &text, e));
    pem_begin(&m, text, &n->store);
    for (const char *name; (name = pem_next(&m));) {
        if (!is_certificate(name))
            return err_set(e, ERR_CONFIG,
                           "tls.certificate: %s holds '%s'; certificates belong here",
                           t->g.certificate, name);
        if (n->n_chain == LIMIT_TLS_CHAIN)
            return err_set(e, ERR_CONFIG, "tls.certificate: %s has more than %d certificates",
                           t->g.certificate, LIMIT_TLS_CHAIN);
        n->chain[n->n_chain++] = (br_x509_certificate){m.der, m.n};
        n->store.used_bytes += m.n;
        m.der += m.n;
        m.cap -= m.n;
    }
    n->store.peak_bytes = n->store.used_bytes;
    if (!n->n_chain)
        return err_set(e, ERR_CONFIG, "tls.certificate: %s holds no certificate in PEM",
                       t->g.certificate);
    struct str first = {(char *)n->chain[0].data, n->chain[0].data_len};
    if (!cert_expires(first, &n->expires_s))
        return err_set(e, ERR_CONFIG, "tls.certificate: %s: the first certificate is not X.509",
                       t->g.certificate);
    return ERR_OK;
}

/* --- key ---------------------------------------------------------------------------------------
 */

/* PKCS#8 with the algorithm 1.3.101.112 or .113 (RFC 8410): version, then that. */
static bool is_edwards(struct str der)
{
    struct str key, field, oid;
    u8 tag;
    return der_next(&der, &tag, &key) && der_next(&key, &tag, &field) &&
           der_next(&key, &tag, &field) && tag == 0x30 && der_next(&field, &tag, &oid) &&
           tag == 0x06 && oid.n == 3 && oid.p[0] == 0x2b && oid.p[1] == 0x65 &&
           (oid.p[2] == 0x70 || oid.p[2] == 0x71);
}

static enum err read_key(struct tls *t, struct generation *n, struct err_text *e)
{
    struct pem m;
    struct str text;
    bool found = false;
    enum err r = read_text(t, "tls.key", t->g.key, &text, e);
    if (r == ERR_OK) {
        pem_begin(&m, text, &n->store);
        for (const char *name; !found && (name = pem_next(&m));) {
            found = strcmp(name, "PRIVATE KEY") == 0 || strcmp(name, "RSA PRIVATE KEY") == 0 ||
                    strcmp(name, "EC PRIVATE KEY") == 0;
            if (strcmp(name, "ENCRYPTED PRIVATE KEY") == 0)
                r = err_set(e, ERR_CONFIG,
                            "tls.key: %s is encrypted; nobody could type the "
                            "password at boot (openssl pkey -in ... -out ...)",
                            t->g.key);
        }
        br_skey_decoder_init(&n->key);
        if (found && is_edwards((struct str){(char *)m.der, MIN(m.n, m.cap)}))
            r = err_set(e, ERR_CONFIG,
                        "tls.key: %s is an Ed25519 or Ed448 key, which is not supported; RSA and "
                        "EC on P-256 or P-384 are (openssl ecparam -name prime256v1 -genkey)",
                        t->g.key);
        else if (found)
            br_skey_decoder_push(&n->key, m.der, m.n);
        memset(m.der, 0, MIN(m.n, m.cap));
        memset(&m, 0, sizeof m);
    }
    memset(t->text, 0, sizeof t->text);
    __asm__ volatile("" : : "r"(t->text), "r"(n->store.base) : "memory"); /* the wiping stays */
    if (r == ERR_OK && (!found || br_skey_decoder_last_error(&n->key) != 0))
        r = err_set(e, ERR_CONFIG,
                    "tls.key: %s holds no private key in PEM (RSA or EC; PKCS#1, SEC1 or PKCS#8)",
                    t->g.key);
    return r;
}

static bool same_rsa(const br_rsa_private_key *sk, const br_rsa_public_key *pk)
{
    u8 modulus[BR_X509_BUFSIZE_KEY];
    br_rsa_compute_modulus compute = br_rsa_i15_compute_modulus; /* i31's stops below 4096 bits */
    size_t n = compute(NULL, sk);
    if (n == 0 || n > sizeof modulus || compute(modulus, sk) != n)
        return false;
    const u8 *p = pk->n;
    size_t m = pk->nlen;
    while (m && !*p)
        p++, m--;
    return m == n && memcmp(p, modulus, n) == 0;
}

static bool same_ec(const br_ec_private_key *sk, const br_ec_public_key *pk)
{
    u8 point[BR_EC_KBUF_PUB_MAX_SIZE];
    br_ec_public_key own;
    return br_ec_compute_pub(br_ec_get_default(), &own, point, sk) != 0 && own.curve == pk->curve &&
           own.qlen == pk->qlen && memcmp(own.q, pk->q, own.qlen) == 0;
}

static enum err check_key(struct tls *t, struct generation *n, struct err_text *e)
{
    br_x509_decoder_context d;
    br_x509_decoder_init(&d, NULL, NULL);
    br_x509_decoder_push(&d, n->chain[0].data, n->chain[0].data_len);
    const br_x509_pkey *pk = br_x509_decoder_get_pkey(&d);
    int type = br_skey_decoder_key_type(&n->key);
    bool same = pk && pk->key_type == type &&
                (type == BR_KEYTYPE_RSA ? same_rsa(br_skey_decoder_get_rsa(&n->key), &pk->key.rsa)
                                        : same_ec(br_skey_decoder_get_ec(&n->key), &pk->key.ec));
    if (!same)
        return err_set(e, ERR_CONFIG, "tls.key: %s is not the key of the first certificate in %s",
                       t->g.key, t->g.certificate);
    if (n->expires_s < t->clock.wall_s(t->clock.arg))
        log_event(LOG_WARN, "tls", "text=\"the certificate has expired\" file=%s",
                  t->g.certificate);
    return ERR_OK;
}

/* --- client CAs ----------------------------------------------------------------------------------
 */

struct name_sink {
    struct arena *store;
    u8 *at;
    size_t n;
    bool full;
};

static void name_bytes(void *arg, const void *p, size_t n)
{
    struct name_sink *s = arg;
    u8 *to = arena_alloc(s->store, n, 1);
    s->full |= !to;
    if (!to)
        return;
    memcpy(to, p, n);
    s->at = s->at ? s->at : to;
    s->n += n;
}

static u8 *copy(struct arena *store, const u8 *p, size_t n)
{
    u8 *to = arena_alloc(store, n, 1);
    if (to && n)
        memcpy(to, p, n);
    return to;
}

/* One CA from its certificate: name, key, and whether it may sign others. */
static bool read_anchor(struct generation *n, const u8 *der, size_t bytes)
{
    br_x509_decoder_context d;
    struct name_sink name = {.store = &n->store};
    br_x509_decoder_init(&d, name_bytes, &name);
    br_x509_decoder_push(&d, der, bytes);
    const br_x509_pkey *pk = br_x509_decoder_get_pkey(&d);
    if (!pk || name.full || n->n_anchors == LIMIT_TLS_ANCHORS)
        return false;
    br_x509_trust_anchor *a = &n->anchors[n->n_anchors++];
    *a = (br_x509_trust_anchor){.dn = {name.at, name.n}, .pkey = *pk};
    a->flags = br_x509_decoder_isCA(&d) ? BR_X509_TA_CA : 0;
    if (pk->key_type == BR_KEYTYPE_EC) {
        a->pkey.key.ec.q = copy(&n->store, pk->key.ec.q, pk->key.ec.qlen);
        return a->pkey.key.ec.q != NULL;
    }
    a->pkey.key.rsa.n = copy(&n->store, pk->key.rsa.n, pk->key.rsa.nlen);
    a->pkey.key.rsa.e = copy(&n->store, pk->key.rsa.e, pk->key.rsa.elen);
    return a->pkey.key.rsa.n && a->pkey.key.rsa.e;
}

static enum err read_anchors(struct tls *t, struct generation *n, struct err_text *e)
{
    struct pem m;
    struct str text;
    if (!*t->g.client_ca)
        return ERR_OK;
    TRY(read_text(t, "tls.client_ca", t->g.client_ca, &text, e));
    size_t half = n->store.cap_bytes / 2; /* names and keys grow below, DER lies above */
    pem_begin(&m, text, &n->store);
    m.der = n->store.base + half;
    m.cap = n->store.cap_bytes - half;
    n->store.cap_bytes = half;
    bool good = true;
    for (const char *name; good && (name = pem_next(&m));)
        good = is_certificate(name) && read_anchor(n, m.der, m.n);
    n->store.cap_bytes = 2 * half;
    if (!good || !n->n_anchors)
        return err_set(e, ERR_CONFIG,
                       "tls.client_ca: %s: want 1 to %d CA certificates in PEM and nothing else",
                       t->g.client_ca, LIMIT_TLS_ANCHORS);
    return ERR_OK;
}

/* --- generations -------------------------------------------------------------------------------
 */

size_t tls_bytes(void)
{
    return sizeof(struct tls) + 2 * (4 * LIMIT_TLS_FILE_BYTES) + 256;
}

static enum err fill(struct tls *t, struct generation *n, struct err_text *e)
{
    struct arena store = n->store;
    arena_reset(&store, 0);
    *n = (struct generation){.store = store};
    enum err r = read_chain(t, n, e);
    r = r == ERR_OK ? read_key(t, n, e) : r;
    r = r == ERR_OK ? check_key(t, n, e) : r;
    return r == ERR_OK ? read_anchors(t, n, e) : r;
}

enum err tls_open(struct arena *a, const struct tls_config *g, const struct clock *clock,
                  struct tls **out, struct err_text *e)
{
    struct tls *t = ARENA_NEW(a, struct tls, 1);
    if (!t)
        return arena_full(a, "TLS", e);
    t->g = *g;
    t->clock = *clock;
    for (u32 i = 0; i < 2; i++) {
        size_t bytes = 4 * LIMIT_TLS_FILE_BYTES;
        void *store = arena_alloc(a, bytes, 64);
        if (!store)
            return arena_full(a, "TLS", e);
        t->generations[i].store = arena_over("TLS", store, bytes);
    }
    sessions_forget(t);
    *out = t;
    return fill(t, &t->generations[0], e);
}

enum err tls_reload(struct tls *t, struct err_text *e)
{
    u32 other = !t->present;
    if (t->generations[other].users)
        return err_set(e, ERR_BUSY,
                       "%u handshakes still use the certificate before the present one, and there "
                       "is room for two",
                       t->generations[other].users);
    TRY(fill(t, &t->generations[other], e));
    t->present = other;
    sessions_forget(t);
    return ERR_OK;
}

i64 tls_expires_s(const struct tls *t)
{
    return t->generations[t->present].expires_s;
}

/* --- peers -------------------------------------------------------------------------------------
 */

size_t tls_peer_bytes(void)
{
    return sizeof(struct tls_peer);
}

static void set_algorithms(br_ssl_engine_context *e)
{
    /* Six of these, our order before the client's: AES first if the CPU has instructions for it. */
    static const uint16_t suites[] = {BR_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                                      BR_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
                                      BR_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                                      BR_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                                      BR_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                                      BR_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                                      BR_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                                      BR_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256};
    static const char *protocols[] = {"http/1.1"};
    br_ssl_engine_set_versions(e, BR_TLS12, BR_TLS12);
    bool aes = br_aes_x86ni_ctr_get_vtable() != NULL;
    br_ssl_engine_set_suites(e, suites + (aes ? 2 : 0), 6);
    br_ssl_engine_set_default_ec(e);
    br_ssl_engine_set_default_ecdsa(e);
    br_ssl_engine_set_default_rsavrfy(e);
    br_ssl_engine_set_default_aes_gcm(e);
    br_ssl_engine_set_default_chapol(e);
    br_ssl_engine_set_hash(e, br_sha256_ID, &br_sha256_vtable);
    br_ssl_engine_set_hash(e, br_sha384_ID, &br_sha384_vtable);
    br_ssl_engine_set_hash(e, br_sha512_ID, &br_sha512_vtable);
    br_ssl_engine_set_prf_sha256(e, &br_tls12_sha256_prf);
    br_ssl_engine_set_prf_sha384(e, &br_tls12_sha384_prf);
    br_ssl_engine_set_protocol_names(e, protocols, COUNTOF(protocols));
    br_ssl_engine_set_all_flags(e, BR_OPT_ENFORCE_SERVER_PREFERENCES | BR_OPT_NO_RENEGOTIATION |
                                       BR_OPT_FAIL_ON_ALPN_MISMATCH);
}

static void ask_for_certificate(struct tls *t, struct tls_peer *p)
{
    const struct generation *n = p->generation;
    br_x509_minimal_context *x = &p->verifier;
    br_x509_minimal_init(x, &br_sha256_vtable, n->anchors, n->n_anchors);
    br_x509_minimal_set_hash(x, br_sha256_ID, &br_sha256_vtable);
    br_x509_minimal_set_hash(x, br_sha384_ID, &br_sha384_vtable);
    br_x509_minimal_set_hash(x, br_sha512_ID, &br_sha512_vtable);
    br_x509_minimal_set_rsa(x, br_rsa_pkcs1_vrfy_get_default());
    br_x509_minimal_set_ecdsa(x, br_ec_get_default(), br_ecdsa_vrfy_asn1_get_default());
    u64 now = (u64)MAX(t->clock.wall_s(t->clock.arg), 0); /* BearSSL counts days from year 0 */
    br_x509_minimal_set_time(x, (u32)(now / 86400) + 719528, (u32)(now % 86400));
    br_ssl_engine_set_x509(&p->server.eng, &x->vtable);
    br_ssl_server_set_trust_anchor_names_alt(&p->server, n->anchors, n->n_anchors);
}

void tls_peer_begin(struct tls *t, struct tls_peer *p)
{
    struct generation *n = &t->generations[t->present];
    br_ssl_engine_context *e = &p->server.eng;
    u8 seed[32];
    ASSERT(getrandom(seed, sizeof seed, 0) == sizeof seed); /* never short for so few bytes */
    n->users++;
    p->generation = n;
    p->opened = p->resumed = false;
    br_ssl_server_zero(&p->server);
    set_algorithms(e);
    if (br_skey_decoder_key_type(&n->key) == BR_KEYTYPE_RSA)
        br_ssl_server_set_single_rsa(&p->server, n->chain, n->n_chain,
                                     br_skey_decoder_get_rsa(&n->key), BR_KEYTYPE_SIGN, 0,
                                     br_rsa_pkcs1_sign_get_default());
    else
        br_ssl_server_set_single_ec(&p->server, n->chain, n->n_chain,
                                    br_skey_decoder_get_ec(&n->key), BR_KEYTYPE_SIGN, 0,
                                    br_ec_get_default(), br_ecdsa_sign_asn1_get_default());
    br_ssl_server_set_cache(&p->server, &t->sessions.vtable);
    br_ssl_engine_set_buffers_bidi(e, p->in, sizeof p->in, p->out, sizeof p->out);
    if (n->n_anchors)
        ask_for_certificate(t, p);
    br_ssl_engine_inject_entropy(e, seed, sizeof seed);
    br_ssl_server_reset(&p->server);
}

void tls_peer_end(struct tls_peer *p)
{
    if (p->generation)
        p->generation->users--;
    p->generation = NULL;
    memset(&p->server, 0, sizeof p->server); /* its keys */
    __asm__ volatile("" : : "r"(p) : "memory");
}

enum tls_state tls_state(struct tls_peer *p)
{
    u32 s = br_ssl_engine_current_state(&p->server.eng);
    if (!p->opened && (s & (BR_SSL_SENDAPP | BR_SSL_RECVAPP))) {
        p->opened = true; /* nothing of the files is needed any more */
        p->generation->users--;
        p->generation = NULL;
    }
    if (s & BR_SSL_CLOSED)
        return br_ssl_engine_last_error(&p->server.eng) ? TLS_FAILED : TLS_CLOSED;
    return p->opened ? TLS_OPEN : TLS_HANDSHAKE;
}

bool tls_was_http(const struct tls_peer *p)
{
    static const char *const starts[] = {"GET ",  "HEAD ", "POST ", "PUT ", "PATCH",
                                         "DELET", "OPTIO", "TRACE", "CONNE"};
    const br_ssl_engine_context *e = &p->server.eng;
    if (e->version_in != 0 || br_ssl_engine_last_error(e) != BR_ERR_UNSUPPORTED_VERSION)
        return false; /* not in the head of its first record, which lies in p->in */
    for (u32 i = 0; i < COUNTOF(starts); i++)
        if (memcmp(p->in, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

bool tls_resumed(const struct tls_peer *p)
{
    return p->resumed;
}

u8 *tls_room(struct tls_peer *p, size_t *n)
{
    return br_ssl_engine_recvrec_buf(&p->server.eng, n);
}

void tls_came(struct tls_peer *p, size_t n)
{
    br_ssl_engine_recvrec_ack(&p->server.eng, n);
}

const u8 *tls_waiting(struct tls_peer *p, size_t *n)
{
    return br_ssl_engine_sendrec_buf(&p->server.eng, n);
}

void tls_sent(struct tls_peer *p, size_t n)
{
    br_ssl_engine_sendrec_ack(&p->server.eng, n);
}

size_t tls_read(struct tls_peer *p, void *out, size_t n)
{
    size_t have;
    const u8 *from = br_ssl_engine_recvapp_buf(&p->server.eng, &have);
    if (!from)
        return 0;
    n = MIN(n, have);
    memcpy(out, from, n);
    br_ssl_engine_recvapp_ack(&p->server.eng, n);
    return n;
}

size_t tls_write(struct tls_peer *p, const void *in, size_t n)
{
    size_t room;
    u8 *to = br_ssl_engine_sendapp_buf(&p->server.eng, &room);
    if (!to)
        return 0;
    n = MIN(n, room);
    memcpy(to, in, n);
    br_ssl_engine_sendapp_ack(&p->server.eng, n);
    return n;
}

void tls_flush(struct tls_peer *p)
{
    br_ssl_engine_flush(&p->server.eng, 0);
}

bool tls_holds(struct tls_peer *p)
{
    return br_ssl_engine_current_state(&p->server.eng) & BR_SSL_RECVAPP;
}

void tls_close(struct tls_peer *p)
{
    br_ssl_engine_close(&p->server.eng);
}
