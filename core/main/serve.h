/* The server from options: what it is configured to be, what memory it plans, and its opening.
 * struct serve is the caller's, static: it holds strings that others point to.
 */
#ifndef ZIGCUDA_SERVE_H
#define ZIGCUDA_SERVE_H

#include "core/main/boot.h"
#include "net/api.h"
#include "net/loop.h"
#include "net/tls.h"

struct serve {
    struct api_config api_config;
    struct conns_config conns_config;
    struct loop_config loop_config;
    struct tls_config tls_config;
    struct api *api;
    struct conns *conns;
    struct loop *loop;
    struct tls *tls;
    struct keys keys;
    char fingerprint[128], kernels[256];
};

/* boot_plan, and the server's own rows; reads certificates and keys, which are checked here. */
MUST enum err serve_plan(struct serve *s, struct box *b, struct err_text *e);

/* Before boot_load, which may take minutes and much memory: the listeners, or what is wrong with
 * them. Who connects meanwhile waits. An error later on is to close the loop. */
MUST enum err serve_listen(struct serve *s, struct box *b, struct err_text *e);

/* After boot_load: the API and the connections. */
MUST enum err serve_open(struct serve *s, struct box *b, struct err_text *e);

#endif
