"""The official OpenAI client against `zigcuda serve`: plain, TLS and Unix socket, streamed or not.

usage: openai_client.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import os
import ssl
import sys
import tempfile

import jsonschema
import openai
import openapi_spec_validator

import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
HELLO = [{"role": "user", "content": "Hello"}]
USAGE = {"include_usage": True}
PREDICTION = {"type": "content", "content": "Hello"}
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


KEY, CERTIFICATE = server.certificate(FOLDER.name, "ec")
SOCKET = os.path.join(FOLDER.name, "sock")
LISTEN = f"plain:127.0.0.1:0,127.0.0.1:0,unix:{SOCKET}"
SERVER = server.Server(MODEL_DIR, "--tls.certificate", CERTIFICATE, "--tls.key", KEY,
                       listen=LISTEN)
PLAIN, SECURE = (int(a.rpartition(":")[2]) for a in SERVER.addresses[:2])


def client_of(url, **http):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0,
                         http_client=httpx.Client(timeout=60, **http))


CLIENT = client_of(f"http://127.0.0.1:{PLAIN}")
WAYS = {
    "tcp": CLIENT,
    "tls": client_of(f"https://localhost:{SECURE}",
                     verify=ssl.create_default_context(cafile=CERTIFICATE)),
    "unix": client_of("http://localhost", transport=httpx.HTTPTransport(uds=SOCKET)),
}


def chat(client=CLIENT, messages=HELLO, **more):
    extra = {k: more.pop(k) for k in list(more) if k in EXTENSIONS}
    more.setdefault("max_tokens", 12)
    return client.chat.completions.create(model=MODEL, messages=messages, extra_body=extra, **more)


def complete(prompt="Hello", client=CLIENT, **more):
    extra = {k: more.pop(k) for k in list(more) if k in EXTENSIONS}
    more.setdefault("max_tokens", 12)
    return client.completions.create(model=MODEL, prompt=prompt, extra_body=extra, **more)


def post(path, body):
    return CLIENT._client.post(f"http://127.0.0.1:{PLAIN}{path}", json=body).json()


EXTENSIONS = ("top_k", "min_p", "typical_p", "repetition_penalty", "min_tokens", "ignore_eos",
              "stop_token_ids", "deadline_ms", "priority", "chat_template_kwargs",
              "continue_final_message", "add_generation_prompt", "add_special_tokens",
              "skip_special_tokens", "wrong_field")


def joined(chunks):
    """Text and finish reason of the first choice of a chat stream, and its usage."""
    text, finish, usage = "", None, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert finish is None, "a chunk behind the last"
            text += choice.delta.content or ""
            finish = choice.finish_reason
    return text, finish, usage


@check
def models():
    for client in WAYS.values():
        assert [m.id for m in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).object == "model"
    refused(lambda: CLIENT.models.retrieve("other"), openai.NotFoundError, "model")


@check
def every_way_gives_the_same():
    whole, streamed = set(), set()
    for client in WAYS.values():
        r = chat(client, seed=7)
        whole.add((r.choices[0].message.content, r.choices[0].finish_reason))
        streamed.add(joined(chat(client, seed=7, stream=True))[:2])
    assert len(whole) == 1 and whole == streamed, (whole, streamed)


@check
def shape_of_a_chat():
    r = chat(temperature=0)
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == MODEL
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.refusal is None
    assert r.usage.completion_tokens <= 12 and r.usage.prompt_tokens > 5
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.system_fingerprint.startswith("fp_")
    assert chat().id != r.id


@check
def stream_ends_with_usage():
    chunks = list(chat(stream=True, seed=1, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens <= 12
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason in ("stop", "length")
    # As vLLM has it, for those who count tokens while they come.
    each = {"include_usage": True, "continuous_usage_stats": True}
    for r in chat(stream=True, seed=1, stream_options=each), complete(
            stream=True, seed=1, stream_options=each):
        *so_far, last = [c.usage for c in r]
        counts = [u.completion_tokens for u in so_far]
        assert counts == sorted(counts) and len(set(counts)) > 3, counts
        assert so_far[-1] == last and all(u.prompt_tokens == last.prompt_tokens for u in so_far)
    for unasked in {"continuous_usage_stats": True}, {**USAGE, "continuous_usage_stats": False}:
        *chunks, _ = chat(stream=True, seed=1, stream_options=unasked)
        assert all(c.usage is None for c in chunks), unasked


@check
def seed_and_temperature():
    text = {chat(seed=3, temperature=1.5).choices[0].message.content for _ in range(3)}
    assert len(text) == 1
    other = {chat(temperature=1.5).choices[0].message.content for _ in range(6)}
    assert len(other) > 1, "no seed should not mean one seed"
    assert len({chat(temperature=0).choices[0].message.content for _ in range(3)}) == 1


@check
def several_choices():
    r = chat(n=4, seed=5, temperature=1.5)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    texts = [c.message.content for c in r.choices]
    assert len(set(texts)) > 1
    assert chat(seed=5, temperature=1.5).choices[0].message.content == texts[0]
    got = ["", "", "", ""]
    for chunk in chat(n=4, seed=5, temperature=1.5, stream=True):
        for c in chunk.choices:
            got[c.index] += c.delta.content or ""
    assert got == texts


@check
def best_of():
    r = complete(n=2, best_of=6, seed=2, temperature=1.5, logprobs=0)
    assert [c.index for c in r.choices] == [0, 1]
    all_of = complete(n=6, seed=2, temperature=1.5, logprobs=0)
    quality = {c.text: sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs)
               for c in all_of.choices}
    best = sorted(quality.values(), reverse=True)[:2]
    assert sorted((quality[c.text] for c in r.choices), reverse=True) == best
    refused(lambda: complete(n=3, best_of=2), openai.BadRequestError, "best_of")
    refused(lambda: complete(best_of=2, stream=True), openai.BadRequestError, "best_of")


@check
def chat_logprobs():
    r = chat(logprobs=True, top_logprobs=3, temperature=0)
    entries = r.choices[0].logprobs.content
    assert len(entries) in (r.usage.completion_tokens, r.usage.completion_tokens - 1)
    for e in entries:
        assert e.logprob <= 0 and len(e.top_logprobs) == 3
        assert e.top_logprobs[0].token == e.token and e.top_logprobs[0].logprob == e.logprob
        assert bytes(e.bytes).decode(errors="replace") == e.token
    raw = b"".join(bytes(e.bytes) for e in entries)
    streamed = [e for c in chat(logprobs=True, top_logprobs=3, temperature=0, stream=True)
                if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert [(e.token, e.logprob) for e in streamed] == [(e.token, e.logprob) for e in entries]
    assert raw


@check
def completion_logprobs():
    r = complete("Once", logprobs=4, temperature=0)
    lp = r.choices[0].logprobs
    n = len(lp.tokens)
    assert n == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) > 0
    assert lp.text_offset[0] == 0 and lp.text_offset == sorted(lp.text_offset)
    assert all(1 <= len(t) <= 5 for t in lp.top_logprobs)
    refused(lambda: complete(logprobs=6), openai.BadRequestError, "logprobs")


@check
def prompts_of_every_kind():
    one = complete("Hello", seed=1).choices[0].text
    r = complete(["Hello", "Once upon"], seed=1)
    assert [c.index for c in r.choices] == [0, 1] and r.choices[0].text == one
    http = CLIENT._client
    ids = http.post(f"http://127.0.0.1:{PLAIN}/tokenize", json={"prompt": "Hello"}).json()
    assert ids["count"] == len(ids["tokens"]) > 0
    assert complete(ids["tokens"], seed=1).choices[0].text == one
    assert complete([ids["tokens"]] * 2, seed=1).choices[1].text == one
    back = http.post(f"http://127.0.0.1:{PLAIN}/detokenize", json={"tokens": ids["tokens"]}).json()
    assert "Hello" in back["prompt"]
    for bad in ([], [[]], 3, {}, [1, "x"], [-1], [10 ** 9], [1.5], ""):
        refused(lambda: complete(bad), openai.BadRequestError, "prompt")


@check
def echo():
    plain = complete("Hello", seed=1).choices[0].text
    assert complete("Hello", seed=1, echo=True).choices[0].text == "Hello" + plain
    text = "".join(c.choices[0].text for c in complete("Hello", seed=1, echo=True, stream=True))
    assert text == "Hello" + plain
    long = "Grüße an alle! " * 8
    assert complete(long, seed=1, echo=True).choices[0].text.startswith(long)


@check
def logprobs_of_the_prompt():
    """A prompt's tokens get the logprobs they would get as greedy output, and as forced output."""
    first = complete("Hello", temperature=0, logprobs=2, ignore_eos=True, max_tokens=40)
    out = first.choices[0].logprobs
    ids = post("/tokenize", {"prompt": "Hello"})["tokens"]
    again = complete("Hello", echo=True, temperature=0, logprobs=2, ignore_eos=True, max_tokens=40)
    lp = again.choices[0].logprobs
    n = len(ids)
    assert lp.tokens[n:] == out.tokens and lp.token_logprobs[n:] == out.token_logprobs
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
    assert all(p <= 0 for p in lp.token_logprobs[1:]) and len(lp.text_offset) == n + 40
    assert again.choices[0].text == "Hello" + first.choices[0].text
    # Greedy tokens, given back as a prompt, keep their logprobs; and every chunking is the same.
    forced = ids + [9, 8, 7] * 20
    whole = complete(forced, echo=True, logprobs=0, max_tokens=1).choices[0].logprobs
    for cut in (20, 33, 50):
        part = complete(forced[:cut], echo=True, logprobs=0, max_tokens=1).choices[0].logprobs
        assert part.token_logprobs[:cut] == whole.token_logprobs[:cut]
    step = complete(forced[:30], logprobs=5, max_tokens=1, temperature=0,
                    logit_bias={str(forced[30]): 100}).choices[0].logprobs
    assert step.token_logprobs[0] == whole.token_logprobs[30]


@check
def the_prompt_alone():
    """With max_tokens 0, as harnesses that score texts ask."""
    text = "Grüße, 🙂! Hello"
    one = complete(text, echo=True, logprobs=2, max_tokens=1, temperature=0).choices[0].logprobs
    for n in (1, 2):
        r = complete(text, echo=True, logprobs=2, max_tokens=0, n=n, temperature=0)
        assert r.usage.completion_tokens == 0 and len(r.choices) == n
        for c in r.choices:
            assert c.text == text and c.finish_reason == "length"
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                assert getattr(c.logprobs, name) == getattr(one, name)[:-1], name
    stream = list(complete(text, echo=True, logprobs=2, max_tokens=0, stream=True))
    assert "".join(c.choices[0].text for c in stream) == text
    assert stream[-1].choices[0].finish_reason == "length"
    assert sum((c.choices[0].logprobs.tokens for c in stream if c.choices[0].logprobs), []) == \
        one.tokens[:-1]
    r = complete("Hello", max_tokens=0)
    assert r.choices[0].text == "" and r.usage.completion_tokens == 0
    refused(lambda: complete("Hello", max_tokens=0, min_tokens=1), openai.BadRequestError,
            "min_tokens")
    context = CLIENT.models.retrieve(MODEL).max_model_len
    full = [5 + i % 90 for i in range(context)]  # nothing has to be left for an answer
    one = complete(full[:-1], echo=True, logprobs=2, max_tokens=1).choices[0].logprobs
    for n in (1, 2):
        r = complete(full, echo=True, logprobs=2, max_tokens=0, n=n)
        for c in r.choices:
            assert c.logprobs.token_logprobs[:-1] == one.token_logprobs[:-1]
            assert len(c.logprobs.tokens) == context
    e = refused(lambda: complete(full + [5], echo=True, max_tokens=0), openai.BadRequestError,
                "prompt", context, context + 1)
    assert "left for the answer" not in e.body["message"]
    refused(lambda: complete(full, max_tokens=1), openai.BadRequestError, "prompt",
            "one must be left for the answer")


@check
def logprobs_of_the_prompt_streamed():
    """Joined, the pieces of a stream are the whole reply."""
    lists = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    ids = post("/tokenize", {"prompt": "Grüße, 🙂!"})["tokens"]
    for prompt in ("Hello", "Grüße an alle! 🙂 " * 12, ids, [[5], ids + [200]], ["a", "Hello"]):
        for n, logprobs in ((1, 0), (2, 3)):
            wish = dict(seed=3, echo=True, n=n, logprobs=logprobs, max_tokens=6)
            whole = complete(prompt, **wish).choices
            joined = [dict(text="", **{k: [] for k in lists}) for _ in whole]
            for chunk in complete(prompt, stream=True, **wish):
                for c in chunk.choices:
                    joined[c.index]["text"] += c.text
                    for k in lists if c.logprobs else ():
                        joined[c.index][k] += getattr(c.logprobs, k)
            for c, j in zip(whole, joined):
                assert c.text == j["text"]
                assert all(getattr(c.logprobs, k) == j[k] for k in lists), (prompt, n)


@check
def offsets_are_those_of_the_text():
    """Also behind special tokens, which may be text or not, and where text is held back."""
    marked = "<|im_start|>user\nGr\u00fc\u00dfe!<|im_end|>\n"
    ids = post("/tokenize", {"prompt": marked})["tokens"]
    pointed = 0
    for prompt in ("Hello", marked, ids):
        for skip in (True, False):
            wish = dict(seed=4, echo=True, logprobs=0, max_tokens=30, ignore_eos=True,
                        skip_special_tokens=skip)
            whole = complete(prompt, **wish).choices[0]
            lp, text = whole.logprobs, whole.text
            assert lp.text_offset[-30] == len(text) - len(complete(
                prompt, **{**wish, "echo": False}).choices[0].text)
            for token, at in zip(lp.tokens, lp.text_offset):
                shown = token not in ("<s>", "<|im_start|>", "<|im_end|>") or prompt is marked
                if shown and token != "<s>" and "\ufffd" not in token + text[at:at + 1]:
                    assert text.startswith(token, at), (token, at, text)
                    pointed += 1
            wish["stop"] = [text[-6:] + "no", text[-3:-1]]
            lp = complete(prompt, **wish).choices[0].logprobs
            streamed = [at for c in complete(prompt, stream=True, **wish) for choice in c.choices
                        if choice.logprobs for at in choice.logprobs.text_offset]
            assert streamed == lp.text_offset, (streamed, lp.text_offset)
    assert pointed > 60


@check
def stop_strings():
    text = complete(seed=9, max_tokens=40, ignore_eos=True).choices[0].text
    inside = text[4:6]
    r = complete(seed=9, max_tokens=40, ignore_eos=True, stop=[inside])
    assert r.choices[0].text == text[:text.index(inside)]
    assert r.choices[0].finish_reason == "stop"
    streamed = "".join(c.choices[0].text for c in
                       complete(seed=9, max_tokens=40, ignore_eos=True, stop=inside, stream=True))
    assert streamed == r.choices[0].text
    many = [f"<{i}>" for i in range(15)] + [inside]
    assert complete(seed=9, max_tokens=40, ignore_eos=True, stop=many).choices[0].text == streamed
    refused(lambda: complete(stop=[*many, "x"]), openai.BadRequestError, "stop")
    for nothing in "", [], [""], None:
        r = complete(seed=9, max_tokens=40, ignore_eos=True, stop=nothing)
        assert r.choices[0].text == text, nothing
    assert complete(seed=9, max_tokens=40, ignore_eos=True, stop=["", inside]).choices[0].text == \
        streamed


@check
def messages_of_every_kind():
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    a = chat(messages=[{"role": "user", "content": parts}], seed=1)
    b = chat(messages=[{"role": "user", "content": "Hel\nlo"}], seed=1)
    assert a.choices[0].message.content == b.choices[0].message.content
    talk = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Go on"}]
    assert chat(messages=talk).usage.prompt_tokens > a.usage.prompt_tokens
    end = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello my"}]
    longer = chat(messages=end, add_generation_prompt=True).usage.prompt_tokens
    assert chat(messages=end, continue_final_message=True).usage.prompt_tokens < longer
    for bad, param in (([], "messages"), ([{"role": "user"}], "messages[0].content"),
                       ([{"role": "who", "content": "x"}], "messages[0].role"),
                       (HELLO + [{"role": "user", "content": 3}], "messages[1].content"),
                       ([{"role": "user", "content": [{"type": "image_url", "image_url": {
                           "url": "data:"}}]}], "messages[0].content")):
        refused(lambda: chat(messages=bad), openai.BadRequestError, param)


@check
def an_answer_comes_back_as_it_is():
    """The next turn with what the client made of the last answer, whole and dumped."""
    answer = chat(seed=1).choices[0].message
    plain = [*HELLO, {"role": "assistant", "content": answer.content}, *HELLO]
    want = chat(messages=plain, seed=2).choices[0].message.content
    for again in answer, answer.model_dump(), answer.model_dump(exclude_none=True), {
            **answer.model_dump(), "annotations": [], "audio": None, "function_call": None,
            "reasoning_content": "", "images": [],
            "provider_specific_fields": {"refusal": None, "more": {}}}:
        got = chat(messages=[*HELLO, again, *HELLO], seed=2)
        assert got.choices[0].message.content == want, again
    for again in {"content": None}, {"content": [], "name": None}, {"content": ""}:
        got = chat(messages=[*HELLO, {"role": "assistant", **again}, *HELLO], seed=2)
        assert got.usage.prompt_tokens == chat(messages=[
            *HELLO, {"role": "assistant", "content": ""}, *HELLO]).usage.prompt_tokens, again
    chat(messages=[*HELLO, {**answer.model_dump(), "name": "bob"}, *HELLO])
    for role in "system", "developer", "user", "assistant":
        part = {"type": "text", "text": "Hi", "annotations": [],
                "cache_control": {"type": "ephemeral"}}
        chat(messages=[{"role": role, "content": [part]}, *HELLO])
    for bad in {"role": "user", "content": None}, {"role": "assistant"}:
        refused(lambda: chat(messages=[bad]), openai.BadRequestError, "messages[0].content")
    bad = {**answer.model_dump(), "provider_specific_fields": {"citations": ["x"]}}
    refused(lambda: chat(messages=[*HELLO, bad]), openai.BadRequestError, "messages[1]")


def refused(call, kind, param, *words):
    try:
        call()
    except openai.APIStatusError as e:
        assert type(e) is kind, f"{type(e).__name__}, not {kind.__name__}: {e}"
        assert e.param == param, f"param {e.param!r}, not {param!r}: {e}"
        assert set(e.body) == {"message", "type", "param", "code"}, e.body
        assert e.response.headers["x-request-id"].startswith("req-")
        for w in words:
            assert str(w) in e.body["message"], e.body["message"]
        return e
    raise AssertionError(f"not refused ({param})")


@check
def every_wrong_field_is_named():
    bad = openai.BadRequestError
    for field, value in (("temperature", 2.5), ("temperature", -1), ("temperature", "1"),
                         ("top_p", 0), ("top_p", 1.1), ("n", 0), ("n", 129), ("n", 1.5),
                         ("max_tokens", 0), ("max_tokens", -2), ("max_tokens", 10 ** 30),
                         ("max_completion_tokens", 0), ("verbosity", "low"),
                         ("presence_penalty", 3),
                         ("frequency_penalty", -2.1), ("logit_bias", {"x": 1}),
                         ("logit_bias", {"0": 101}), ("logit_bias", {"99999999": 1}),
                         ("top_logprobs", 2), ("seed", 1.5), ("seed", 2 ** 64),
                         ("response_format", {"type": "xml"}),
                         ("tools", [{"type": "function", "function": {"name": "f"}}]),
                         ("tool_choice", "required"), ("store", True), ("modalities", ["audio"]),
                         ("reasoning_effort", "low"), ("stop", [1]),
                         ("stream_options", {"include_usage": True})):
        refused(lambda: chat(**{field: value}), bad, field)
    for field, value in (("top_k", -2), ("min_p", 2), ("typical_p", 0), ("repetition_penalty", 0),
                         ("min_tokens", 50), ("stop_token_ids", [-1]), ("deadline_ms", 0),
                         ("priority", 5000), ("chat_template_kwargs", {"messages": []}),
                         ("wrong_field", 1)):
        refused(lambda: chat(**{field: value}), bad, field)
    for field, value, allowed in (("deadline_ms", 10 ** 9, "1 to 86400000"),
                                  ("repetition_penalty", 101, "more than 0 and at most 100"),
                                  ("repetition_penalty", 0, "more than 0 and at most 100"),
                                  ("top_p", 1e-60, "more than 0 and at most 1"),
                                  ("top_k", -2, "-1 to 1048576"), ("min_p", 1.5, "0 to 1")):
        refused(lambda: chat(**{field: value}), bad, field, f"{field} is {value}", allowed)
    refused(lambda: chat(n=1.0), bad, "n", "not 1.0")
    refused(lambda: chat(stream=1), bad, "stream", "not 1")
    refused(lambda: complete(suffix="x"), bad, "suffix")
    refused(lambda: chat(messages=HELLO, extra_headers={"content-type": "text/plain"}),
            openai.APIStatusError, None)


@check
def harmless_fields_are_taken():
    chat(user="me", metadata={"a": "b"}, service_tier="auto", store=False, tools=[],
         tool_choice="none", response_format={"type": "text"}, modalities=["text"],
         parallel_tool_calls=True, logit_bias={"5": -100}, top_k=-1, min_p=0.05, typical_p=0.9,
         repetition_penalty=1.1, min_tokens=2, stop_token_ids=[3], deadline_ms=60000, priority=-3,
         presence_penalty=0.5, frequency_penalty=0.5, top_p=0.9, skip_special_tokens=True)


@check
def too_long_says_both_numbers():
    context = CLIENT.models.retrieve(MODEL).max_model_len
    e = refused(lambda: complete([5] * (context + 7)), openai.BadRequestError, "prompt",
                context + 7, context)
    assert e.code == "context_length_exceeded"
    # As OpenAI says it: libraries look for these words.
    assert f"this model's maximum context length is {context} tokens" in e.body["message"], e
    refused(lambda: complete([5] * 10, max_tokens=context), openai.BadRequestError, "max_tokens",
            10, context)
    refused(lambda: chat(max_tokens=None, max_completion_tokens=context), openai.BadRequestError,
            "max_completion_tokens", "`max_completion_tokens` exceed context limit", context)
    e = refused(lambda: chat(messages=[{"role": "user", "content": "word " * context}]),
                openai.BadRequestError, "messages", context)


@check
def bias_and_stop_ids_work():
    ids = [e.token for e in chat(logprobs=True, temperature=0).choices[0].logprobs.content]
    r = complete([5, 6, 7], temperature=0, logit_bias={"9": 100}, logprobs=0, ignore_eos=True)
    assert len(set(r.choices[0].logprobs.tokens)) == 1 and ids
    r = complete([5, 6, 7], temperature=0, logit_bias={"9": 100}, stop_token_ids=[9])
    assert r.choices[0].finish_reason == "stop" and r.choices[0].text == ""
    assert r.usage.completion_tokens == 1


@check
def document_is_openapi_and_replies_fit():
    """By validators that nobody here wrote."""
    document = CLIENT._client.get(f"http://127.0.0.1:{PLAIN}/openapi.json").json()
    errors = openapi_spec_validator.OpenAPIV31SpecValidator(document).iter_errors()
    assert document["openapi"].startswith("3.1.") and not list(errors)
    wrong = {k: document[k] for k in document if k != "info"}
    assert list(openapi_spec_validator.OpenAPIV31SpecValidator(wrong).iter_errors())

    def fits(value, schema):
        schema = {**document, "$ref": f"#/components/schemas/{schema}"}
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    asked = {"model": MODEL, "messages": HELLO, "max_tokens": 4, "logprobs": True,
             "top_logprobs": 2, "n": 2, "stop": ["x"], "seed": 1, "top_k": 5}
    reply = post("/v1/chat/completions", asked)
    assert fits(asked, "ChatRequest") and fits(reply, "ChatReply") and not fits(asked, "ChatReply")
    assert not fits({**asked, "n": "two"}, "ChatRequest")
    for field, value, may in (("seed", 2 ** 63, False), ("seed", -2 ** 63, True),
                              ("stop", "", True), ("stop", ["", "x"], True),
                              ("stop", 9 * ["", "x"], False), ("max_tokens", -1, True),
                              ("max_tokens", 0, False), ("max_completion_tokens", -2, False),
                              ("extra_body", {}, True), ("extra_body", {"n": 1}, False),
                              ("logit_bias", {"x": 1}, False),
                              ("modalities", ["text"], True), ("modalities", ["audio"], False),
                              ("stream_options", {"include_usage": None}, True),
                              ("stream_options", {"more": True}, False),
                              ("response_format", {}, False),
                              ("messages", [{**HELLO[0], "name": None, "refusal": None}], True),
                              ("messages", [{**HELLO[0], "annotations": []}], True),
                              ("messages", [{**HELLO[0], "annotations": [{}]}], False),
                              ("messages", [{**HELLO[0], "refusal": "no"}], False),
                              ("messages", [{**HELLO[0], "reasoning_content": "",
                                             "images": [], "fields": {}}], True),
                              ("messages", [{**HELLO[0], "fields": {"a": {"b": None}}}], True),
                              ("messages", [{**HELLO[0], "fields": {"a": {"b": 1}}}], False),
                              ("messages", [{"role": "user", "content": [
                                  {"type": "text", "text": "a", "cache_control": {
                                      "type": "ephemeral"}}]}], True),
                              ("messages", [{"role": "user", "content": [
                                  {"type": "text", "text": "a", "more": 1}]}], False),
                              ("prediction", None, True), ("prediction", {}, False),
                              ("prediction", PREDICTION, True), ("prediction", "Hello", False),
                              ("prediction", {**PREDICTION, "content": 1}, False),
                              ("prediction", {**PREDICTION, "type": "more"}, False),
                              ("suffix", None, True), ("unknown", None, True),
                              ("unknown", "", False), ("store", True, False)):
        assert fits({**asked, field: value}, "ChatRequest") == may, (field, value)
        assert ("error" not in post("/v1/chat/completions", {**asked, field: value})) == may, field
    asked = {"model": MODEL, "prompt": ["Hello", "you"], "max_tokens": 4, "logprobs": 2,
             "echo": True, "suffix": None}
    reply = post("/v1/completions", asked)
    for field, value, may in (("suffix", "", True), ("suffix", "x", False),
                              ("logprobs", False, True), ("logprobs", True, False),
                              ("max_tokens", -1, True), ("max_tokens", -2, False),
                              ("extra_body", {}, True), ("messages", None, True),
                              ("prediction", PREDICTION, True), ("prediction", {}, False),
                              ("messages", HELLO, False)):
        wish = {**asked, "prompt": "Hello", "ignore_eos": False, field: value}
        assert fits(wish, "CompletionRequest") == may, (field, value)
        assert ("error" not in post("/v1/completions", wish)) == may, (field, value)
    assert fits(asked, "CompletionRequest") and fits(reply, "CompletionReply")
    for kind, chunks in (("ChatChunk", chat(stream=True, logprobs=True, stream_options=USAGE,
                                            ignore_eos=True)),
                         ("CompletionChunk", complete(stream=True, echo=True, logprobs=1))):
        chunks = [c.to_dict() for c in chunks]
        assert len(chunks) > 3 and all(fits(c, kind) for c in chunks), (kind, chunks)
    for one in {"prompt": "a", "messages": None}, {"prompt": None, "messages": HELLO}:
        assert fits(one, "TokenizeRequest") and "error" not in post("/tokenize", one)
    assert fits(CLIENT._client.get(f"http://127.0.0.1:{PLAIN}/v1/models").json(), "Models")
    assert fits(post("/v1/completions", {"model": MODEL}), "Error") and not fits(reply, "Error")
    assert fits(CLIENT._client.get(f"http://127.0.0.1:{PLAIN}/v1/models/{MODEL}").json(), "Model")


@check
def wrong_model():
    refused(lambda: CLIENT.completions.create(model="other", prompt="x"), openai.NotFoundError,
            "model")


@check
def prefix_is_reused():
    prompt = [1 + i % 50 for i in range(100)]
    first = complete(prompt, seed=1)
    again = complete(prompt, seed=1)
    assert again.usage.prompt_tokens_details.cached_tokens >= 64
    assert first.choices[0].text == again.choices[0].text


@check
def a_predicted_answer_is_the_same_and_comes_in_fewer_steps():
    with server.Server("image/demo") as s:
        url = f"http://127.0.0.1:{s.port}"
        demo = client_of(url)

        def steps():
            lines = demo._client.get(url + "/metrics").text.splitlines()
            return next(float(l.split()[1]) for l in lines if l.startswith("zigcuda_steps_total "))

        def ask(content=None, **more):
            before = steps()
            if content is not None:
                more["prediction"] = {"type": "content", "content": content}
            r = demo.chat.completions.create(model="demo", temperature=0, max_tokens=100, messages=[
                {"role": "user", "content": "Tell me a story about a dog."}], **more)
            return r.choices[0].message.content, steps() - before

        text, alone = ask()
        middle = len(text) // 2
        parts = [{"type": "text", "text": t} for t in (text[:middle], text[middle:])]
        for content, share in ((text, 0.5), (parts, 0.6), (text.replace(" the ", " a "), 0.8),
                               (text + 999 * text, 0.5), ("", 1), (9999 * "\u00e9", 1)):
            same, n = ask(content)
            assert same == text and n <= share * alone, (content[:99], same, n, alone)
        same, n = ask(text, frequency_penalty=0.01)  # what counts tokens is not guessed
        assert n > 0.9 * alone, (n, alone)


@check
def nothing_that_was_said_is_in_the_log():
    chat(messages=[{"role": "user", "content": "xyzzysecret"}])
    log = SERVER.text()
    assert "xyzzysecret" not in log and "path=/v1/chat/completions status=200" in log


failed = server.run(checks)
SERVER.end()
FOLDER.cleanup()
sys.exit(failed != 0)
