#include "ops/group/group_host.h"

#include <algorithm>

#include "host/simd.h"
#include "host/thread_pool.h"
#include "ops/codebook/flat.h"

#define PLANQ_LOOPS "ops/group/group_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

// Elements that are worked on at a time, an even number, and that are worth waking a thread for.
constexpr std::int64_t kStage = 1024, kGrain = 1 << 14;

// Codes of a flat tensor, two in a byte or as the tensor lies. Writers share no byte.
class FlatCodes {
 public:
  FlatCodes(const Grouping& grouping, const OperandView& view)
      : data_(static_cast<std::uint8_t*>(view.data)),
        nibbles_(grouping.is_four_bit()),
        is_signed_(!grouping.is_intx()),
        spans_(nibbles_ ? FlatSpans(Shape{1, {0}}, OperandView{})
                        : FlatSpans(grouping.shape, view)) {}

  // In the order of their numbers: the first code of a byte clears the other one's place.
  void write(std::int64_t first, std::int64_t count, const std::uint8_t* codes) const {
    if (!nibbles_) {
      spans_.each_span(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t n) {
        std::copy_n(codes + done, n, data_ + offset);
      });
      return;
    }
    std::int64_t i = 0;
    if (first % 2 != 0) data_[first / 2] |= codes[i++] & 15;
    for (; i + 2 <= count; i += 2)
      data_[(first + i) / 2] = static_cast<std::uint8_t>(codes[i] << 4 | (codes[i + 1] & 15));
    if (i < count) data_[(first + i) / 2] = static_cast<std::uint8_t>(codes[i] << 4);
  }

  // A byte each, signed ones of 4 bits extended.
  const std::uint8_t* read(std::int64_t first, std::int64_t count, std::uint8_t* stage) const {
    if (!nibbles_) return spans_.gathered(data_, first, count, stage);
    const int sign = is_signed_ ? 8 : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t pair = data_[(first + i) / 2];
      const int code = (first + i) % 2 == 0 ? pair >> 4 : pair & 15;
      stage[i] = static_cast<std::uint8_t>((code ^ sign) - sign);
    }
    return stage;
  }

 private:
  std::uint8_t* data_;
  bool nibbles_, is_signed_;
  FlatSpans spans_;
};

// One thread's way from elements to codes.
template <class T>
class Encoder {
 public:
  Encoder(const FlatSpans& elements, const T* data, const FlatCodes& codes,
          const Grouping& grouping)
      : loops_(group_loops<T>()),
        elements_(elements),
        data_(data),
        codes_(codes),
        grouping_(grouping) {}

  void encode(std::int64_t group, const GroupMemory<T>& parameters, bool measured) {
    const auto [first, last] = block_span(group, grouping_.size, grouping_.elements);
    const math::GroupSpec& spec = grouping_.spec;
    math::GroupScale scale;
    if (measured) {
      math::GroupRange range;
      each_stage(first, last, [&](std::int64_t at, std::int64_t count) {
        loops_.extend_range(loaded(at, count), count, range);
      });
      scale = math::measured_scale<T>(spec, range);
      parameters.store(spec.form, group, scale);
    } else {
      scale = math::given_scale(spec, parameters.load(spec.form, group));
    }
    each_stage(first, last, [&](std::int64_t at, std::int64_t count) {
      loops_.encode(loaded(at, count), count, spec, scale, bytes_);
      codes_.write(at, count, bytes_);
    });
  }

 private:
  template <class Visit>
  static void each_stage(std::int64_t first, std::int64_t last, const Visit& visit) {
    for (std::int64_t at = first; at < last; at += kStage) visit(at, std::min(kStage, last - at));
  }
  // Short groups are measured and encoded from one load.
  const float* loaded(std::int64_t at, std::int64_t count) {
    if (at_ == at) return values_;
    loops_.widen(elements_.gathered(data_, at, count, gathered_), count, values_);
    at_ = at;
    return values_;
  }

  const GroupLoops& loops_;
  const FlatSpans& elements_;
  const T* data_;
  const FlatCodes& codes_;
  const Grouping& grouping_;
  std::int64_t at_ = -1;
  T gathered_[kStage];
  float values_[kStage];
  std::uint8_t bytes_[kStage];
};

}  // namespace

template <class T>
const GroupLoops& group_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kLoops<T>;
  if (level == Level::Avx2) return avx2::kLoops<T>;
#endif
  return baseline::kLoops<T>;
}

template <class T>
void encode_groups(const Grouping& grouping, const OperandView& input, const OperandView& output,
                   const GroupMemory<T>& parameters, bool measured, int threads) {
  const FlatSpans elements(grouping.shape, input);
  const FlatCodes codes(grouping, output);
  const auto* data = static_cast<const T*>(input.data);
  const std::int64_t per_unit = grouping.groups_of_unit();
  const std::int64_t grain = std::max<std::int64_t>(kGrain / grouping.size, 1);
  parallel_for(threads, grouping.units(), grain, [&](std::int64_t first, std::int64_t last) {
    Encoder<T> encoder(elements, data, codes, grouping);
    const std::int64_t end = std::min(last * per_unit, grouping.groups);
    for (std::int64_t group = first * per_unit; group < end; ++group)
      encoder.encode(group, parameters, measured);
  });
}

template <class T>
void decode_groups(const Grouping& grouping, const OperandView& input, const OperandView& output,
                   const GroupMemory<T>& parameters, int threads) {
  const GroupLoops& loops = group_loops<T>();
  const FlatSpans elements(grouping.shape, output);
  const FlatCodes codes(grouping, input);
  auto* data = static_cast<T*>(output.data);
  parallel_for(threads, grouping.elements, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::uint8_t bytes[kStage];
    float values[kStage];
    T narrowed[kStage];
    while (first < last) {
      const std::int64_t group = first / grouping.size;
      const std::int64_t rest = block_span(group, grouping.size, last).last - first;
      const std::int64_t count = std::min(rest, kStage);
      loops.decode(codes.read(first, count, bytes), count, grouping.spec.form,
                   parameters.load(grouping.spec.form, group), values);
      loops.narrow(values, count, narrowed);
      elements.each_span(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t n) {
        std::copy_n(narrowed + done, n, data + offset);
      });
      first += count;
    }
  });
}

#define PLANQ_GROUPS(T)                                                                \
  template const GroupLoops& group_loops<T>();                                         \
  template void encode_groups(const Grouping&, const OperandView&, const OperandView&, \
                              const GroupMemory<T>&, bool, int);                       \
  template void decode_groups(const Grouping&, const OperandView&, const OperandView&, \
                              const GroupMemory<T>&, int)
PLANQ_GROUPS(math::Half);
PLANQ_GROUPS(math::Bfloat16);
PLANQ_GROUPS(float);

}  // namespace planq::host
