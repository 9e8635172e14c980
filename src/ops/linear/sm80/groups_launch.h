// What sm80/groups.cu calls of the files that have the kernels of sm80/groups_tiles.cuh, one for
// each type of numbers.
#pragma once

#include "core/bound.h"
#include "core/registry.h"

namespace planq::linear {

struct GroupArgs;

namespace groups80 {

Status preload_f16();
Status preload_bf16();
Status launch_f16(const GroupArgs& args, const Device& device, Bound& bound);
Status launch_bf16(const GroupArgs& args, const Device& device, Bound& bound);

}  // namespace groups80
}  // namespace planq::linear
