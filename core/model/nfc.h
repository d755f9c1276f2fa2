/* Unicode normalization form C (UAX 15), with the Unicode version of the tokenizers library.
 * Linear in the text; works in memory of the caller.
 */
#ifndef ZIGCUDA_NFC_H
#define ZIGCUDA_NFC_H

#include "core/base/base.h"

enum {
    NFC_GROWTH = 3,    /* NFC of n bytes of UTF-8 has at most 3 n bytes (UAX 15, table 8) */
    NFC_WORK_WORDS = 4 /* u32 of work memory a byte of text: two arrays of two each (3 code points
                          can come from 2 bytes) */
};

/* True when nfc_normalize would change nothing; may say false for normal text. */
bool nfc_is_plain(struct str text);

/* Writes the NFC of valid UTF-8 to out[NFC_GROWTH * text.n]; returns its bytes.
 * work[NFC_WORK_WORDS * text.n]. */
size_t nfc_normalize(struct str text, char *out, u32 *work);

#endif
