"""`planq.COO`, `planq.CSR` and `planq.CSC`: containers of tensors."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import planq


def test_a_list_goes_through_all_three() -> None:
    """From one operator to the next, without a look at the number of entries."""
    shape, room = (3, 4), 5
    x = np.zeros(shape, np.float32)
    x[0, 3], x[2, 0], x[2, 3] = 7, 8, -9
    desc = planq.DoubleQuantizeDescriptor(
        shape=shape, input_dtype="float32", threshold=6.0, capacity=room
    )
    plan = planq.Plan.select(planq.HOST, desc)
    outputs = plan.empty_outputs(np)
    memory = np.empty(plan.workspace_size() + planq.WORKSPACE_ALIGNMENT, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % planq.WORKSPACE_ALIGNMENT
    args = planq.DoubleQuantizeArgs(input=x, **outputs)
    plan.run(planq.HOST, (start, plan.workspace_size()), args)
    names = ("row_index", "column_index", "value", "count")
    coo = planq.COO(shape=shape, **{name: outputs[name] for name in names})

    pointer = np.empty(4, np.int32)
    to_csr = planq.Plan.select(planq.HOST, planq.CooToCsrDescriptor(shape=shape, capacity=room))
    to_csr.run(
        planq.HOST,
        None,
        planq.CooToCsrArgs(row_index=coo.row_index, count=coo.count, pointer=pointer),
    )
    csr = planq.CSR(
        shape=coo.shape, pointer=pointer, column_index=coo.column_index, value=coo.value
    )
    assert pointer.tolist() == [0, 1, 1, 3]
    assert csr.value is coo.value

    desc_csc = planq.CooToCscDescriptor(shape=shape, capacity=room, value_dtype="float32")
    plan = planq.Plan.select(planq.HOST, desc_csc)
    made = plan.empty_outputs(np)
    given = {name: getattr(coo, name) for name in names}
    plan.run(planq.HOST, None, planq.CooToCscArgs(**given, **made))
    csc = planq.CSC(
        shape=coo.shape,
        pointer=made["pointer"],
        row_index=made["output_row_index"],
        value=made["output_value"],
    )
    assert np.asarray(csc.pointer).tolist() == [0, 1, 1, 1, 3]
    assert np.asarray(csc.row_index).tolist() == [2, 0, 2, -1, -1]
    assert np.asarray(csc.value).tolist() == [8, 7, -9, 0, 0]


@pytest.mark.parametrize("container", [planq.COO, planq.CSR, planq.CSC])
def test_containers_are_frozen_and_keep_what_they_are_given(container: type) -> None:
    """Nothing is converted or looked at; two are equal where they are one."""
    held = {field.name: object() for field in fields(container)}
    made = container(**held)
    for name, value in held.items():
        assert getattr(made, name) is value
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, None)
    assert made != container(**held)
    assert made == made
