"""``planq run``: a text by a model in a GGUF file, with one digest on every machine."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import codecs
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from planq.checkpoint.gguf_files import GgufFiles, read_gguf
from planq.cli.failure import EXIT_OK, CommandError
from planq.cli.tables import progress_bar
from planq.cli.words import printable
from planq.networks import Machine, machine_of
from planq.networks.gemma3 import GREEDY, Gemma3, Limits, Sampling, Sizes, Text
from planq.networks.tokenizer import Tokenizer

# What a terminal does with these is what a text means by them.
_LAYOUT = "\n\t"


@dataclass
class _Told:
    """What ``--json`` prints.

    Attributes:
        sampling: How its tokens were chosen.
        prompt_seconds: Until the first token that was made.
        text_seconds: For those after it.
        digest: Of the logits; None if nobody asked.
    """

    model: str
    device: str
    prompt: str
    prompt_tokens: int
    sampling: dict[str, Any]
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    prompt_seconds: float = 0
    text_seconds: float = 0
    digest: str | None = None


def run_model(
    model: Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="Gemma 3, in a GGUF file.")],
    prompt: Annotated[str, typer.Argument(help="What to continue.")],
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where it runs; the bits are the same.")
    ] = "host",
    tokens: Annotated[int, typer.Option(min=1, help="How many are made at most.")] = 64,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of the host; all if left out. The bits stay.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Draw tokens by it; 0 takes the likeliest one each time.")
    ] = 0.0,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from so many of the likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the fewest tokens with so much probability.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Draw from tokens with so much of the likeliest one's probability."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random numbers; 0 if left out.")] = None,
    digest: Annotated[
        bool, typer.Option("--digest", help="Print SHA-256 of the logits that chose the tokens.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Continue a text by a model up to a token that ends it.

    The likeliest token is taken each time, or with --temperature one is drawn. The model is
    multiplied as it is in the file. Tokens and digest are the same on a host and on a GPU, with any
    number of threads.
    """
    filters = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    sampling = _sampling(temperature, {k: v for k, v in filters.items() if v is not None})
    machine = machine_of(device, threads)
    with read_gguf(model) as files:
        tokenizer = Tokenizer(files.metadata)
        ids = tokenizer.encode(prompt)
        network = _loaded(files, machine, len(ids), tokens)
    network.prepare(len(ids), sampled=not sampling.is_greedy)
    text = network.text(len(ids) + tokens, digested=digest, sampling=sampling)
    told = _Told(str(model), machine.name, prompt, len(ids), sampling=asdict(sampling))
    for piece in _written(network, tokenizer, text, ids, told):
        if not as_json:
            print(piece, end="", flush=True)
    if as_json:
        print(json.dumps(asdict(told), indent=2))
    else:
        _show(told)
    return EXIT_OK


def _sampling(temperature: float, others: dict[str, Any]) -> Sampling:
    """The settings of the text. Others than the temperature need one."""
    if temperature == 0 and others:
        name = next(iter(others)).replace("_", "-")
        raise CommandError(f"--{name}: expected with --temperature above 0, got without it")
    return replace(GREEDY, temperature=temperature, **others)


def _loaded(files: GgufFiles, machine: Machine, prompt: int, tokens: int) -> Gemma3:
    """The network, with room for one text."""
    most = Sizes.of(files).context
    if prompt + tokens > most:
        told = f"expected at most {max(0, most - tokens)} tokens beside {tokens} that are made"
        raise CommandError(f"the prompt: {told}, as the model takes {most}; got {prompt}")
    limits = Limits(texts=1, asked=1, context=prompt + tokens)
    with progress_bar(files.path) as progress:
        return Gemma3(files, machine, limits, progress)


def _written(
    network: Gemma3, tokenizer: Tokenizer, text: Text, ids: list[int], told: _Told
) -> Iterator[str]:
    """Pieces of the text, the prompt first, as a terminal may have them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield _shown(tokenizer.decode(ids))
    times = [time.perf_counter()]
    for token in network.continued(text, ids, text.most - len(ids), tokenizer.ends):
        # The time that digests take is no part of a speed.
        times.append(time.perf_counter() - network.digesting)
        told.tokens.append(token)
        piece = decoder.decode(tokenizer.bytes_of([token]))
        told.text += piece
        yield _shown(piece)
    told.text += (rest := decoder.decode(b"", final=True))
    yield _shown(rest)
    told.prompt_seconds, told.text_seconds = times[1] - times[0], times[-1] - times[1]
    told.digest = text.digest() if text.is_digested else None


def _shown(text: str) -> str:
    return "".join(letter if letter in _LAYOUT else printable(letter) for letter in text)


def _show(told: _Told) -> None:
    """Prints how fast it was, and the digest."""
    print("\n")
    parts = [("prompt", told.prompt_tokens, told.prompt_seconds)]
    if len(told.tokens) > 1:
        parts.append(("text", len(told.tokens) - 1, told.text_seconds))
    for name, count, seconds in parts:
        rate = count / max(seconds, 1e-9)
        print(f"{name}: {count} tokens in {seconds:.3f} s, {rate:.1f} tokens a second")
    if told.digest is not None:
        print(f"digest: {told.digest}")
