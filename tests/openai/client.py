"""Drives a running server with the official `openai` package, and prints what was asked and what came: a transcript.

    client.py BASE_URL      # as http://127.0.0.1:8000

Every part asserts what it expects; all parts run even when one fails, and the exit status says whether all held.
"""

import asyncio
import json
import sys
import textwrap
import time
import traceback

import openai

BASE = sys.argv[1].rstrip("/")
client = openai.OpenAI(base_url=BASE + "/v1", api_key="any", max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}

parts = []


def part(function):
    """A part of the transcript; its docstring is the title."""
    parts.append(function)
    return function


def show(label, value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    print(textwrap.fill(f"{label}: {text}", 118, initial_indent="  ", subsequent_indent="      ", drop_whitespace=False))


def chat(**more):
    request = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 0} | more
    return client.chat.completions.create(**request)


def complete(prompt="The capital of France is", **more):
    return client.completions.create(**({"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0} | more))


def joined(stream):
    """Text, end and usage of a stream of one answer."""
    text, finish, usage = "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usage


def refused(kind, function):
    """The error that `function` must raise; it must be of this class."""
    try:
        function()
    except openai.APIStatusError as error:
        assert type(error) is kind, f"{type(error).__name__} and not {kind.__name__}: {error}"
        show(kind.__name__, f"{error.status_code}, param {error.param}: {error.body['message']}")
        return error
    raise AssertionError(f"no {kind.__name__}")


@part
def models():
    """client.models.list() and .retrieve()"""
    page = client.models.list()
    show("models", [m.id for m in page.data])
    assert page.object == "list" and page.data[0].object == "model" and page.data[0].created > 0
    assert client.models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, lambda: client.models.retrieve("another"))


@part
def answers():
    """client.chat.completions.create(): an answer"""
    answer = chat()
    choice = answer.choices[0]
    show("assistant", choice.message.content)
    show("usage", answer.usage.model_dump(exclude_none=True))
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert answer.object == "chat.completion" and answer.model == MODEL and answer.id
    assert abs(answer.created - time.time()) < 60
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert "Paris" in choice.message.content
    assert chat().choices[0].message.content == choice.message.content, "the same greedy answer twice"


@part
def streams():
    """stream=True with stream_options={"include_usage": True}: the same answer in pieces"""
    whole = chat()
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    text, finish, usage = joined(chunks)
    show("chunks", f"{len(chunks)}, usage in the last: {usage.model_dump(exclude_none=True)}")
    assert text == whole.choices[0].message.content and finish == whole.choices[0].finish_reason
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert chunks[-1].choices == [] and all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1 and chunks[0].choices[0].delta.role == "assistant"
    assert joined(chat(stream=True))[2] is None, "no usage where none is asked for"


@part
def helper_streams():
    """client.chat.completions.stream(): the package's own accumulation of a stream"""
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, max_tokens=16, temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    show("events", sorted(set(kinds)))
    assert final.choices[0].message.content == chat(max_tokens=16).choices[0].message.content


@part
def conversations():
    """several turns, a system message, content in parts"""
    messages = [
        {"role": "system", "content": "You answer with one word."},
        {"role": "user", "content": [{"type": "text", "text": "My name is Ada."}, {"type": "text", "text": " Remember it."}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = chat(messages=messages, max_tokens=12)
    show("assistant", answer.choices[0].message.content)
    assert answer.usage.prompt_tokens > 30
    again = chat(messages=messages, max_tokens=12)
    show("cached tokens, second time", again.usage.prompt_tokens_details.cached_tokens)
    assert again.choices[0].message.content == answer.choices[0].message.content


@part
def several():
    """n=3 with a seed: three answers, the same three again"""
    story = [{"role": "user", "content": "Tell me a story about an animal."}]
    ask = lambda seed, **more: chat(messages=story, n=3, seed=seed, temperature=1, max_tokens=24, **more)
    first = [c.message.content for c in ask(7).choices]
    for text in first:
        show("choice", text)
    assert len(set(first)) == 3 and [c.index for c in ask(7).choices] == [0, 1, 2]
    assert [c.message.content for c in ask(7).choices] == first
    assert [c.message.content for c in ask(8).choices] != first
    texts = ["", "", ""]
    for chunk in ask(7, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == first, "streamed beside each other, the same"


@part
def stops():
    """stop strings, and vLLM's stop_reason"""
    whole = complete("1 2 3 4 5", max_tokens=24).choices[0]
    cut = complete("1 2 3 4 5", max_tokens=24, stop=["9", "8"]).choices[0]
    show("without", whole.text)
    show("with stop=['9', '8']", cut.text)
    assert cut.finish_reason == "stop" and cut.stop_reason == "8" and "8" not in cut.text
    assert whole.text.startswith(cut.text + "8")


@part
def log_probabilities():
    """logprobs=True, top_logprobs=3"""
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=6).choices[0]
    for entry in answer.logprobs.content:
        show(repr(entry.token), [[top.token, round(top.logprob, 3)] for top in entry.top_logprobs])
        assert len(entry.top_logprobs) == 3 and entry.logprob == entry.top_logprobs[0].logprob <= 0
        assert bytes(entry.bytes).decode() == entry.token
    assert "".join(entry.token for entry in answer.logprobs.content) == answer.message.content
    old = complete(logprobs=2, max_tokens=4).choices[0].logprobs
    assert len(old.tokens) == len(old.token_logprobs) == len(old.top_logprobs) == len(old.text_offset) == 4


@part
def forms():
    """response_format json_schema: always JSON of this schema; json_object too"""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "population": {"type": "integer", "minimum": 0, "maximum": 99999999}},
        "required": ["city", "population"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}
    for seed in range(3):
        text = chat(response_format=form, temperature=1, seed=seed, max_tokens=80).choices[0].message.content
        found = json.loads(text)
        show("json", text)
        assert set(found) == {"city", "population"} and isinstance(found["population"], int)
    text = chat(response_format={"type": "json_object"}, max_tokens=40)
    show("json_object", text.choices[0].message.content)
    assert text.choices[0].message.content.lstrip().startswith("{")
    bad = {"type": "json_schema", "json_schema": {"name": "bad", "schema": {"type": "nonsense"}}}
    refused(openai.BadRequestError, lambda: chat(response_format=bad))


@part
def parsed():
    """client.chat.completions.parse() into a class"""
    from enum import Enum

    from pydantic import BaseModel

    class Mood(str, Enum):
        GOOD = "good"
        BAD = "bad"

    class Review(BaseModel):
        mood: Mood
        stars: int

    answer = client.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Review, max_tokens=60, temperature=0)
    show("parsed", repr(answer.choices[0].message.parsed))
    assert isinstance(answer.choices[0].message.parsed, Review)


@part
def tools():
    """tools, with tool_choice none, required and named; the same in a stream; then the tool's answer"""
    ask = lambda **more: chat(tools=[WEATHER], max_tokens=80, **more)
    message = [{"role": "user", "content": "How is the weather in Paris for the next 3 days?"}]
    plain = ask(messages=message, tool_choice="none")
    assert plain.choices[0].message.tool_calls is None
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = ask(messages=message, tool_choice=choice).choices[0]
        call = answer.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        show("call", f"{call.function.name}({call.function.arguments}), finish_reason {answer.finish_reason}")
        assert answer.finish_reason == "tool_calls" and call.type == "function" and call.id
        assert call.function.name == "get_weather" and 1 <= arguments["days"] <= 7 and isinstance(arguments["city"], str)
    calls, finish = {}, None
    for chunk in ask(messages=message, tool_choice="required", stream=True):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or []:
                name, pieces = calls.setdefault(delta.index, [delta.function.name, []])
                pieces.append(delta.function.arguments or "")
    show("streamed", list(calls.values()))
    required = ask(messages=message, tool_choice="required").choices[0].message
    whole = [(call.function.name, call.function.arguments) for call in required.tool_calls]
    assert [(name, "".join(pieces)) for name, pieces in calls.values()] == whole and finish == "tool_calls"
    one = ask(messages=message, tool_choice="required", parallel_tool_calls=False).choices[0].message
    assert len(one.tool_calls) == 1
    turn = required.model_dump(exclude_none=True)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"} for call in required.tool_calls]
    last = ask(messages=[*message, turn, *results], tool_choice="none")
    show("after the tool", last.choices[0].message.content)
    refused(openai.BadRequestError, lambda: ask(tool_choice={"type": "function", "function": {"name": "nobody"}}))


@part
def completions():
    """client.completions.create(): text, token ids, several prompts, echo, streams"""
    one = complete()
    show("text", one.choices[0].text)
    assert one.object == "text_completion" and "Paris" in one.choices[0].text
    ids = [client.post("/../tokenize", body={"model": MODEL, "prompt": "The capital of France is"}, cast_to=object)["tokens"]][0]
    show("token ids", ids)
    assert complete(ids).choices[0].text == one.choices[0].text
    several = complete(["The capital of France is", "1 2 3 4"])
    assert [c.index for c in several.choices] == [0, 1] and several.choices[0].text == one.choices[0].text
    assert several.usage.completion_tokens == 24
    echo = complete(echo=True)
    assert echo.choices[0].text == "The capital of France is" + one.choices[0].text
    text = "".join(chunk.choices[0].text for chunk in complete(stream=True))
    assert text == one.choices[0].text
    assert complete(max_tokens=openai.omit).usage.completion_tokens <= 16


@part
def extras():
    """vLLM's parameters through extra_body"""
    plain = complete(max_tokens=8)
    more = complete(max_tokens=8, extra_body={"top_k": 1, "temperature": 1, "return_token_ids": True})
    show("top_k=1", more.choices[0].text)
    assert more.choices[0].text == plain.choices[0].text, "one candidate is the best"
    assert len(more.choices[0].token_ids) == 8
    least = complete("Say: yes", max_tokens=20, extra_body={"min_tokens": 20, "ignore_eos": True})
    assert least.usage.completion_tokens == 20 and least.choices[0].finish_reason == "length"
    choice = complete(extra_body={"structured_outputs": {"choice": ["Paris", "Rome"]}}).choices[0]
    show("choice", choice.text)
    assert choice.text in ("Paris", "Rome") and choice.finish_reason == "stop"
    raw = client.completions.with_raw_response.create(model=MODEL, prompt="x", max_tokens=1, extra_body={"no_such_parameter": 1})
    show("x-ignored-parameters", raw.headers["x-ignored-parameters"])
    assert "no_such_parameter" in raw.headers["x-ignored-parameters"]


@part
def usual_extras():
    """fields that clients send and that change no answer"""
    answer = chat(
        user="someone", store=False, metadata={"a": "b"}, service_tier="auto", parallel_tool_calls=openai.omit,
        modalities=["text"], reasoning_effort="low", safety_identifier="x", prompt_cache_key="y", verbosity="low",
    )  # fmt: skip
    assert answer.choices[0].message.content == chat().choices[0].message.content


@part
def errors():
    """every class of error, and the server goes on"""
    refused(openai.BadRequestError, lambda: chat(temperature=-1))
    refused(openai.BadRequestError, lambda: chat(top_p=1.5))
    refused(openai.BadRequestError, lambda: chat(messages=[]))
    refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": 5}]))
    refused(openai.BadRequestError, lambda: complete("word " * 20000))
    refused(openai.BadRequestError, lambda: complete(logprobs=1000))
    refused(openai.BadRequestError, lambda: complete(logit_bias={"999999": 1}))
    refused(openai.BadRequestError, lambda: complete(extra_body={"max_tokens": "many"}))
    refused(openai.NotFoundError, lambda: chat(model="another"))
    refused(openai.NotFoundError, lambda: client.embeddings.create(model=MODEL, input="x"))
    assert chat().choices[0].message.content


@part
def cancels():
    """a stream that is closed early; the next request is served"""
    stream = chat(stream=True, max_tokens=500, extra_body={"ignore_eos": True})
    got = [next(iter(stream)) for _ in range(3)]
    stream.close()
    show("read before closing", len(got))
    assert chat().choices[0].message.content


@part
def many():
    """AsyncOpenAI: 16 at once, the same answers as one by one"""

    async def all_at_once(prompts):
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="any", max_retries=0, timeout=120) as many:
            ask = lambda p: many.completions.create(model=MODEL, prompt=p, max_tokens=8, temperature=0)
            return [a.choices[0].text for a in await asyncio.gather(*map(ask, prompts))]

    prompts = [f"{i} and {i + 1} make" for i in range(16)]
    start = time.monotonic()
    together = asyncio.run(all_at_once(prompts))
    between = time.monotonic()
    alone = [complete(p, max_tokens=8).choices[0].text for p in prompts]
    show("seconds", f"{between - start:.2f} together, {time.monotonic() - between:.2f} one by one")
    assert together == alone


failed = []
print(f"openai {openai.__version__} at {BASE}, model {MODEL}")
for function in parts:
    print(f"\n{function.__doc__}")
    try:
        function()
    except Exception:
        failed.append(function.__name__)
        print(textwrap.indent("FAILED: " + traceback.format_exc(), "  "))
print(f"\n{len(parts) - len(failed)} of {len(parts)} parts held" + (f"; not: {', '.join(failed)}" if failed else ""))
sys.exit(1 if failed else 0)
