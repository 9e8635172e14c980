"""Fails unless the audit refutes every wrong kernel of this folder: `make faults`.

The build has to have them. A wrong kernel is a body of a real SKU. It is right but for one fault,
and the claim that is about this fault has to be refuted. The right kernels beside it have to keep
every claim.
"""

from __future__ import annotations

import sys

import planq
from planq.audit import sections
from planq.audit.claims import CLAIMS
from planq.audit.kernels import kernels
from planq.audit.operators import name_of

MARK = "wrong_"
# Of each fault, the claim that is about it.
FAULTS = {
    "wrong_bit_by_alignment": "misaligned",
    "wrong_contracted_fma": "reference",
    "wrong_default_stream": "stream order",
    "wrong_float_atomic": "reference",
    "wrong_flush_to_zero": "reference",
    "wrong_half_up": "reference",
    "wrong_nan_dropped": "reference",
    "wrong_past_tail": "reference",
    "wrong_philox_repeats": "reference",
    "wrong_slices_backwards": "reference",
    "wrong_split_by_batch": "rows alone",
    "wrong_tree_by_workers": "reference",
    "wrong_unwritten_byte": "reference",
    "wrong_unwritten_count": "reference",
}
OF_GPUS = {"wrong_default_stream"}


def refuted(device: str, operator: str, kernel: planq.KernelInfo) -> dict[str, str]:
    """The claims that a kernel does not keep, with what differs; all cases of a wrong one."""
    most = None if kernel.body.startswith(MARK) else sections.QUICK
    place = sections.place(device)
    found = [sections.hold(claim, place, operator, kernel, most) for claim in CLAIMS]
    return {each.claim: each.note for each in found if each.state == sections.REFUTED}


def main(device: str) -> int:
    """Prints what became of each fault; 0 if all are refuted, and nothing else is."""
    backend = planq.Backend.HOST if device == "host" else planq.Backend.CUDA
    built = list(kernels(backend))
    operators = {operator for operator, kernel in built if kernel.body.startswith(MARK)}
    missing = set(FAULTS) - {kernel.body for _, kernel in built}
    wrong = [f"{name}: not in this build" for name in sorted(missing) if needed(name, device)]
    for operator, kernel in built:
        if operator not in operators:
            continue
        found = refuted(device, operator, kernel)
        if kernel.body.startswith(MARK):
            claim = FAULTS[kernel.body]
            say(f"{device} {name_of(kernel)}: refuted by {', '.join(found) or 'nothing'}")
            if claim not in found:
                wrong.append(f"{name_of(kernel)}: {claim} is not refuted")
        else:
            wrong += [f"{name_of(kernel)}: {claim}: {note}" for claim, note in found.items()]
    say("\n".join(wrong) or f"{device}: every fault is refuted, and no right kernel is")
    return 1 if wrong else 0


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(f"{line}\n")


def needed(name: str, device: str) -> bool:
    """Whether a fault is one of the device's."""
    return device != "host" or name not in OF_GPUS


if __name__ == "__main__":
    sys.exit(max([main(device) for device in sys.argv[1:] or ["host"]]))
