/* What a model writes, told apart as it comes: thoughts, text, and calls of functions
 * (core/model/tool_call.h). Models that think do that first, between marks that stand in their chat
 * template:
 *
 *   <think> ... </think>              DeepSeek R1, Qwen 3, GLM 4.5, SmolLM 3 and most others
 *   [THINK] ... [/THINK]              Magistral, Ministral 3
 *   <seed:think> ... </seed:think>    Seed OSS
 *   <think> ... </think> <answer> ... </answer>   Hunyuan, whose text has marks, too
 *   <|channel>thought ... <channel|>   Gemma 4, which may think again behind text or a call
 *   <|channel|>analysis<|message|> ... <|end|>    gpt-oss, see core/model/harmony.h
 *
 * The first mark is written by the model, or by its template at the end of the prompt. Marks, and
 * blanks around thoughts and within marks of a text, belong to neither part; where there are no
 * thoughts the text is what was written, to the byte. What stands within thoughts is no call. Where
 * a thought comes again there is an empty line between the two.
 */
#ifndef ZIGCUDA_ANSWER_H
#define ZIGCUDA_ANSWER_H

#include "core/model/tool_call.h"

struct thought_format {
    const char *begin, *end; /* marks; the first character of each does not come again in it */
    /* Of messages that are read by core/model/harmony.h; NULL: of none. What has to stand between
     * the end of one and the next one's header, what texts begin with behind that, and others. */
    const char *next, *text, *preamble;
    const char *member; /* of a message, that the template reads thoughts from; NULL: usual */
    const char *answer, *answer_end; /* marks of the text behind thoughts; NULL: it has none */
    bool again;                      /* they may come again */
};

/* The marks that a chat template knows, by its source; NULL: none. */
const struct thought_format *thought_format_of(struct str template_source);

enum thoughts {
    THOUGHTS_NONE, /* what comes is text */
    THOUGHTS_MAY,  /* it may begin with them */
    THOUGHTS_OPEN  /* it begins within */
};

/* What an answer begins with behind this prompt, whose last message is not `continued`; or behind
 * what is there already of the message that it goes on with. */
enum thoughts thoughts_behind(const struct thought_format *f, struct str prompt);
enum thoughts thoughts_within(const struct thought_format *f, struct str message);

/* How an answer is read; all 0: as text. */
struct answer_format {
    const struct thought_format *thoughts; /* NULL: none are told apart */
    enum thoughts first;
    bool left_out, raw;              /* thoughts are; they are text as it was written */
    bool formed;                     /* text has a given form: no mark counts in it */
    const struct tool_format *calls; /* NULL: none */
    struct tool_types types;         /* of their values, where they are XML */
};

enum {
    ANSWER_BLANKS = 128,
    ANSWER_HELD_BYTES = 256
}; /* blanks in a row that wait; all that does */

struct answer_reader {
    struct tool_reader calls;
    struct str part; /* text that `calls` has not read yet: of what was put in last, or held */
    const struct thought_format *format;
    bool left_out, again, thought; /* they may come again; one has come */
    bool marked;                   /* what comes is a text between marks */
    bool formed;                   /* what comes is a call, or an object without any */
    u8 state;
    u32 n, matched, blanks; /* bytes in held; of a mark that may have begun; blanks before it */
    char held[ANSWER_HELD_BYTES];
};

struct answer_reader answer_reader_of(const struct answer_format *f);

/* The next piece of *text, which is cut by what was taken; false when all is taken. The piece is of
 * *text or the reader's until it is used again. */
bool answer_next(struct answer_reader *r, struct str *text, struct piece *piece);

/* Behind the last text: the next piece of what was held back; false: nothing is left. */
bool answer_end(struct answer_reader *r, struct piece *piece);

/* What comes next may be of a thought, or end it. */
bool answer_thinks(const struct answer_reader *r);

#endif
