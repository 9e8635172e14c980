"""examples/decode_layer.py on a GPU: its digests are those of the host, in any batch."""

from __future__ import annotations

import re

import pytest

import decode_layer

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("more", [[], ["--fused"]])
@pytest.mark.parametrize("tokens", [1, 16, 33])
def test_a_layer_has_one_digest_on_both_devices(
    tokens: int, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert decode_layer.main(["--small", "--tokens", str(tokens), *more]) == 0
    told = capsys.readouterr().out
    digests = re.findall(rf"^(cpu|cuda), {tokens} tokens: (\w{{64}})$", told, re.MULTILINE)
    assert [device for device, _ in digests] == ["cpu", "cuda"]
    assert len({digest for _, digest in digests}) == 1
