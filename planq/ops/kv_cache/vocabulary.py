"""The enumerations of descriptors of the kv_cache family."""

from planq.dtypes import Vocabulary


class CacheLayout(Vocabulary):
    """The order of the axes of a page.

    ``NHD``: places, heads, columns. ``HND``: heads, places, columns.
    """

    NHD = "nhd"
    HND = "hnd"


class CacheScale(Vocabulary):
    """Which codes of a cache share a scale.

    ``TENSOR``: all keys have one, and all values. ``HEAD``: those of a head. ``TOKEN``: those of a
    head of one token, measured when they are written.
    """

    TENSOR = "tensor"
    HEAD = "head"
    TOKEN = "token"
