// Groups on the host: elements to codes and parameters, and back.
#pragma once

#include "core/operands.h"
#include "ops/group/fake.h"
#include "ops/group/group.h"

namespace planq::host {

// What is done to consecutive elements of a group, for the instruction set of this processor.
struct GroupLoops {
  void (*widen)(const void* from, std::int64_t count, float* to);
  void (*narrow)(const float* from, std::int64_t count, void* to);
  void (*extend_range)(const float* x, std::int64_t count, math::GroupRange& range);
  void (*encode)(const float* x, std::int64_t count, const math::GroupSpec& spec,
                 const math::GroupScale& scale, std::uint8_t* codes);
  void (*decode)(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
                 const math::GroupPair& stored, float* y);
  // In place; to nearest where there are no random numbers.
  void (*fake)(float* x, const float* uniforms, std::int64_t count, const math::FakeSpec& spec,
               const math::FakeScale& scale);
};
template <class T>
const GroupLoops& group_loops();

// What is done to the codes of one rank after another, and to errors, in float32 or as float16.
struct SumLoops {
  void (*accumulate)(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
                     const math::GroupPair& stored, float* sums);
  void (*divide)(float* sums, std::int64_t count, float ranks);
  void (*add_errors)(const float* errors, std::int64_t count, float* x);
  // `codes` are those of `wanted`.
  void (*keep_errors)(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
                      const math::GroupPair& stored, const math::ErrorShares& shares,
                      const float* wanted, float* errors);
};

template <class T>
void encode_groups(const GroupEncoding& encoding, const OperandView& input,
                   const OperandView& output, const GroupMemory<T>& parameters, int threads);
template <class T>
void decode_groups(const Grouping& grouping, const OperandView& input, const OperandView& output,
                   const GroupMemory<T>& parameters, int threads);

// The sum over ranks, or its mean: as codes and parameters of `output_groups`, or as elements.
// `half`: sums are float16.
void requantize_sums(const Grouping& input_groups, const RankedCodes& ranked, bool half,
                     const Grouping& output_groups, const OperandView& output,
                     const GroupMemory<float>& parameters, const GroupFeedback& feedback,
                     int threads);
template <class T>
void write_sums(const Grouping& input_groups, const RankedCodes& ranked, bool half,
                const OperandView& output, int threads);

// What random numbers are made of.
struct FakeDraws {
  std::uint64_t seed = 0, offset = 0;
};
// Values of codes in the place of elements; `draws`: null where codes are the nearest ones.
template <class T>
void fake_groups(const Shape& shape, std::int64_t group_size, const math::FakeSpec& spec,
                 const FakeDraws* draws, const OperandView& input, const OperandView& output,
                 int threads);

}  // namespace planq::host
