/* Every hard ceiling of the project, in one place. A value that comes from outside is checked
 * against one of these before it is used; passing it is an error that says the limit, the value
 * and the option. Nothing but numbers and static assertions lives here.
 */
#ifndef ZIGCUDA_LIMITS_H
#define ZIGCUDA_LIMITS_H

/* --- boot memory: address space, touched as needed ---------------------------------------- */
#define LIMIT_BOOT_ARENA_BYTES ((size_t)1 << 30)    /* metadata that stays: tokenizer, names */
#define LIMIT_SCRATCH_ARENA_BYTES ((size_t)4 << 30) /* JSON trees and other boot-time work */

/* --- JSON ---------------------------------------------------------------------------------- */
#define LIMIT_JSON_DEPTH 64      /* nesting of any JSON text */
#define LIMIT_JSON_NODES 8388608 /* values in one text */

/* --- model folder -------------------------------------------------------------------------- */
#define LIMIT_PATH_BYTES 4096
#define LIMIT_CONFIG_FILE_BYTES ((size_t)4 << 20)     /* config.json and its small neighbours */
#define LIMIT_TOKENIZER_FILE_BYTES ((size_t)64 << 20) /* tokenizer.json */
#define LIMIT_SAFETENSORS_HEADER_BYTES 100000000u     /* the format's own ceiling */
#define LIMIT_SHARDS 512
#define LIMIT_TENSORS 262144u /* 256 experts in each of 58 layers take 180,000 */
#define LIMIT_LAYERS 256
#define LIMIT_HIDDEN 32768
#define LIMIT_INTERMEDIATE 262144
#define LIMIT_EXPERTS 512 /* of a layer; and of them that one token takes: */
#define LIMIT_EXPERTS_USED 32
#define LIMIT_HEADS 256
#define LIMIT_HEAD_DIM 512
#define LIMIT_DELTA_DIM 128 /* of a head's keys, or values, in a gated delta net */
#define LIMIT_DELTA_TAPS 8  /* tokens that its convolution sees */
#define LIMIT_CHECKPOINTS 1024
#define LIMIT_VOCAB (1u << 20)
#define LIMIT_CONTEXT (1u << 20) /* positions of one sequence */
#define LIMIT_STOP_IDS 16        /* end-of-sequence ids of a model */
#define LIMIT_MODULES 8          /* of sentence-transformers, in modules.json */
#define LIMIT_EMBEDDING_SIZES 64 /* matryoshka_dimensions */

/* --- tokenizer and template ----------------------------------------------------------------- */
#define LIMIT_TOKEN_BYTES 4096 /* one vocabulary entry */
#define LIMIT_MERGES (2u << 20)
#define LIMIT_ADDED_TOKENS 8192
#define LIMIT_SPLIT_BYTES 16384     /* one split pattern */
#define LIMIT_SPLIT_CODE 512        /* its compiled steps */
#define LIMIT_SPLIT_CLASSES 62      /* different classes and characters in it */
#define LIMIT_SPLIT_ZONES 1024      /* ends of ranges beyond ASCII */
#define LIMIT_SPLIT_DEPTH 16        /* nested groups and classes */
#define LIMIT_SPLIT_FRAMES 2048     /* places that a match may come back to */
#define LIMIT_SPLIT_STEPS (1 << 28) /* of matching one text, beyond 64 a byte */
#define LIMIT_TEMPLATE_BYTES ((size_t)256 << 10)
#define LIMIT_TEMPLATE_STEPS 4000000u /* evaluated nodes of one rendering */
#define LIMIT_TEMPLATE_DEPTH 200      /* nested blocks and expressions of the source */
#define LIMIT_TEMPLATE_CALLS 1000     /* nested evaluations: expressions, blocks, macro calls */
#define LIMIT_TEMPLATE_NAMES 1024     /* different variable names of one template */
#define LIMIT_TEMPLATE_WORK_BYTES ((size_t)64 << 20) /* strings and values of one rendering */

/* --- options -------------------------------------------------------------------------------- */
#define LIMIT_INI_BYTES ((size_t)1 << 20)    /* /etc/zigcuda.ini, or what --config names */
#define LIMIT_INI_LINE_BYTES 8192            /* without its line end; holds a longest path */
#define LIMIT_MEMORY_BYTES ((size_t)1 << 44) /* of any place */
#define LIMIT_KERNELS_NAME_BYTES 31          /* a kernel set */

/* --- network ---------------------------------------------------------------------------------- */
#define LIMIT_CONNECTIONS 16384u
#define LIMIT_LISTENERS 16
#define LIMIT_HTTP_LINE_BYTES 8192u         /* request line, and each header line */
#define LIMIT_HTTP_HEAD_BYTES 16384u        /* request line and headers together */
#define LIMIT_HTTP_HEADERS 100              /* header lines of one request */
#define LIMIT_HTTP_CHUNK_LINE_BYTES 256u    /* size and extensions of one chunk */
#define LIMIT_HTTP_CHUNK_EXTRA_BYTES 16384u /* extensions and trailers of one body */
#define LIMIT_PARTING 8                     /* peers beyond server.connections that linger */
#define LIMIT_LINGER_MS 2000                /* a closed connection waits so long for its peer */
#define LIMIT_WRITE_STEP_BYTES 4096u        /* a reader takes so much in each server.write_time */
#define LIMIT_TLS_FILE_BYTES ((size_t)64 << 10) /* certificate chain, key, client CAs: each */
#define LIMIT_TLS_CHAIN 8                       /* certificates of one chain */
#define LIMIT_TLS_ANCHORS 16                    /* client CAs */
#define LIMIT_TLS_SESSIONS 1024                 /* sessions remembered for resumption */
#define LIMIT_TLS_FLIGHTS_PER_TURN 2 /* handshake steps with public-key work in one turn */
#define LIMIT_LOOP_SOURCES 32        /* descriptors with a callback, beside connections */
#define LIMIT_LOOP_EVENTS 256        /* taken from the kernel at once */
#define LIMIT_PEER_BYTES 46          /* an address as text, IPv6 at most: INET6_ADDRSTRLEN */
#define LIMIT_UNIX_UIDS 16           /* users allowed on a Unix socket, by name */

/* --- requests ------------------------------------------------------------------------------- */
#define LIMIT_SLOTS 256        /* sequences in one batch */
#define LIMIT_DRAFTS 32        /* guessed tokens in a step: kernels have tiles of so many tokens */
#define LIMIT_STEP_TOKENS 8192 /* tokens of one step */
#define LIMIT_QUEUE 4096       /* requests that wait */
#define LIMIT_LOGPROBS 20      /* alternatives reported a token */
#define LIMIT_LOGIT_BIAS 300   /* entries of one request */
#define LIMIT_STOP_STRINGS 16  /* OpenAI has 4; completions of code are sent with some ten */
#define LIMIT_STOP_STRING_BYTES 256
#define LIMIT_SCHEMA_VALUES 512  /* of an answer's JSON Schema: values, members, texts: each */
#define LIMIT_SCHEMA_BYTES 16384 /* of its keys and texts */
#define LIMIT_SCHEMA_RANGES 128  /* of its numbers: different ones */
#define LIMIT_REGEX_PATTERNS 64  /* different ones of a schema's strings; and of all of them: */
#define LIMIT_REGEX_STATES 1024
#define LIMIT_REGEX_CELLS 8192   /* states times classes of characters */
#define LIMIT_REGEX_ZONES 512    /* characters where a class begins */
#define LIMIT_REGEX_CODE 1024    /* steps of one pattern's program */
#define LIMIT_REGEX_SETS 64      /* different characters and classes in it */
#define LIMIT_REGEX_SPANS 512    /* of characters, in these */
#define LIMIT_REGEX_CLASSES 256  /* of characters, between which it makes a difference */
#define LIMIT_REGEX_DEPTH 32     /* nested groups */
#define LIMIT_SCHEMA_DEPTH 24    /* values within values of the answer */
#define LIMIT_TOOL_TEXTS 4096    /* parameters of a request's tools that may be strings */
#define LIMIT_TOOL_SCHEMAS 65536 /* parts of the schemas of all their parameters */
#define LIMIT_THREADS 256        /* CPU worker threads */
#define LIMIT_PAGE_TOKENS 16     /* KV positions a page; fixed, so that bits do not depend on it */

/* --- GPUs ----------------------------------------------------------------------------------- */
#define LIMIT_GPUS 64            /* devices of one box that are looked at */
#define LIMIT_GPU_WAIT_MS 600000 /* for devices that come late */

/* --- kernels of users: zigcuda kernel run ---------------------------------------------------- */
#define LIMIT_KERNEL_FILE_BYTES ((size_t)256 << 20) /* source or image */
#define LIMIT_KERNEL_BUFFER_BYTES ((size_t)1 << 40) /* one buffer on the device */
#define LIMIT_KERNEL_LOG_BYTES ((size_t)1 << 20)    /* of the compiler */
#define LIMIT_KERNEL_ARGS 128                       /* parameters of one kernel */
#define LIMIT_KERNEL_OPTIONS 64                     /* for the compiler */
#define LIMIT_KERNEL_NAMES 1024                     /* kernels of a module that a message lists */
#define LIMIT_KERNEL_REPEAT 1000000

/* --- the API -------------------------------------------------------------------------------- */
#define LIMIT_CHOICES 128 /* n, best_of, and prompts of one request */
#define LIMIT_INPUTS 2048 /* of one request for embeddings */
#define LIMIT_KEYS 512
#define LIMIT_KEY_NAME_BYTES 63
#define LIMIT_KEY_FILE_BYTES ((size_t)128 << 10)
#define LIMIT_ORIGINS 32 /* of other sites that may call (CORS) */
#define LIMIT_HOSTS 32   /* names by which loopback may be called */
#define LIMIT_API_LIST_BYTES 2048

/* --- the guest: glibc inside this process --------------------------------------------------- */
#define LIMIT_ELF_HEADERS 32                            /* program headers of one file */
#define LIMIT_ELF_SPAN_BYTES ((unsigned long)256 << 20) /* from its first to its last byte */
#define LIMIT_GUEST_STACK_BYTES ((size_t)1 << 20) /* on which glibc boots; touched as needed */
#define LIMIT_GUEST_ENVIRONMENT 4096              /* variables */

#endif
