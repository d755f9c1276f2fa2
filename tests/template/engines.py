"""The two engines the template tests compare: jinja2 set up as transformers does for chat
templates, and ours behind build/template_driver."""
import datetime
import json
import struct
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW_S = 1752969907  # 2025-07-20 00:05:07
NOW = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=NOW_S)


class Generation(jinja2.ext.Extension):
    """{% generation %}: a block that renders as it stands."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols], cache_size=0)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def jinja_render(source, variables, compiled={}):
    """('ok', text) or ('error', why)."""
    try:
        if source not in compiled:
            if len(compiled) > 200:
                compiled.clear()
            compiled[source] = ENV.from_string(source)
        full = {"tools": None, "documents": None, **variables}
        text = compiled[source].render(**full)
        text.encode()  # lone surrogates are no text
        return "ok", text
    except Exception as why:  # whatever Python raises is an error of the template
        return "error", f"{type(why).__name__}: {why}"


def our_render(driver, cases):
    """Renders (source, variables) pairs; a list like jinja_render's answers."""
    records = bytearray()
    for source, variables in cases:
        a = source.encode()
        b = json.dumps(variables, ensure_ascii=False).encode()
        records += struct.pack("<II", len(a), len(b)) + a + b
    run = subprocess.run([*driver, str(NOW_S)], input=bytes(records), capture_output=True)
    if run.returncode != 0:
        raise SystemExit(f"{driver}: exit {run.returncode}: {run.stderr.decode()}")
    answers, at = [], 0
    while at < len(run.stdout):
        status, n = struct.unpack_from("<BI", run.stdout, at)
        text = run.stdout[at + 5:at + 5 + n].decode()
        answers.append(("ok" if status == 0 else "error", text))
        at += 5 + n
    if len(answers) != len(cases):
        raise SystemExit(f"{driver}: {len(answers)} answers to {len(cases)} cases")
    return answers
