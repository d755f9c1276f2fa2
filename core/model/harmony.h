/* Answers in OpenAI's "harmony" format, as gpt-oss writes them: messages, each behind a header that
 * says what it is.
 *
 *   <|channel|>analysis<|message|>...<|end|>                        thoughts
 *   <|start|>assistant<|channel|>final<|message|>...<|return|>      text
 *   ...<|channel|>commentary<|message|>...<|end|>                   text before calls
 *   ...<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>     a call
 *
 * The first header goes on behind <|start|>assistant, the end of the prompt. A recipient ("to=")
 * makes a call of any message; it may stand before the channel, "functions." is not of its name,
 * and what else a header has does not count. An answer usually ends with a call, but several are
 * read.
 *
 * Only what makes a whole is a mark: <|end|> with <|start|> or the answer's end behind it, and a
 * header up to its <|message|>. Anything else is text, to the byte: an answer that begins with no
 * header, too, or a header of more than TOOL_HELD_BYTES. A header that the answer's end breaks off
 * behind its first mark is dropped; half a mark is text.
 *
 * Of any other channel, or none, of another role, or to a recipient where there are no functions, a
 * message is text (or a thought, if its channel says so). Between two messages of text stands an
 * empty line, and so between two thoughts. Of a call's arguments the object is given out, or what
 * there is instead, up to <|call|> or <|end|>; where there is nothing, {}.
 */
#ifndef ZIGCUDA_HARMONY_H
#define ZIGCUDA_HARMONY_H

#include "core/model/answer.h"

bool harmony_is_taught(struct str template_source);

/* By the last header of a prompt what goes on behind it; THOUGHTS_MAY: a header. */
enum thoughts harmony_behind(struct str prompt);

void harmony_begin(struct tool_reader *r, const struct answer_format *f);

/* As answer_next and answer_end. */
bool harmony_next(struct tool_reader *r, struct str *text, struct piece *piece);
bool harmony_end(struct tool_reader *r, struct piece *piece);

bool harmony_thinks(const struct tool_reader *r);

#endif
