"""What Python's official clients ask through the gateway, and what has to come back."""

from concurrent.futures import ThreadPoolExecutor

import anthropic
import ollama
import openai

QUESTION = [{"role": "user", "content": "Count from one to five."}]
FEW = 12


def tests(base, model):
    """Name and test of each."""
    native = ollama.Client(host=base)
    compatible = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
    messages = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)
    few = {"num_predict": FEW}

    def lists():
        assert model in [one.model for one in native.list().models]
        assert native.show(model).details.family
        assert compatible.models.retrieve(model).id == model

    def chats():
        answer = native.chat(model, QUESTION, options=few)
        assert answer.done and answer.message.content and answer.eval_count, answer
        assert native.generate(model, "Count.", options=few).response
        assert model in [one.model for one in native.ps().models]

    def streams():
        pieces = list(native.chat(model, QUESTION, options=few, stream=True))
        assert len(pieces) > 1 and pieces[-1].done, pieces
        assert "".join(piece.message.content for piece in pieces)

    def misses():
        for ask in (lambda: native.chat("no-such-model", QUESTION), lambda: native.generate("no-such-model", "x")):
            error = raised(ollama.ResponseError, ask)
            assert error.status_code == 404 and "no-such-model" in error.error, error

    def wait_in_turn():
        with ThreadPoolExecutor(8) as pool:
            all_of_them = pool.map(lambda _: native.chat(model, QUESTION, options=few), range(8))
            assert all(answer.done for answer in all_of_them)

    def completes():
        raw = compatible.chat.completions.with_raw_response.create(model=model, messages=QUESTION, max_tokens=FEW)
        assert raw.headers["x-stablehand-lane"] == "agent", raw.headers
        answer = raw.parse()
        assert answer.choices[0].message.content and answer.usage.completion_tokens, answer
        assert compatible.completions.create(model=model, prompt="One, two,", max_tokens=FEW).choices[0].text

    def completes_in_pieces():
        usage = {"include_usage": True}
        stream = compatible.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=FEW, stream=True, stream_options=usage
        )
        chunks = list(stream)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert chunks[-1].usage.completion_tokens, chunks[-1]

    def completes_nothing():
        ask = lambda: compatible.chat.completions.create(model="no-such-model", messages=QUESTION)
        assert "no-such-model" in str(raised(openai.NotFoundError, ask))
        raised(openai.BadRequestError, lambda: compatible.chat.completions.create(model="", messages=QUESTION))

    def says():
        answer = messages.messages.create(model=model, max_tokens=FEW, messages=QUESTION)
        assert answer.content[0].text and answer.usage.output_tokens and answer.stop_reason, answer

    def says_in_pieces():
        with messages.messages.stream(model=model, max_tokens=FEW, messages=QUESTION) as stream:
            assert "".join(stream.text_stream)
            assert stream.get_final_message().usage.output_tokens

    def says_nothing():
        ask = lambda: messages.messages.create(model="no-such-model", max_tokens=FEW, messages=QUESTION)
        assert "no-such-model" in str(raised(anthropic.NotFoundError, ask))

    return [
        ("ollama: list, show", lists),
        ("ollama: chat, generate, ps", chats),
        ("ollama: a stream", streams),
        ("ollama: a model that is not there", misses),
        ("ollama: eight at once", wait_in_turn),
        ("openai: completions", completes),
        ("openai: a stream", completes_in_pieces),
        ("openai: a model that is not there", completes_nothing),
        ("anthropic: messages", says),
        ("anthropic: a stream", says_in_pieces),
        ("anthropic: a model that is not there", says_nothing),
    ]


def raised(kind, ask):
    """The error of this kind that comes of asking."""
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer}")
