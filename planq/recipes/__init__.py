"""Functions of other libraries that are several plans here, on both backends.

::

    recipe = planq.recipes.igemmlt(stream, shape=(m, k), weight_shape=(n, k))
    workspace = recipe.empty_workspace(torch, device="cuda")
    recipe.run(stream, workspace, input=a, weight=w, output=c)

A recipe is to its plans what a plan is to its kernel. :class:`Recipe` holds what is common to all.
"""

from planq.recipes._bitsandbytes import dequant_min_max, igemmlt, vectorwise_mm_dequant
from planq.recipes._recipe import Recipe, RecipeLaunch

__all__ = ["Recipe", "RecipeLaunch", "dequant_min_max", "igemmlt", "vectorwise_mm_dequant"]
