// The enumerations of descriptors of the kv_cache family; see core/vocabulary.h.
#pragma once

#include "core/vocabulary.h"

namespace planq {

// clang-format off
#define PLANQ_CACHE_LAYOUT_NAMES(_) _(Nhd, "nhd") _(Hnd, "hnd")
// Unset: a cache of floats has no scales; one of codes has one for each tensor. Token: measured.
#define PLANQ_CACHE_SCALE_NAMES(_) \
  _(Unset, "") _(Tensor, "tensor") _(Head, "head") _(Token, "token")
PLANQ_DEFINE(CacheLayout, PLANQ_CACHE_LAYOUT_NAMES)
PLANQ_DEFINE(CacheScale, PLANQ_CACHE_SCALE_NAMES)
// clang-format on

}  // namespace planq
