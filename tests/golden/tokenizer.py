"""The tokenizer that all tiny models share: byte-level BPE, 256 bytes + 28 merges + 4 specials,
trained by the tokenizers library on the fixed text below and saved by transformers."""
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
VOCAB = 288
TEXT = """the box answers the same bytes for the same request whatever else the box is doing
one thread decides and the other threads compute so that nothing is allocated after the start
an error says what is wrong where it is wrong and what to do about it then the caller can act
weights are read once checked once and never trusted before they are checked against the shape"""

TEMPLATE = """{%- for m in messages %}
{{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def build(folder):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(TEXT.split("\n"), trainer)
    assert tok.get_vocab_size() == VOCAB
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>",
                                   pad_token="</s>", chat_template=TEMPLATE, model_max_length=256)
    fast.save_pretrained(folder)
    Tokenizer.from_file(folder + "/tokenizer.json").save(folder + "/tokenizer.json", pretty=False)


if __name__ == "__main__":  # transformers 4 is run as a process of its own
    import sys
    build(sys.argv[1])
