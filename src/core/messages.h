// Sentences of errors that Python and C have in common, and the questions behind them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/api.h"
#include "core/operands.h"
#include "core/plan.h"

namespace planq {

// Of a workspace that workspace_problem() has something against.
std::string workspace_text(std::size_t needed, std::size_t got, std::string_view problem)
    PLANQ_API(workspace_text);

// Of an operand that the descriptor rules out.
ArgumentFailure ruled_out(const Plan& plan, int index, std::string actual) PLANQ_API(ruled_out);
inline constexpr const char* kTooManyAxes = "it has more than 8 axes";
static_assert(kMaxRank == 8);

// Whether a host stream can have so many threads, and what is said where it cannot.
constexpr bool are_threads(std::int64_t count) { return count >= 1 && count <= 1024; }
std::string threads_text(std::string_view given) PLANQ_API(threads_text);

// Whether a stream is one of the device that a plan was selected for.
inline bool is_of(const Plan& plan, const Stream& stream) {
  return stream.backend == plan.device.backend &&
         (stream.backend == Backend::Host || stream.device == plan.device.index);
}
std::string stream_text(const Plan& plan, const Stream& stream) PLANQ_API(stream_text);
// Of a foreseen plan, which runs on no stream.
std::string foreseen_text(const Plan& plan);

// Whether an extent is one that a dim can have.
Fault check_extent(const DimInfo& dim, std::int64_t extent) PLANQ_API(check_extent);

// The device of a name: "host", "sm_90", which need not be present, or "cuda:0", which has to be.
// False: it is none of them, and what is said then.
bool named_device(const std::string& name, Device& device) PLANQ_API(named_device);
inline constexpr const char* kNamesOfDevices =
    "expected host, an architecture as sm_N or a CUDA device as cuda:N";

// The device of a stream. What was being done where this fails, and where make_plan() does.
Status device_of(const Stream& stream, Device& device) PLANQ_API(device_of);
inline constexpr const char* kReadingDevice = "reading the device of the stream";
inline constexpr const char* kPreparing = "preparing a kernel";

}  // namespace planq
